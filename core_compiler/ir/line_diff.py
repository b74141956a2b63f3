"""The text of two modules side by side, aligned by the identity of ops.

Text is printed only for the rows that are shown, so that stepping through large modules stays fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, NamedTuple, overload

from typing_extensions import override

from core_compiler.ir.core import Block, Function, Module, Op, Value
from core_compiler.ir.diff import ModuleDiff, diff, longest_increasing
from core_compiler.ir.rewriter import Rewrite
from core_compiler.ir.text import FUNCTION_END, LineKey, Printer, value_names, yield_kind

SAME, CHANGED, REMOVED, ADDED, MOVED, GAP = "same", "changed", "removed", "added", "moved", "gap"

_WORDS = re.compile(r'%[\w$.\-]+|"[^"]*"|\w+|\s+|.')


class _SharedLine(NamedTuple):
    """A line of both sides, printed on demand."""

    left_key: LineKey
    right_key: LineKey
    thing: Any
    indent: str
    names: _Names
    show: Callable[[Printer, Any], str]


class _Names(NamedTuple):
    """The value names of both sides of a function, and whether shared values have the same name."""

    left: Mapping[Value, str]
    right: Mapping[Value, str]
    agree: bool


def diff_lines(
    before: Module,
    after: Module,
    *,
    rewrites: Sequence[Rewrite] = (),
    changed_only: bool = False,
    context: int = 3,
    key: Callable[[Op | Function], Any] = lambda thing: thing,
    numbers: Mapping[Value, int] | None = None,
    found: ModuleDiff | None = None,
    spans: bool = True,
) -> list[dict[str, Any]]:
    """Return rows ``{left, right, kind, left_key, right_key, left_number, ...}``.

    A row also has ``right_number`` and ``how``. ``kind`` is same, changed, removed, added, moved,
    or gap (``hidden`` rows left out, only with ``changed_only``, which keeps ``context`` rows
    around changes). ``left`` or ``right`` is None if that side has no line. Numbers count each
    side's lines from 1; keys are ``key(op or function)``. A changed row has ``left_spans`` and
    ``right_spans``, the (start, end) columns that differ (unless ``spans`` is false), and ``how``,
    the way in which its ops were matched (recorded or guessed). ``numbers`` is as in
    ``print_module``; ``found`` is the modules' ``diff`` if the caller already has it.
    """
    found = diff(before, after, rewrites) if found is None else found
    aligner = _Aligner(found, numbers, key, spans)
    rows = aligner.modules(before, after)
    shown = _chosen(rows, context) if changed_only else [True] * len(rows)
    return _render(rows, shown, aligner)


class AlignedLines(Sequence[dict[str, Any]]):
    """The rows of :func:`diff_lines` without line numbers.

    A row that both sides have is printed on demand.
    """

    def __init__(
        self,
        before: Module,
        after: Module,
        *,
        found: ModuleDiff,
        key: Callable[[Op | Function], Any] = lambda thing: thing,
        numbers: Mapping[Value, int] | None = None,
    ):
        self._aligner = _Aligner(found, numbers, key, spans=False)
        self._rows = self._aligner.modules(before, after)

    @override
    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    @override
    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self._printed(row) for row in self._rows[index]]
        return self._printed(self._rows[index])

    def _printed(self, row: _SharedLine | dict[str, Any]) -> dict[str, Any]:
        return self._aligner.shared_row(row) if isinstance(row, _SharedLine) else row

    def printed(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the rows that differ between the sides (and a few others), with their positions."""
        return ((i, row) for i, row in enumerate(self._rows) if not isinstance(row, _SharedLine))

    def differing(self) -> Iterator[int]:
        """Yield the positions of the rows whose two sides have different text."""
        for i, row in enumerate(self._rows):
            if isinstance(row, _SharedLine) and row.names.agree:
                continue
            printed = self._printed(row)
            if printed["left"] != printed["right"]:
                yield i

    def index_of(self, key: Any) -> int | None:
        """Return the first row for this key on the right, or else on the left."""
        return next((i for i, keys in enumerate(self._keys()) if key in keys), None)

    def _keys(self) -> Iterator[tuple[Any, Any]]:
        for row in self._rows:
            if isinstance(row, _SharedLine):
                yield self._aligner.keys(row)
            else:
                yield row["left_key"], row["right_key"]


class _Aligner:
    """Pairs the lines of two modules, top down: kept lines unprinted, the others as rows."""

    def __init__(self, found: ModuleDiff, numbers: Mapping[Value, int] | None, key, spans: bool):
        self._spans = spans
        self._partners = found.partners()
        self._how = {m.old: m.how for m in found.changed}
        self._numbers, self._key = numbers, key
        self._printer = Printer()
        self._rows: list[_SharedLine | dict[str, Any]] = []
        self._names = _Names({}, {}, True)

    def modules(self, before: Module, after: Module) -> list[_SharedLine | dict[str, Any]]:
        left, right = before.functions, after.functions
        self._pair(None, None, "module {", "module {", "", _text)
        for name in _merge_orders(list(left), list(right)):
            self._function(left.get(name), right.get(name))
        self._pair(None, None, "}", "}", "", _text)
        return self._rows

    def _function(self, left: Function | None, right: Function | None) -> None:
        names = {f: value_names(f, self._numbers) if f else {} for f in (left, right)}
        a, b = names[left], names[right]
        self._names = _Names(a, b, a is b or all(b.get(v, name) == name for v, name in a.items()))
        self._pair(left, right, left, right, "  ", _function_head, same=bool(left and right))
        bodies = left and left.body, right and right.body
        self._blocks(*bodies, left, right, "    ")
        levels = [f and (f.level, f.attributes) for f in (left, right)]
        same = levels[0] == levels[1]
        self._pair(left, right, left, right, "  ", _function_tail, same=same)

    def _blocks(self, left, right, left_key, right_key, indent, kind="", how="") -> None:
        """Pair two blocks (either may be None): arguments, ops, terminators."""
        a, b = (block.arguments if block else () for block in (left, right))
        if a or b:
            heads = left if a else None, right if b else None
            self._pair(left_key, right_key, *heads, indent[:-2], _block_head, a == b, kind, how)
        if left is right:
            self._shared_ops(left.ops, indent)
        else:
            self._ops(left.ops if left else (), right.ops if right else (), indent)
        ends = (left and (left, _end(left_key)), right and (right, _end(right_key)))
        same = bool(left and right) and left.outputs == right.outputs and ends[0][1] == ends[1][1]
        self._pair(left_key, right_key, *ends, indent, _terminator, same, kind, how)

    def _shared_ops(self, ops: Sequence[Op], indent: str) -> None:
        append, names = self._rows.append, self._names
        for op in ops:
            if op.regions:
                self._op(op, op, indent, "")
            else:
                append(_SharedLine(op, op, op, indent, names, _op_line))

    def _ops(self, left: Sequence[Op], right: Sequence[Op], indent: str) -> None:
        index_of = {op: i for i, op in enumerate(right)}
        partners = self._partners
        pairs = [
            (i, index_of[partner])
            for i, op in enumerate(left)
            if (partner := partners.get(op)) in index_of
        ]
        anchors = [pairs[k] for k in longest_increasing([j for _, j in pairs])]
        elsewhere = {left[i] for i, _ in pairs}, {right[j] for _, j in pairs}
        i = j = 0
        for next_i, next_j in [*anchors, (len(left), len(right))]:
            for op in left[i:next_i]:
                self._op(op, None, indent, MOVED if op in elsewhere[0] else REMOVED)
            for op in right[j:next_j]:
                self._op(None, op, indent, MOVED if op in elsewhere[1] else ADDED)
            if next_i < len(left) and next_j < len(right):
                if left[next_i] is right[next_j]:
                    self._shared_ops((left[next_i],), indent)
                else:
                    self._op(left[next_i], right[next_j], indent, "")
            i, j = next_i + 1, next_j + 1

    def _op(self, left: Op | None, right: Op | None, indent: str, kind: str) -> None:
        """Pair an op, or print a single one as ``kind``."""
        same, how = left is right, self._how.get(left, "") if left and right else ""
        self._pair(left, right, left, right, indent, _op_line, same, kind, how)
        regions = left.regions if left else (), right.regions if right else ()
        if not any(regions):
            return
        for number, (a, b) in enumerate(zip_longest(*regions)):
            if number:
                between = "}, {" if a else None, "}, {" if b else None
                self._pair(left, right, *between, indent, _text, True, kind, how)
            self._blocks(a, b, left, right, indent + "  ", kind, how)
        tails = left if regions[0] else None, right if regions[1] else None
        self._pair(left, right, *tails, indent, _op_close, same, kind, how)

    def _pair(self, left_key, right_key, left, right, indent, show, same=True, kind="", how=""):
        """Add one line; ``show`` prints ``left`` and ``right`` (either may be None)."""
        if left is not None and right is not None and same:
            self._rows.append(_SharedLine(left_key, right_key, left, indent, self._names, show))
        elif left is not None or right is not None:
            a, b = (
                self._text(left, indent, self._names.left, show),
                self._text(right, indent, self._names.right, show),
            )
            keys = left_key if left is not None else None, right_key if right is not None else None
            if a is not None and b is not None:
                kind = SAME if a == b else CHANGED
            elif not kind:
                kind = REMOVED if right is None else ADDED
            row = self.row(kind, a, b, *keys)
            if kind == CHANGED:
                row["how"] = how
                if self._spans:
                    row["left_spans"], row["right_spans"] = changed_spans(a or "", b or "")
            self._rows.append(row)

    def _text(self, thing, indent: str, names: Mapping[Value, str], show) -> str | None:
        if thing is None:
            return None
        self._printer.names = names
        return indent + show(self._printer, thing)

    def row(self, kind: str, left, right, left_key, right_key) -> dict[str, Any]:
        keys = self._keyed(left_key), self._keyed(right_key)
        return {
            "kind": kind,
            "left": left,
            "right": right,
            "left_key": keys[0],
            "right_key": keys[1],
            "how": "",
        }

    def _keyed(self, thing: LineKey) -> Any:
        return None if thing is None else self._key(thing)

    def keys(self, line: _SharedLine) -> tuple[Any, Any]:
        return self._keyed(line.left_key), self._keyed(line.right_key)

    def shared_row(self, line: _SharedLine) -> dict[str, Any]:
        self._printer.names = line.names.left
        left = right = line.indent + line.show(self._printer, line.thing)
        if not line.names.agree:
            self._printer.names = line.names.right
            right = line.indent + line.show(self._printer, line.thing)
        return self.row(SAME, left, right, line.left_key, line.right_key)


def _merge_orders(left: list[str], right: list[str]) -> list[str]:
    """Return the names of the right side in order, with the others after their predecessors."""
    names = list(right)
    known = set(right)
    for before, name in zip([None, *left], left, strict=False):
        if name not in known:
            names.insert(0 if before is None else names.index(before) + 1, name)
    return names


def _text(printer: Printer, text: str) -> str:
    return text


def _function_head(printer: Printer, function: Function) -> str:
    return '"core.func"() ({'


def _function_tail(printer: Printer, function: Function) -> str:
    return printer.function_tail(function)


def _block_head(printer: Printer, block: Block) -> str:
    return printer.block_head(block)


def _terminator(printer: Printer, end: tuple[Block, str]) -> str:
    return printer.terminator(*end)


def _op_line(printer: Printer, op: Op) -> str:
    return printer.op_head(op) + (" ({" if op.regions else printer.op_tail(op))


def _op_close(printer: Printer, op: Op) -> str:
    return f"}}){printer.op_tail(op)}"


def _end(owner: LineKey) -> str:
    return yield_kind(owner) if isinstance(owner, Op) else FUNCTION_END


def _is_change(row: _SharedLine | dict[str, Any]) -> bool:
    return isinstance(row, dict) and row["kind"] != SAME


def _chosen(rows: Sequence[_SharedLine | dict[str, Any]], context: int) -> list[bool]:
    """Return which rows are within ``context`` of a change."""
    shown = [False] * len(rows)
    for number, row in enumerate(rows):
        if _is_change(row):
            low, high = max(0, number - context), min(len(rows), number + context + 1)
            shown[low:high] = [True] * (high - low)
    return shown


def _render(rows, shown: list[bool], aligner: _Aligner) -> list[dict[str, Any]]:
    """Return the shown rows, numbered, with gaps between them."""
    out: list[dict[str, Any]] = []
    left = right = hidden = 0
    for row, show in zip(rows, shown, strict=True):
        kept = isinstance(row, _SharedLine)
        has_left = kept or row["left"] is not None
        has_right = kept or row["right"] is not None
        left += has_left
        right += has_right
        if not show:
            hidden += 1
            continue
        if hidden:
            out.append(_gap(hidden))
            hidden = 0
        entry = aligner.shared_row(row) if kept else row
        entry["left_number"] = left if has_left else None
        entry["right_number"] = right if has_right else None
        out.append(entry)
    return [*out, _gap(hidden)] if hidden else out


def _gap(hidden: int) -> dict[str, Any]:
    sides = ("left", "right", "left_key", "right_key", "left_number", "right_number")
    return {"kind": GAP, **dict.fromkeys(sides), "how": "", "hidden": hidden}


def changed_spans(left: str, right: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the columns in which two lines differ, by words."""
    a, b = _WORDS.findall(left), _WORDS.findall(right)
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    starts = [[0], [0]]
    for words, table in zip((a, b), starts, strict=True):
        for word in words:
            table.append(table[-1] + len(word))
    for tag, i, i2, j, j2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for side, (low, high) in enumerate(((i, i2), (j, j2))):
            if high > low:
                spans[side].append((starts[side][low], starts[side][high]))
    return spans
