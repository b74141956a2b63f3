"""The life of an op: what it was made from and what became of it.

Steps come from the rewrites, from values that another op makes again (the rewriter rebuilds the
users of what it replaces), and, where neither says anything, from origins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from core_compiler.ir.origin import FrontendNode
from core_compiler.record.loader import Loader

#: A history follows at most this many ops each way.
MAX_OPS = 2000

_Rows = Callable[..., list[tuple]]


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """Op ``old`` gave op ``new``.  ``how``: ``rewrite`` (with its id, rule and stage), ``value``
    (the same value made by a rebuilt op), or ``origin``."""

    old: int
    new: int
    how: str
    rule: str
    stage: int | None
    rewrite: int | None


@dataclass(frozen=True, slots=True)
class OpHistory:
    """``stages``: (first, last) stages the op is in, last None while it stays, None if it never
    was in one.  ``earlier`` and ``later`` are the steps back and forth, nearest first.  ``kernels``
    and ``buffers`` are ids of what the op or its heirs became; ``nodes`` the model's."""

    op: int
    stages: tuple[int, int | None] | None
    earlier: tuple[HistoryStep, ...]
    later: tuple[HistoryStep, ...]
    kernels: tuple[int, ...]
    buffers: tuple[int, ...]
    nodes: tuple[FrontendNode, ...]


def op_history(rows: _Rows, loader: Loader, op: int) -> OpHistory:
    """The history of one op id; ``rows`` runs a statement on the recording."""
    earlier = _walk(op, lambda key: _before(rows, key), "old")
    later = _walk(op, lambda key: _after(rows, key), "new")
    heirs = [op, *dict.fromkeys(step.new for step in later)]
    (made,) = loader.load_ops([op])
    return OpHistory(
        op,
        presence(rows, op),
        tuple(earlier),
        tuple(later),
        tuple(
            _ids(
                rows,
                "SELECT DISTINCT kernel FROM kernel_op WHERE op IN ({}) ORDER BY kernel",
                heirs,
            )
        ),
        tuple(_buffers(rows, heirs)),
        made.origin.nodes() if made.origin is not None else (),
    )


def presence(rows: _Rows, op: int) -> tuple[int, int | None] | None:
    """The first and the last stage that has the op (last None: it is still there)."""
    changes = rows("ii", "SELECT stage, change FROM stage_op WHERE op = ? ORDER BY stage", (op,))
    if not changes:
        return None
    stage, change = changes[-1]
    return changes[0][0], None if change > 0 else stage - 1


def _walk(start: int, steps: Callable[[int], list[HistoryStep]], side: str) -> list[HistoryStep]:
    """Breadth first, each op once."""
    found: list[HistoryStep] = []
    queue, seen = [start], {start}
    for op in queue:
        for step in steps(op):
            found.append(step)
            neighbour = getattr(step, side)
            if neighbour not in seen and len(seen) < MAX_OPS:
                seen.add(neighbour)
                queue.append(neighbour)
    return found


_REWRITE_STEP = """
  SELECT {}, rewrite.id, name.text, rewrite.stage
  FROM rewrite_op here JOIN rewrite ON rewrite.id = here.rewrite
  JOIN name ON name.id = rewrite.rule
  JOIN rewrite_op there ON there.rewrite = here.rewrite AND there.side = 1 - here.side
  WHERE here.op = ? AND here.side = ? AND there.op <> here.op
  ORDER BY rewrite.id, there.position"""

#: Types of the columns of a step by rewrite.
_LINK = "iiiti"

_BEFORE = _REWRITE_STEP.format("there.op, here.op")
_AFTER = _REWRITE_STEP.format("here.op, there.op")

#: Values that a rewrite maps to a value some op already made (merging equal ops).
_MAPPED = """
  SELECT here.op, result.op, rewrite.id, name.text, rewrite.stage
  FROM rewrite_op here JOIN rewrite ON rewrite.id = here.rewrite
  JOIN name ON name.id = rewrite.rule
  JOIN result mine ON mine.op = here.op
  JOIN rewrite_value map ON map.rewrite = here.rewrite AND map.old = mine.value
  JOIN result ON result.value = map.new
  WHERE here.op = ? AND here.side = 0 AND result.op <> here.op
    AND NOT EXISTS (SELECT 1 FROM rewrite_op new
                    WHERE new.rewrite = here.rewrite AND new.side = 1)
  ORDER BY rewrite.id, result.op"""

_NEIGHBOUR = """
  SELECT {}(other.op) FROM result mine JOIN result other ON other.value = mine.value
  WHERE mine.op = ? AND other.op {} mine.op"""

_PARENTS = """
  SELECT DISTINCT old.id FROM op new JOIN origin ON origin.id = new.origin,
    json_each(origin.parents) parent JOIN op old ON old.origin = parent.value
  WHERE new.id = ? AND old.id < new.id ORDER BY old.id DESC LIMIT 20"""

_CHILDREN = """
  SELECT DISTINCT new.id FROM op old JOIN json_each(origin.parents) parent
    ON parent.value = old.origin JOIN origin JOIN op new ON new.origin = origin.id
  WHERE old.id = ? AND new.id > old.id ORDER BY new.id LIMIT 20"""


def _before(rows: _Rows, op: int) -> list[HistoryStep]:
    links = rows(_LINK, _BEFORE, (op, 1))
    found = [HistoryStep(o, n, "rewrite", rule, stage, key) for o, n, key, rule, stage in links]
    if not found:
        found = [HistoryStep(o, op, "value", "", None, None)
                 for (o,) in rows("I", _NEIGHBOUR.format("max", "<"), (op,)) if o]  # fmt: skip
    if not found:
        found = [
            HistoryStep(o, op, "origin", "", None, None) for (o,) in rows("i", _PARENTS, (op,))
        ]
    return found


def _after(rows: _Rows, op: int) -> list[HistoryStep]:
    links = [*rows(_LINK, _AFTER, (op, 0)), *rows(_LINK, _MAPPED, (op,))]
    found = [HistoryStep(o, n, "rewrite", rule, stage, key) for o, n, key, rule, stage in links]
    if not found:
        found = [HistoryStep(op, n, "value", "", None, None)
                 for (n,) in rows("I", _NEIGHBOUR.format("min", ">"), (op,)) if n]  # fmt: skip
    if not found:
        found = [
            HistoryStep(op, n, "origin", "", None, None) for (n,) in rows("i", _CHILDREN, (op,))
        ]
    return found


def _ids(rows: _Rows, statement: str, keys: Iterable[int]) -> list[int]:
    keys = tuple(keys)
    return [row[0] for row in rows("i", statement.format(",".join("?" * len(keys))), keys)]


def _buffers(rows: _Rows, ops: list[int]) -> list[int]:
    by_op = _ids(rows, "SELECT id FROM buffer WHERE op IN ({})", ops)
    by_value = _ids(
        rows,
        "SELECT id FROM buffer WHERE value IN (SELECT value FROM result WHERE op IN ({}))",
        ops,
    )
    return sorted({*by_op, *by_value})
