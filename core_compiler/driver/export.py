"""Export of a stage to another tool's file: formats by extension, and their writers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from core_compiler.ir import Module
from core_compiler.support.errors import UserError, nearest


@dataclass(frozen=True)
class Format:
    """A file format.

    ``writer`` names a function ``write(module, path, *, inputs, outputs, **options)``, called with
    ``options`` too.
    """

    title: str
    writer: str
    options: dict[str, Any] = field(default_factory=dict)


_MLIR = "core_compiler.exporters.mlir:write"
#: File extension -> its format; an extension precedes others that are a suffix of it.
FORMATS = {
    ".onnx": Format("an ONNX model", "core_compiler.exporters.onnx:write"),
    ".pt2": Format("a PyTorch exported program", "core_compiler.exporters.pt2:write"),
    ".py": Format("NumPy source", "core_compiler.exporters.numpy_source:write"),
    ".tosa.mlir": Format("TOSA", _MLIR, {"dialect": "tosa"}),
    ".linalg.mlir": Format("linalg on tensors", _MLIR, {"dialect": "linalg"}),
    ".mlir": Format("the IR in MLIR's generic form", "core_compiler.exporters.mlir.generic:write"),
}


def ending(path: Path | str) -> str | None:
    """Return the recognised extension of a file name, or None."""
    name = Path(path).name.lower()
    return next((e for e in FORMATS if name.endswith(e) and name != e), None)


def export(
    module: Module,
    path: Path | str,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    **options: Any,
) -> list[Path]:
    """Write a module to ``path``; return the written files, including weights beside it.

    The module is at tensor level (for ``.onnx`` also at level ``onnx``, for ``.mlir`` at any
    level). ``inputs`` and ``outputs`` name main's arguments and results.  ``options`` are the
    writer's own. Raises UserError for an unrecognised extension, and for ops that the format does
    not support.
    """
    path, found = Path(path), ending(path)
    if found is None:
        known = ", ".join(f"{e} ({f.title})" for e, f in FORMATS.items())
        raise UserError(
            f"unrecognised file extension {path.suffix or path.name!r}",
            str(path),
            nearest(path.suffix, FORMATS, f"use {known}"),
        )
    if module.main.level == "onnx" and found == ".onnx":
        from core_compiler.onnx_level.write import save

        return save(module, path, **options)
    format_ = FORMATS[found]
    where, _, name = format_.writer.partition(":")
    write = getattr(import_module(where), name)
    return write(module, path, inputs=inputs, outputs=outputs, **format_.options, **options)
