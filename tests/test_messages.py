"""Every message of an error that a user sees, on one page: `tests/messages.txt`.

The page is made from the sources.  Who changes a message writes the page anew
(``python -m tests.test_messages``) and reads what changed as a user would: what was found,
what was expected, what to do (``where: what; fix``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path(__file__).parent / "messages.txt"
PACKAGES = ("core_compiler", "workbench", "widgets", "sample_models")
#: Phrases that `docs/glossary.md`'s rules have a plainer form for.
BANNED = re.compile(
    r"\b(is no|are no|is called|are called|is none of|are none of|gives the number of"
    r"|there is no such|stands for no|has no word|nobody|somebody|a person)\b"
)


def _text(node: ast.expr) -> str:
    """The text that an expression makes, with what is filled in between braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return f"[{_text(node.body)} | {_text(node.orelse)}]"
    return f"{{{ast.unparse(node)}}}"


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that make a `UserError`, of those derived from it too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name.endswith("UserError") and node.args:
                yield node
        elif isinstance(node, ast.ClassDef) and any(
            ast.unparse(base).endswith("UserError") for base in node.bases
        ):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "super().__init__":
                    yield inner


def page() -> str:
    """All messages, file by file, in the order of the sources."""
    lines = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "node_modules" in path.parts:
                continue
            calls = sorted(
                _calls(ast.parse(path.read_text(encoding="utf-8"))),
                key=lambda call: (call.lineno, call.col_offset),
            )
            if calls:
                lines += ["", path.relative_to(ROOT).as_posix()]
            for call in calls:
                parts = [_text(argument) for argument in call.args[:3]]
                parts += [_text(k.value) for k in call.keywords if k.arg in ("where", "fix")]
                what, where, fix = (*parts, "", "")[:3]
                line = f"{where}: {what}" if where else what
                lines.append("  " + " ".join((f"{line}; {fix}" if fix else line).split()))
    return "\n".join(lines).lstrip("\n") + "\n"


def test_the_page_has_every_message():
    wanted = PAGE.read_text(encoding="utf-8")
    assert page() == wanted, "run `python -m tests.test_messages` and read what changed"


def test_messages_are_plain():
    found = [line for line in page().splitlines() if BANNED.search(line)]
    assert not found, "\n".join(found)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
