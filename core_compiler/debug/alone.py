"""Evaluation of single nodes: our ops for a node, on the operands that the framework computed.

It also measures how the result changes when these operands change by one ulp.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from typing_extensions import override

from core_compiler.debug.bits import same_bits
from core_compiler.debug.equal_elements import are_ties, finder
from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.metric import distance, epsilon
from core_compiler.debug.verdict import FURTHER, Evidence, Judgement, judge
from core_compiler.debug.wide import F64Evaluator, nudged, widened
from core_compiler.ir import Module, Op, Value
from core_compiler.ir.framework import InF64, Iteration
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.types import is_sized
from core_compiler.ops import typed
from core_compiler.ops.base import TypeRuleError, definition, view
from core_compiler.ops.builder import decomposed
from core_compiler.ops.costs import cost
from core_compiler.ops.reduction import SCANS
from core_compiler.passes.base import CONTROL_FLOW
from core_compiler.support.errors import InternalError

#: Bytes of results kept for ops that are applied to the same arrays again.
KEPT = 1 << 26
#: Kinds of nodes whose constants are the model's own; those of other nodes belong to a formula.
_STORED = frozenset(
    {
        "parameter",
        "buffer",
        "constant_tensor",
        "frozen",
        "constant",
        "initializer",
        "Constant",
    }
)
_SCANS = frozenset(f"core.{name}" for name, *_ in SCANS)
#: A constant with at most this many significant bits is exact in a formula: 1/2 and 3 are, 0.044 is
#: not.
_DIGITS = 8


@dataclass(eq=False)
class ComputedTensor:
    """A tensor computed by our ops, with its sources: ``op`` applied to ``uses``.

    ``op`` is None for a tensor of the framework, an input or a stored constant.
    """

    array: np.ndarray
    value: Value
    op: Op | None = None
    uses: Mapping[Value, ComputedTensor] = field(default_factory=dict)
    index: int = 0


class IsolatedOps:
    """Our ops on the framework's operands: each reported tensor replaces the one that we computed.

    A value is dropped once no remaining op or node reads it.
    """

    def __init__(
        self,
        module: Module,
        inputs: Sequence[np.ndarray],
        wanted: Mapping[str, Sequence[Value | None]],
    ):
        self._evaluator = Evaluator(module.weights, KEPT, module.functions)
        body = module.main.body.ops
        self.makers = {v: op for op in body for v in op.results}
        self._ops = iter(body)
        self._known = {
            v: ComputedTensor(a, v) for v, a in zip(module.main.arguments, inputs, strict=True)
        }
        self._readers = Counter(v for op in body for v in set(op.uses()))
        self._readers.update(v for values in wanted.values() for v in values if v is not None)
        #: The last evaluated op with several results, by mode: its results are judged one after
        #: another.
        self._evaluated: tuple[Any, dict[Any, dict]] = (None, {})

    def make(self, value: Value) -> ComputedTensor | None:
        """Return a value computed by our ops from the tensors reported so far, or None.

        None if ``main`` has no such tensor.
        """
        while value not in self._known and value in self.makers:
            op = next(self._ops, None)
            if op is None:
                return None  # a node that the framework runs twice
            self._execute(op)
        found = self._known.get(value)
        return found if found is not None and isinstance(found.array, np.ndarray) else None

    def record(self, value: Value, made: ComputedTensor | None, theirs: np.ndarray | None) -> bool:
        """Record the framework's tensor for a value; return False if it is not a tensor.

        Later ops read the recorded tensor.
        """
        fits = made is not None and theirs is not None and form(made.array) == form(theirs)
        if made is not None and theirs is not None and fits:
            # Reuse the array if the bits are equal, so that ops on it are not evaluated again.
            array = made.array if same_bits(theirs, made.array) else np.array(theirs)
            if value in self._known and made.op is not None:  # else it was reported before
                self._known[value] = ComputedTensor(array, value)
        self._read(value)
        return fits

    def _execute(self, op: Op) -> None:
        self._add_results(op, self._known)
        for read in set(op.uses()):
            self._read(read)
        for value in op.results:
            if not self._readers[value]:
                self._known.pop(value, None)

    def _add_results(self, op: Op, known: dict[Value, ComputedTensor]) -> None:
        """Add the results of an op to ``known``."""
        uses = {v: known[v] for v in op.uses()}
        outer = {v: k.array for v, k in uses.items()}
        results = self._evaluator.op(op, [outer[v] for v in op.operands], outer)
        stored = op.kind in CONSTANTS and _is_stored(op)
        for index, (value, array) in enumerate(zip(op.results, results, strict=True)):
            known[value] = ComputedTensor(array, value, None if stored else op, uses, index)

    def _read(self, value: Value) -> None:
        self._readers[value] -= 1
        if self._readers[value] <= 0:
            self._known.pop(value, None)

    def iteration(self, loop: ComputedTensor, step: Iteration) -> list[Judgement]:
        """Judge one iteration of a loop on the framework's operands.

        The verdicts are on its body's values, or on its condition.
        """
        assert loop.op is not None
        block = loop.op.regions[step.region]
        known = {v: k for v, k in loop.uses.items() if v not in block.arguments}
        known |= {
            v: ComputedTensor(a, v) for v, a in zip(block.arguments, step.operands, strict=True)
        }
        for op in block.ops:
            self._add_results(op, known)
        wide = cache(step.in_f64)
        return [
            self.judge(known[value], theirs, partial(nth, wide, index))
            for index, (value, theirs) in enumerate(zip(block.outputs, step.results, strict=True))
        ]

    # -- judging ---------------------------------------------------------------------------------

    def judge(
        self,
        made: ComputedTensor,
        theirs: np.ndarray,
        wide: Callable[[], np.ndarray | None] = lambda: None,
        constants: float = 0.0,
        open_ties: bool = False,
    ) -> Judgement:
        """Judge a value that our ops computed from the framework's operands.

        ``theirs`` may be smaller along axes whose size depends on data: only its first elements
        count.
        """
        if open_ties and _are_of_equals(made, theirs):
            return Judgement("within", distance(theirs, made.array), note="positions of equals")

        def in_f64(
            label: Any,
            move: Callable[[np.ndarray], np.ndarray] = widened,
            wide: F64Evaluator | None = None,
        ) -> np.ndarray:
            return cut(self._in_f64(made, move, wide, label)[made], theirs.shape)

        @cache
        def truth() -> np.ndarray | None:
            try:
                return in_f64("truth")
            except (InternalError, KeyError, TypeRuleError):  # an op that is undefined in f64
                return None

        ours = cut(made.array, theirs.shape)
        if is_narrower(theirs, ours):
            with np.errstate(over="ignore"):
                ours = ours.astype(theirs.dtype)
        return judge(
            theirs,
            ours,
            Evidence(
                truth,
                cache(lambda seed, zeros=True: in_f64(("moved", seed, zeros), moved(seed, zeros))),
                cache(
                    lambda seed: in_f64(
                        ("nudged", seed),
                        nudge(seed),
                        FormulaNudged(self._evaluator, np.random.default_rng(seed)),
                    )
                ),
                wide,
                terms=lambda: terms(self._ops_of(made)),
                constants=constants,
                stepped=lambda up: in_f64(("stepped", up), stepped(up)),
                unrounded=lambda: cut(self.unrounded(made), theirs.shape),
                rounded=lambda seed, size: in_f64(
                    ("rounded", seed, size, theirs.dtype),
                    widened,
                    ResultsRounded(self._evaluator, seed, epsilon(theirs.dtype), size),
                ),
                nearby=lambda seed: self._nearby(made, seed, theirs.shape),
                exact=lambda: (
                    not (open_ties and theirs.dtype.kind in "iu")
                    and all(map(_is_exact, self._ops_of(made)))
                ),
            ),
        )

    def _nearby(
        self, made: ComputedTensor, seed: int, shape: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a value of nearby operands, computed in its own dtypes and in f64."""
        move, again = nearby(seed), nearby(seed)  # (the same steps for both)
        own = self._in_f64(made, move, self._evaluator)[made]
        wide = self._in_f64(made, lambda array: widened(again(array)))[made]
        return cut(own, shape), cut(wide, shape)

    def _in_f64(
        self,
        made: ComputedTensor,
        move: Callable[[np.ndarray], np.ndarray] = widened,
        wide: F64Evaluator | Evaluator | None = None,
        label: Any = None,
    ) -> dict[ComputedTensor, np.ndarray]:
        """Return a value by our ops in f64, with every value that it is computed from.

        ``move`` maps each operand.  ``label`` identifies the mode, so that other results of the
        same op can be reused when requested in the same mode.
        """
        wide = wide or F64Evaluator(self._evaluator)
        values: dict[ComputedTensor, np.ndarray] = {}
        done: dict[tuple[int, Any], tuple[np.ndarray, ...]] = {}
        if label is not None and made.op is not None and len(made.op.results) > 1:
            if self._evaluated[0] is not made.uses:
                self._evaluated = made.uses, {}
            done = self._evaluated[1].setdefault(label, done)
        stack = [made]
        while stack:
            current = stack[-1]
            if current in values:
                stack.pop()
                continue
            if current.op is None:
                values[current] = move(current.array)
                continue
            missing = [k for k in current.uses.values() if k not in values]
            if missing:
                stack.extend(missing)
                continue
            key = id(current.op), id(current.uses)
            if key not in done:
                outer = {v: values[k] for v, k in current.uses.items()}
                operands = [outer[v] for v in current.op.operands]
                done[key] = wide.op(current.op, operands, outer)
            values[current] = done[key][current.index]
        return values

    def unrounded(self, made: ComputedTensor) -> np.ndarray:
        """Return a mask of the elements that no op rounds: f64 has the same values throughout.

        Only for ops that work element by element.
        """
        none, unrounded_mask = np.zeros(made.array.shape, bool), np.ones(made.array.shape, bool)
        if not all(map(_by_element, self._ops_of(made))):
            return none
        for known, wide in self._in_f64(made).items():
            with np.errstate(invalid="ignore"):
                narrow = widened(known.array)
                same = np.asarray((narrow == wide) | ((narrow != narrow) & (wide != wide)))
            if same.shape == unrounded_mask.shape:
                unrounded_mask &= same
            elif not same.all():
                return none
        return unrounded_mask

    def boundary(self, made: ComputedTensor) -> list[Value]:
        """Return the framework's values that the ops of a value read, without stored constants."""
        return [known.value for known in self.given(made)]

    def given(self, made: ComputedTensor) -> list[ComputedTensor]:
        """Return the framework's tensors that the ops of a value read, without stored constants."""
        found: dict[Value, ComputedTensor] = {}
        seen, stack = {made}, [made]
        while stack:
            current = stack.pop()
            if current.op is None:
                maker = self.makers.get(current.value)
                if maker is None or maker.kind not in CONSTANTS:
                    found.setdefault(current.value, current)
                continue
            unseen = [k for k in current.uses.values() if k not in seen]
            seen.update(unseen)
            stack.extend(reversed(unseen))
        return list(found.values())

    def draws(self, made: ComputedTensor) -> bool:
        """Return whether the ops of a value, from the reported tensors on, draw random numbers."""
        return any(map(is_random, self._ops_of(made)))

    def _ops_of(self, made: ComputedTensor) -> list[Op]:
        """Return the ops of a value, from the reported tensors on."""
        found: list[Op] = []
        seen, stack = {made}, [made]
        while stack:
            current = stack.pop()
            if current.op is None:
                continue
            found.append(current.op)
            unseen = [k for k in current.uses.values() if k not in seen]
            seen.update(unseen)
            stack.extend(unseen)
        return found


def random_values(module: Module) -> set[Value]:
    """Return the values of ``main`` that depend on random numbers."""
    drawn: set[Value] = set()
    for op in module.main.body.ops:
        if is_random(op) or any(v in drawn for v in op.uses()):
            drawn.update(op.results)
    return drawn


def is_random(op: Op) -> bool:
    """Return whether an op or one nested in it draws random numbers."""
    if op.kind.startswith("core.") and "random" in definition(op).traits:
        return True
    return any(is_random(inner) for region in op.regions for inner in region.ops)


def nth(made: InF64, index: int) -> np.ndarray | None:
    """Return one of the tensors that a node computes in f64."""
    arrays = made()
    return None if arrays is None or index >= len(arrays) else arrays[index]


def terms(ops: Iterable[Op]) -> int:
    """Return the number of terms of the longest sum of ``ops`` for one element."""
    return max([1, *map(_terms, ops)])


def _terms(op: Op) -> int:
    elements = max((v.type.elements for v in op.results if is_sized(v.type)), default=0)
    if not elements or op.kind in CONTROL_FLOW or not op.kind.startswith("core."):
        return 1
    if op.kind in _SCANS:
        return op.result.type.shape[view(op).axis]
    scatter = typed.ScatterAlong.match(op)
    if scatter is not None:  # in the worst case all of them go to one element
        return scatter.indices.type.shape[scatter.axis]
    if op.kind == "core.scatter_nd":
        return math.prod(op.operands[1].type.shape[:-1])
    return cost(op).flops // (2 * elements)


def form(array: np.ndarray) -> tuple:
    """Return the properties that two tensors must share to be comparable."""
    return array.shape, array.dtype


def is_narrower(theirs: np.ndarray, ours: np.ndarray) -> bool:
    """Return whether the framework has floats of fewer bits where ours have the declared dtype."""
    return (
        theirs.dtype.itemsize < ours.dtype.itemsize
        and theirs.shape == ours.shape
        and widened(theirs).dtype == widened(ours).dtype == np.float64
    )


def as_wide(theirs: np.ndarray | None, made: ComputedTensor | None) -> np.ndarray | None:
    """Return narrower floats converted to the dtype of ours, with the same values."""
    if theirs is None or made is None or not is_narrower(theirs, made.array):
        return theirs
    return theirs.astype(made.array.dtype)


def cut(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first elements along each axis, as many as ``shape`` says."""
    return array[tuple(map(slice, shape))]


def _is_exact(op: Op) -> bool:
    """Return whether an op rounds nothing: it moves, compares, selects, or computes integers."""
    if op.regions or not op.kind.startswith("core.") or is_random(op) or _is_computed(op):
        return False
    if not any(is_sized(v.type) and v.type.dtype.is_float for v in (*op.operands, *op.results)):
        return True
    if op.kind == "core.cast":
        return not op.result.type.dtype.is_float
    declared = definition(op)
    if declared.decompose is not None:
        return all(map(_is_exact, decomposed(op).ops))
    return declared.is_exact


def _by_element(op: Op) -> bool:
    """Return whether an op is elementwise and contains no op that rounds separately."""
    if op.kind in CONSTANTS or op.kind in ("core.broadcast", "core.iota"):
        return not _is_computed(op)
    if op.regions or not op.kind.startswith("core.") or is_random(op):
        return False
    declared = definition(op)
    return "elementwise" in declared.traits and declared.decompose is None


def _is_computed(op: Op) -> bool:
    """Return whether an op is a table of floats that the import computed and rounded.

    Examples are a window and the points of a line.  Tables of the model are stored constants; a
    scalar belongs to a formula.
    """
    if op.kind not in CONSTANTS or _is_stored(op):
        return False
    made = op.result.type
    return made.dtype.is_float and made.elements > 1


def _is_stored(op: Op) -> bool:
    nodes = op.origin.nodes() if op.origin is not None else ()
    return any(n.kind in _STORED for n in nodes)


def _are_of_equals(made: ComputedTensor, theirs: np.ndarray) -> bool:
    """Return whether ``theirs`` are positions of elements that equal those at our positions."""
    if theirs.dtype.kind not in "iu" or same_bits(theirs, made.array):
        return False
    known = made

    def maker(value: Value) -> Op | None:
        nonlocal known
        known = known.uses.get(value, known)
        return known.op

    chain = finder(made.value, maker)
    if not chain:
        return False
    return are_ties(chain, known.uses[chain[0].operands[0]].array, made.array, theirs)


# -- an ulp beside ---------------------------------------------------------------------------------


def moved(seed: int, zeros: bool = True) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that moves an array by up to one ulp of its own dtype, in f64.

    With ``zeros``, zeros move by a tiny amount, which decides between equal values.
    """
    random = np.random.default_rng(seed)

    def move(array: np.ndarray) -> np.ndarray:
        wide = widened(array)
        if wide.dtype != np.float64 or not wide.size:
            return wide
        step = random.integers(-1, 2, array.shape)
        zero_step = (wide == 0) * step * 1e-300 if zeros else 0.0
        return wide * (1 + epsilon(array.dtype) * step) + zero_step

    return move


def stepped(up: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that moves a whole array one ulp up (1) or down (-1), in f64."""

    def move(array: np.ndarray) -> np.ndarray:
        wide = widened(array)
        if wide.dtype != np.float64 or not wide.size:
            return wide
        return wide + up * np.where(wide == 0, 1e-300, np.abs(wide) * epsilon(array.dtype))

    return move


def nearby(seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that moves an array by more than rounding, in its own dtype.

    Each element moves independently, by up to a thousandth or a few ulps.
    """
    random = np.random.default_rng(seed)

    def move(array: np.ndarray) -> np.ndarray:
        wide = widened(array)
        if wide.dtype != np.float64:
            return array
        most = max(FURTHER, 8 * epsilon(array.dtype))
        with np.errstate(over="ignore"):
            return (wide * (1 + random.uniform(-most, most, array.shape))).astype(array.dtype)

    return move


def nudge(seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that moves an array by up to one ulp of f64."""
    random = np.random.default_rng(seed)
    return lambda array: nudged(widened(array), random)


class ResultsRounded(F64Evaluator):
    """An evaluator in f64 that moves each intermediate result by up to one ulp of its own dtype.

    If the judged dtype is finer, its ulp is used: coarser rounding on the way is no excuse.
    """

    def __init__(self, narrow: Evaluator, seed: int, most: float, size: float):
        super().__init__(narrow)
        self._move, self._most = np.random.default_rng(seed).uniform, most
        self._size = size

    @override
    def op(
        self, op: Op, arrays: Sequence[np.ndarray], outer: Mapping[Value, np.ndarray] | None = None
    ):
        results = super().op(op, arrays, outer)
        if op.kind in CONSTANTS or _is_exact(op):
            return results
        kinds = [v.type.dtype for v in op.results]
        return tuple(
            a * (1 + self._size * min(self._most, epsilon(k.numpy)) * self._move(-1, 1, a.shape))
            if k.is_float
            else a
            for a, k in zip(results, kinds, strict=True)
        )


class FormulaNudged(F64Evaluator):
    """An evaluator in f64 that moves every constant of a formula by up to its rounding error.

    The framework may have it with more digits.  The model's own constants are exact.
    """

    def __init__(self, narrow: Evaluator, random: np.random.Generator):
        super().__init__(narrow)
        self._random = random

    @override
    def op(
        self, op: Op, arrays: Sequence[np.ndarray], outer: Mapping[Value, np.ndarray] | None = None
    ):
        results = super().op(op, arrays, outer)
        if op.kind not in CONSTANTS or _is_stored(op):
            return results
        kind = op.results[0].type.dtype.numpy
        return tuple(self._rounded(array, epsilon(kind)) for array in results)

    def _rounded(self, array: np.ndarray, ulp: float) -> np.ndarray:
        if array.dtype != np.float64 or not array.size:
            return array
        digits = np.frexp(array)[0] * 2.0 ** min(_DIGITS, max(2, -np.log2(ulp) / 2))
        exact = ~np.isfinite(array) | (digits == np.round(digits))
        step = self._random.uniform(-0.5, 0.5, array.shape) * ulp
        return np.where(exact, array, array * (1 + step))
