"""Tensor-level modules as readable, editable Python that needs only NumPy.

The file has one function ``main`` with one statement per op, annotated with module paths and model
lines.  Functions that NumPy does not have (conv, erf, softmax...) are written into the file if they
are used.  Weights are stored next to it in a ``.npz``.

Integers, booleans and data movement are bit-exact.  Floats agree as far as NumPy's functions and
its summation order allow: to 4e-6 of the largest magnitude in f32 (eight times that if hundreds of
terms are summed), 1e-12 in f64, two units in the last place of 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from typing_extensions import override

from core_compiler.exporters.base import replacing, write_arrays
from core_compiler.ir import Module
from core_compiler.support.errors import UserError

__all__ = ["Source", "export", "write"]


@dataclass(frozen=True)
class Source:
    """A Python file: its ``text``, and by name the ``weights`` that it reads from the ``.npz``."""

    text: str
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)

    @override
    def __str__(self) -> str:
        return self.text


def export(
    module: Module, *, inputs: Sequence[str], outputs: Sequence[str], name: str = ""
) -> Source:
    """Return the main function of ``module`` as Python.

    ``inputs`` names each argument of main and ``outputs`` each result, in order; ``main`` of the
    file takes and returns arrays in that order (always a tuple of results).  ``name`` is the
    model's name in the first line of the file.  Raise UserError for a stage below the tensor level.
    """
    from core_compiler.exporters.numpy_source.file import to_source

    return Source(*to_source(module, inputs, outputs, name))


def write(
    module: Module,
    path: Path | str,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    name: str = "",
) -> list[Path]:
    """Write ``module`` to the file ``path`` (a ``.py``), with its weights next to it.

    Return the files written, which appear only when both are complete; see :func:`export`.
    """
    path = Path(path)
    if path.suffix != ".py" or not path.stem:
        raise UserError(
            f"{path.name!r} is not the name of a Python file", str(path), "use a name like x.py"
        )
    made = export(module, inputs=inputs, outputs=outputs, name=name)
    files = [path]
    with replacing(path) as stream:
        stream.write(made.text.encode("utf-8"))
        stream.flush()
        if made.weights:
            files.append(path.with_suffix(".npz"))
            write_arrays(files[1], made.weights)
    return files
