"""Local checks: every rewrite is evaluated on real tensors, before and after, and compared.

The old and the new ops of one rewrite are evaluated by the reference on the *same* boundary values,
and the mapped outputs are compared: bit for bit if the rule is exact, else within the tolerance
that the rule declares.  The first bad rewrite is therefore named without a search.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from core_compiler.debug.adversarial import ALGEBRA, LEAST_SECONDS, MOVED, PART, Adversary, Pair
from core_compiler.debug.bits import differing, same_bits
from core_compiler.debug.buffers import contents
from core_compiler.debug.claims import check_claim
from core_compiler.debug.evaluate import Evaluator, Values
from core_compiler.debug.metric import distance
from core_compiler.debug.results import counting
from core_compiler.ir import (
    BufferType,
    Module,
    Op,
    OpaqueType,
    Rewrite,
    Rounding,
    TensorType,
    Value,
)
from core_compiler.ir.events import CheckRecord
from core_compiler.ir.replay import differences, unproven
from core_compiler.support.errors import InternalError, UserError


def worst_error(old: np.ndarray, new: np.ndarray, steps: int = 0) -> tuple[float, tuple[int, ...]]:
    """Return ``max |new - old| / max |old|`` over the tensor, and the element with the maximum.

    Elements that are not finite must agree in kind (inf with the same inf, NaN with NaN); if they
    do not, the error is inf.  So is that of integers that differ by more than ``steps``.
    """
    if old.size == 0:
        return 0.0, ()
    if old.dtype.kind in "biu":
        apart = np.abs(old.astype(object) - new) if steps else (old != new).astype(np.int64)
        flat_index = int(np.argmax(apart))
        where = tuple(map(int, np.unravel_index(flat_index, old.shape)))
        most = int(apart.reshape(-1)[flat_index])
        if most > steps:
            return float("inf"), where
        return most / max(1, int(np.abs(old.astype(np.float64)).max())), where
    a, b = old.astype(np.float64), new.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    agree = finite | (np.isnan(a) & np.isnan(b)) | (a == b)
    if not agree.all():
        index = np.unravel_index(int(np.argmin(agree)), old.shape)
        return float("inf"), tuple(map(int, index))
    distance = np.zeros_like(a)
    np.subtract(b, a, out=distance, where=finite)
    np.abs(distance, out=distance)
    flat_index = int(np.argmax(distance))
    scale = float(np.max(np.abs(a), where=finite, initial=0.0))
    worst = float(distance.reshape(-1)[flat_index])
    error = 0.0 if worst == 0.0 else (worst / scale if scale else float("inf"))
    return error, tuple(map(int, np.unravel_index(flat_index, old.shape)))


def numbers(old: np.ndarray, new: np.ndarray, index: tuple[int, ...]) -> dict[str, float]:
    """Return the two values at an element, as ``old`` and ``new`` of a check record."""
    if not old.size or len(index) != old.ndim:
        return {}
    return {"old": float(old[index]), "new": float(new[index])}


#: Types whose values are tensors; opaque values of a frontend's level may be tensors.
_TENSORS = (TensorType, OpaqueType)
#: Number of times that inputs are moved by one ulp to measure the sensitivity of the results.
SEEDS = 8
_WRONG_MEMORY = "its memory contained other values"


class Checker:
    """The checker of the rewrites of a compile, stage by stage, on given inputs of ``main``.

    ``inputs`` are arrays in the order of main's arguments.  Raises :class:`UserError` if they do
    not match the arguments.
    """

    def __init__(self, module: Module, inputs: Sequence[np.ndarray], keep_bytes: int = 2 << 30):
        arguments = module.main.arguments
        if len(inputs) != len(arguments):
            raise UserError(
                f"expected {len(arguments)} inputs, got {len(inputs)}",
                "check",
                "pass one array for each input",
            )
        self.evaluator = Evaluator(module.weights, keep_bytes, module.functions)
        self.values = Values(self.evaluator, dict(zip(arguments, inputs, strict=True)))
        self.values.learn(module.main.body.ops)
        self.adversary = Adversary(module.weights, self.values)
        self._start_time = time.perf_counter()
        try:
            self.reference = [self.values[v] for v in module.main.outputs]
        except InternalError as problem:
            if module.main.level == "tensor":
                raise
            raise UserError(
                f"cannot check the model: {problem}", "check", "compile it without checking"
            ) from None
        for value, reference in zip(module.main.outputs, self.reference, strict=True):
            if isinstance(reference, tuple):
                raise UserError(
                    f"cannot check the model: its result {value.name!r} is a sequence",
                    "check",
                    "check it with the frontend 'onnx', which returns its tensors",
                )
        if self.evaluator.loop_evaluations:  # a broken loop condition must not run for ever
            self.evaluator.limit = 2 * self.evaluator.loop_evaluations + 16
        #: The values of the last stage before buffers, and the values that each buffer holds.
        self.values_before_buffers = self.values
        self.value_of_buffer: dict[Value, Value] = {}
        #: The last stage on buffers, with the outputs of main.
        self._outputs: tuple[Module | None, list[np.ndarray]] = None, []

    def stage(
        self,
        rewrites: Sequence[Rewrite],
        exact: bool,
        before: Module,
        after: Module,
        changes_semantics: bool = False,
    ) -> list[CheckRecord]:
        """Check the rewrites of the pass that made ``after`` from ``before``, in order.

        A pass that declares itself ``exact`` must have bitwise rewrites.  If ``after`` is
        bufferized it is run on real memory, and the contents of each buffer when written are
        compared with the value that it stands for.  The rules of a pass with
        ``changes_semantics`` must keep the bounds that they declare; a rule without one is exact.
        Changes that no event describes are checked as a rewrite of their own.
        """
        results: list[CheckRecord] = []
        self._follow_arguments(before, after)
        if after.main.level == "tensor" != before.main.level:
            self._follow_values(rewrites)
        if after.main.level == "target":
            if before.main.level != "target":
                self.values_before_buffers = self.values_of(before)
            return [*self._buffers(rewrites, after), *self.unlogged(before, after, rewrites)]
        # The values of another level are known for the example inputs only.
        same_level = before.main.level == after.main.level
        for rewrite in rewrites:
            self._learn(rewrite)
            results.append(self._checked(rewrite, exact, changes_semantics, same_level))
            self.adversary.follow(rewrite)
        return [*results, *self.unlogged(before, after, rewrites)]

    def follow(self, rewrites: Sequence[Rewrite]) -> None:
        """Apply the rewrites of a pass that is not checked."""
        for rewrite in rewrites:
            self._learn(rewrite)
            self.adversary.follow(rewrite)

    def _learn(self, rewrite: Rewrite) -> None:
        self.values.learn(rewrite.new)
        self.adversary.learn(rewrite.new)

    def _checked(
        self, rewrite: Rewrite, exact: bool, changes_semantics: bool, same_level: bool
    ) -> CheckRecord:
        if exact and rewrite.tolerance is not None:
            note = "an exact pass used a rule that may change bits"
            return CheckRecord(rewrite, "failed", note=note)
        record = self._rewrite(rewrite)
        if unproven(rewrite) and record.verdict in ("bitwise", "within"):
            note = f"unproven: one event replaces {len(rewrite.old)} ops; as a whole it is equal"
            record = replace(record, verdict="unchecked", note=note)
        needs_adversary = same_level and not changes_semantics and rewrite.claim is None
        if needs_adversary and record.verdict in ("bitwise", "within"):
            record = self._try_adversary(rewrite, record)
        return record

    def _try_adversary(self, rewrite: Rewrite, record: CheckRecord) -> CheckRecord:
        """Return ``record``, or a failed one if the rewrite differs on adversarial values."""
        spent = time.perf_counter() - self._start_time
        adversary = self.adversary
        fault = adversary.find(rewrite, max(LEAST_SECONDS, PART * (spent - adversary.seconds)))
        if fault is None:
            return record
        return replace(
            record,
            verdict="failed",
            worst_error=fault.error,
            value=fault.value,
            index=fault.index,
            old=fault.want,
            new=fault.got,
            note=f"{rewrite.rule} {fault.note}",
            adversarial=True,
        )

    def unlogged(
        self, before: Module, after: Module, rewrites: Sequence[Rewrite]
    ) -> list[CheckRecord]:
        """Return a record for each difference between the stages that no event explains.

        The verdict is ``failed`` if values differ or cannot be compared, else ``bitwise`` or
        ``within`` the rounding of f32.
        """
        found = self._check_argument_positions(before, after)
        for difference in differences(before, after, rewrites):
            record = CheckRecord(difference.rewrite, "unchecked")
            if difference.rewrite is not None and after.main.level != "target":
                self.values.learn(difference.rewrite.new)
                record = self._rewrite(difference.rewrite)
            outcome = "the values are equal"
            if record.verdict == "unchecked":
                outcome = record.note or "no values to compare"
            elif record.verdict != "bitwise":
                outcome = f"the values differ: relative error {record.worst_error:.3g} (of max abs)"
            note = f"{difference.note} (no event explains it); {outcome}"
            found.append(replace(record, note=note, kind="unlogged"))
        return found

    def _check_argument_positions(self, before: Module, after: Module) -> list[CheckRecord]:
        """Check that main's arguments keep their positions, by which callers pass them."""
        known = self.values.known
        for position, (old, new) in enumerate(
            zip(before.main.arguments, after.main.arguments, strict=False)
        ):
            if new is not old and known.get(new) is not known.get(old):
                note = f"argument {position} of @main changed from {old.name} to {new.name}: "
                note += "callers pass arguments by position"
                return [CheckRecord(None, "failed", note=note, kind="unlogged")]
        return []

    def _follow_arguments(self, before: Module, after: Module) -> None:
        """Map arguments whose types a pass has bound to the same values as before."""
        for old, new in zip(before.main.arguments, after.main.arguments, strict=False):
            if new not in self.values.known and old in self.values.known:
                self.values.known[new] = self.values.known[old]

    def _follow_values(self, rewrites: Sequence[Rewrite]) -> None:
        """Give each value of another level its initial meaning.

        All values are new there, so each rewrite is compared on the boundary that it had before.
        """
        for rewrite in rewrites:
            for old, new in rewrite.values.items():
                array = self.values[old]
                if isinstance(array, np.ndarray) and array.shape == new.type.shape:
                    self.values.known.setdefault(new, array)

    def _buffers(self, rewrites: Sequence[Rewrite], module: Module) -> list[CheckRecord]:
        started = time.perf_counter()
        for rewrite in rewrites:
            for old, new in rewrite.values.items():
                if isinstance(new.type, BufferType):
                    self.value_of_buffer.setdefault(new, self.value_of_buffer.get(old, old))
        arguments = {v: self.values.known[v] for v in module.main.arguments}
        buffer_contents, outputs = contents(
            module, arguments, self.evaluator, list(self.value_of_buffer)
        )
        self._outputs = module, outputs
        spent = (time.perf_counter() - started) / max(len(rewrites), 1)
        records = [
            self._check_buffer_contents(rewrite, buffer_contents, spent) for rewrite in rewrites
        ]
        if all(r.verdict != "failed" for r in records):
            # Memory moved by one rewrite may overwrite a buffer that no rewrite mentions.
            wrong = self._wrong(buffer_contents, buffer_contents)
            if wrong is not None:
                records.append(CheckRecord(None, "failed", **wrong, note=_WRONG_MEMORY))
        return records

    def _check_buffer_contents(
        self, rewrite: Rewrite, buffer_contents: Mapping[Value, np.ndarray], spent: float
    ) -> CheckRecord:
        """Check that the buffers mentioned by a rewrite held the values that they stand for."""
        if not rewrite.old and not rewrite.new:
            note = "a step of a schedule; kernels are checked against their semantics"
            return CheckRecord(rewrite, "unchecked", note=note, seconds=spent)
        accessed = [
            v for op in rewrite.new for v in (*op.operands, *op.results) if v in buffer_contents
        ]
        wrong = self._wrong(dict.fromkeys([*rewrite.values.values(), *accessed]), buffer_contents)
        if wrong is not None:
            return CheckRecord(rewrite, "failed", **wrong, seconds=spent, note=_WRONG_MEMORY)
        return CheckRecord(rewrite, "bitwise", seconds=spent)

    def _wrong(
        self, buffers: Iterable[Value], buffer_contents: Mapping[Value, np.ndarray]
    ) -> dict | None:
        """Return the first of ``buffers`` that held other values than it stands for, or None."""
        for buffer_ in buffers:
            value = self.value_of_buffer.get(buffer_)
            if (
                buffer_ not in buffer_contents
                or value is None
                or not isinstance(value.type, TensorType)
            ):
                continue
            old, new = self.values_before_buffers[value], buffer_contents[buffer_]
            if not same_bits(old, new):
                error, index = worst_error(old, new)
                return {
                    "worst_error": error,
                    "value": value,
                    "index": index,
                    **numbers(old, new, index),
                }
        return None

    def tensor_of_buffer(self, buffer_: Value) -> np.ndarray | None:
        """Return the tensor that a buffer of a bufferized stage stands for, or None if unknown."""
        value = self.value_of_buffer.get(buffer_)
        try:
            found = None if value is None else self.values_before_buffers[value]
        except (KeyError, InternalError):
            return None
        return found if isinstance(found, np.ndarray) else None

    def values_of(self, module: Module) -> Values:
        """Return the values of one stage, evaluated by its own ops."""
        values = Values(self.evaluator, {v: self.values.known[v] for v in module.main.arguments})
        values.learn(module.main.body.ops)
        return values

    def results_of(self, module: Module) -> list[np.ndarray]:
        """Return main's outputs of one stage; for a bufferized stage those that were checked."""
        if module.main.level == "target":
            if self._outputs[0] is not module:
                raise InternalError("the stage was not executed on its buffers")
            return self._outputs[1]
        values = self.values_of(module)
        return [values[v] for v in module.main.outputs]

    def _rewrite(self, rewrite: Rewrite) -> CheckRecord:
        started = time.perf_counter()

        def record(verdict, **facts):
            return CheckRecord(rewrite, verdict, seconds=time.perf_counter() - started, **facts)

        if rewrite.claim is not None:
            return check_claim(rewrite, self.values, self.evaluator)
        if rewrite.attributes:
            note = "it sets attributes of the function, by which results are compared"
            return record("bitwise", note=note)
        if not rewrite.old and all(a is b for a, b in rewrite.values.items()):
            return record(
                "unchecked", note="it adds ops and replaces none: nothing to compare them with"
            )
        pairs = [
            (a, b)
            for a, b in rewrite.values.items()
            if isinstance(a.type, _TENSORS) and isinstance(b.type, _TENSORS)
        ]
        if not pairs:
            if not rewrite.values:
                return record("bitwise", note="the removed ops have no users")
            return record(
                "unchecked", note="the new ops work on buffers; kernels are checked as a whole"
            )
        try:
            old = self._local(rewrite.old, [a for a, _ in pairs])
            new = self._local(rewrite.new, [b for _, b in pairs])
        except (KeyError, InternalError) as error:
            return record("unchecked", note=f"no tensor value: {error}")
        allowed = rewrite.tolerance
        if rewrite.rounding is not None:
            old, allowed = _limited(rewrite.rounding, pairs, old)
        worst, value = 0.0, pairs[0][0]
        where: tuple[int, ...] = ()
        elements: dict[str, float] = {}
        bitwise = True
        for kept, a, b in _tensors(pairs, old, new, rewrite.room):
            if a.shape != b.shape or a.dtype != b.dtype:
                return record(
                    "failed",
                    value=kept,
                    worst_error=float("inf"),
                    note=f"{a.dtype}{a.shape} became {b.dtype}{b.shape}",
                )
            if same_bits(a, b):
                continue
            bitwise = False
            found, index = worst_error(a, b, rewrite.steps)
            if found >= worst:
                if found == 0.0:
                    index = tuple(map(int, np.argwhere(differing(a, b))[0]))
                worst, where, value = found, index, kept
                elements = numbers(a, b, index)
        if bitwise:
            return record("bitwise", tolerance=allowed or 0.0, value=value)
        verdict = "within" if allowed is not None and worst <= allowed else "failed"
        note = "" if verdict == "within" else _complaint(rewrite, allowed, worst)
        if verdict == "within" and allowed and not (rewrite.steps or rewrite.rounding):
            wrong = self._algebra(rewrite)
            if wrong is not None:
                verdict, note = "failed", wrong
        return record(
            verdict,
            worst_error=worst,
            tolerance=allowed or 0.0,
            value=value,
            index=where,
            note=note,
            **elements,
        )

    def _algebra(self, rewrite: Rewrite) -> str | None:
        """Return the complaint of evaluating both sides of an inexact rewrite in f64, or None.

        They must be equal except for f64's own rounding, unless the rule changes the semantics.
        """
        pair = Pair.of(rewrite, self.adversary)
        if pair is None:
            return None  # nothing to vary, or ops that are undefined on other values
        given = {
            v: np.asarray(self.values[pair.origin.get(v, v)]) for v in (*pair.free, *pair.fixed)
        }
        try:
            old, new = pair.wide(0, given), pair.wide(1, given)
        except (KeyError, InternalError):
            return None
        for (value, made), one, other in zip(pair.values, old, new, strict=True):
            off = distance(one, counting(value, made, one, other))
            if off.relative <= max(ALGEBRA, rewrite.in_f64):
                continue
            if off.relative > MOVED * pair.sensitivity(given, value):
                return (
                    f"{rewrite.rule} differs in f64 too: off by {off.relative:.3g} of the largest "
                    "value, so rounding does not explain the difference"
                )
        return None

    def _local(self, ops: Sequence[Op], wanted: Sequence[Value]) -> list[np.ndarray]:
        """Return ``wanted``, evaluated by ``ops`` on the boundary values, which no op defines."""
        made: dict[Value, np.ndarray] = {}
        for op in ops:
            arrays = [made[v] if v in made else self.values[v] for v in op.operands]
            read = op.uses() if op.regions else ()  # regions read values from the enclosing scope
            outer = {v: made[v] if v in made else self.values[v] for v in read}
            made.update(zip(op.results, self.evaluator.op(op, arrays, outer), strict=True))
        return [made[v] if v in made else self.values[v] for v in wanted]


def _limited(
    rounding: Rounding, pairs: Sequence[tuple[Value, Value]], old: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], float]:
    """Return the old tensors, the replaced one limited, and the tolerance relative to its largest.

    A value that the new ops define again keeps its tensor.
    """
    ends = rounding.low, rounding.high
    limited = [
        array if a is b else np.clip(array, *ends) for (a, b), array in zip(pairs, old, strict=True)
    ]
    changed = [array for (a, b), array in zip(pairs, limited, strict=True) if a is not b]
    largest = max((float(np.abs(array).max(initial=0.0)) for array in changed), default=0.0)
    return limited, rounding.error / largest if largest else 0.0


def _tensors(
    pairs, old: Sequence, new: Sequence, room: Collection[Value]
) -> Iterator[tuple[Value, Any, Any]]:
    """Yield each old value with its tensor before and after; a sequence's tensors in order."""
    for (kept, made), a, b in zip(pairs, old, new, strict=True):
        if isinstance(a, tuple) and isinstance(b, tuple):
            yield kept, np.array(len(a)), np.array(len(b))
            yield from ((kept, x, y) for x, y in zip(a, b, strict=False))
        else:
            yield kept, a, counting(kept, made, a, b, room)


def _complaint(rewrite: Rewrite, tolerance: float | None, worst: float) -> str:
    rule = rewrite.rule
    if tolerance is None:
        return f"{rule} is declared bit-exact but changed values (relative error {worst:.3g})"
    if rewrite.steps and not np.isfinite(worst):
        return f"{rule} may move integers by {rewrite.steps} but moved some by more"
    return f"{rule} is declared within {tolerance:g} but the relative error is {worst:.3g}"


def summary(records: Mapping[int, Sequence[CheckRecord]]) -> dict[str, int]:
    """Return the numbers of ``bitwise``, ``within``, ``failed`` and ``unchecked`` rewrites."""
    counts = dict.fromkeys(("bitwise", "within", "failed", "unchecked"), 0)
    for results in records.values():
        for result in results:
            counts[result.verdict] += 1
    return counts
