"""The module at the start of a training compile: parameters as arguments, and the loss.

Everything that the step will need is declared here, so that all stages have the same arguments: the
model's inputs, its targets, its parameters and buffers, the optimiser's state, the iteration and
the seed. The passes add the gradients and everything that depends on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from core_compiler.ir import (
    Dense,
    Function,
    Module,
    Op,
    Origin,
    Resource,
    Value,
    as_array,
    tensor,
)
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.rules import F64, I64
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph.initializers import match_initializers
from core_compiler.training.graph.losses import Classes, Own
from core_compiler.training.graph.roles import ITERATION, SEED, SHARD, STATE, Argument, Roles

#: The rule of the loss ops at the import.
LOSS_RULE = "training"
#: A stored constant: an attribute of a module or an array.
Constant = Dense | Resource | np.ndarray
#: Kinds of frontend nodes whose constants are parameters.
PARAMETERS = frozenset({"parameter", "initializer"})


@dataclass(frozen=True)
class Joint:
    """The joint module, its initial arguments after the batch, and the valid target classes."""

    module: Module
    state: tuple[np.ndarray, ...]
    classes: Classes | None = None
    #: Constants by name that the model stores beside its state and that stay fixed (frozen weights,
    #: tables); a call returns the bits.
    fixed: Mapping[str, Callable[[], np.ndarray]] = field(default_factory=dict)

    @property
    def roles(self) -> Roles:
        return Roles.of(self.module.main)


def build_joint(
    module: Module,
    training: Training,
    *,
    inputs: Sequence[str],
    buffers: Sequence[np.ndarray] = (),
    tied: Sequence[Sequence[str]] = (),
    constants: Mapping[str, Constant] = MappingProxyType({}),
) -> Joint:
    """Return the joint module of an imported model.

    ``inputs`` names main's arguments. The last ones, one for each of ``buffers``, are the model's
    own state; their next values are the results in main's ``aliases``. ``tied`` are groups of names
    of one parameter, and ``constants`` are the constants that the model stores and reads, as in
    ``Imported``.

    Raise UserError if there is nothing to train or the loss does not fit the model's first result.
    """
    main = module.main
    groups = {name: group for group in tied for name in group}
    trained = parameters(main, training.freeze, groups)
    if not trained:
        raise UserError(
            "the model has no parameter to train",
            "training",
            "import it with its weights as parameters, or freeze fewer",
        )
    counts = Counter(map(_name, trained))
    duplicate = next((name for name in counts if counts[name] > 1), None)
    if duplicate is not None:  # the two halves of a frontend's complex numbers
        raise UserError(
            f"the parameter {duplicate} is complex, which is not supported in training",
            "training",
            "train its real and imaginary parts as two parameters, or "
            f"freeze it: freeze=({duplicate!r},)",
        )
    input_count = len(main.arguments) - len(buffers)
    rows: list[Argument] = [("batch", n, -1) for n in inputs[:input_count]]
    arguments = list(main.arguments[:input_count])
    origin = Origin.synthetic(LOSS_RULE, f"the loss is {training.loss}")
    b = Builder(module.weights, origin)
    loss, targets = _loss(b, training, main.outputs[0])
    arguments += targets
    rows += [("batch", "targets", -1)] * len(targets)
    if training.shards > 1:
        arguments.append(Value(tensor((), I64), SHARD))
        rows.append(("shard", SHARD, -1))
    state: list[np.ndarray] = []

    def add(role: str, name: str, value: Value, array: Any, of: int = -1) -> int:
        arguments.append(value)
        rows.append((role, name, of))
        state.append(np.array(array))
        return len(arguments) - 1

    positions = {}
    order = {op: i for i, op in enumerate(parameters(main))}  # frozen ones count too
    initializers = match_initializers(
        training.initialize, {_name(op): op.result.type.rank for op in trained}, groups
    )
    for op in trained:
        name = _name(op)
        array = constant_array(op, module.weights)
        if name in initializers:
            array = initializers[name].values(array.shape, array.dtype, training.seed, order[op])
        positions[op] = add("parameter", name, Value(op.result.type, op.result.name), array)
    after = {place: main.outputs[i] for i, place in main.attributes.get("aliases", ())}
    next_state = []
    for place, (value, name, array) in enumerate(
        zip(main.arguments[input_count:], inputs[input_count:], buffers, strict=True), input_count
    ):
        role = "scalar" if name in (ITERATION, SEED) else "buffer"
        next_state.append((add(role, name, value, array), after[place]))
    initial_slots = training.optimizer.slots
    for op, place in positions.items():
        for slot, start in initial_slots.items():
            value = Value(op.result.type, f"{op.result.name}_{slot}")
            add(
                "slot", slot, value, np.full(value.type.shape, start, value.type.dtype.numpy), place
            )
    for name, start in training.optimizer.scalars.items():
        add("scalar", name, Value(tensor((), F64), name), np.float64(start))
    if training.loss_scale is not None:
        for name, start in training.loss_scale.state.items():
            add("scalar", name, Value(tensor((), start.dtype), name), start)
    scalar_names = {name for role, name, _ in rows if role == "scalar"}
    if ITERATION not in scalar_names:
        add("scalar", ITERATION, Value(tensor((), I64), ITERATION), np.int64(0))
    _set_seed(rows, state, len(arguments) - len(state), training.seed)
    renamed = {op.result: arguments[place] for op, place in positions.items()}
    body = main.body.with_(
        arguments=tuple(arguments), ops=(*(o for o in main.body.ops if o not in positions), *b.ops)
    ).substitute(renamed)
    results = [(("loss", -1), loss), *((("next", of), renamed.get(v, v)) for of, v in next_state)]
    function = main.with_(body=body, attributes={})
    module = module.with_function(Roles(tuple(rows), ()).applied(function, results))
    kept = module.with_(weights=module.weights.only(_weight_digests(module)))
    in_state = set(names(Roles.of(kept.main)))
    in_state |= {name for name, group in groups.items() if in_state.intersection(group)}
    frozen = {_name(op): typed.Constant.of(op).value for op in order if op not in positions}
    fixed = _constant_readers(
        {n: c for n, c in {**frozen, **constants}.items() if n not in in_state}, module
    )
    return Joint(kept, tuple(state), training.loss.classes(main.outputs[0].type), fixed)


def _constant_readers(
    held: Mapping[str, Constant], module: Module
) -> dict[str, Callable[[], np.ndarray]]:
    """Return readers for the constants of a module, which keep no other weights alive."""
    weights = module.weights.only(c.digest for c in held.values() if isinstance(c, Resource))
    return {
        name: partial(np.asarray, c) if isinstance(c, np.ndarray) else partial(as_array, c, weights)
        for name, c in held.items()
    }


def _weight_digests(module: Module) -> list[str]:
    """Return the digests of a module's weights without parameters, of which the step has copies."""
    return [
        v.digest for op in module.walk() for v in op.attributes.values() if isinstance(v, Resource)
    ]


def parameters(
    main: Function,
    freeze: Sequence[str] = (),
    tied: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Op]:
    """Return the constants of ``main`` that are trained, in program order.

    Raise UserError for a name in ``freeze`` that matches no parameter; any name of a parameter with
    several (``tied``) matches it.
    """
    candidates = [
        op
        for op in main.body.ops
        if op.kind == "core.constant"
        and op.result.type.dtype.is_float
        and op.origin is not None
        and op.origin.node is not None
        and op.origin.node.kind in PARAMETERS
    ]
    names_of = {op: tied.get(_name(op), (_name(op),)) for op in candidates}
    frozen: set[Op] = set()
    for pattern in freeze:
        found = {op for op in candidates if any(fnmatch(name, pattern) for name in names_of[op])}
        frozen |= found
        if not found:
            shown = ", ".join(_name(op) for op in candidates[:8]) + (
                " ..." if len(candidates) > 8 else ""
            )
            raise UserError(
                f"no parameter matches {pattern!r}", "freeze", f"choose from the parameters {shown}"
            )
    return [op for op in candidates if op not in frozen]


def _name(op: Op) -> str:
    return op.origin.node.name if op.origin is not None and op.origin.node is not None else ""


def _loss(b: Builder, training: Training, output: Value) -> tuple[Value, list[Value]]:
    """Return the mean loss (rank 0) and the arguments that it adds."""
    spec = training.loss
    if not output.type.dtype.is_float:
        raise UserError(
            f"expected a float dtype of the model's first result, got {output.type}",
            "loss",
            "let the model return the output to train on first",
        )
    targets = [] if isinstance(spec, Own) else [Value(spec.target(output.type), "targets")]
    total, count = spec.totals(b, output, *targets)
    return b.div(total, count), targets


def _set_seed(rows: Sequence[Argument], state: list[np.ndarray], first: int, seed: int) -> None:
    for index, (role, name, _) in enumerate(rows):
        if (role, name) == ("scalar", SEED):
            state[index - first] = np.asarray(seed, state[index - first].dtype)


def names(roles: Roles) -> Mapping[str, int]:
    """Map the unique name of each part of the state to its position among the arguments.

    Parameters and buffers have the model's names, slots are ``parameter.slot``.
    """
    made = {}
    for position, (role, name, of) in enumerate(roles.arguments):
        if role not in STATE:
            continue
        unique_name = f"{roles.arguments[of][1]}.{name}" if role == "slot" else name
        if unique_name in made:
            raise UserError(
                f"duplicate name {unique_name} in the state",
                "training",
                "rename the model's parameter or buffer",
            )
        made[unique_name] = position
    return made
