"""Files of text and arrays: one that was there before goes only when the new one is complete."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from core_compiler.errors import UserError
from core_compiler.exporters.mlir.literals import stored
from core_compiler.ir import dtype


def write_file(path: Path, content: Iterable[str] | Mapping[str, np.ndarray]) -> None:
    """Text in pieces, or arrays by name (``.npz``), as a file; UserError where none can be."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if isinstance(content, Mapping):
            _write_arrays(draft, content)
        else:
            with draft.open("w", encoding="utf-8") as file:
                file.writelines(content)
        draft.replace(path)
    except OSError as problem:
        raise UserError(f"cannot be written: {problem.strerror}", str(path),
                        "choose another place") from None  # fmt: skip
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """An ``.npz`` as NumPy reads it; ``numpy.savez`` takes no array that is called ``file``."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            kind = dtype(array.dtype)
            known = array.dtype.kind in "biuf"
            held = array if known else array.view(np.dtype(f"u{stored(kind).bytes}"))
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, held, allow_pickle=False)
