"""The text of a stage of any level, in MLIR's generic form.

MLIR's tools read it (``mlir-opt --allow-unregistered-dialect``), and so does
:func:`core_compiler.ir.parser.parse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core_compiler.exporters.base import write_text
from core_compiler.ir import Module
from core_compiler.ir.text import module_pieces
from core_compiler.support.errors import UserError

#: Whether the file contains the bytes of the weights, or only their digests.
WEIGHTS = ("embedded", "named")


def write(
    module: Module,
    path: Path | str,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: str = "embedded",
    locations: str = "full",
) -> list[Path]:
    """Write the text; return the files written.

    ``weights``: ``embedded`` (their bytes at the end of the file) or ``named`` (digests only).
    ``locations``: how much of each op's origin is written: ``""``, ``short`` or ``full``.
    """
    path = Path(path)
    if weights not in WEIGHTS:
        raise UserError(
            f"invalid value {weights!r} for weights",
            "export to MLIR",
            f"choose {' or '.join(WEIGHTS)}",
        )
    embed = weights == "embedded"
    write_text(path, module_pieces(module, locations=locations, embed_weights=embed))
    return [path]
