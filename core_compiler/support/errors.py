"""The error that users see: what went wrong, where, and how to fix it."""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

from typing_extensions import override

#: Exit codes of the command line: bad input, "this machine cannot do it", stopped by Ctrl-C.
BAD_INPUT = 2
CANNOT_HERE = 3
STOPPED = 130


class UserError(Exception):
    """An error of the input or a limit of this machine, in three short clauses.

    ``what`` went wrong, ``where`` (file, op, model line), and the ``fix`` to try.  The command line
    prints it as one line, or as ``{"error": {"what", "where", "fix"}}`` with ``--json``; it is
    never shown with a traceback.
    """

    def __init__(self, what: str, where: str = "", fix: str = "", exit_code: int = BAD_INPUT):
        self.what, self.where, self.fix, self.exit_code = what, where, fix, exit_code
        super().__init__(str(self))

    @override
    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.fix}" if self.fix else text

    @override
    def __reduce__(self):
        return UserError, (self.what, self.where, self.fix, self.exit_code)

    def to_json(self) -> dict:
        return {"error": {"what": self.what, "where": self.where, "fix": self.fix}}


class PassRaised(UserError):
    """A pass that is not ours raised an exception: ``label`` is the pass, the exception the cause.

    ``place`` is ``file:line`` of the user's own line that raised.
    """

    def __init__(self, label: str, error: BaseException):
        super().__init__(
            f"the pass raised {raised_at(error)}",
            f"pass {label}",
            "the stages before it are kept; fix the pass, or leave it out",
        )
        self.label = label


class PassTimeout(UserError):
    """A pass exceeded its time limit of ``seconds``."""

    def __init__(self, label: str, seconds: float, stopped: BaseException):
        location = raised_at(stopped).partition(" at ")[2]
        super().__init__(
            f"the pass did not finish in {seconds:g} s"
            f"{f' (stopped at {location})' if location else ''}",
            f"pass {label}",
            "the stages before it are kept; fix the pass, or raise the time limit",
        )
        self.label = label


class InternalError(Exception):
    """The compiler broke one of its own rules: a bug of ours, never the user's input."""


def one_line(text: str, most: int) -> str:
    """Return text of a file for a message, on one line and at most ``most`` characters long.

    Unprintable characters are escaped in hexadecimal.
    """
    line = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in " ".join(text[: 4 * most].split())
    )
    return line if len(line) <= most else f"{line[: most - 1]}…"


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a ``fix`` for an unknown name: the names close to it, else ``otherwise``."""
    by_case = {k.lower(): k for k in reversed(list(known))}
    found = [by_case[k] for k in difflib.get_close_matches(name.lower(), by_case, 3, 0.76)]
    return f"did you mean {' or '.join(found)}?" if found else otherwise


def raised_at(error: BaseException) -> str:
    """Return ``ValueError at model.py:12: wrong size``: an error in the user's code and its line.

    The line is the last one outside the standard library, installed packages and this program; it
    is omitted if there is none.  Notes added to the exception are appended.
    """
    message = (str(error).strip().splitlines() or [""])[0][:200]
    location = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else ""
    if isinstance(error, SyntaxError):
        message = error.msg
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not location and not frame.filename.startswith(_NOT_THEIRS):
            location = f"{frame.filename}:{frame.lineno}"
    description = (
        f"{type(error).__name__}{f' at {location}' if location else ''}: {message}".rstrip(": ")
    )
    return ", ".join([description, *getattr(error, "__notes__", ())])


def raised_inside(error: BaseException, *packages: str) -> str:
    """Return ``file:line`` of this program if it or a library that it called raised an exception.

    Returns ``""`` if one of the installed ``packages``, or code that it called, raised it.
    """
    own = tuple(f"{_HERE / name}/" for name in ("core_compiler", "workbench"))
    theirs = tuple(f"/{name}/" for name in packages)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(own):
            return f"{Path(frame.filename).relative_to(_HERE)}:{frame.lineno}"
        if frame.filename.startswith(_LIBRARIES) and any(p in frame.filename for p in theirs):
            return ""
    return ""


_PATHS = sysconfig.get_paths()
_HERE = Path(__file__).parents[2]
_LIBRARIES = (_PATHS["purelib"], _PATHS["platlib"])
_NOT_THEIRS = (
    "<",
    *(_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(f"{_HERE / name}/" for name in ("core_compiler", "workbench")),
)
