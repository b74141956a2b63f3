"""Files of a run's folder: each is written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from core_compiler.errors import UserError


def write(path: Path, data: bytes, what: str) -> None:
    """Write a file beside its place and rename it: an older one of its name stays until the new
    one is on the disk.  UserError, which names ``what`` it is, where the disk refuses it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise UserError(
            f"{what} could not be written: {error.strerror}", str(path),
            "make room or choose another folder; the older one is intact",
        ) from None  # fmt: skip
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
