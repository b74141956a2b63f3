"""Tensor-level modules as ONNX models, at any stage before kernels are outlined.

An op of ours becomes the op that ONNX has for it, or the few that keep its meaning (with
``guards`` also where ONNX leaves it open); a composite its counterpart of the same opset, else its
declared decomposition.  Names of nodes, ``doc_string`` and
``metadata_props`` say which op of the model a node is part of, where that stands, and which rules
made it.  What ONNX has no word for is named all at once.

Integers, booleans and what only moves come out with equal bits.  Floats agree as far as the
runtime's functions and its order of summation do: in onnxruntime to 4e-6 of the largest magnitude
in f32 (eight times that where hundreds of terms are summed), 1e-12 in f64, two units in the last
place of 16-bit floats; the sign of a zero is the runtime's, and erfc has Erf's absolute accuracy.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_compiler.ir import Module
from core_compiler.support.errors import CANNOT_HERE, UserError

if TYPE_CHECKING:
    import onnx

__all__ = ["OLDEST", "OPSET", "export", "write"]

#: The newest opset that onnxruntime 1.31 runs (what is written if the installed onnx knows it), and
#: the oldest that can be asked for.
OPSET, OLDEST = 26, 17


def export(
    module: Module, *, inputs: Sequence[str], outputs: Sequence[str], opset: int | None = None,
    name: str = "", guards: bool = False,
) -> onnx.ModelProto:  # fmt: skip
    """The main function of ``module`` as a ``ModelProto`` with its weights inside.

    ``inputs``  a name for each argument of main, ``outputs`` for each result, in order.
    ``opset``   of the default domain, 17 or newer; None: the newest that onnxruntime runs.
    ``name``    of the graph.
    ``guards``  also keep our meaning where ONNX leaves it to the runtime: NaN in a maximum,
                positions out of range, floats that the wanted integer does not hold.  Without them
                an op is a node, as exporters of frameworks write it, but for integer divisions:
                those that may be by 0, or of the lowest number by -1, would end the runtime.
    UserError names all ops that ONNX has no word for, with counts and places; for a stage below the
    tensor level, and for a model that no message of protobuf holds (``write`` writes those).
    """
    from core_compiler.exporters.onnx import files

    made = _made(module, inputs, outputs, opset, name, guards)
    if files.size(made) > files.LARGEST:
        raise UserError(f"the model has {files.size(made):,} bytes, too many for protobuf",
                        "export", "write it to a file, with its weights next to it")  # fmt: skip
    files.fill(made.weights)
    return made.model


def write(
    module: Module, path: Path | str, *, inputs: Sequence[str], outputs: Sequence[str],
    opset: int | None = None, name: str = "", guards: bool = False, largest: int | None = None,
) -> list[Path]:  # fmt: skip
    """Write ``module`` to the file ``path``; see :func:`export`.  The files that were written.

    A model of more than ``largest`` bytes (default: what protobuf holds, 2 GiB) has its weights
    beside it, in ``<path>.data``; 0 asks for that whatever its size.  Weights are streamed: no
    second copy of them is in memory.  Files appear when they are complete.
    """
    from core_compiler.exporters.onnx import files

    made = _made(module, inputs, outputs, opset, name, guards)
    return files.write(made, Path(path), files.LARGEST if largest is None else largest)


def _made(
    module: Module, inputs: Sequence[str], outputs: Sequence[str], opset: int | None, name: str,
    guards: bool,
) -> Any:  # fmt: skip
    if importlib.util.find_spec("onnx") is None:
        raise UserError("onnx is not installed", "export",
                        "pip install 'compiler-workbench[onnx]'", CANNOT_HERE)  # fmt: skip
    from core_compiler.exporters.onnx.exporter import to_graph
    from core_compiler.exporters.onnx.proto import to_model

    chosen = _opset(opset)
    return to_model(to_graph(module, inputs, outputs, chosen, guards), chosen, name)


def _opset(wanted: int | None) -> int:
    """The opset to write; UserError for one that the installed onnx does not know."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if wanted is None:
        return min(OPSET, newest)
    if not isinstance(wanted, int) or not OLDEST <= wanted <= newest:
        raise UserError(f"unsupported opset {wanted!r}", "export",
                        f"choose an opset from {OLDEST} to {newest}")  # fmt: skip
    return wanted
