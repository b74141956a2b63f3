"""A stage as a file of another tool: which ending is which format, and who writes it."""

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
    """``writer`` names a function ``write(module, path, *, inputs, outputs, **options)``, called
    with ``options`` too."""

    title: str
    writer: str
    options: dict[str, Any] = field(default_factory=dict)


_MLIR = "core_compiler.exporters.mlir:write"
#: A file's ending -> its format; an ending that ends in another one stands before it.
FORMATS = {
    ".onnx": Format("an ONNX model", "core_compiler.exporters.onnx:write"),
    ".py": Format("NumPy source", "core_compiler.exporters.numpy_source:write"),
    ".tosa.mlir": Format("TOSA", _MLIR, {"dialect": "tosa"}),
    ".linalg.mlir": Format("linalg on tensors", _MLIR, {"dialect": "linalg"}),
    ".mlir": Format("our IR in MLIR's generic form", "core_compiler.exporters.mlir.generic:write"),
}


def ending(path: Path | str) -> str | None:
    """The ending of a file's name that stands for a format; None where none does."""
    name = Path(path).name.lower()
    return next((e for e in FORMATS if name.endswith(e) and name != e), None)


def export(
    module: Module, path: Path | str, *, inputs: Sequence[str], outputs: Sequence[str],
    **options: Any,
) -> list[Path]:  # fmt: skip
    """Write a module at tensor level (as ``.onnx`` also one of level ``onnx``, as ``.mlir`` of any
    level) to ``path``; the files that were written, weights beside it among them.

    ``inputs`` and ``outputs`` name main's arguments and results.  ``options`` are the writer's own.
    UserError for an ending that stands for no format, and for what the format has no word for.
    """
    path, found = Path(path), ending(path)
    if found is None:
        known = ", ".join(f"{e} ({f.title})" for e, f in FORMATS.items())
        raise UserError(f"unrecognised file extension {path.suffix or path.name!r}", str(path),
                        nearest(path.suffix, FORMATS, f"use {known}"))  # fmt: skip
    if module.main.level == "onnx" and found == ".onnx":
        from core_compiler.onnx_level.write import save

        return save(module, path, **options)
    format_ = FORMATS[found]
    where, _, name = format_.writer.partition(":")
    write = getattr(import_module(where), name)
    return write(module, path, inputs=inputs, outputs=outputs, **format_.options, **options)
