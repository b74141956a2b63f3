"""The history of an op: its sources and its successors.

Steps come from the rewrites, from values that another op redefines (the rewriter rebuilds the users
of what it replaces), and, if neither gives a step, from origins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from core_compiler.ir.origin import FrontendNode
from core_compiler.record.links import Links, RewriteRow, Rows
from core_compiler.record.loader import Loader

#: Maximum number of ops that a history follows each way.
MAX_OPS = 2000


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A step from op ``old`` to op ``new``.

    ``how``: ``rewrite`` (with its id, rule and stage), ``value`` (the same value defined by a
    rebuilt op), or ``origin``.
    """

    old: int
    new: int
    how: str
    rule: str
    stage: int | None
    rewrite: int | None


@dataclass(frozen=True, slots=True)
class OpHistory:
    """The history of an op.

    ``stages``: (first, last) stages with the op, last None while it stays, None if it never was in
    one. ``earlier`` and ``later`` are the steps back and forth, nearest first.  ``kernels`` and
    ``buffers`` are ids of what the op or its successors became; ``nodes`` are the model's.
    """

    op: int
    stages: tuple[int, int | None] | None
    earlier: tuple[HistoryStep, ...]
    later: tuple[HistoryStep, ...]
    kernels: tuple[int, ...]
    buffers: tuple[int, ...]
    nodes: tuple[FrontendNode, ...]


def op_history(rows: Rows, loader: Loader, links: Links, op: int) -> OpHistory:
    """Return the history of one op id; ``rows`` runs a statement on the recording."""
    earlier = _walk(op, lambda key: _kept(rows, loader, links, _before, key), "old")
    later = _walk(op, lambda key: _kept(rows, loader, links, _after, key), "new")
    successors = [op, *dict.fromkeys(step.new for step in later)]
    (made,) = loader.load_ops([op])
    return OpHistory(
        op,
        presence(links, op),
        tuple(earlier),
        tuple(later),
        tuple(
            _ids(
                rows,
                "SELECT DISTINCT kernel FROM kernel_op WHERE op IN ({}) ORDER BY kernel",
                successors,
            )
        ),
        tuple(_buffers(rows, links, successors)),
        made.origin.nodes() if made.origin is not None else (),
    )


def presence(links: Links, op: int) -> tuple[int, int | None] | None:
    """Return the first and the last stage that has the op (last None: it is still there)."""
    changes = links.stages.get(op)
    if not changes:
        return None
    stage, change = changes[-1]
    return changes[0][0], None if change > 0 else stage - 1


def _walk(start: int, steps: Callable[[int], list[HistoryStep]], side: str) -> list[HistoryStep]:
    """Search breadth first, each op once."""
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


def _kept(
    rows: Rows, loader: Loader, links: Links, find: Callable[..., list[HistoryStep]], op: int
) -> list[HistoryStep]:
    """Return the steps from an op that ``find`` finds, once: histories have steps in common."""
    key = (find.__name__, op)
    if key not in links.found:
        links.found[key] = find(rows, loader, links, op)
    return links.found[key]


_PARENTS = """
  SELECT DISTINCT old.id FROM op new JOIN origin ON origin.id = new.origin,
    json_each(origin.parents) parent JOIN op old ON old.origin = parent.value
  WHERE new.id = ? AND old.id < new.id ORDER BY old.id DESC LIMIT 20"""

_CHILDREN = """
  SELECT DISTINCT new.id FROM op old JOIN json_each(origin.parents) parent
    ON parent.value = old.origin JOIN origin JOIN op new ON new.origin = origin.id
  WHERE old.id = ? AND new.id > old.id ORDER BY new.id LIMIT 20"""


def _before(rows: Rows, loader: Loader, links: Links, op: int) -> list[HistoryStep]:
    found = [
        _step(loader, row, old, op)
        for row in links.made_by.get(op, ())
        for old in row.old
        if old != op
    ]
    if not found:
        earlier = [o for o in _remade(links, op) if o < op]
        found = [HistoryStep(max(earlier), op, "value", "", None, None)] if earlier else []
    if not found:
        found = [
            HistoryStep(o, op, "origin", "", None, None) for (o,) in rows("i", _PARENTS, (op,))
        ]
    return found


def _after(rows: Rows, loader: Loader, links: Links, op: int) -> list[HistoryStep]:
    removing_rewrites = links.removed_by.get(op, ())
    found = [
        _step(loader, row, op, new) for row in removing_rewrites for new in row.new if new != op
    ]
    # Merging equal ops creates no op: values move to an op that existed before.
    found += [
        _step(loader, row, op, maker)
        for row in removing_rewrites
        if not row.new
        for maker in _makers(links, (row.mapped.get(v) for v in links.results.get(op, ())))
        if maker != op
    ]
    if not found:
        later = [o for o in _remade(links, op) if o > op]
        found = [HistoryStep(op, min(later), "value", "", None, None)] if later else []
    if not found:
        found = [
            HistoryStep(op, n, "origin", "", None, None) for (n,) in rows("i", _CHILDREN, (op,))
        ]
    return found


def _step(loader: Loader, row: RewriteRow, old: int, new: int) -> HistoryStep:
    return HistoryStep(old, new, "rewrite", loader.names([row.rule])[row.rule], row.stage, row.id)


def _makers(links: Links, values: Iterable[int | None]) -> list[int]:
    return sorted({op for v in values if v is not None for op in links.makers.get(v, ())})


def _remade(links: Links, op: int) -> list[int]:
    """Return the ops that define a value of ``op``, including itself."""
    return _makers(links, links.results.get(op, ()))


def _ids(rows: Rows, statement: str, keys: Iterable[int]) -> list[int]:
    keys = tuple(keys)
    return [row[0] for row in rows("i", statement.format(",".join("?" * len(keys))), keys)]


def _buffers(rows: Rows, links: Links, ops: list[int]) -> list[int]:
    by_op = _ids(rows, "SELECT id FROM buffer WHERE op IN ({})", ops)
    values = {v for op in ops for v in links.results.get(op, ())}
    by_value = _ids(rows, "SELECT id FROM buffer WHERE value IN ({})", values)
    return sorted({*by_op, *by_value})
