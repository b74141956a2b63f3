"""A stage of any level as our own IR's text, in the generic form that MLIR's tools read
(``mlir-opt --allow-unregistered-dialect``) and :func:`core_compiler.ir.parser.parse` reads back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core_compiler.exporters.base import write_text
from core_compiler.ir import Module
from core_compiler.ir.text import module_pieces
from core_compiler.support.errors import UserError

#: Whether the file holds the weights' bytes, or their digests only.
WEIGHTS = ("embedded", "named")


def write(
    module: Module, path: Path | str, *, inputs: Sequence[str], outputs: Sequence[str],
    weights: str = "embedded", locations: str = "full",
) -> list[Path]:  # fmt: skip
    """Write the text; the file written.

    ``weights``: ``embedded`` (their bytes at the file's end) or ``named`` (digests only);
    ``locations``: where ops come from: ``""``, ``short``, ``full``.
    """
    path = Path(path)
    if weights not in WEIGHTS:
        raise UserError(f"invalid value {weights!r} for weights", "export to MLIR",
                        f"choose {' or '.join(WEIGHTS)}")  # fmt: skip
    embed = weights == "embedded"
    write_text(path, module_pieces(module, locations=locations, embed_weights=embed))
    return [path]
