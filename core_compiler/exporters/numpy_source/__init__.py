"""Tensor-level modules as Python that needs NumPy alone, to read and to change.

One function ``main``, one statement an op, module paths and model lines beside it; the functions
that NumPy has not (conv, erf, softmax...) are written into the file where they are used.  Weights
lie beside it in a ``.npz``.

Integers, booleans and what only moves come out with equal bits; floats agree as far as NumPy's
functions and its order of summation do: to 4e-6 of the largest magnitude in f32 (eight times that
where hundreds of terms are summed), 1e-12 in f64, two units in the last place of 16-bit floats.
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
    """A Python file: its ``text``, and the ``weights`` by name that it reads from the ``.npz``
    beside it."""

    text: str
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)

    @override
    def __str__(self) -> str:
        return self.text


def export(
    module: Module, *, inputs: Sequence[str], outputs: Sequence[str], name: str = ""
) -> Source:
    """The main function of ``module`` as Python.

    ``inputs``  a name for each argument of main, ``outputs`` for each result, in order; ``main`` of
    the file takes and gives arrays in that order (always a tuple of results).  ``name``: what the
    file's first line calls it.  UserError for a stage below the tensor level.
    """
    from core_compiler.exporters.numpy_source.file import to_source

    return Source(*to_source(module, inputs, outputs, name))


def write(
    module: Module, path: Path | str, *, inputs: Sequence[str], outputs: Sequence[str],
    name: str = "",
) -> list[Path]:  # fmt: skip
    """Write ``module`` to the file ``path`` (a ``.py``), its weights beside it; see :func:`export`.
    The files that were written; they appear when both are complete."""
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
