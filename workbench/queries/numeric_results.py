"""The numeric results of a recording, for the view and for the command line.

Rows are plain dictionaries. Errors are relative to the largest magnitude of the value before the
rewrite, as checks report them; None: not known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from core_compiler.ir import Op, TensorType, Value
from core_compiler.ir.events import CheckRecord, FrameworkRecord, Observer, TensorStats
from core_compiler.ir.target import LAUNCH, Launch
from core_compiler.record import Recording
from core_compiler.record.reader import RecordedRewrite, Stage

if TYPE_CHECKING:
    from core_compiler.debug.framework import FirstDifference

Row = dict[str, Any]
#: Verdicts, the most important first.
ORDER = ("failed", "within", "unchecked", "bitwise")
ACCUMULATED = "accumulated_error/"
LEFT_OUT = "statistics_left_out/"
#: The figure with the name of the framework whose values were compared; the figures of the
#: comparison start with the same prefix.
FRAMEWORK = "values_against"
#: The verdict of recordings that have none.
NOT_JUDGED = "not judged"


# -- over all passes ------------------------------------------------------------------------------


def passes(stages: Sequence[Stage], figures: Mapping[str, Any]) -> list[Row]:
    """Return one row per stage: ``verdicts`` by count, ``worst`` and ``accumulated`` error.

    ``worst`` is the error of one check; ``accumulated`` is the error of the outputs against the
    import (None if it was not measured).
    """
    return [
        {
            "index": s.index,
            "name": s.pass_name,
            "changed": s.changed,
            "exact": s.exact,
            "tolerance_class": s.tolerance_class,
            "verdicts": dict(s.verdicts),
            "worst": s.worst_error,
            "accumulated": as_number(figures.get(f"{ACCUMULATED}{s.index}")),
        }
        for s in stages
    ]


def changing(rows: Sequence[Row]) -> list[Row]:
    """Return the passes that changed bits (some check was only within tolerance, or failed)."""
    return [r for r in rows if r["verdicts"].get("within") or r["verdicts"].get("failed")]


def verdicts(rows: Sequence[Row]) -> dict[str, int]:
    """Return the number of checks of all passes with each verdict."""
    return {v: sum(r["verdicts"].get(v, 0) for r in rows) for v in ORDER}


def peer(figures: Mapping[str, Any]) -> Row | None:
    """Return the comparison of the outputs with another framework's, if recorded.

    The row has ``error`` (relative to the largest value), ``ulp`` (None: not finite, or no
    floats), ``verdict``, and ``integers``, the outputs whose integers differ.
    """
    error = as_number(figures.get("worst_relative_error"))
    if error is None:
        return None
    ulp = as_number(figures.get("worst_ulp"))
    name, verdict = str(figures.get("against", "the peer")), str(figures.get("verdict", NOT_JUDGED))
    integers = figures.get("other_integers") or []
    integers = json.loads(integers) if isinstance(integers, str) else integers  # (as recorded)
    return {"name": name, "error": error, "ulp": ulp, "verdict": verdict, "integers": integers}


def framework(
    records: Sequence[FrameworkRecord], figures: Mapping[str, Any] | None = None
) -> Row | None:
    """Return a summary of the comparison of an import's values with their framework.

    It has the number of values, how many have the ``same`` bits, how many were ``left_out``, how
    many kinds of nodes were ``tried`` on adversarial values, the ``worst`` tensor of floats as a
    whole (None if all are the same), the nodes whose tensors of ``integers`` differ, the
    ``verdict``, and the first node ``beyond`` its bound (None: none; see :func:`beyond`). None if
    there was no comparison.
    """
    figures = figures or {}
    name = figures.get(FRAMEWORK)
    if not records and not name:
        return None
    return {
        "framework": records[0].framework if records else str(name),
        **differing([{"node": r.node, **compared_value(r)} for r in records]),
        "left_out": as_count(figures.get(f"{FRAMEWORK}_left_out")),
        "tried": as_count(figures.get(f"{FRAMEWORK}_tried")),
        "verdict": str(figures.get(f"{FRAMEWORK}_verdict", NOT_JUDGED)),
        "beyond": _read_beyond(figures.get(f"{FRAMEWORK}_beyond")),
    }


def differing(rows: Sequence[Row]) -> Row:
    """Return a summary of values compared with their framework's.

    ``same`` is the number of values with the same bits; ``worst`` is the worst value of floats
    (None if all are the same); ``integers`` are the nodes whose integers differ.
    """
    unequal = [row for row in rows if not row["same"]]
    floats = [row for row in unequal if row["error"] is not None]
    return {
        "values": len(rows),
        "same": len(rows) - len(unequal),
        "worst": max(floats, key=lambda row: row["error"], default=None),
        "integers": [row["node"] for row in unequal if row["error"] is None],
    }


def beyond(found: FirstDifference) -> Row:
    """Return the first node that differs.

    The row has ``node`` of the framework, our ``op`` as text, ``line`` of the model, ``alone`` (on
    the framework's own operands; else as a whole), ``element`` with the framework's value
    (``want``) and ours (``got``), ``error`` relative to the largest magnitude, ``ulps``, the
    ``allowed`` error, the reason (``note``), and the error of the node's ``inputs``.
    """
    distance = found.judgement.distance
    return {
        "node": found.node,
        "op": found.op,
        "line": found.line or None,
        "alone": found.alone,
        "element": list(distance.index),
        "want": json_number(distance.want),
        "got": json_number(distance.got),
        "error": json_number(distance.relative),
        "ulps": distance.ulps,
        "allowed": json_number(found.judgement.allowed),
        "note": found.judgement.note,
        "inputs": [{"name": name, "error": json_number(error)} for name, error in found.inputs],
    }


def _read_beyond(text: Any) -> Row | None:
    try:
        found = json.loads(str(text)) if text else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class FrameworkComparison(Observer):
    """An observer of the comparison of an import's values with those of its framework."""

    def __init__(self) -> None:
        self._records: list[FrameworkRecord] = []
        self._figures: dict[str, Any] = {}

    @override
    def framework(self, records: Sequence[FrameworkRecord]) -> None:
        self._records = list(records)

    @override
    def figures(self, figures: Mapping[str, Any]) -> None:
        self._figures.update((n, v) for n, v in figures.items() if n.startswith(FRAMEWORK))

    def result(self) -> dict[str, Any] | None:
        """Return a summary of the comparison; None if there was none."""
        return framework(self._records, self._figures)


def _is_float(value: Value) -> bool:
    return not isinstance(value.type, TensorType) or value.type.dtype.is_float


def compared_value(record: FrameworkRecord) -> Row:
    """Return a value compared with its framework's.

    The row has ``error`` relative to the largest magnitude there (None: integers that differ), at
    ``element``, whose values are ``theirs`` and ``ours``, and their distance ``absolute`` and in
    ``ulps``.
    """
    theirs, ours = (_shortest(n, record.value) for n in (record.theirs, record.ours))
    distance = None if theirs is None or ours is None else abs(ours - theirs)
    return {
        "error": as_number(record.error) if record.same or _is_float(record.value) else None,
        "same": record.same,
        "element": list(record.index),
        "theirs": theirs,
        "ours": ours,
        "absolute": as_number(distance),
        "ulps": 0 if record.same else ulps(record.theirs, record.ours, _numpy(record.value)),
    }


def framework_values(
    recording: Recording, place: Callable[[Op], tuple[str, int]] | None = None
) -> list[Row]:
    """Return the values of the import compared with those of the framework, in its order.

    Rows are those of :func:`compared_value`, with the ``node`` and the ``op`` that makes the value
    (None: an input of the model).
    """
    place = place or source_location
    records = recording.framework_values()
    makers = made_by(recording, 0) if records else {}
    rows = []
    for number, each in enumerate(records):
        op = makers.get(each.value)
        file, line = ("", 0) if op is None else place(op)
        rows.append(
            {
                "place": number,
                "framework": each.framework,
                "node": each.node,
                **compared_value(each),
                "name": name_of(recording, each.value),
                "type": str(each.value.type),
                "op": None if op is None else recording.op_id(op),
                "kind": "input" if op is None else op.kind,
                "file": file,
                "line": line,
                "scope": "" if op is None or op.origin is None else op.origin.scope,
            }
        )
    return rows


def against(comparison: Row) -> str:
    """Return :func:`framework` as text: a line, and lines for the first node that differs."""
    text = (
        f"against {comparison['framework']}: {comparison['verdict'].replace('_', ' ')}, "
        f"{comparison['values']} "
        f"values, {comparison['same']} with the same bits"
    )
    if comparison["left_out"]:
        text += f", {comparison['left_out']} not compared"
    if comparison["worst"] is not None:
        text += f", worst relative error {short(comparison['worst']['error'])} (of max abs)"
        text += f", at {comparison['worst']['node']}"
    text += describe_integers(comparison["integers"])
    if comparison["tried"]:
        text += f"; forms of nodes on adversarial values too: {comparison['tried']}"
    return "\n".join([text, *(beyond_lines(comparison["beyond"]) if comparison["beyond"] else [])])


def describe_integers(integers: Sequence[str]) -> str:
    """Return a text for integers that differ: no relative error describes their distance."""
    if not integers:
        return ""
    first, *more = integers
    return f", other integers at {first}" + (f" and {len(more)} more" if more else "")


def peer_line(row: Row) -> str:
    """Return :func:`peer` as a line of text."""
    if row.get("error") is None:
        return f"against {row['name']}: nothing was compared"
    ulp = "" if row["ulp"] is None else f", worst ulp {row['ulp']:.0f}"
    verdict = row["verdict"].replace("_", " ")
    return f"against {row['name']}: {verdict}, worst relative error {row['error']:.3g}{ulp}" + (
        describe_integers(row["integers"])
    )


def beyond_lines(row: Row) -> list[str]:
    """Return :func:`beyond` as lines of text."""
    place = "on the framework's own operands" if row["alone"] else "as a whole"
    lines = [
        f"first node that differs: {row['node']}, {place}"
        + (f", {row['line']}" if row["line"] else "")
    ]
    if row["op"]:
        lines.append(f"  {row['op']}")
    ulps = "" if row["ulps"] is None else f", {row['ulps']} ulps"
    if row["want"] is not None or row["got"] is not None:  # else they have no element in common
        values = f"{row['want']} there, {row['got']} here"
        error = f"relative error {short(row['error'])} (of max abs){ulps}"
        lines.append(f"  element {row['element']}: {values}; {error}")
    lines.append(f"  {row['note']}")
    inputs = [f"{each['name']} {short(each['error'])}" for each in row["inputs"]]
    return [*lines, f"  its operands were off by: {', '.join(inputs)}"] if inputs else lines


def short(number: float | str | None) -> str:
    """Return a number with three digits; one that is not finite is unchanged."""
    return "?" if number is None else number if isinstance(number, str) else f"{number:.3g}"


# -- the checks of a pass -------------------------------------------------------------------------


def checks(
    recording: Recording,
    stage: int,
    rewrites: Sequence[RecordedRewrite] | None = None,
    place: Callable[[Op], tuple[str, int]] | None = None,
) -> list[Row]:
    """Return the checks of a stage, failed ones first, then by error.

    ``rewrite`` is the rewrite's number (None: a launch's kernel, or the whole stage), ``op`` the
    op to select for it; ``old`` and ``new`` are the numbers at ``element`` of ``value``,
    ``absolute`` and ``ulps`` their distance. ``rewrites``: those of the stage, if known.
    """
    place = place or source_location
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


def _check(
    recording: Recording,
    record: CheckRecord,
    rewrite: RecordedRewrite | None,
    op: Op | None,
    place: Callable[[Op], tuple[str, int]],
) -> Row:
    distance = None
    if record.old is not None and record.new is not None:
        distance = abs(record.new - record.old)
    value, checked = record.value, record.verdict in ("within", "failed", "bitwise")
    file, line = ("", 0) if op is None else place(op)
    return {
        "rewrite": None if rewrite is None else rewrite.number,
        "rule": "" if rewrite is None else rewrite.rewrite.rule,
        "verdict": record.verdict,
        "error": as_number(record.worst_error) if checked else None,
        "tolerance": (record.tolerance or None) if rewrite is None else rewrite.rewrite.tolerance,
        "absolute": as_number(distance),
        "ulps": None if value is None else ulps(record.old, record.new, _numpy(value)),
        "old": _shortest(record.old, value),
        "new": _shortest(record.new, value),
        "value": None if value is None else name_of(recording, value),
        "type": "" if value is None else str(value.type),
        "element": list(record.index),
        "op": None if op is None else recording.op_id(op),
        "kind": "" if op is None else op.kind,
        "file": file,
        "line": line,
        "seconds": record.seconds,
        "note": record.note,
    }


def _shown(rewrite: RecordedRewrite, value: Value | None) -> Op | None:
    """Return the op that represents a rewrite: the carrier, else the first that computes."""
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
    """Return the launch that each check of a kernel's machine code is about.

    Checks are in program order, one per launch; checks on parts of launches, one per kernel,
    belong to the kernel's first launch.
    """
    # Checks of a whole stage's results and of the program belong to no launch.
    records = [r for r in records if r.note.startswith("kernel ")]
    if not records:
        return {}
    body = recording.module(stage).main.body.ops
    found = [op for op in body if op.kind == LAUNCH]
    named: dict[str, Op] = {}
    for op in found:
        named.setdefault(Launch.of(op).kernel, op)
    kernel_names = {
        r: r.note.removeprefix("kernel ").partition(" ")[0].rstrip(":") for r in records
    }
    made = {r: named[name] for r, name in kernel_names.items() if name in named}
    launch_checks = [r for r in records if r.kind != "code"]
    if len(found) == len(launch_checks):
        made.update(zip(launch_checks, found, strict=True))
    return made


# -- values ---------------------------------------------------------------------------------------


def values(
    recording: Recording,
    stats: Sequence[TensorStats] | None = None,
    makers: Mapping[int, Mapping[Value, Op]] | None = None,
    place: Callable[[Op], tuple[str, int]] | None = None,
) -> list[Row]:
    """Return statistics of values on the example inputs, in program order of their stages.

    ``place`` counts the values of a stage; ``op`` makes the value (None: an input of the model);
    ``bins`` are the counts of the histogram from ``minimum`` to ``maximum``; ``first_bad``: no
    earlier value of its stage has NaN or Inf.
    """
    place = place or source_location
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
        rows.append(
            {
                "stage": each.stage,
                "place": number,
                "value": recording.value_id(each.value),
                "name": name_of(recording, each.value),
                "type": str(each.value.type),
                "op": None if op is None else recording.op_id(op),
                "kind": "input" if op is None else op.kind,
                "kernel": None if op is None else op.get("kernel"),
                "file": file,
                "line": line,
                "scope": "" if op is None or op.origin is None else op.origin.scope,
                "minimum": as_number(each.minimum),
                "maximum": as_number(each.maximum),
                "mean": as_number(each.mean),
                "largest": largest(each),
                "nan": each.nan,
                "inf": each.inf,
                "bins": list(each.histogram[1]),
                "first_bad": wrong and each.stage not in bad,
            }
        )
        if wrong:
            bad.add(each.stage)
    return rows


def made_by(recording: Recording, stage: int) -> dict[Value, Op]:
    """Return the op of ``main`` that makes each value of a stage."""
    body = recording.module(stage).main.body
    return {value: op for op in body.ops for value in op.results}


def largest(stats: TensorStats) -> float | None:
    """Return the largest finite magnitude; None if no element is finite."""
    ends = [abs(n) for n in (stats.minimum, stats.maximum) if not math.isnan(n)]
    return max(ends, default=None)


# -- helpers --------------------------------------------------------------------------------------


def json_number(value: float | None) -> float | str | None:
    """Return a number for a view; one that is not finite, which JSON lacks, becomes a word."""
    return value if value is None or math.isfinite(value) else str(value)


def json_rows(rows: Sequence[Row], *columns: str) -> list[Row]:
    """Return rows with :func:`json_number` numbers in ``columns``."""
    return [{**row, **{name: json_number(row[name]) for name in columns}} for row in rows]


def name_of(recording: Recording, value: Value) -> str:
    """Return the name of a value in the IR text."""
    return f"%{value.name or recording.value_id(value)}"


def source_location(op: Op) -> tuple[str, int]:
    """Return the file and line of the model that an op came from; ("", 0) if unknown."""
    nodes = () if op.origin is None else op.origin.nodes()
    return next(((n.file, n.line) for n in nodes if n.file), ("", 0))


def ulps(old: float | None, new: float | None, dtype: np.dtype | None) -> int | None:
    """Return the number of floats of ``dtype`` from ``old`` to ``new``.

    None if one is not finite or dtype is not a float of 2, 4 or 8 bytes.
    """
    if old is None or new is None or dtype is None:
        return None
    if not (math.isfinite(old) and math.isfinite(new)):
        return None
    a, b = ordinals(np.array([old, new], np.float64).astype(dtype))
    return abs(int(a) - int(b))


def ordinals(x: np.ndarray) -> np.ndarray:
    """Return each float's index in the order of all floats of its dtype (+0 and -0 are both 0)."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(np.int64)
    lowest = -(1 << (8 * x.dtype.itemsize - 1))
    return np.where(bits < 0, lowest - bits, bits)


def _numpy(value: Value) -> np.dtype | None:
    kind = getattr(value.type, "dtype", None)
    return kind.numpy if kind is not None and kind.is_float else None


def _shortest(number: float | None, value: Value | None) -> float | None:
    """Return the number with as few digits as its dtype needs; None if there is none (NaN too)."""
    dtype = None if value is None else _numpy(value)
    if number is None or dtype is None or not math.isfinite(number):
        return as_number(number)
    return float(str(np.array(number).astype(dtype)))


def as_number(value: Any) -> float | None:
    """Return a number; None if the value is not a number (NaN, None, text)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else number


def as_count(value: Any) -> int:
    """Return a whole number; 0 if the value is not one."""
    found = as_number(value)
    return 0 if found is None or math.isinf(found) else int(found)


def by_launch(figures: Mapping[str, Any], name: str) -> dict[int, float]:
    """Return a figure of each launch of an execution by its number (``runs``: how often it ran).

    Empty if the figure is missing or invalid.
    """
    try:
        found = [float(part) for part in json.loads(str(figures.get(name, "[]")))]
    except (ValueError, TypeError):
        return {}
    return {i: part for i, part in enumerate(found) if math.isfinite(part)}
