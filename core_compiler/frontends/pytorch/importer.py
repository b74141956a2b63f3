"""Translation of an ``ExportedProgram`` to a module.

It exports live modules, functionalises writes, and reports all unsupported ops together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from core_compiler.frontends.base import Imported, Unsupported, read_sources, unsupported_ops_error
from core_compiler.frontends.pytorch.aliasing import functionalise
from core_compiler.frontends.pytorch.decompositions import decompose
from core_compiler.frontends.pytorch.exporting import export_module
from core_compiler.frontends.pytorch.nodes import (
    not_at_infinity,
    open_ties,
    result_positions,
    run_nodes,
)
from core_compiler.frontends.pytorch.origins import describe, is_library
from core_compiler.frontends.pytorch.own_gradients import refuse_hooks, reject_custom_gradients
from core_compiler.frontends.pytorch.state_dict import refuse_shared, stored, tied
from core_compiler.frontends.pytorch.symbols import Symbols
from core_compiler.frontends.pytorch.transforms import refuse_without_values
from core_compiler.frontends.pytorch.walker import Walker
from core_compiler.frontends.pytorch.without_grad import detach_no_grad_inputs
from core_compiler.frontends.random_numbers import Draws
from core_compiler.frontends.run_time_sizes import with_counts
from core_compiler.ir import Module, WeightStore
from core_compiler.ir.framework import Nodes
from core_compiler.ops.positions import positions
from core_compiler.support.errors import UserError


def import_module(
    module, inputs: Sequence, *, name: str = "model", training: bool = False
) -> Imported:
    """Export a live ``nn.Module`` on example ``inputs`` (tensors, in order) and import it.

    The module's mode (training or not) is kept; ``training`` is that of :func:`import_exported`.
    """
    if training:
        refuse_hooks(module, name)
    program = export_module(module, inputs, name, training)
    if training:
        refuse_shared({**program.state_dict, **program.constants}, name, one=False)
    return import_exported(program, name=name, training=training)


def import_exported(
    program,
    *,
    name: str = "model",
    sizes: Mapping[str, int] | None = None,
    read_files: bool = True,
    training: bool = False,
    earlier: WeightStore | None = None,
) -> Imported:
    """Import a ``torch.export.ExportedProgram``; raise UserError with all unsupported ops.

    Weights are not copied: the module reads the model's own memory, and can no longer be used once
    torch has written to it.

    ``sizes`` binds symbolic dimensions (by the program's names for them, ``s77``); the others take
    the example inputs' sizes.  ``facts["bound"]`` holds for each its ``size`` and the range ``low``
    to ``high`` (-1: unbounded) that the program allows.  ``read_files`` off: do not read the source
    files that the program names (for untrusted programs).  ``training``: random ops draw from a
    seed and an iteration, which are state of the model, and the points at which the model stops
    gradients are kept.  ``earlier``: the store of an import of the same program, whose hashes of
    weights that are still the same are taken over.
    """
    import torch

    if training:
        detach_no_grad_inputs(program, name)
    refuse_without_values(program, name)
    program = functionalise(program, training)
    if training:
        _refuse_mutation(program, name)
        refuse_shared({**program.state_dict, **program.constants}, name)
    draws = Draws.of_training() if training else Draws()
    symbols = Symbols.of(program, sizes or {}, name, draws)
    walker = _walk(program, symbols, name, earlier, training)
    if training:
        walker.ops += walker.state.count_iterations(draws)
    after = walker.state.results()
    own = [*walker.outputs, *walker.written.values()]
    own_names = [*walker.output_names, *(f"{name} (after)" for name in walker.written)]
    names, outputs, places = with_counts(
        [*own_names, *after], [*own, *after.values()], walker.sizes
    )
    main = walker.state.function(walker.arguments, walker.ops, outputs, len(own))
    constants, unread = stored(
        program.state_dict if training else {}, walker.stored, walker.state.names
    )
    checked = positions(main, len(walker.arguments), walker.accesses, walker.sizes.of)
    nodes = dict.fromkeys(
        n for op in main.body.ops if op.origin is not None for n in op.origin.nodes()
    )
    files = [frame[0] for n in nodes for frame in n.stack if not is_library(frame[0])]
    return Imported(
        Module({"main": main}, walker.weights),
        tuple(v.name or f"input{i}" for i, v in enumerate(main.arguments)),
        tuple(names),
        read_sources(files) if read_files else {},
        {
            "frontend": "pytorch",
            "torch": torch.__version__,
            "bound": symbols.facts(),
            "run_time_sizes": places,
            "state": len(after),
            "written": [[v.name for v in walker.arguments].index(n) for n in walker.written],
            "tied": tied(program.state_dict),
            # Parameters in the order of torch's optimisers, and all of their names; of the state,
            # the entries that a state dict omits.
            "parameters": list(program.graph_signature.parameters) if training else [],
            "stood_in": [_describe(item) for item in walker.replaced_translations],
            "transient": sorted(n for n in walker.state.names if n in program.constants),
        },
        walker.state.arrays,
        Nodes(
            "torch",
            walker.nodes,
            partial(run_nodes, walker.program, result_positions(walker.program, names)),
            walker.sizes.axes(),
            open_ties=open_ties(walker.program),
            declared=True,
            parts=walker.parts,
            not_at_infinity=not_at_infinity(walker.program),
        ),
        constants,
        unread,
        checked,
    )


#: The maximum number of decomposition rounds; each may reveal further unsupported ops.
MAX_ROUNDS = 4


def _walk(
    program, symbols: Symbols, name: str, store: WeightStore | None, training: bool
) -> Walker:
    """Return a walker that has translated every op, decomposed by torch if necessary."""
    rejected: set[str] = set()
    first: list[Unsupported] = []
    wrong: list[Unsupported] = []
    for _ in range(MAX_ROUNDS):
        store = WeightStore(store)
        walker = Walker(program, store, symbols)
        walker.walk()
        found = {item.kind for item in walker.unsupported}
        wrong += [item for item in walker.unsupported if item.wrong]
        if not found:
            walker.replaced_translations += wrong
            return walker
        first = first or walker.unsupported
        decomposed_program = None
        if not walker.rejects_intentionally and not found <= rejected:
            with reject_custom_gradients() if training else nullcontext():
                decomposed_program = decompose(program, rejected | found)
        rejected |= found
        if decomposed_program is None:
            break
        program = decomposed_program
    raise unsupported_ops_error(_as_model_ops(walker.unsupported, first), name)


def _describe(item: Unsupported) -> dict[str, str]:
    node = item.node
    line = f"{node.file}:{node.line}" if node.file else ""
    return {"op": item.kind, "node": node.name, "line": line, "reason": item.reason}


def _as_model_ops(
    remaining: Sequence[Unsupported], first: Sequence[Unsupported]
) -> list[Unsupported]:
    """Return the ops still unsupported after decomposing, as ops of the model on the same line."""

    def place(item: Unsupported):
        return item.node.file, item.node.line, item.node.scope

    by_place: dict[Any, list[Unsupported]] = {}
    for item in first:
        by_place.setdefault(place(item), []).append(item)
    found = [item for gap in remaining for item in by_place.get(place(gap), [gap])]
    return list({id(item): item for item in found}.values())


#: Outputs that a training step cannot write, by the name of their kind.
_MUTATION_KINDS = {"PARAMETER_MUTATION": "parameter", "USER_INPUT_MUTATION": "input"}


def _refuse_mutation(program, name: str) -> None:
    """Raise UserError if a program in training changes its parameters or inputs.

    The optimiser updates the parameters, and the inputs are a batch.
    """
    ends = next(node for node in program.graph.nodes if node.op == "output").args[0]
    changed = [
        (f"{_MUTATION_KINDS[spec.kind.name]} {spec.target}", describe(made))
        for spec, made in zip(program.graph_signature.output_specs, ends, strict=True)
        if spec.kind.name in _MUTATION_KINDS
    ]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        place = next((write for _, write in changed if write.file), None)
        raise UserError(
            f"the model writes into {', '.join(what for what, _ in changed[:3])}{more}, which a "
            "training step does not support",
            name if place is None else f"{place.file}:{place.line}",
            "compute a new tensor, or make it a buffer",
        )
