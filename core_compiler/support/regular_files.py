"""Access to files that a user names: regular files only.

Opening a FIFO or a device may block or have side effects.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from core_compiler.support.errors import UserError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def need_regular(path: Path, fix: str = "check the path", where: str = "") -> os.stat_result:
    """Return the stat result of a regular file (links followed), without opening it.

    Raises UserError for everything else, with ``where`` (default: the path) and the fix.
    """
    where = where or str(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise UserError("file not found", where, fix) from None
    except (OSError, ValueError) as error:  # a loop of links, a name too long, a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot be read ({reason})", where, fix) from None
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "a special file")
        raise UserError(
            f"expected a regular file, got {kind}",
            where,
            fix if fix != "check the path" else "pass the path of a file",
        )
    return found


def open_regular(path: Path, fix: str = "check the path", where: str = "") -> BufferedReader:
    """Open a regular file for reading; UserError as in :func:`need_regular`.

    A file that is replaced by a pipe in the meantime is rejected too, without blocking.
    """
    need_regular(path, fix, where)
    try:
        number = os.open(
            path,
            os.O_RDONLY
            | getattr(os, "O_NONBLOCK", 0)
            | getattr(os, "O_BINARY", 0)
            | getattr(os, "O_CLOEXEC", 0),
        )
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where or str(path), fix) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise UserError("expected a regular file", where or str(path), fix)
    return os.fdopen(number, "rb")


def read_regular(path: Path, fix: str = "check the path") -> bytes:
    """Return the bytes of a regular file; UserError as above."""
    with open_regular(path, fix) as stream:
        return stream.read()


def inside(folder: Path, location: str, where: str) -> Path:
    """Return the path of a data file, which must be a regular file in the model's folder.

    Links are followed; the file is not opened.
    """
    try:
        root = folder.resolve()
        path = (root / location).resolve()
        within = bool(location) and path.is_relative_to(root)
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(path)
    except (OSError, ValueError, RuntimeError):  # a NUL, a name too long, a loop of links
        within = False
    if not within:
        raise UserError(
            f"{location[:80]!r} is not in the model's folder",
            where,
            "put the data file next to the model",
        )
    try:
        need_regular(path)
    except UserError as error:
        if not path.exists():
            raise UserError(
                f"file {location[:80]!r} not found", where, f"put it into {folder}"
            ) from None
        raise UserError(
            f"{location[:80]!r}: {error.what}", where, "put the data file next to the model"
        ) from None
    return path
