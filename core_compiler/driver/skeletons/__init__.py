"""The first files of a new op, pass, view or target, each with a test that passes.

A skeleton is a text file beside this one.  ``=== PATH`` begins a new file, ``+++ PATH`` text to
append to one, ``>>> PATH`` a line to insert before the line that follows it.  ``some_name`` and
``SomeName`` stand for the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core_compiler.support.errors import UserError

#: Kind -> the purpose of its command.
KINDS = {
    "op": "declare an op: a composite, with its sample",
    "pass": "write a pass: a table of one rule, with its specification",
    "view": "write a view of recordings: data, browser module, entry, test",
    "target": "create the package of a target plug-in that runs matmuls in the interpreter",
}
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MARK = re.compile(r"^(===|\+\+\+|>>>) (\S+)\n", re.M)


@dataclass(frozen=True)
class Part:
    """The ``text`` for a file: the whole (``===``), its end (``+++``), a line in it (``>>>``)."""

    how: str
    path: Path
    text: str

    def check(self) -> None:
        """Raise UserError if the file exists and must not, or the other way round."""
        if self.how == "===" and self.path.exists():
            raise UserError("the file exists already", str(self.path), "choose another name")
        if self.how != "===" and not self.path.is_file():
            raise UserError(
                "the file is missing",
                str(self.path),
                "run this in a checkout, or name it: --folder DIR",
            )

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = self.text
        if self.how != "===":
            old = self.path.read_text(encoding="utf-8")
            if self.how == "+++":
                text = f"{old.rstrip()}\n\n\n{text}"
            else:
                line, before = text.rstrip("\n").split("\n")
                text = old.replace(f"{before}\n", f"{line}\n{before}\n", 1)
        self.path.write_text(text, encoding="utf-8")


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Write the skeleton of a new ``kind`` called ``name`` below ``folder``; return the files.

    Raises UserError and writes nothing if one of them cannot be written.
    """
    if _NAME.fullmatch(name) is None:
        raise UserError(
            f"invalid name {name!r}",
            f"new-{kind}",
            "write it in lower case, words joined by _: my_name",
        )
    parts = list(_parts(kind, name, folder))
    for part in parts:
        part.check()
    for part in parts:
        part.write()
    return [part.path for part in parts]


def _parts(kind: str, name: str, folder: Path) -> Iterator[Part]:
    text = (Path(__file__).parent / f"{kind}.txt").read_text(encoding="utf-8")
    camel = "".join(word.capitalize() for word in name.split("_"))
    text = text.replace("some_name", name).replace("SomeName", camel)
    _, *pieces = _MARK.split(text)
    for how, path, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        yield Part(how, folder / path, f"{body.strip()}\n")
