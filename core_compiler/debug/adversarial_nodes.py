"""Comparison of single nodes with their framework on adversarial values.

Example inputs do not show every fault of a translation or of an op's reference: a bound that no
element reaches, a NaN that is dropped, a formula that is only right for one sign.  The framework
therefore executes each node again on operands made to show them (:mod:`hurtful`), and the result is
judged like any other, alone.  Integers and values that do not depend on the model's inputs keep
their tensors: they may be positions and sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby

import numpy as np

from core_compiler.debug import hurtful
from core_compiler.debug.alone import ComputedTensor, IsolatedOps, as_wide, form, is_random, nth
from core_compiler.debug.verdict import Judgement
from core_compiler.ir import Module, Op, TensorType, Value
from core_compiler.ir.attributes import attributes_key
from core_compiler.ir.framework import InF64, Iteration, Nodes
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.types import is_sized
from core_compiler.ops.costs import cost
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import CONTROL_FLOW
from core_compiler.support.arrays import widened

#: Classes of floats that every implementation computes alike, but for rounding.
_FLOATS = ("bounds", "zeros", "ties", "negative", "spread")
#: The class of floats for ops that work element by element: others may treat NaN and infinities
#: differently.  The class of integers, for such ops too.
_OPEN, _INTEGERS = "open", "mixed"
#: The class of floats for ops that select, compare or move elements.
_FULL = "full"
#: Classes of values that are tried, in this order.
CLASSES = (*_FLOATS, _OPEN, _FULL, _INTEGERS)
#: A node with more operations or elements is not tried; most models have it in smaller sizes too.
MOST_FLOPS, MOST_ELEMENTS = 5e6, 1 << 18
#: Ops that other implementations do not define for every number of bits: they read those that the
#: integers have.
_SHIFTS = ("core.shl", "core.shr")
#: Constants with at most this many elements belong to a formula.
_SMALL = 16


@dataclass(frozen=True, eq=False)
class _Node:
    """A node to try on ``classes``: its ``values``, their ``ops``, and the values ``read``."""

    name: str
    classes: frozenset[str]
    ops: tuple[Op, ...]
    values: tuple[Value, ...]
    read: tuple[Value, ...]


class Adversary:
    """The nodes of an import to try, and their tensors on the model's inputs.

    ``own``: how many of main's arguments are the model's own inputs.
    """

    def __init__(
        self,
        module: Module,
        inputs: Sequence[np.ndarray],
        nodes: Nodes,
        values: Mapping[str, Sequence[Value | None]],
        own: int,
    ):
        self._module, self._nodes, self._values = module, nodes, values
        self._inputs, self._own = inputs, own
        self._isolated = IsolatedOps(module, inputs, {})
        self._from_inputs = _input_dependent(module, own)
        #: Tensors on the model's inputs that later nodes read unchanged.
        self._kept: dict[Value, np.ndarray] = {
            v: a
            for i, (v, a) in enumerate(zip(module.main.arguments, inputs, strict=True))
            if i >= own or not _is_float(v)
        }
        self._other_form: set[Value | None] = set()
        #: Ops that count the elements of values whose size depends on data.
        self._of_sized: set[Op] = set()
        self._tried = {each.name: each for each in self._nodes_to_try()}
        self._constants = self._constants_by_value()
        self._shifted_by = {
            op.operands[1] for n in self._tried.values() for op in n.ops if op.kind in _SHIFTS
        }

    def _nodes_to_try(self) -> list[_Node]:
        """Return one node of each form: the same ops, attributes and types."""
        order = {op: i for i, op in enumerate(self._module.main.body.ops)}
        known = set(self._module.main.arguments)
        seen: set[tuple] = set()
        found = []
        siblings = self._nodes.siblings
        for _, names in groupby(self._values, lambda name: siblings.get(name, name)):
            group = [(n, [v for v in self._values[n] if v is not None]) for n in names]
            for name, values in group:
                node = self._node(name, values, known, order)
                key = () if node is None else _form_key(node)
                if node is not None and key not in seen:
                    seen.add(key)
                    found.append(node)
            known.update(v for _, values in group for v in values)
        return found

    def _node(
        self, name: str, values: Sequence[Value], known: set[Value], order: Mapping[Op, int]
    ) -> _Node | None:
        ops: set[Op] = set()
        read: dict[Value, None] = {}
        stack = list(values)
        while stack:
            value = stack.pop()
            maker = self._isolated.makers.get(value)
            if value in known or maker is None:
                read[value] = None
            elif maker not in ops:
                ops.add(maker)
                stack.extend(maker.uses())
        ordered = tuple(sorted(ops, key=order.__getitem__))
        sized = [v for v in (*values, *read) if not is_sized(v.type) or v in self._nodes.sized]
        if sized or not ops.isdisjoint(self._of_sized):
            self._of_sized |= ops
            return None
        if name in self._nodes.undefined or any(map(_is_not_tried, ordered)):
            return None
        classes = self._classes(name, ordered, [v for v in read if v in self._from_inputs])
        if not classes:
            return None
        elements = max(v.type.elements for v in (*values, *read))
        if elements > MOST_ELEMENTS or sum(cost(op).flops for op in ordered) > MOST_FLOPS:
            return None
        return _Node(name, classes, ordered, tuple(values), tuple(read))

    def _classes(self, name: str, ops: Sequence[Op], read: Sequence[Value]) -> frozenset[str]:
        is_elementwise = all(op.kind in CONSTANTS or _is_by_element(op, read) for op in ops)
        if read and is_elementwise and all(v.type.dtype.is_integer for v in read):
            return frozenset({_INTEGERS})
        if not any(map(_is_float, read)):
            return frozenset()
        found = set(_FLOATS)
        is_complex = not self._nodes.parts.keys().isdisjoint(read)
        if not is_complex and name not in self._nodes.not_at_infinity:
            found |= {_OPEN} if is_elementwise else set()
            found |= {_FULL} if all(map(_is_exact, ops)) else set()
        return frozenset(found)

    def _constants_by_value(self) -> dict[Value, list[float]]:
        """Return the constants of the formulas that read a value: its elements hit them exactly."""
        found: dict[Value, list[float]] = {}
        for node in self._tried.values():
            here = [c for op in node.ops for c in self._float_constants(op)]
            for value in node.read:
                found.setdefault(value, []).extend(here)
        return found

    def _float_constants(self, op: Op) -> list[float]:
        if op.kind in CONSTANTS and op.result.type.elements <= _SMALL:
            made: dict[Value, ComputedTensor] = {}
            self._isolated._add_results(op, made)
            return [float(c) for c in np.ravel(made[op.result].array)]
        return [v for v in op.attributes.values() if isinstance(v, float)]

    # -- on the model's inputs ---------------------------------------------------------------------

    def keep(self, name: str, arrays: Sequence[np.ndarray | None]) -> None:
        """Keep the tensors of a node that are read unchanged, on the model's inputs."""
        for value, array in zip(self._values.get(name, ()), arrays, strict=False):
            if value is None:
                continue
            if array is None or not is_sized(value.type) or array.shape != value.type.shape:
                self._other_form.add(value)
            elif value not in self._from_inputs or not _is_float(value):
                self._kept[value] = np.array(array)

    # -- on adversarial values ---------------------------------------------------------------------

    def run(self, report: Callable[[str, ComputedTensor, Judgement], None]) -> int:
        """Try the nodes on each class of values; ``report`` is told the first that differs.

        Return the number of nodes that were tried.
        """
        tried: set[str] = set()
        for class_ in CLASSES:
            trial = _Trial(self, class_, report, tried)
            inputs = [trial.array(v) for v in self._module.main.arguments[: self._own]]
            with suppress(Exception):  # any exception of a framework on such values
                self._nodes.run([np.array(a) for a in inputs], trial.on_node, trial)
            if trial.over:
                break
        return len(tried)


class _Trial:
    """A run of the framework's graph on values of one class."""

    def __init__(
        self,
        adversary: Adversary,
        class_: str,
        found: Callable[[str, ComputedTensor, Judgement], None],
        tried: set[str],
    ):
        self._of, self.class_, self._found, self._done = adversary, class_, found, tried
        self._arrays: dict[Value, np.ndarray] = {}
        self._not_replaced: set[Value] = set()
        self.over = False

    def executes(self, name: str, /) -> bool:
        node = self._of._tried.get(name)
        if self.over or node is None or self.class_ not in node.classes:
            return False
        return self._not_replaced.isdisjoint(node.read)

    def arrays(self, name: str, /) -> list[np.ndarray | None] | None:
        values = self._of._values.get(name, ())
        if not values or not self._of._other_form.isdisjoint(values):
            self.not_replaced(name)
            return None
        return [None if v is None else self.array(v) for v in values]

    def not_replaced(self, name: str, /) -> None:
        self._not_replaced.update(v for v in self._of._values.get(name, ()) if v is not None)

    def array(self, value: Value) -> np.ndarray:
        """Return the tensor of a value in this run; the same class always returns the same."""
        if value in self._of._kept and (self.class_ != _INTEGERS or not self._is_replaced(value)):
            return self._of._kept[value]
        if value not in self._arrays:
            self._arrays[value] = self._generate(value)
        return self._arrays[value]

    def _is_replaced(self, value: Value) -> bool:
        """Return whether a tensor of integers is replaced: none but nodes of integers read it."""
        return value in self._of._from_inputs and value.type.dtype.is_integer

    def _generate(self, value: Value) -> np.ndarray:
        assert isinstance(value.type, TensorType)
        kind = value.type
        shape = tuple(map(int, kind.shape))
        constants = self._of._constants.get(value)
        if constants is None or kind.elements > MOST_ELEMENTS:  # no node that is tried reads it
            return np.zeros(shape, kind.dtype.numpy)
        text = f"{self.class_} {len(self._arrays)}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
        random = np.random.default_rng(seed)
        if value in self._of._shifted_by:
            return random.integers(0, kind.dtype.bits, shape).astype(kind.dtype.numpy)
        return hurtful.array(self.class_, kind, random, constants, True)

    def on_node(
        self,
        name: str,
        arrays: Sequence[np.ndarray | None],
        in_f64: InF64,
        iterations: Sequence[Iteration] = (),
        /,
    ) -> list[bool]:
        if not self.over:
            self._compare(self._of._tried[name], arrays, cache(in_f64))
        return [True] * len(arrays)

    def _compare(self, node: _Node, arrays: Sequence[np.ndarray | None], wide: InF64) -> None:
        """Judge the tensors of a node; the first that differs ends the run."""
        of, name = self._of, node.name
        known = {v: ComputedTensor(self.array(v), v) for v in node.read}
        try:
            for op in node.ops:
                of._isolated._add_results(op, known)
        except Exception as error:  # any exception: the framework has tensors there
            made = ComputedTensor(np.empty(0), node.values[0])
            self._differs(name, made, Judgement("differs", note=f"our ops raise {error!r}"))
            return
        if any(_is_undefined(op, known) for op in node.ops):
            return
        constants, open_ties = of._nodes.constants.get(name, 0.0), name in of._nodes.open_ties
        for index, (value, theirs) in enumerate(zip(of._values[name], arrays, strict=False)):
            ours = known[value] if value is not None else None
            widened_array = as_wide(theirs, ours)
            if (
                ours is None
                or theirs is None
                or widened_array is None
                or form(widened_array) != form(ours.array)
            ):
                continue
            self._done.add(name)
            judged = of._isolated.judge(
                ours, theirs, partial(nth, wide, index), constants, open_ties
            )
            if judged.verdict == "differs":
                self._differs(name, ours, judged)
                return

    def _differs(self, name: str, made: ComputedTensor, judged: Judgement) -> None:
        self.over = True
        note = f"not on the inputs, but on {hurtful.CLASSES[self.class_]}: {judged.note}"
        self._found(name, made, replace(judged, note=note))


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


def _is_by_element(op: Op, read: Sequence[Value]) -> bool:
    """Return whether an op works element by element, and is defined on the values ``read``."""
    if op.kind == "core.broadcast":
        return True
    if has_trait(op, "division"):
        return op.kind == "core.div" and _is_float(op.result)
    if op.kind in _SHIFTS:
        return op.operands[1] in read
    return has_trait(op, "elementwise")


def _is_exact(op: Op) -> bool:
    return op.kind in CONSTANTS or has_trait(op, "exact", "view")


def _is_not_tried(op: Op) -> bool:
    return (
        op.kind in CONTROL_FLOW
        or bool(op.regions)
        or is_random(op)
        # Frameworks differ where a matrix has no such factor, or several.
        or has_trait(op, "factor")
    )


def _is_undefined(op: Op, known: Mapping[Value, ComputedTensor]) -> bool:
    """Return whether an op casts floats that its integers do not have: frameworks differ there."""
    if op.kind != "core.cast" or not op.result.type.dtype.is_integer:
        return False
    array = known[op.operands[0]].array
    if array.dtype.kind in "biu" or not array.size:
        return False
    limits, wide = np.iinfo(op.result.type.dtype.numpy), widened(array)
    return not bool(np.all((wide > float(limits.min) - 1) & (wide < float(limits.max) + 1)))


def _input_dependent(module: Module, own: int) -> set[Value]:
    """Return the values that depend on the model's inputs."""
    found = set(module.main.arguments[:own])
    for op in module.main.body.ops:
        if not found.isdisjoint(op.uses()):
            found.update(op.results)
    return found


def _form_key(node: _Node) -> tuple:
    """Return a key that is equal for nodes of the same ops on tensors of the same types."""
    names: dict[Value, int] = {}

    def of(value: Value) -> tuple:
        return names.setdefault(value, len(names)), value.type

    return tuple(
        (
            op.kind,
            tuple(map(of, op.operands)),
            tuple(map(of, op.results)),
            None
            if op.kind in CONSTANTS and op.result.type.elements > _SMALL
            else attributes_key(op.attributes.items()),
        )
        for op in node.ops
    ) + tuple(map(of, node.values))
