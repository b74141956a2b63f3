"""Facts about ops for the graph and the search, the same for all stages.

They are columns that grow on demand, so that a stage is shown by selecting rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import core_compiler.ops  # noqa: F401  (the declarations that costs come from)
from core_compiler.ir import Op, TensorType
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.target import ALLOC, LAUNCH
from core_compiler.ir.text import print_attribute
from core_compiler.ops.costs import cost
from workbench.queries.joint import written
from workbench.queries.run import Run

#: Ops that are drawn as a label on their user.
FOLDED = CONSTANTS | {ALLOC, "core.iota", "onnx.absent"}
#: Longer attributes are truncated (the inspector shows all).
MAX_ATTRIBUTES = 160
#: Columns of texts, by the names of their tables.
TEXTS = {"kind": "kinds", "type": "types", "file": "files", "attribute": "attributes"}
_NUMBERS = {
    "line": np.int32,
    "fold": np.uint8,
    "flops": np.float64,
    "bytes": np.float64,
    **dict.fromkeys(TEXTS, np.int32),
}


class OpFacts:
    """Facts about a recording's ops by id.

    ``texts`` has the distinct texts of each column of :data:`TEXTS`; the column holds their
    numbers. ``flops`` and ``bytes`` are 0 if an op does no work of its own; ``names`` are the
    names in the IR text.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._known = np.zeros(0, bool)
        self._columns = {name: np.zeros(0, kind) for name, kind in _NUMBERS.items()}
        self.texts: dict[str, dict[str, int]] = {name: {} for name in TEXTS}
        self.names: dict[int, str] = {}
        self._costs: dict[tuple, tuple[float, float]] = {}
        self._attributes: dict[int, int] = {}
        self._types: dict[tuple, int] = {}

    @staticmethod
    def of(run: Run) -> OpFacts:
        return run.cached("op facts", lambda: OpFacts(run))

    def columns(self, ids: np.ndarray, ops: Sequence[Op]) -> dict[str, np.ndarray]:
        """Return the columns of these ops (``ids[i]`` is that of ``ops[i]``), one row each."""
        with self._run.lock:
            self._reserve(int(ids.max(initial=-1)) + 1)
            missing = np.flatnonzero(~self._known[ids])
            if len(missing):
                self._add(ids[missing], [ops[i] for i in missing.tolist()])
            return {name: column[ids] for name, column in self._columns.items()}

    def number(self, column: str, text: str) -> int:
        """Return the number of a text in its table."""
        table = self.texts[column]
        return table.setdefault(text, len(table))

    def _reserve(self, count: int) -> None:
        missing = count - len(self._known)
        if missing <= 0:
            return
        missing = max(missing, len(self._known))
        self._known = np.concatenate([self._known, np.zeros(missing, bool)])
        self._columns = {
            name: np.concatenate([column, np.zeros(missing, column.dtype)])
            for name, column in self._columns.items()
        }

    def _add(self, ids: np.ndarray, ops: Sequence[Op]) -> None:
        rows = zip(*map(self._row, ops), strict=True)
        for column, values in zip(self._columns.values(), rows, strict=True):
            column[ids] = values
        for key, op in zip(ids.tolist(), ops, strict=True):
            self.names[key] = self._run.name(op, key)
        self._known[ids] = True

    def _row(self, op: Op) -> tuple:
        """Return a number for each column, in their order."""
        file, line = self._run.source_location(op)
        types = tuple([v.type for v in op.results or written(op)])
        type_ = self._types.get(types)
        if type_ is None:
            type_ = self._types[types] = self.number("type", ", ".join(map(str, types)))
        fold = op.kind in FOLDED
        work = (0.0, 0.0) if fold or op.regions else self._work(op)
        return (
            line,
            fold,
            *work,
            self.number("kind", op.kind),
            type_,
            self.number("file", file),
            self._attribute(op),
        )

    def _attribute(self, op: Op) -> int:
        """Return the number of the attributes' text, shared by recorded ops with equal ones."""
        attributes_id = id(op.attributes)
        found = self._attributes.get(attributes_id)
        if found is None or op.kind == LAUNCH:
            found = self.number("attribute", _attribute_text(op))
            if op.kind != LAUNCH:
                self._attributes[attributes_id] = found
        return found

    def _work(self, op: Op) -> tuple[float, float]:
        values = (*op.operands, *op.results)
        if not op.kind.startswith("core.") or not all(
            isinstance(v.type, TensorType) and v.type.is_static for v in values
        ):
            return 0.0, 0.0
        indices = {v: i for i, v in enumerate(op.operands)}
        operand_indices = tuple(
            [indices[v] for v in op.operands]
        )  # an operand that is read twice moves once
        key = op.kind, id(op.attributes), tuple([v.type for v in values]), operand_indices
        known = self._costs.get(key)
        if known is None:
            found = cost(op)
            known = self._costs[key] = float(found.flops), float(found.bytes)
        return known


def _attribute_text(op: Op) -> str:
    if not op.attributes or op.kind == LAUNCH:
        return ""
    text = ", ".join(f"{n} = {_short(v)}" for n, v in op.attributes.items())
    return text if len(text) <= MAX_ATTRIBUTES else text[: MAX_ATTRIBUTES - 1] + "…"


def _short(value: Any) -> str:
    text = print_attribute(value) if not isinstance(value, tuple) else str(list(value))
    return text.removesuffix(" : i64")
