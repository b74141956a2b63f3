"""Execution of a torch program by torch itself, node by node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import zip_longest
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.frontends.pytorch.signs import with_signs
from core_compiler.frontends.pytorch.tensors import to_numpy
from core_compiler.ir.framework import NodeCallback, StandIns
from core_compiler.support.arrays import to_torch

#: Ops whose result depends on the bits of one dtype: it would differ in f64.
_BITS = frozenset({"aten.view.dtype", "aten.nextafter.default", "aten.nan_to_num.default"})
#: Ops whose results are uninitialised memory.
_UNINITIALISED = ("aten.empty", "aten.new_empty")
#: Ops for which torch may select any of several equal elements.
_OPEN_TIES = frozenset(
    {
        "aten.topk",
        "aten.sort",
        "aten.argsort",
        "aten.kthvalue",
        "aten.median",
        "aten.nanmedian",
        "aten.mode",
    }
)


def open_ties(program) -> frozenset[str]:
    """Return the nodes of an ``ExportedProgram`` that may select any of several equal elements.

    These are ops such as sorts that are not stable.
    """
    return frozenset(
        node.name
        for node in program.graph.nodes
        if str(node.target).rsplit(".", 1)[0] in _OPEN_TIES and not node.kwargs.get("stable")
    )


def not_at_infinity(program) -> frozenset[str]:
    """Return the nodes of an ``ExportedProgram`` whose kernels may give NaN for an infinity.

    oneDNN's GELU is one.
    """
    return frozenset(n.name for n in program.graph.nodes if str(n.target) == "aten.gelu.default")


def result_positions(program, names: Sequence[str]) -> list[int | None]:
    """Return the index of main's result for each output of an ``ExportedProgram``'s graph.

    ``names`` are those of all results; the model's own come first, in order.  The index is None for
    an output that is uninitialised memory.
    """
    position = {name: i for i, name in enumerate(names)}
    found: list[int | None] = []
    own = 0
    signature = program.graph_signature.output_specs
    (end,) = (node for node in program.graph.nodes if node.op == "output")
    for spec, source in zip(signature, end.args[0], strict=True):
        if spec.kind.name == "USER_OUTPUT":
            is_uninitialised = str(getattr(source, "target", "")).startswith(_UNINITIALISED)
            found.append(None if source is None or is_uninitialised else own)
            own += source is not None
        else:
            after = "after" if spec.kind.name == "USER_INPUT_MUTATION" else "next"
            found.append(position.get(f"{spec.target} ({after})"))
    return found


def run_nodes(
    program,
    positions: Sequence[int | None],
    inputs: Sequence[np.ndarray],
    report: NodeCallback,
    stand_ins: StandIns | None = None,
) -> dict[int, np.ndarray]:
    """Run an ``ExportedProgram`` on arrays for its user inputs.

    ``report`` receives the tensors of each node.  Buffers that the program changes are copied.
    Return the results that are tensors by their ``positions``; with ``stand_ins`` nothing.
    """
    import torch
    from torch.utils import _pytree as pytree

    class ReportingInterpreter(torch.fx.Interpreter):
        def __init__(self, module):
            super().__init__(module)
            #: Results that ``report`` did not accept, in f64 (None: torch has none); their users
            #: compute in f64.
            self.rejected: dict[Any, Any] = {}

        @override
        def run_node(self, node):
            if node.op != "call_function":
                return super().run_node(node)
            if stand_ins is None:
                return self.run_and_report(node)
            chosen = _with_tensors(node, stand_ins.arrays(node.name))
            if chosen is None:
                stand_ins.not_replaced(node.name)
                return super().run_node(node)
            if stand_ins.executes(node.name):
                with suppress(Exception):  # any exception of an op on such operands
                    self.run_and_report(node)
            return chosen

        def run_and_report(self, node):
            wide = cache(partial(self.in_f64, node, *self.fetch_args_kwargs_from_env(node)))
            made = with_signs(node.target, super().run_node(node))
            is_uninitialised = str(node.target).startswith(_UNINITIALISED)
            parts = _parts(pytree.tree_leaves(made))
            arrays = [None if is_uninitialised else _array(part) for part in parts]
            accepted = report(node.name, arrays, lambda: _arrays(wide()))
            for part, is_accepted in zip_longest(parts, accepted[: len(parts)]):
                if isinstance(part, torch.Tensor) and not is_accepted and not _is_exact(part):
                    self.rejected[node] = None if is_uninitialised else wide()
            return made

        def in_f64(self, node, args, kwargs):
            rejected = [n for n in node.all_input_nodes if n in self.rejected]
            if any(self.rejected[n] is None for n in rejected):
                return None
            if rejected:
                given = node.args, node.kwargs
                args, kwargs = torch.fx.map_arg(given, lambda n: self.rejected.get(n, self.env[n]))
            return with_signs(node.target, _in_f64(node.target, args, kwargs))

    with torch.no_grad():
        made = ReportingInterpreter(program.graph_module).run(*_arguments(program, inputs))
    if stand_ins is not None:
        return {}
    arrays = ((position, _array(leaf)) for position, leaf in zip(positions, made, strict=True))
    return {position: a for position, a in arrays if position is not None and a is not None}


def _with_tensors(node: Any, arrays: Sequence[np.ndarray | None] | None) -> Any:
    """Return a node's result with other tensors; None if it is not made of plain tensors only."""
    import torch
    from torch.utils import _pytree as pytree

    if arrays is None:
        return None
    leaves, structure = pytree.tree_flatten(node.meta.get("val"))
    remaining, made = iter(arrays), []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
            return None
        parts = [next(remaining, None) for _ in range(2 if leaf.is_complex() else 1)]
        whole = [to_torch(np.array(a)) for a in parts if a is not None]
        if len(whole) == len(parts):
            made.append(torch.complex(*whole) if leaf.is_complex() else whole[0])
        elif all(isinstance(n, int) for n in leaf.shape):
            made.append(torch.zeros(tuple(leaf.shape), dtype=leaf.dtype))
        else:
            return None
    return pytree.tree_unflatten(made, structure)


def _parts(leaves: Iterable[Any]) -> list[Any]:
    """Split complex tensors into real and imaginary parts, which the import has as two values."""
    import torch

    found: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf.is_complex() and leaf.layout is torch.strided:
            found.extend(torch.view_as_real(leaf.resolve_conj()).unbind(-1))
        else:
            found.append(leaf)
    return found


def _arrays(made: Any) -> list[np.ndarray | None] | None:
    from torch.utils import _pytree as pytree

    return None if made is None else list(map(_array, _parts(pytree.tree_leaves(made))))


def _is_exact(leaf: Any) -> bool:
    return not (leaf.is_floating_point() or leaf.is_complex())


def _in_f64(target: Any, args: tuple, kwargs: dict) -> Any:
    """Return the result of an op on its operands in f64; None if torch does not support that."""
    import torch
    from torch.utils import _pytree as pytree

    name = str(target)
    packet = isinstance(target, torch._ops.OpOverload)
    if name in _BITS or not (packet or name.startswith("<built-in function getitem")):
        return None  # an operand is a graph: control flow
    if packet and (torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable):
        return None

    def wide(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            if part.is_complex():
                return part.to(torch.complex128)
            return part.to(torch.float64) if part.is_floating_point() else part
        if isinstance(part, torch.dtype):
            if part.is_complex:
                return torch.complex128
            return torch.float64 if part.is_floating_point else part
        return part

    args, kwargs = _with_defaults(name, args, kwargs)
    try:
        return target(*pytree.tree_map(wide, args), **pytree.tree_map(wide, kwargs))
    except Exception:  # any exception of an op that does not support the dtype
        return None


#: Arguments whose default is a constant of the operand's dtype, which is kept in f64.
_DTYPE_DEFAULTS: Mapping[str, Mapping[str, tuple[int, str, int]]] = {
    "aten.rms_norm.default": {"eps": (3, "eps", 1)},
    "aten._fused_rms_norm.default": {"eps": (3, "eps", 1)},
    "aten.nan_to_num.default": {"posinf": (2, "max", 1), "neginf": (3, "max", -1)},
}


def _with_defaults(name: str, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Return an op's arguments with the defaults that depend on its operand's dtype filled in."""
    import torch

    given = list(args)
    for key, (position, constant, sign) in _DTYPE_DEFAULTS.get(name, {}).items():
        value = sign * getattr(torch.finfo(args[0].dtype), constant)
        if position < len(given):
            given[position] = value if given[position] is None else given[position]
        elif kwargs.get(key) is None:
            kwargs = {**kwargs, key: value}
    return tuple(given), kwargs


def _arguments(program, inputs: Sequence[np.ndarray]) -> list[Any]:
    """Return the values of the placeholders of the program's graph."""
    states = {**program.state_dict, **program.constants}
    signature = program.graph_signature.input_specs
    specs = {s.arg.name: s for s in signature if hasattr(s.arg, "name")}
    given, found = iter(inputs), []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        spec: Any = specs.get(node.name)
        kind = "USER_INPUT" if spec is None else spec.kind.name
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            held = states[spec.target]
            found.append(held.clone() if kind == "BUFFER" else held)
        elif hasattr(node.meta.get("val"), "shape"):
            found.append(to_torch(next(given)))
        else:
            found.append(getattr(spec.arg, "value", node.meta.get("val")))
    return found


def _array(leaf: Any) -> np.ndarray | None:
    """Return a tensor as an array, to be read before the next node runs; None for other values."""
    import torch

    if not isinstance(leaf, torch.Tensor):
        return None
    try:
        return to_numpy(leaf)
    except (KeyError, RuntimeError, TypeError):  # complex, sparse, quantised
        return None
