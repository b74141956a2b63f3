"""The weights of a recorded model, as files beside its recording, for a process without the model.

``x.run.weights`` is a folder with one file for each weight of stage 0: its bytes, little-endian and
row-major, under its digest.  The files are mapped into memory, not read into it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.ir import Module, Resource
from core_compiler.ir.text import weight_names
from core_compiler.ir.weights import array_digest
from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.support.mapped import release
from core_compiler.support.regular_files import open_regular


def folder_of(recording: str | Path) -> Path:
    """Return the folder of a recording's weights, which need not exist."""
    path = Path(recording)
    return path.with_name(f"{path.name}.weights")


def write(recording: str | Path, module: Module) -> Path:
    """Write the weights of a module beside a recording and return their folder.

    Files appear whole, by a rename.  Raises UserError if they cannot be written.
    """
    folder = folder_of(recording)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for digest in weight_names(module):
            draft = folder / f".{digest}.{os.getpid()}"
            try:
                with draft.open("wb") as stream:
                    array = np.ascontiguousarray(module.weights[digest])
                    stream.write(array.reshape(-1).view(np.uint8).data)
                draft.replace(folder / digest)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write the weights ({error.strerror})",
            str(folder),
            "choose a folder with enough space that you may write to",
            CANNOT_HERE,
        ) from None
    return folder


def read(recording: str | Path, wanted: Mapping[str, Resource]) -> dict[str, np.ndarray]:
    """Return those of the ``wanted`` weights that are beside a recording, by their digests.

    Raises UserError if a file does not contain the weight that its name says.
    """
    folder = folder_of(recording)
    if not folder.is_dir():
        return {}
    return {
        digest: _mapped(folder / digest, held)
        for digest, held in wanted.items()
        if (folder / digest).exists()
    }


def _mapped(path: Path, held: Resource) -> np.ndarray:
    array = None
    type_ = held.type
    shape: tuple[Any, ...] = type_.shape  # weights have static shapes
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size == type_.bytes:
            mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            array = np.frombuffer(mapping, type_.dtype.numpy).reshape(shape)
    if array is None or array_digest(array) != held.digest:
        raise UserError(
            "the file is damaged: its bytes are not those of the weight that it is named after",
            str(path),
            "record the model again with its weights",
        )
    release(array)
    return array
