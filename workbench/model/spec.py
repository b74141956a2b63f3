"""Parsing of the text that names a model.

``resnet50`` (the catalogue), ``model.onnx``, ``model.pt2``, ``model.keras``, ``model.mlir``
(StableHLO, or our own IR), a folder with a SavedModel, ``package.module:function``, and a
recording (its stage 0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core_compiler.driver import recorded_stage
from core_compiler.frontends.base import is_saved_model
from core_compiler.frontends.open import FILES, frontend_of
from core_compiler.support.errors import UserError, nearest
from core_compiler.support.regular_files import need_regular

_FUNCTION = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
FRONTENDS = ("torch", "onnx", "onnx-passes", "jax", "keras", "tensorflow", "stablehlo", "ir")
#: The frontend that reads ONNX files as a graph of ONNX: the passes of that level run before the
#: import.
AS_GRAPH = "onnx-passes"
#: The frontends of a function's model; the returned object determines which.
OF_FUNCTIONS = ("torch", "jax", "keras", "tensorflow")
#: A recording, whose stage 0 is a model too: its file extension, its kind and its frontend.
RECORDING, RECORDED = ".run", recorded_stage.FRONTEND


@dataclass(frozen=True)
class Spec:
    """A requested model.

    ``kind`` is ``sample``, ``function``, ``recording``, ``saved_model``, or for a file ``onnx``,
    ``pt2``, ``keras``, ``stablehlo`` or ``ir``. ``sizes`` are builder arguments of a sample
    (width, depth, batch, seed...), or of a file the sizes that it leaves open.
    """

    text: str
    kind: str
    frontend: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    trust: bool = False

    @property
    def name(self) -> str:
        """Return a short name for files and titles."""
        if self.kind not in ("sample", "function"):
            return Path(self.text).stem
        return self.text.rsplit(":", 1)[-1] if self.kind == "function" else self.text


def read_spec(text: str, frontend: str | None = None, trust: bool = False, **sizes: Any) -> Spec:
    """Return the model that ``text`` names; UserError lists the alternatives."""
    sizes = {k: v for k, v in sizes.items() if v is not None}
    if frontend is not None and frontend not in FRONTENDS:
        raise UserError(
            f"unknown frontend {frontend!r}", "--frontend", f"choose {' or '.join(FRONTENDS)}"
        )
    path = Path(text)
    if path.suffix.lower() in (*FILES, RECORDING):
        need_regular(path)
        own = RECORDED if path.suffix.lower() == RECORDING else str(frontend_of(path))
        if frontend not in (None, own) and (own, frontend) != ("onnx", AS_GRAPH):
            raise UserError(
                f"a {path.suffix} file is read by the {own} frontend",
                text,
                f"drop --frontend {frontend}",
            )
        _need_file_sizes(text, own, sizes)
        return Spec(text, "pt2" if own == "torch" else own, frontend or own, sizes, trust)
    if is_saved_model(path):
        _need_file_sizes(text, "tensorflow", sizes)
        return Spec(text, "saved_model", "tensorflow", {}, trust)
    if _FUNCTION.match(text):
        if frontend not in (None, *OF_FUNCTIONS):
            raise UserError(
                "a Python function is read by the frontend of what it returns "
                f"({', '.join(OF_FUNCTIONS)})",
                text,
                f"drop --frontend {frontend}",
            )
        return Spec(text, "function", frontend or OF_FUNCTIONS[0], sizes, trust)
    from sample_models.catalogue import CATALOGUE

    if text in CATALOGUE:
        if frontend not in (None, "torch", "onnx", AS_GRAPH):
            raise UserError(
                f"sample models do not support frontend {frontend}",
                text,
                "choose --frontend torch, onnx or onnx-passes",
            )
        return Spec(text, "sample", frontend or "torch", sizes, trust)
    files = ".onnx, .pt2, .keras or .mlir file"
    if path.exists():
        raise UserError("not a supported model file", text, f"pass a {files}, or a .run")
    listed = f"a sample ({', '.join(CATALOGUE)}), a {files}, a SavedModel's folder, or "
    listed += "package.module:function"
    raise UserError(f"unknown model {text!r}", "MODEL", nearest(text, CATALOGUE, f"pass {listed}"))


#: The frontends whose files may leave sizes open.
_OPEN_SIZES = ("onnx", "torch", "stablehlo")


def _need_file_sizes(text: str, frontend: str, sizes: Mapping[str, Any]) -> None:
    """Raise UserError if ``sizes`` cannot be those that a file leaves open."""
    if sizes and frontend not in _OPEN_SIZES:
        raise UserError(
            f"{', '.join(sizes)} cannot be set for such a file", text, "export it at that size"
        )
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 0:
            raise UserError(
                f"expected a size of 0 or more for {name}, got {size!r}",
                text,
                "pass a whole number",
            )
