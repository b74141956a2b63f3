"""Adversarial inputs for rewrites: values that the example inputs do not contain.

The old and the new ops of a rewrite form a small pair of programs.  Both are evaluated on several
classes of values (NaN, infinities, zeros of both signs, equal values, ...).  An exact rule must
keep every bit in every class.  A rule with a tolerance must keep the positions of NaN and
infinities, agree in f64 wherever f64 is finite, and have at most four times the rounding error of
the old ops.  A rule declares the classes in which it may differ (``Rule.except_for``).

A pair that passed is cached on disk under the hash of its canonical text and of the sources that
affect the verdict, so it is tried only once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from core_compiler.debug import hurtful
from core_compiler.debug.evaluate import Evaluator, Values
from core_compiler.debug.metric import distance, epsilon
from core_compiler.debug.remembered import PassedChecks
from core_compiler.debug.wide import F64Evaluator, moved_by_an_ulp, nudged, rerounded, widened
from core_compiler.ir import Op, Rewrite, TensorType, Value, WeightStore, attributes_key
from core_compiler.ir.kinds import CONSTANTS, MEANING_IN_REGION
from core_compiler.ir.rewriter import stable_topological
from core_compiler.ir.weights import array_digest
from core_compiler.ops.base import REGISTRY, definition
from core_compiler.ops.costs import cost
from core_compiler.passes.base import CONTROL_FLOW
from core_compiler.support.errors import InternalError

#: Minimum seconds for the trials of a stage, and the fraction of its check time that they may add.
LEAST_SECONDS, PART = 1.0, 0.25
#: A pair with more operations is tried on few classes: special values if it is elementwise, else
#: NaN and a small spread.
MOST_FLOPS = 50_000_000
#: Maximum number of levels of producers that are added in front of a pair.
MOST_CONTEXT = 16
#: Constants of at most this many elements are varied, and are part of the text of a pair.
SMALL = 64
#: Maximum difference in f64 between both sides of an inexact rule, and bounds on its rounding
#: error.
ALGEBRA, GROWTH, MOVED = 1e-9, 4.0, 8.0
#: Sources that affect the verdict on a pair, besides its text.
_SOURCES = (
    "ops/**/*.py",
    "numerics/**/*.py",
    "kernel_ir/*.py",
    "lowering/*.py",
    "passes/**/*.py",
    "debug/adversarial.py",
    "debug/hurtful.py",
    "debug/wide.py",
)
_OF_NODES = ("frontends/onnx/**/*.py", "onnx_level/**/*.py", "debug/imported_pairs.py")


@dataclass(frozen=True)
class Fault:
    """A class of values for which both sides of a rewrite differ, with the element concerned."""

    class_: str
    note: str
    value: Value
    index: tuple[int, ...] = ()
    want: float | None = None
    got: float | None = None
    error: float = float("inf")


@dataclass(eq=False)
class Adversary:
    """The adversarial trials of rewrites; ``values`` know the ops that define them.

    Constants keep their values.  ``tried`` counts the pairs evaluated, ``known`` the cache hits,
    and ``left`` the pairs skipped because the time budget was spent.
    """

    weights: WeightStore
    values: Values
    tried: int = 0
    known: int = 0
    left: int = 0
    seconds: float = 0.0
    _seen: dict[str, Fault | None] = field(default_factory=dict)
    #: The current defining op of each value that a rewrite has redefined.
    _makers: dict[Value, Op] = field(default_factory=dict)
    #: The value that readers of a replaced value read now.
    _replacements: dict[Value, Value] = field(default_factory=dict)
    _renamed: dict[tuple, Op] = field(default_factory=dict)
    #: Values known to follow from constants alone, and values known not to.  A rewrite can move a
    #: value from the second set to the first.
    _fixed: set[Value] = field(default_factory=set)
    _varied: set[Value] = field(default_factory=set)
    _digests: dict[Value, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._memory = PassedChecks("rewrites", _SOURCES)
        self._memory_of_nodes = PassedChecks("rewrites-of-nodes", (*_SOURCES, *_OF_NODES))

    def learn(self, ops: Sequence[Op]) -> None:
        """Record ops and those nested in them, also if they redefine the result of another op."""
        for op in ops:
            self._makers.update(dict.fromkeys(op.results, op))
            for region in op.regions if op.kind in CONTROL_FLOW else ():
                self.learn(region.ops)
        if any(all(map(self._is_known, op.uses())) for op in ops):
            self._varied.clear()

    def follow(self, rewrite: Rewrite) -> None:
        """Record the replacements of a rewrite, which later readers see."""
        moved = {a: b for a, b in rewrite.values.items() if a is not b}
        self._replacements.update(moved)
        if any(map(self._is_known, moved.values())):
            self._varied.clear()

    def _is_known(self, value: Value) -> bool:
        maker = self._makers.get(value) or self.values.makers.get(value)
        return value in self._fixed or (maker is not None and maker.kind in CONSTANTS)

    def maker(self, value: Value) -> Op | None:
        """Return the defining op of a value with its current operands, or None if unknown."""
        op = self._makers.get(value) or self.values.makers.get(value)
        if op is None:
            return None
        renamed = {v: self._current_value(v) for v in op.uses() if v in self._replacements}
        if not renamed:
            return op
        return self._renamed.setdefault((op, *renamed.values()), op.substitute(renamed))

    def _current_value(self, value: Value) -> Value:
        seen = {value}
        while (then := self._replacements.get(value)) is not None and then not in seen:
            value = then
            seen.add(value)
        return value

    def is_constant(self, value: Value) -> bool:
        """Return whether a value follows from constants alone."""
        if value in self._fixed:
            return True
        if value in self._varied:
            return False
        stack, seen = [value], {value}
        while stack:
            op = self.maker(stack.pop())
            if op is None or "random" in _traits(op):
                self._varied.add(value)
                return False
            more = [v for v in op.uses() if v not in seen]
            seen.update(more)
            stack += more
        self._fixed.add(value)
        return True

    def digest(self, value: Value) -> str:
        """Return the hash of a value that follows from constants.

        A rewrite that is right for some weights need not be right for others.
        """
        if value not in self._digests:
            self._digests[value] = array_digest(self.values[value])
        return self._digests[value]

    def find(self, rewrite: Rewrite, allowance: float) -> Fault | None:
        """Return the first class for which the two sides of ``rewrite`` differ, or None.

        Classes that the rule excludes are skipped.  None also means that nothing could be tried.
        ``allowance`` is the total time in seconds that may have been spent when this returns.
        """
        pair = Pair.of(rewrite, self)
        if pair is None:
            return None
        key = pair.key()
        memory = self._memory if pair.nodes is None else self._memory_of_nodes
        if key in self._seen:
            return self._seen[key]
        if key in memory:
            self.known += 1
            return None
        if self.seconds > allowance:
            self.left += 1
            return None
        started = time.perf_counter()
        found = self._persistent_fault(pair)
        self.seconds += time.perf_counter() - started
        self.tried += 1
        self._seen[key] = found
        if found is None:
            memory.add(key)
        return found

    def _persistent_fault(self, pair: Pair) -> Fault | None:
        """Return a fault that remains when the inputs are computed by their defining ops.

        A rule may rely on a property of what it matched, such as that a value is not negative.
        """
        found = next(pair.faults(), None)
        for _ in range(MOST_CONTEXT):
            wider = pair.wider() if found is not None else None
            if wider is None:
                break
            pair, found = wider, next(wider.faults(), None)
        if found is None:
            return None
        return replace(found, value=pair.origin.get(found.value, found.value))


class _Undefined(Exception):
    """The ops before a rewrite are undefined on the trial values, e.g. an index out of bounds."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Both sides of a rewrite, with the ops before them on which several values depend.

    ``free`` values are inputs of the pair, ``fixed`` values are constants.
    """

    rewrite: Rewrite
    old: tuple[Op, ...]
    new: tuple[Op, ...]
    values: tuple[tuple[Value, Value], ...]
    free: tuple[Value, ...]
    fixed: Mapping[Value, np.ndarray]
    adversary: Adversary
    weights: WeightStore
    #: Constants computed by the rewrite itself: rounded to their dtype, they may be off by one ulp.
    computed: frozenset[Value] = frozenset()
    #: For a pair imported from ONNX nodes: the pair of nodes, and a map from node values to values
    #: here.
    nodes: Pair | None = None
    origin: Mapping[Value, Value] = field(default_factory=dict)

    @staticmethod
    def of(rewrite: Rewrite, adversary: Adversary) -> Pair | None:
        """Return the pair of a rewrite, or None if there is nothing to compare.

        None also stands for an op that is undefined on other values.
        """
        values = tuple(
            (a, b)
            for a, b in rewrite.values.items()
            if isinstance(a.type, TensorType) and isinstance(b.type, TensorType)
        )
        old, new = list(rewrite.old), list(rewrite.new)
        if not old:  # readers now read another value, whose computation is unchanged
            makers = (adversary.maker(a) for a, b in values if a is not b)
            old = list(dict.fromkeys(op for op in makers if op is not None))
        if not old or not values:
            return None
        found = Pair(rewrite, (), (), values, (), {}, adversary, adversary.weights)
        for _ in range(MOST_CONTEXT):
            sides = [set(found._frontier(ops, k)) for k, ops in enumerate((old, new))]
            more = [
                {v for v in sides[k] - sides[1 - k] if found._depends(v, sides[1 - k])}
                for k in (0, 1)
            ]
            if not any(more):
                break
            old, new = (
                found._with_definitions(ops, k, more[k]) for k, ops in enumerate((old, new))
            )
        return found._with(old, new)

    def wider(self) -> Pair | None:
        """Return the pair extended by the ops that define its free values, or None.

        The ops go on both sides if either side reads their result.  None if there are no such ops
        or if they are too expensive.
        """
        if self.nodes is not None:
            return self.nodes.wider()
        wanted, sides = set(self.free), [list(self.old), list(self.new)]
        for side in (0, 1):
            more = self._with_definitions(sides[side], side, wanted)
            while len(more) > len(sides[side]):
                sides[side], more = more, self._with_definitions(more, side, wanted)
        old, new = sides
        if len(old) == len(self.old) and len(new) == len(self.new):
            return None
        return self._with(old, new)

    def _with(self, old: Sequence[Op], new: Sequence[Op]) -> Pair | None:
        ops = (*old, *new)
        nodes = any(op.kind.startswith("onnx.") for op in ops)
        if not all(map(_is_testable, ops)):
            return None
        sides = enumerate((old, new))
        bounds = dict.fromkeys(v for k, side in sides for v in self._frontier(side, k))
        if nodes:  # optional inputs that nodes omit are values too
            bounds = dict.fromkeys(v for v in bounds if not self._is_absent(v))
        fixed = {v: self.adversary.values[v] for v in bounds if self.adversary.is_constant(v)}
        free = tuple(v for v in bounds if v not in fixed)
        known = all(isinstance(v.type, TensorType) and v.type.is_static for v in bounds)
        if not free or not known:
            return None
        # An event lists its old ops in match order, not in program order.
        old, new = stable_topological(old), stable_topological(new)
        found = replace(self, old=tuple(old), new=tuple(new), free=free, fixed=fixed)
        if not nodes:
            return found
        from core_compiler.debug.imported_pairs import as_imported

        made = as_imported(found)
        return made if made is not None and all(map(_is_testable, (*made.old, *made.new))) else None

    def _is_absent(self, value: Value) -> bool:
        maker = self.adversary.maker(value)
        return maker is not None and maker.kind == "onnx.absent"

    def _maker(self, value: Value) -> Op | None:
        """Return the defining op of a value if it can be evaluated on other values.

        Constants have none.
        """
        op = self.adversary.maker(value)
        return op if op is not None and op.kind not in CONSTANTS and _is_testable(op) else None

    def _depends(self, value: Value, others: set[Value]) -> bool:
        """Return whether a value is computed from one of ``others`` within a few ops."""
        stack, seen = [(value, 0)], {value}
        while stack:
            current, depth = stack.pop()
            op = self._maker(current)
            if op is None or depth >= MOST_CONTEXT:
                continue
            for read in op.uses():
                if read in others:
                    return True
                if read not in seen:
                    seen.add(read)
                    stack.append((read, depth + 1))
        return False

    def _frontier(self, ops: Sequence[Op], side: int) -> list[Value]:
        """Return the inputs of a side: values that it reads or returns and does not define."""
        made = {v for op in ops for v in op.results}
        needed = [*(v for op in ops for v in op.uses()), *(pair[side] for pair in self.values)]
        return list(dict.fromkeys(v for v in needed if v not in made))

    def _with_definitions(self, ops: Sequence[Op], side: int, values: set[Value]) -> list[Op]:
        """Return ``ops``, preceded by the ops that define those of ``values`` that they need."""
        reads = [v for v in self._frontier(ops, side) if v in values]
        more = dict.fromkeys(op for v in reads if (op := self._maker(v)) is not None)
        return [*more, *ops]

    # -- identity --------------------------------------------------------------------------------

    def key(self) -> str:
        """Return the SHA-256 of the pair's ops, attributes, types, constants and tolerance."""
        if self.nodes is not None:
            return self.nodes.key()
        numbers: dict[Value, int] = {}
        state = hashlib.sha256()

        def name(value: Value) -> str:
            if value not in numbers:
                numbers[value] = len(numbers)
                state.update(f"{numbers[value]}:{value.type};".encode())
                if value in self.fixed:
                    state.update(self.adversary.digest(value).encode())
            return str(numbers[value])

        def put(ops: Sequence[Op]) -> None:
            for op in ops:
                state.update(f"{op.kind}({','.join(map(name, op.operands))})".encode())
                state.update(repr(attributes_key(op.attributes.items())).encode())
                for region in op.regions:
                    state.update(",".join(map(name, region.arguments)).encode())
                    put(region.ops)
                    state.update(",".join(map(name, region.outputs)).encode())
                state.update(f"->{','.join(map(name, op.results))};".encode())

        put(self.old)
        state.update(b"=>")
        put(self.new)
        pairs = ";".join(f"{name(a)}={name(b)}" for a, b in self.values)
        rule = f"{self.rewrite.rule}|{self.rewrite.tolerance}|{self.rewrite.except_for}"
        state.update(f"{pairs}|{rule}".encode())
        return state.hexdigest()

    # -- trying ----------------------------------------------------------------------------------

    @property
    def elementwise(self) -> bool:
        return all(map(self._is_elementwise, (*self.old, *self.new)))

    def _is_elementwise(self, op: Op) -> bool:
        """Return whether an op is elementwise or broadcasts a constant for an elementwise op."""
        if op.kind in CONSTANTS or "elementwise" in _traits(op):
            return True
        own = {o.results[0]: o for o in (*self.old, *self.new) if len(o.results) == 1}
        known = self.adversary.is_constant
        return op.kind == "core.broadcast" and (
            known(op.operands[0]) or getattr(own.get(op.operands[0]), "kind", "") in CONSTANTS
        )

    def faults(self) -> Iterator[Fault]:
        floats = any(v.type.dtype.is_float for v in self.free)
        is_expensive = sum(map(_flops, (*self.old, *self.new))) > MOST_FLOPS
        left_out = hurtful.OF_NODES | {"positions"}
        classes = [c for c in hurtful.CLASSES if c not in left_out] if floats else ["mixed"]
        if floats and not self.elementwise:  # a sum over special values is NaN
            classes = ["nan", "spread"] if is_expensive else classes[1:]
        elif is_expensive:
            classes = classes[:1]
        if not self.elementwise and any(v.type.dtype.is_integer for v in self.free):
            classes.append("positions")
        for class_ in classes:
            if class_ in self.rewrite.except_for:
                continue
            given = self._trial_inputs(class_)
            try:
                fault = (
                    self._exact(class_, given)
                    if self.rewrite.tolerance is None
                    else (self._inexact(class_, given))
                )
            except _Undefined:
                continue
            if fault is not None:
                yield fault

    def _trial_inputs(self, class_: str) -> dict[Value, np.ndarray]:
        """Return arrays for the free values; the same class always returns the same arrays."""
        seed = int.from_bytes(hashlib.sha256(class_.encode()).digest()[:4], "little")
        random = np.random.default_rng(seed)
        constants = [c for a in self.fixed.values() if a.size <= SMALL for c in np.ravel(a)]
        made = {
            v: hurtful.array(class_, v.type, random, constants, self.elementwise) for v in self.free
        }
        return {**self.fixed, **made}

    def _exact(self, class_: str, given) -> Fault | None:
        from core_compiler.debug.bits import differing, same_bits

        old, new = self._evaluate_both(given)
        for (value, _), want, got in zip(self.values, old, new, strict=True):
            if same_bits(want, got):
                continue
            if want.shape != got.shape or want.dtype != got.dtype:
                return Fault(class_, _note(class_, "another shape or dtype"), value)
            index = tuple(map(int, np.argwhere(differing(want, got))[0]))
            off = distance(want, got).relative
            return _fault(class_, "keeps bits", value, index, want, got, off)
        return None

    def _inexact(self, class_: str, given) -> Fault | None:
        """Check an inexact rule: equal in f64 where finite, and rounded no worse; else equal."""
        old, new = self._evaluate_both(given)
        try:
            wide_old, wide_new = (self.wide(side, given) for side in (0, 1))
        except (InternalError, KeyError):
            return None
        for (value, _), want, got, true, other in zip(
            self.values, old, new, wide_old, wide_new, strict=True
        ):
            if want.shape != got.shape or want.dtype != got.dtype:
                return Fault(class_, _note(class_, "another shape or dtype"), value)
            if want.dtype.kind in "biu":
                if not np.array_equal(want, got):
                    index = tuple(map(int, np.argwhere(want != got)[0]))
                    return _fault(class_, "differs", value, index, want, got, float("inf"))
                continue
            bad = np.isnan(want) != np.isnan(got)
            if bad.any():
                index = tuple(map(int, np.argwhere(bad)[0]))
                return _fault(class_, "has NaN elsewhere", value, index, want, got, float("inf"))
            fault = self._rounding(class_, value, (want, got), (true, other), given)
            if fault is not None:
                return fault
        return None

    def _rounding(self, class_, value, narrow, wide, given) -> Fault | None:
        if class_ == "denormals":
            return None  # tolerances hold for ordinary values only
        want, got = narrow
        finite = np.isfinite(want) & np.isfinite(got) & np.isfinite(wide[0]) & np.isfinite(wide[1])
        if not finite.any():
            return None
        true, other = (np.where(finite, a, 0.0) for a in wide)
        off = distance(true, other)
        allowed = max(ALGEBRA, self.rewrite.in_f64)
        if off.relative > allowed and off.relative > MOVED * self.sensitivity(given, value, finite):
            return _fault(class_, "differs in f64 too", value, off.index, want, got, off.relative)
        if class_ not in hurtful.FINITE:
            return None
        masked = [np.where(finite, widened(a), 0.0) for a in (want, got)]
        before, after = (distance(true, a, want.dtype).relative for a in masked)
        tolerance = self.rewrite.tolerance or 0.0
        if after > max(tolerance, GROWTH * max(before, epsilon(want.dtype))):
            where = distance(true, masked[1], want.dtype).index
            return _fault(
                class_,
                f"rounds worse ({after:.2g}, before {before:.2g})",
                value,
                where,
                want,
                got,
                after,
            )
        return None

    def sensitivity(self, given, value: Value, finite: Any = True) -> float:
        """Return the change of both sides in f64 when their inputs change by one ulp.

        Scalar constants change by one ulp of their own dtype.
        """
        index = next(i for i, (a, _) in enumerate(self.values) if a is value)
        largest = 0.0
        for side in (0, 1):
            true = np.where(finite, self.wide(side, given)[index], 0.0)
            for seed in range(4):
                other = np.where(finite, self.wide(side, given, seed)[index], 0.0)
                largest = max(largest, distance(true, other).relative)
        return largest

    def _evaluate_both(self, given) -> tuple[list[np.ndarray], list[np.ndarray]]:
        evaluator = Evaluator(self.weights, 1 << 28)
        sides = []
        for side, ops in enumerate((self.old, self.new)):
            made = dict(given)
            try:
                with np.errstate(all="ignore"):
                    for op in ops:
                        arrays = [made[v] for v in op.operands]
                        made.update(zip(op.results, evaluator.op(op, arrays, made), strict=True))
            except IndexError:
                if side == 0:
                    raise _Undefined from None
                raise
            sides.append([made[pair[side]] for pair in self.values])
        return sides[0], sides[1]

    def wide(self, side: int, given, seed: int | None = None) -> list[np.ndarray]:
        wide = F64Evaluator(Evaluator(self.weights, 1 << 28))
        made = {v: widened(a) for v, a in given.items()}
        random = np.random.default_rng(seed)
        if seed is not None:
            made = {v: self._moved(v, given[v], random, seed) for v in made}
        with np.errstate(all="ignore"):
            for op in self.new if side else self.old:
                if op.kind in CONSTANTS and seed is not None:
                    narrow = wide.narrow.op(op, ())[0]
                    made[op.results[0]] = rerounded(narrow, random, seed)
                    continue
                arrays = [made[v] for v in op.operands]
                made.update(zip(op.results, wide.op(op, arrays, made), strict=True))
        return [made[pair[side]] for pair in self.values]

    def _moved(self, value: Value, array: np.ndarray, random, seed: int) -> np.ndarray:
        if value in self.computed:
            return moved_by_an_ulp(array, random)
        if value in self.fixed:
            return rerounded(array, random, seed)
        return nudged(widened(array), random)


def _traits(op: Op) -> frozenset[str]:
    """Return the traits that the op's definition declares; empty for ops with regions."""
    return definition(op).traits if op.kind in REGISTRY else frozenset()


def _is_testable(op: Op) -> bool:
    """Return whether an op is defined on all values.

    Loops may not end, and indices may be out of bounds.
    """
    if op.kind in MEANING_IN_REGION:
        return all(map(_is_testable, op.regions[0].ops))
    if op.kind.startswith("onnx."):  # the ops that it is imported as are tested instead
        return not op.regions
    if not op.kind.startswith("core.") or op.kind in CONTROL_FLOW:
        return False
    return "random" not in _traits(op)


def _flops(op: Op) -> int:
    if op.kind in CONSTANTS:
        return 0
    if op.kind in MEANING_IN_REGION:
        return sum(map(_flops, op.regions[0].ops))
    return cost(op).flops


def _fault(class_, problem, value, index, want, got, error) -> Fault:
    elements = [float(a[index]) if a.ndim == len(index) else None for a in (want, got)]
    return Fault(class_, _note(class_, problem), value, index, elements[0], elements[1], error)


def _note(class_: str, problem: str) -> str:
    return (
        f"differs for {hurtful.CLASSES[class_]}: {problem}"
        if problem != "keeps bits"
        else (f"does not keep the bits of {hurtful.CLASSES[class_]}")
    )
