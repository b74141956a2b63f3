"""Tensor-level modules as ONNX models, at any stage before kernels are outlined.

A core op becomes the ONNX op with the same meaning, or the few that preserve it (with ``guards``
also where ONNX leaves it open).  An op without one, or not in this form, is expanded first.  Node
names, ``doc_string`` and ``metadata_props`` record which op of the model a node belongs to, its
source line, and the rules that created it.  All unsupported ops are reported together.

Integers, booleans and data movement are bit-exact.  Floats agree as far as the runtime's functions
and its summation order allow: in onnxruntime to 4e-6 of the largest magnitude in f32 (eight times
that if hundreds of terms are summed), 1e-12 in f64, two units in the last place of 16-bit floats;
the sign of a zero is the runtime's, and erfc in f64 has Erf's absolute accuracy.
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

#: The newest opset that onnxruntime 1.31 runs (the default if the installed onnx supports it), and
#: the oldest supported one.
OPSET, OLDEST = 26, 17


def export(
    module: Module,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int | None = None,
    name: str = "",
    guards: bool = False,
) -> onnx.ModelProto:
    """Return the main function of ``module`` as a ``ModelProto`` that contains its weights.

    ``inputs``  a name for each argument of main, ``outputs`` for each result, in order.
    ``opset``   of the default domain, 17 or newer; None: the newest that onnxruntime runs.
    ``name``    of the graph.
    ``guards``  preserve the IR's semantics even if ONNX leaves them to the runtime: NaN in a
                maximum, positions out of range, floats that the target integer cannot represent.
                Without them an op is a single node, as in the exporters of frameworks, except for
                integer divisions that may divide by 0, or the lowest value by -1: these would crash
                the runtime.

    Raise UserError for unsupported ops (all of them, with counts and locations), for a stage below
    the tensor level, and for a model that exceeds protobuf's message size (:func:`write` supports
    those).
    """
    from core_compiler.exporters.onnx import files

    made = _build_model(module, inputs, outputs, opset, name, guards)
    if files.size(made) > files.LARGEST:
        raise UserError(
            f"the model has {files.size(made):,} bytes, too many for protobuf",
            "export",
            "write it to a file, with its weights next to it",
        )
    files.fill(made.weights)
    return made.model


def write(
    module: Module,
    path: Path | str,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int | None = None,
    name: str = "",
    guards: bool = False,
    largest: int | None = None,
) -> list[Path]:
    """Write ``module`` to the file ``path`` and return the files written; see :func:`export`.

    A model of more than ``largest`` bytes (default: protobuf's limit, 2 GiB) has its weights next
    to it, in ``<path>.data``; 0 requests that for any size.  Weights are streamed, without a second
    copy in memory.  Files appear only when they are complete.
    """
    from core_compiler.exporters.onnx import files

    made = _build_model(module, inputs, outputs, opset, name, guards)
    return files.write(made, Path(path), files.LARGEST if largest is None else largest)


def _build_model(
    module: Module,
    inputs: Sequence[str],
    outputs: Sequence[str],
    opset: int | None,
    name: str,
    guards: bool,
) -> Any:
    if importlib.util.find_spec("onnx") is None:
        raise UserError(
            "onnx is not installed", "export", "pip install 'compiler-workbench[onnx]'", CANNOT_HERE
        )
    from core_compiler.exporters.onnx.exporter import to_graph
    from core_compiler.exporters.onnx.proto import to_model

    chosen = _opset(opset)
    return to_model(to_graph(module, inputs, outputs, chosen, guards), chosen, name)


def _opset(wanted: int | None) -> int:
    """Return the opset to write; raise UserError for one that the installed onnx lacks."""
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if wanted is None:
        return min(OPSET, newest)
    if not isinstance(wanted, int) or not OLDEST <= wanted <= newest:
        raise UserError(
            f"unsupported opset {wanted!r}", "export", f"choose an opset from {OLDEST} to {newest}"
        )
    return wanted
