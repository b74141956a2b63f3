"""Tensor-level modules as PyTorch exported programs, at any stage before kernels are outlined.

A core op becomes the ATen op with the same meaning, or the few that preserve it; quantised values
become the ops of PyTorch's PT2E graphs (``quantized_decomposed``).  An op without one, or not in
this form, is expanded first.  Nodes have the model's stack trace and module path.  All unsupported
ops are reported together.

Integers, booleans and data movement are bit-exact.  Floats agree as far as torch's functions and
its summation order allow.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core_compiler.exporters.base import replacing
from core_compiler.ir import Module
from core_compiler.support.errors import CANNOT_HERE, UserError

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["export", "write"]


def export(
    module: Module, *, inputs: Sequence[str], outputs: Sequence[str], guards: bool = False
) -> ExportedProgram:
    """Return the main function of ``module`` as a ``torch.export.ExportedProgram``.

    ``inputs``  a name for each argument of main, ``outputs`` for each result, in order.  The
                program returns a tensor, or a tuple if main does not have one result.
    ``guards``  preserve the IR's semantics even if torch leaves them open: positions out of range,
                floats that the target integer cannot represent, and quotients that decide a
                rounding (torch's quantisation multiplies by the rounded 1 / scale).  Without them
                an op is a single node, as in the graphs of ``torch.export`` and PT2E, except for
                integer divisions that may divide by 0, or the lowest value by -1: these would end
                the process.

    Raise UserError for unsupported ops (all of them, with counts and locations), for a stage below
    the tensor level, and for sizes that are not numbers.
    """
    if importlib.util.find_spec("torch") is None:
        raise UserError(
            "torch is not installed",
            "export",
            "pip install 'compiler-workbench[torch]'",
            CANNOT_HERE,
        )
    from core_compiler.exporters.pt2.exporter import to_program

    return to_program(module, inputs, outputs, guards)


def write(
    module: Module,
    path: Path | str,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    guards: bool = False,
) -> list[Path]:
    """Write ``module`` to the file ``path`` (a ``.pt2``) and return the files written.

    The file appears only when it is complete; see :func:`export`.
    """
    made = export(module, inputs=inputs, outputs=outputs, guards=guards)
    import torch

    path = Path(path)
    with replacing(path) as stream:
        torch.export.save(made, stream)
    return [path]
