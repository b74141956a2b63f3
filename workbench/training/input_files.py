"""The input files of a training run, identified by their contents so that it can be repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from core_compiler.support.errors import UserError
from core_compiler.support.regular_files import inside, open_regular

#: The extensions of trainable model files.
MODEL_FILES = (".onnx", ".keras", ".pt2")


def is_model(name: str) -> bool:
    """Return whether a model is named by its file."""
    return Path(name).suffix.lower() in MODEL_FILES


def list_files(model: str, data: Sequence[str]) -> list[tuple[str, str]]:
    """Return ``(path, SHA-256)`` of all input files of a run: model, weights, then data.

    UserError for one that cannot be read.
    """
    paths = [Path(model)] if is_model(model) else []
    if paths and paths[0].suffix.lower() == ".onnx":
        from core_compiler.frontends.onnx.reading import external_files, read_model

        folder, names = paths[0].parent, external_files(read_model(paths[0]))
        paths += [inside(folder, name, f"external data of {paths[0]}") for name in names]
    return [(str(path.absolute()), _sha256(path)) for path in [*paths, *map(Path, data)]]


def find_file(path: Path, digest: str, folder: Path) -> Path:
    """Return a file of the run in ``folder`` at its present location.

    It is the original path, else one beside the folder or in it. UserError if the file is missing
    or has changed.
    """
    candidates = [path, folder.absolute().parent / path.name, folder / path.name]
    existing = [candidate for candidate in candidates if candidate.is_file()]
    for candidate in existing:
        if _sha256(candidate) == digest:
            return candidate
    if existing:
        raise UserError(
            "the file has changed since the run was made",
            str(existing[0]),
            f"restore the version whose SHA-256 begins with {digest[:12]}",
        )
    raise UserError(
        "the file that the run was made with was not found",
        str(path),
        f"restore it, or put it beside the folder: {candidates[1]}",
    )


def _sha256(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(
            f"cannot read the file ({error.strerror})", str(path), "check the path"
        ) from None
