"""What a recording says about its numbers, for the view and for the command line.

Rows are plain dictionaries.  Errors are relative to the largest magnitude of the value before the
rewrite, as checks state them; None: not known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.ir import Op, Value
from core_compiler.ir.events import CheckRecord, FrameworkRecord, Observer, TensorStats
from core_compiler.record import Recording
from core_compiler.record.reader import RecordedRewrite, Stage

Row = dict[str, Any]
#: Verdicts, those to look at first.
ORDER = ("failed", "within", "unchecked", "bitwise")
ACCUMULATED = "accumulated_error/"
LEFT_OUT = "statistics_left_out/"


# -- over all passes ------------------------------------------------------------------------------


def passes(stages: Sequence[Stage], figures: Mapping[str, Any]) -> list[Row]:
    """A row a stage: ``verdicts`` by count, ``worst`` error of one check, and the ``accumulated``
    error of the outputs against the import (None where it was not measured)."""
    return [
        {
            "index": s.index, "name": s.pass_name, "changed": s.changed, "exact": s.exact,
            "tolerance_class": s.tolerance_class, "verdicts": dict(s.verdicts),
            "worst": s.worst_error,
            "accumulated": as_number(figures.get(f"{ACCUMULATED}{s.index}")),
        }
        for s in stages
    ]  # fmt: skip


def changing(rows: Sequence[Row]) -> list[Row]:
    """The passes that changed bits, in order: a check was only within its tolerance, or failed."""
    return [r for r in rows if r["verdicts"].get("within") or r["verdicts"].get("failed")]


def verdicts(rows: Sequence[Row]) -> dict[str, int]:
    """How many checks of all passes had each verdict."""
    return {v: sum(r["verdicts"].get(v, 0) for r in rows) for v in ORDER}


def peer(figures: Mapping[str, Any]) -> Row | None:
    """The outputs against another framework's, where the recording has them."""
    error = as_number(figures.get("worst_relative_error"))
    if error is None:
        return None
    ulp = as_number(figures.get("worst_ulp")) or 0.0
    return {"name": str(figures.get("against", "the peer")), "error": error, "ulp": ulp}


def framework(records: Sequence[FrameworkRecord]) -> Row | None:
    """The comparison of an import's values with their framework in short: how many, how many have
    the ``same`` bits, the ``worst`` (None where all have); None where nothing was compared."""
    if not records:
        return None
    worst = max(records, key=lambda r: r.error)
    return {
        "framework": worst.framework, "values": len(records),
        "same": sum(r.same for r in records),
        "worst": None if worst.same else {"node": worst.node, **beside(worst)},
    }  # fmt: skip


class Beside(Observer):
    """Hears how the values of an import compare with those of its framework."""

    def __init__(self) -> None:
        self._records: list[FrameworkRecord] = []

    def framework(self, records: Sequence[FrameworkRecord]) -> None:
        self._records = list(records)

    def told(self) -> dict[str, Any] | None:
        """The comparison in short; None where there was none."""
        return framework(self._records)


def beside(record: FrameworkRecord) -> Row:
    """A value beside its framework's: ``error`` of the largest magnitude there, at ``element``,
    whose numbers are ``theirs`` and ``ours``, ``absolute`` and ``ulps`` apart."""
    theirs, ours = (_shortest(n, record.value) for n in (record.theirs, record.ours))
    distance = None if theirs is None or ours is None else abs(ours - theirs)
    return {
        "error": as_number(record.error), "same": record.same, "element": list(record.index),
        "theirs": theirs, "ours": ours, "absolute": as_number(distance),
        "ulps": 0 if record.same else ulps(record.theirs, record.ours, _numpy(record.value)),
    }  # fmt: skip


def framework_values(
    recording: Recording, place: Callable[[Op], tuple[str, int]] | None = None
) -> list[Row]:
    """The values of the import beside those of the framework, in its order: :func:`beside`, with
    the ``node``, and ``op`` that makes the value (None: an input of the model)."""
    place = place or place_of
    records = recording.framework_values()
    makers = made_by(recording, 0) if records else {}
    rows = []
    for number, each in enumerate(records):
        op = makers.get(each.value)
        file, line = ("", 0) if op is None else place(op)
        rows.append({
            "place": number, "framework": each.framework, "node": each.node, **beside(each),
            "name": name_of(recording, each.value), "type": str(each.value.type),
            "op": None if op is None else recording.op_id(op),
            "kind": "input" if op is None else op.kind, "file": file, "line": line,
            "scope": "" if op is None or op.origin is None else op.origin.scope,
        })  # fmt: skip
    return rows


def against(told: Row) -> str:
    """:func:`framework` in a line."""
    text = (
        f"against {told['framework']}: {told['values']} values, {told['same']} with the same bits"
    )
    worst = told["worst"]
    if worst is None:
        return text
    return f"{text}, worst error {worst['error']:.3g} of the largest, at {worst['node']}"


# -- the checks of a pass -------------------------------------------------------------------------


def checks(
    recording: Recording, stage: int, rewrites: Sequence[RecordedRewrite] | None = None,
    place: Callable[[Op], tuple[str, int]] | None = None,
) -> list[Row]:  # fmt: skip
    """The checks of a stage, failed ones first, then by error.

    ``rewrite`` is the rewrite's number (None: a launch's kernel, or the whole stage), ``op`` what
    to select for it; ``old`` and ``new`` are the numbers at ``element`` of ``value``, ``absolute``
    and ``ulps`` how far they are apart.  ``rewrites``: the stage's, where they are known.
    """
    place = place or place_of
    rewrites = recording.rewrites(stage) if rewrites is None else rewrites
    numbers = {r.rewrite: r for r in rewrites}
    records = recording.checks(stage, rewrites)
    kernels = _launches(recording, stage, [r for r in records if r.rewrite is None])
    rows = []
    for record in records:
        found = numbers.get(record.rewrite) if record.rewrite is not None else None
        op = kernels.get(record) if found is None else _shown(found, record.value)
        rows.append(_check(recording, record, found, op, place))
    return sorted(rows, key=_urgency)


def _urgency(row: Row) -> tuple:
    error = math.inf if row["error"] is None else row["error"]
    return ORDER.index(row["verdict"]), -error, row["rewrite"] if row["rewrite"] is not None else -1


def _check(recording: Recording, record: CheckRecord, rewrite: RecordedRewrite | None,
           op: Op | None, place: Callable[[Op], tuple[str, int]]) -> Row:  # fmt: skip
    distance = None
    if record.old is not None and record.new is not None:
        distance = abs(record.new - record.old)
    value, checked = record.value, record.verdict in ("within", "failed", "bitwise")
    file, line = ("", 0) if op is None else place(op)
    return {
        "rewrite": None if rewrite is None else rewrite.number,
        "rule": "" if rewrite is None else rewrite.rewrite.rule, "verdict": record.verdict,
        "error": as_number(record.worst_error) if checked else None,
        "tolerance": None if rewrite is None else rewrite.rewrite.tolerance,
        "absolute": as_number(distance),
        "ulps": None if value is None else ulps(record.old, record.new, _numpy(value)),
        "old": _shortest(record.old, value), "new": _shortest(record.new, value),
        "value": None if value is None else name_of(recording, value),
        "type": "" if value is None else str(value.type), "element": list(record.index),
        "op": None if op is None else recording.op_id(op), "kind": "" if op is None else op.kind,
        "file": file, "line": line, "seconds": record.seconds, "note": record.note,
    }  # fmt: skip


def _shown(rewrite: RecordedRewrite, value: Value | None) -> Op | None:
    """The op that stands for a rewrite: what carries the value, else the first that computes."""
    new, old = rewrite.rewrite.new, rewrite.rewrite.old
    carrier = rewrite.rewrite.values.get(value) if value is not None else None
    for op in (*new, *old):
        if carrier is not None and carrier in op.results:
            return op
    computing = [op for op in (*new, *old) if not op.kind.endswith("constant")]
    return next(iter(computing or (*new, *old)), None)


def _launches(
    recording: Recording, stage: int, records: Sequence[CheckRecord]
) -> dict[CheckRecord, Op]:
    """The launch that each check of a kernel's machine code is about: they come in program order,
    one a launch."""
    # The whole of a stage's results and of the program are of no launch.
    records = [r for r in records if r.note.startswith("kernel ")]
    if not records:
        return {}
    body = recording.module(stage).main.body.ops
    found = [op for op in body if op.kind == "target.launch"]
    if len(found) == len(records):
        return dict(zip(records, found, strict=True))
    named: dict[str, Op] = {}
    for op in found:
        named.setdefault(op["kernel"], op)
    told = {r: r.note.removeprefix("kernel ").partition(" ")[0].rstrip(":") for r in records}
    return {r: named[name] for r, name in told.items() if name in named}


# -- values ---------------------------------------------------------------------------------------


def values(
    recording: Recording, stats: Sequence[TensorStats] | None = None,
    makers: Mapping[int, Mapping[Value, Op]] | None = None,
    place: Callable[[Op], tuple[str, int]] | None = None,
) -> list[Row]:  # fmt: skip
    """Statistics of values on the example inputs, in program order of their stages.

    ``place`` counts the values of a stage; ``op`` makes the value (None: an input of the model);
    ``bins`` are the counts of the histogram
    from ``minimum`` to ``maximum``; ``first_bad``: no earlier value of its stage has NaN or Inf.
    """
    place = place or place_of
    stats = recording.tensors() if stats is None else stats
    rows: list[Row] = []
    bad: set[int] = set()
    counted: dict[int, int] = {}
    for each in stats:
        if makers is None or each.stage not in makers:
            makers = {**(makers or {}), each.stage: made_by(recording, each.stage)}
        op = makers[each.stage].get(each.value)
        file, line = ("", 0) if op is None else place(op)
        wrong = bool(each.nan or each.inf)
        number = counted[each.stage] = counted.get(each.stage, -1) + 1
        rows.append({
            "stage": each.stage, "place": number, "value": recording.value_id(each.value),
            "name": name_of(recording, each.value), "type": str(each.value.type),
            "op": None if op is None else recording.op_id(op),
            "kind": "input" if op is None else op.kind,
            "kernel": None if op is None else op.get("kernel"), "file": file, "line": line,
            "scope": "" if op is None or op.origin is None else op.origin.scope,
            "minimum": as_number(each.minimum), "maximum": as_number(each.maximum),
            "mean": as_number(each.mean), "largest": largest(each),
            "nan": each.nan, "inf": each.inf,
            "bins": list(each.histogram[1]), "first_bad": wrong and each.stage not in bad,
        })  # fmt: skip
        if wrong:
            bad.add(each.stage)
    return rows


def made_by(recording: Recording, stage: int) -> dict[Value, Op]:
    """Which op of ``main`` makes each value of a stage."""
    body = recording.module(stage).main.body
    return {value: op for op in body.ops for value in op.results}


def largest(stats: TensorStats) -> float | None:
    """The largest finite magnitude; None where no element is finite."""
    ends = [abs(n) for n in (stats.minimum, stats.maximum) if not math.isnan(n)]
    return max(ends, default=None)


# -- small ----------------------------------------------------------------------------------------


def said(value: float | None) -> float | str | None:
    """A number as a view is sent it: JSON has none that is not finite, which becomes a word."""
    return value if value is None or math.isfinite(value) else str(value)


def sent(rows: Sequence[Row], *columns: str) -> list[Row]:
    """Rows with :func:`said` numbers in ``columns``."""
    return [{**row, **{name: said(row[name]) for name in columns}} for row in rows]


def name_of(recording: Recording, value: Value) -> str:
    """How the IR text names a value."""
    return f"%{value.name or recording.value_id(value)}"


def place_of(op: Op) -> tuple[str, int]:
    """File and line of the model that an op came from; ("", 0) where nobody knows."""
    nodes = () if op.origin is None else op.origin.nodes()
    return next(((n.file, n.line) for n in nodes if n.file), ("", 0))


def ulps(old: float | None, new: float | None, dtype: np.dtype | None) -> int | None:
    """Floats of ``dtype`` from ``old`` to ``new``; None where one is not finite or dtype is not a
    float of 2, 4 or 8 bytes."""
    if old is None or new is None or dtype is None:
        return None
    if not (math.isfinite(old) and math.isfinite(new)):
        return None
    a, b = places(np.array([old, new], np.float64).astype(dtype))
    return abs(int(a) - int(b))


def places(x: np.ndarray) -> np.ndarray:
    """Each float's number in the order of all floats of its dtype (+0 and -0 are both 0)."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(np.int64)
    least = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(bits < 0, least - bits, bits)


def _numpy(value: Value) -> np.dtype | None:
    kind = getattr(value.type, "dtype", None)
    return kind.numpy if kind is not None and kind.is_float else None


def _shortest(number: float | None, value: Value | None) -> float | None:
    """The number with as few digits as its dtype needs; None where there is none (NaN too)."""
    dtype = None if value is None else _numpy(value)
    if number is None or dtype is None or not math.isfinite(number):
        return as_number(number)
    return float(str(np.array(number).astype(dtype)))


def as_number(value: Any) -> float | None:
    """A number, None where there is none (NaN, nothing, text)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else number


def as_count(value: Any) -> int:
    """A whole number, 0 where there is none."""
    found = as_number(value)
    return 0 if found is None or math.isinf(found) else int(found)


def by_launch(figures: Mapping[str, Any], name: str) -> dict[int, float]:
    """A figure of each launch of an execution (``runs``: how often it ran), by its number; empty
    where there is none that makes sense."""
    try:
        found = [float(part) for part in json.loads(str(figures.get(name, "[]")))]
    except (ValueError, TypeError):
        return {}
    return {i: part for i, part in enumerate(found) if math.isfinite(part)}
