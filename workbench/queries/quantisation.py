"""The recorded losses of quantisation: for the view, tables and the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core_compiler.ir import Op
from core_compiler.record import Recording
from core_compiler.record.reader import Stage
from workbench.queries.numeric_results import (
    Row,
    as_count,
    as_number,
    made_by,
    name_of,
    source_location,
)

#: The passes that make a model one of integers; the first of them only looks.
PASSES = ("observe", "insert_quantization", "integerize")
#: The figures with the number of results in integers, and the ratio of the model's results.
RESULTS, SQNR = "quantised_results", "quantised_sqnr_db"

Place = Callable[[Op], tuple[str, int]]


def summary(stages: Sequence[Stage], figures: Mapping[str, Any]) -> Row | None:
    """Return ``results`` in integers and ``sqnr_db`` of the model's; None: it is not quantised.

    ``measured`` is false if the compile ended before what was lost was known.
    """
    quantised = any(stage.pass_name.partition("#")[0] in PASSES[1:] for stage in stages)
    if not quantised and RESULTS not in figures:
        return None
    return {
        "measured": RESULTS in figures,
        "results": as_count(figures.get(RESULTS)),
        "sqnr_db": as_number(figures.get(SQNR)),
    }


def losses(recording: Recording, place: Place | None = None) -> list[Row]:
    """Return a row for each value that became integers, worst first.

    ``op`` makes the value (None: an input of the model) in its ``stage``; ``floats`` and
    ``dequantised`` are the counts of both in the bins between ``edges``.
    """
    found = recording.quantisation()
    place = place or source_location
    makers = {s: made_by(recording, s) for s in {v.stage for v in found.values}} if found else {}
    rows = []
    for number, each in enumerate(found.values if found else ()):
        op = makers[each.stage].get(each.value)
        edges, floats, dequantised = each.histogram
        rows.append(
            {
                "place": number,
                "stage": each.stage,
                "value": recording.value_id(each.value),
                "name": name_of(recording, each.value),
                **_of_op(recording, op, place),
                "type": str(each.value.type),
                "integers": str(each.integers.type),
                "sqnr_db": as_number(each.sqnr_db),
                "cosine": as_number(each.cosine),
                "saturated": as_number(each.saturated),
                "minimum": as_number(each.observed[0]),
                "maximum": as_number(each.observed[1]),
                "low": as_number(each.range[0]),
                "high": as_number(each.range[1]),
                "alone_db": as_number(each.alone_db),
                "edges": list(edges),
                "floats": list(floats),
                "dequantised": list(dequantised),
            }
        )
    return rows


def left_in_floats(recording: Recording, place: Place | None = None) -> list[Row]:
    """Return a row for each op that still computes floats, with the ``reason``."""
    found = recording.quantisation()
    return [
        {
            "place": number,
            "name": name_of(recording, each.op.results[0]) if each.op.results else "",
            **_of_op(recording, each.op, place or source_location),
            "type": str(each.op.results[0].type) if each.op.results else "",
            "reason": each.reason,
        }
        for number, each in enumerate(found.left if found else ())
    ]


def _of_op(recording: Recording, op: Op | None, place: Place) -> Row:
    file, line = ("", 0) if op is None else place(op)
    return {
        "op": None if op is None else recording.op_id(op),
        "kind": "input" if op is None else op.kind,
        "scope": "" if op is None or op.origin is None else op.origin.scope,
        "file": file,
        "line": line,
    }
