"""A stage as a file of another tool: which ending is which format, and who writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from core_compiler.errors import UserError, nearest
from core_compiler.ir import Module


@dataclass(frozen=True)
class Format:
    """``writer`` names a function ``write(module, path, *, inputs, outputs, **options)``."""

    title: str
    writer: str


#: A file's ending -> its format.
FORMATS = {
    ".onnx": Format("an ONNX model", "core_compiler.exporters.onnx:write"),
    ".py": Format("NumPy source", "core_compiler.exporters.numpy_source:write"),
}


def export(
    module: Module, path: Path | str, *, inputs: Sequence[str], outputs: Sequence[str],
    **options: Any,
) -> list[Path]:  # fmt: skip
    """Write a module at tensor level (or, as ``.onnx``, one of level ``onnx``) to ``path``; the
    files that were written, weights beside it among them.

    ``inputs`` and ``outputs`` name main's arguments and results.  ``options`` are the writer's own.
    UserError for an ending that stands for no format, and for what the format has no word for.
    """
    path = Path(path)
    format_ = FORMATS.get(path.suffix.lower())
    if format_ is None:
        known = ", ".join(f"{ending} ({f.title})" for ending, f in FORMATS.items())
        raise UserError(f"{path.suffix or path.name!r} stands for no format", str(path),
                        nearest(path.suffix, FORMATS, f"end the name in {known}"))  # fmt: skip
    if module.main.level == "onnx" and path.suffix.lower() == ".onnx":
        from core_compiler.onnx_level.write import save

        return save(module, path, **options)
    where, _, name = format_.writer.partition(":")
    write = getattr(import_module(where), name)
    return write(module, path, inputs=inputs, outputs=outputs, **options)
