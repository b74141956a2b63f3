"""Files of a run's folder: written atomically, by one run at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core_compiler.support.errors import UserError

#: The suffix of files that are being written.
_DRAFT = ".draft"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder for one run; raise UserError if another run has locked it.

    The folder is created if missing, and removed if it stays empty. Unfinished files of killed runs
    are deleted.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UserError(
            f"cannot use the folder: {error.strerror}", str(folder), "choose another folder"
        ) from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                "another run is writing to the folder",
                str(folder),
                "wait until it ends, or choose another folder",
            ) from None
        except OSError as error:  # some network file systems have no locks
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL):
                raise
        else:
            for draft in folder.glob(f".*{_DRAFT}"):
                draft.unlink(missing_ok=True)
        yield
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        os.close(fd)


def write(path: Path, data: bytes, what: str) -> None:
    """Write a file under a temporary name and rename it, so that the old file remains until then.

    Raise a UserError that names ``what`` if writing fails.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}{_DRAFT}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise UserError(
            f"cannot write {what}: {error.strerror}",
            str(path),
            "free disk space or choose another folder; the previous version is intact",
        ) from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
