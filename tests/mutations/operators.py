"""Small edits of Python source: each mutation changes one span of the text of one file.

An operator is a function of a node of the syntax tree; it yields replacements of spans.  The text
around a span stays as it is, so that line numbers, comments and formatting are those of the file.
"""

from __future__ import annotations

import ast
import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Mutation:
    """``source[start:end]`` becomes ``text``; ``line`` is where the span begins.

    ``statement``: the first line of the statement around it.  ``row``: the string that names the
    row of a table in which it lies ("" in a function: its lines are executed when it is used).
    ``name``: the module's or class's name that the statement binds, outside functions.
    """

    operator: str
    start: int
    end: int
    text: str
    line: int
    statement: int
    row: str = ""
    name: str = ""

    def applied(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def before(self, source: str) -> str:
        """The lines that it changes, as they were."""
        return _lines(source, self.start, self.end)

    def after(self, source: str) -> str:
        """The same lines, changed."""
        return _lines(self.applied(source), self.start, self.start + len(self.text))


def _lines(source: str, start: int, end: int) -> str:
    first = source.rfind("\n", 0, start) + 1
    last = source.find("\n", end)
    return source[first : len(source) if last < 0 else last].strip()


#: A replacement: the node or span that goes, and the text that comes.
Edit = tuple[ast.AST | tuple[int, int], str]


class Source:
    """A file's text with its syntax tree and the offsets of nodes in the text."""

    def __init__(self, text: str):
        self.text = text
        self.tree = ast.parse(text)

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    @cached_property
    def _raw(self) -> list[bytes]:
        return [line.encode() for line in self.text.splitlines(keepends=True)]

    def _offset(self, line: int, column: int) -> int:
        """Columns of the syntax tree are bytes of UTF-8."""
        return self._starts[line - 1] + len(self._raw[line - 1][:column].decode())

    def span(self, node: ast.AST | tuple[int, int]) -> tuple[int, int]:
        if isinstance(node, tuple):
            return node
        return (
            self._offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self._offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def bracketed(self, node: ast.AST) -> str:
        return f"({self.of(node)})"


# -- operators -------------------------------------------------------------------------------------

_ARITHMETIC = {
    ast.Add: ("-",),
    ast.Sub: ("+",),
    ast.Mult: ("//", "+"),
    ast.Div: ("*",),
    ast.FloorDiv: ("*",),
    ast.Mod: ("//",),
}
_COMPARED = {
    ast.Lt: ("<=", ">"),
    ast.LtE: ("<", ">="),
    ast.Gt: (">=", "<"),
    ast.GtE: (">", "<="),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
#: Names of functions that are mistaken for one another.
_TWINS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor",
    "reduce_max": "reduce_min", "reduce_min": "reduce_max", "maximum": "minimum",
    "minimum": "maximum", "add": "sub", "sub": "add", "mul": "div", "div": "mul",
    "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "sin": "cos", "cos": "sin", "argmax": "argmin",
    "argmin": "argmax", "reversed": "list", "exp": "expm1", "log": "log1p", "eq": "ne", "ne": "eq",
    "logical_and": "logical_or", "logical_or": "logical_and",
}  # fmt: skip
_AXIS = re.compile(r"(^|_)(axis|axes|dim|dims|rank|permutation)($|_)|^perm$")
_STRIDE = re.compile(r"stride|pitch|offset|padding|dilation")
_TEXT = (
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " + "),
    (" // ", " * "),
    (" % ", " // "),
    (" < ", " <= "),
    (" <= ", " < "),
    (" > ", " >= "),
    (" >= ", " > "),
    (" == ", " != "),
    ("+= ", "-= "),
    ("range(lo, ", "range(lo + 1, "),
    (" & ", " | "),
    ("and ", "or "),
)


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def arithmetic(node: ast.AST, source: Source) -> Iterator[Edit]:
    """+ for -, * for // and so on, in expressions and in augmented assignments."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        between = source.span(node.left)[1], source.span(node.right)[0]
        for sign in _ARITHMETIC[type(node.op)]:
            found = _token(source, between, node.op)
            if found:
                yield found, sign
    if (
        isinstance(node, ast.AugAssign)
        and type(node.op) in (ast.Add, ast.Sub, ast.Mult)
        and not (_is_text(node.value) or isinstance(node.value, ast.List | ast.Tuple))
    ):
        sign = "+=" if isinstance(node.op, ast.Sub) else "-="
        at = source.text.index("=", source.span(node.target)[1])
        yield (at - 1, at + 1), sign


_SIGNS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}


def _token(source: Source, between: tuple[int, int], op: ast.AST) -> tuple[int, int] | None:
    sign = _SIGNS[type(op)]  # type: ignore[index]
    at = source.text.find(sign, *between)
    return (at, at + len(sign)) if at >= 0 else None


def comparison(node: ast.AST, source: Source) -> Iterator[Edit]:
    """< for <=, == for !=, in for not in."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        start, end = source.span(node.left)[1], source.span(node.comparators[0])[0]
        between = source.text[start:end]
        found = re.search(r"[<>=!]+|\b(is not|not in|is|in)\b", between)
        if found:
            for sign in _COMPARED[type(node.ops[0])]:
                yield (start + found.start(), start + found.end()), sign


def condition(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A condition the other way round, or one part of it less."""
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, word.join(source.bracketed(v) for v in node.values)
        same = " and " if isinstance(node.op, ast.And) else " or "
        for i in range(len(node.values)):
            kept = [source.bracketed(v) for j, v in enumerate(node.values) if j != i]
            yield node, f"({same.join(kept)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, source.bracketed(node.operand)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, f"(not {source.bracketed(node.test)})"
        if isinstance(node, ast.If) and _leaves(node):
            yield node.test, "False"
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield test, "True"


def _leaves(node: ast.If) -> bool:
    return isinstance(node.body[-1], ast.Return | ast.Continue | ast.Break | ast.Raise)


def constant(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A number one more, one less or doubled; True for False."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, str | bytes):
        return
    value = node.value
    if isinstance(value, bool):
        yield node, str(not value)
    elif isinstance(value, int):
        yield node, str(value + 1)
        if value:
            yield node, str(value - 1)
        if value > 2:
            yield node, str(value * 2)
    elif isinstance(value, float):
        yield node, repr(value * 2 if value else 1.0)
        if value:
            yield node, repr(value * 1.01)


def axis(node: ast.AST, source: Source) -> Iterator[Edit]:
    """An axis off by one: indices, slices' ends, arguments and names of axes."""
    if isinstance(node, ast.Subscript):
        index = node.slice
        if isinstance(index, ast.Constant) and isinstance(index.value, int):
            yield index, str(index.value + 1)
        elif isinstance(index, ast.UnaryOp) and isinstance(index.operand, ast.Constant):
            yield index, f"-{index.operand.value + 1}"  # type: ignore[operator]
        elif isinstance(index, ast.Name) and _AXIS.search(index.id):
            yield index, f"{index.id} - 1"
        elif isinstance(index, ast.Slice):
            for end in (index.lower, index.upper):
                if end is not None:
                    yield end, f"{source.bracketed(end)} - 1"
                    yield end, f"{source.bracketed(end)} + 1"
    elif isinstance(node, ast.keyword) and node.arg and _AXIS.search(node.arg):
        value = node.value
        if isinstance(value, ast.Constant | ast.UnaryOp | ast.Name | ast.BinOp):
            if not (isinstance(value, ast.Constant) and not isinstance(value.value, int)):
                yield value, f"{source.bracketed(value)} - 1"
        elif isinstance(value, ast.Tuple) and len(value.elts) > 1:
            yield value, f"({', '.join(source.of(v) for v in reversed(value.elts))})"


#: Calls whose operands may change places.
_SYMMETRIC = {"isinstance", "getattr", "max", "min", "eq", "ne", "add", "mul", "maximum", "minimum",
              "and_", "or_", "logical_and", "logical_or", "logical_xor"}  # fmt: skip


def swap(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Two operands exchanged; of calls, arguments of one form: others would be of other types."""
    if isinstance(node, ast.Call) and not node.keywords:
        args = node.args
        plain = not any(isinstance(a, ast.Starred | ast.GeneratorExp | ast.Lambda) for a in args)
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if plain and 2 <= len(args) <= 3 and name not in _SYMMETRIC:
            a, b = args[-2:]
            alike = type(a) is type(b) and not (_is_text(a) or _is_text(b))
            if alike and ast.dump(a) != ast.dump(b):
                start, end = source.span(a)[0], source.span(b)[1]
                gap = source.text[source.span(a)[1] : source.span(b)[0]]
                yield (start, end), source.of(b) + gap + source.of(a)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv):
        if not isinstance(node.right, ast.Constant):
            sign = _SIGNS[type(node.op)]
            yield node, f"({source.bracketed(node.right)} {sign} {source.bracketed(node.left)})"
    elif isinstance(node, ast.IfExp):
        yield (
            node,
            (f"({source.of(node.orelse)} if {source.of(node.test)} else {source.of(node.body)})"),
        )


#: Keyword arguments that are only shown.
_TOLD = ("note", "origin", "fix", "summary", "title")


def keyword(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A keyword argument left out."""
    if isinstance(node, ast.Call):
        for word in node.keywords:
            if word.arg is None or word.arg in _TOLD:
                continue
            start, end = source.span(word)
            before = source.text[:start].rstrip()
            if before.endswith(","):
                yield (len(before) - 1, end), ""
            else:
                tail = re.match(r"\s*,", source.text[end:])
                yield (start, end + (tail.end() if tail else 0)), ""


def twin(node: ast.AST, source: Source) -> Iterator[Edit]:
    """min for max, any for all, floor for ceil: the called function's name."""
    if isinstance(node, ast.Call):
        name = node.func
        if isinstance(name, ast.Name) and name.id in _TWINS:
            yield name, _TWINS[name.id]
        elif isinstance(name, ast.Attribute) and name.attr in _TWINS:
            end = source.span(name)[1]
            yield (end - len(name.attr), end), _TWINS[name.attr]


def removal(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A statement left out: a call for its effect, an augmented assignment, an entry."""
    call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    entry = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)
    if call or entry or isinstance(node, ast.AugAssign | ast.Continue):
        yield node, "pass"


def word(node: ast.AST, source: Source) -> Iterator[Edit]:
    """In a table from names to names: the name of another row."""
    if isinstance(node, ast.Dict) and len(node.values) > 1:
        values = node.values
        if all(isinstance(v, ast.Constant) and isinstance(v.value, str) for v in values):
            for i, value in enumerate(values):
                other = values[(i + 1) % len(values)]
                if value.value != other.value:  # type: ignore[attr-defined]
                    yield value, source.of(other)


def emitted(node: ast.AST, source: Source) -> Iterator[Edit]:
    """An operator in emitted text: + for -, < for <= inside a string."""
    if not isinstance(node, ast.JoinedStr | ast.Constant) or not _is_text(node):
        return
    start, _ = source.span(node)
    text = source.of(node)
    plain = _outside_braces(text) if isinstance(node, ast.JoinedStr) else text
    for old, new in _TEXT:
        at = plain.find(old)
        if at >= 0:
            yield (start + at, start + at + len(old)), new
    found = re.search(r"(?<![\w.{])\d+(?![\w}])", plain)
    if found and isinstance(node, ast.JoinedStr):
        yield (start + found.start(), start + found.end()), str(int(found.group()) + 1)


def _outside_braces(text: str) -> str:
    """An f-string's source with blanks for what is in braces."""
    out, depth = [], 0
    for character in text:
        depth += character == "{"
        out.append("\0" if depth else character)
        depth -= character == "}"
    return "".join(out)


def stride(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Arithmetic, operands and numbers of a statement that speaks of strides and offsets."""
    yield from arithmetic(node, source)
    yield from swap(node, source)
    yield from constant(node, source)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        number = _STRIDE.search(node.id) and not node.id.endswith("s")
        if number:
            yield node, f"({node.id} + 1)"


Operator = Callable[[ast.AST, Source], Iterator[Edit]]
OPERATORS: dict[str, Operator] = {
    f.__name__: f
    for f in (
        arithmetic,
        comparison,
        condition,
        constant,
        axis,
        swap,
        keyword,
        twin,
        removal,
        word,
        emitted,
        stride,
    )
}
#: Operators that look only at statements whose text matches.
ONLY_IN = {"stride": _STRIDE}


def function_at(text: str, line: int) -> str:
    """The qualified name of the function around a line ("" outside functions)."""
    found: list[str] = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if named and child.lineno <= line <= (child.end_lineno or 0):  # type: ignore[attr-defined]
                found.append(child.name)  # type: ignore[attr-defined]
                visit(child)

    visit(ast.parse(text))
    return ".".join(found)


def lines_around(text: str, line: int) -> range:
    """The lines of the body of the innermost function around a line; none outside functions."""
    spans = [
        range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        for node in _functions(text)
        if node.lineno <= line <= (node.end_lineno or 0)
    ]
    return min(spans, key=len, default=range(0))


@functools.lru_cache(maxsize=4)
def _functions(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = ast.FunctionDef, ast.AsyncFunctionDef
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]


# -- walking ---------------------------------------------------------------------------------------


def mutations(text: str, operators: tuple[str, ...]) -> list[Mutation]:
    """All mutations of a file's source by ``operators``, in the order of the text."""
    source = Source(text)
    found: dict[tuple[int, int, str], Mutation] = {}
    for node, where in _walk(source.tree):
        for name in operators:
            pattern = ONLY_IN.get(name)
            if pattern is not None and not pattern.search(source.of(where.statement)):
                continue
            for target, new in OPERATORS[name](node, source):
                start, end = source.span(target)
                if source.text[start:end] == new:
                    continue
                row = _row_of(node, target) or where.row
                made = Mutation(
                    name,
                    start,
                    end,
                    new,
                    source.line_of(start),
                    where.statement.lineno,
                    "" if where.inside else row,
                    "" if where.inside else where.name,
                )
                found.setdefault((start, end, new), made)
    return sorted(found.values(), key=lambda m: (m.start, m.end, m.text))


def _row_of(node: ast.AST, target: object) -> str:
    """The key of a value of a dictionary that is edited as a whole."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if value is target and isinstance(key, ast.Constant) and isinstance(key.value, str):
                return key.value
    return ""


@dataclass(frozen=True)
class _Where:
    """Where a node lies: its statement, whether in a function, and in which row of a table."""

    statement: ast.stmt
    inside: bool = False
    row: str = ""
    name: str = ""


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, _Where]]:
    for statement in tree.body:
        yield from _visit(statement, _Where(statement))


def _visit(node: ast.AST, where: _Where) -> Iterator[tuple[ast.AST, _Where]]:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Raise | ast.Assert) or _is_note(node):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return
    if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
        for child in node.orelse:  # what a model that compiles never enters says nothing of a check
            yield from _visit(child, where)
        return
    if isinstance(node, ast.stmt):
        where = _Where(node, where.inside, where.row, where.name)
        if not where.inside and isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = getattr(target, "id", "")
            where = _Where(node, False, where.row, name)
    yield node, where
    if isinstance(node, ast.JoinedStr):
        return  # columns inside are not those of the file before Python 3.12
    if isinstance(node, _FUNCTIONS):
        inner = _Where(where.statement, True)
        body: Sequence[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else node.body
        for inside in body:
            yield from _visit(inside, inner)
        return
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            yield from _visit(child, where)
        return
    if isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from _visit(node.value, where)
        return
    if isinstance(node, ast.Dict) and not where.inside:
        for key, value in zip(node.keys, node.values, strict=True):
            yield from _visit(value, _rowed(where, key))
        return
    if isinstance(node, ast.Call | ast.Tuple) and not where.inside:
        parts = node.args if isinstance(node, ast.Call) else node.elts
        where = _rowed(where, parts[0] if parts else None)
    for part in ast.iter_child_nodes(node):
        yield from _visit(part, where)


def _rowed(where: _Where, key: ast.AST | None) -> _Where:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return _Where(where.statement, where.inside, key.value, where.name)
    return where


def _is_note(node: ast.AST) -> bool:
    """A docstring, a note, or a guard: ``need(condition, message)`` computes nothing."""
    if not isinstance(node, ast.Expr):
        return False
    function = getattr(node.value, "func", None)
    name = getattr(function, "id", "")
    target = getattr(getattr(function, "value", None), "id", "")  # of notes.append(...)
    told = isinstance(node.value, ast.Constant) or target in ("notes", "lines", "words")
    return told or name.split("_")[0] in ("need", "check")
