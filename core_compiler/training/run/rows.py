"""Rows and columns of the user's data as arrays, in the order of the model's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np

from core_compiler.support.arrays import numbers
from core_compiler.support.errors import UserError, raised_at


@dataclass(frozen=True)
class InputSpec:
    """An input of the model, or its targets.

    ``dtype`` is the dtype of plain Python numbers (None: f32 for floats).
    """

    name: str
    dtype: np.dtype | None = None


@contextmanager
def user_data_errors() -> Iterator[None]:
    """Convert errors of the user's own data to a UserError with their line."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        raise UserError(
            f"the data raised {raised_at(error)}", "data", "fix the code that reads the data"
        ) from error


def columns(data: Sequence[Any], specs: Sequence[InputSpec] = ()) -> tuple[np.ndarray, ...]:
    """Return columns in order."""
    return tuple(_array(a, _dtype_at(specs, i), f"column {i}") for i, a in enumerate(data))


def columns_by_name(data: Any, specs: Sequence[InputSpec] = ()) -> tuple[np.ndarray, ...]:
    """Return columns by name, in the order of the model's inputs."""
    with user_data_errors():
        by_name = {name: data[name] for name in _column_order(list(data.keys()), specs)}
    return tuple(
        _array(a, _dtype_at(specs, i), f"column {name!r}")
        for i, (name, a) in enumerate(by_name.items())
    )


def stacked(
    rows: Sequence[Any], specs: Sequence[InputSpec] = (), numbered: bool = True
) -> tuple[np.ndarray, ...]:
    """Stack rows (tuples, mappings, or one array each), with the examples on axis 0.

    ``numbered`` is true if the user counts the rows in the same way. Raise UserError if they are
    not rows or their shapes differ.
    """
    if not rows:
        raise UserError("the dataset is empty", "data", "pass at least one row")
    made = [_parts(row, specs, f"row {i}" if numbered else "a row") for i, row in enumerate(rows)]
    if len({len(parts) for parts in made}) != 1 or not made[0]:
        counts = sorted({len(parts) for parts in made})
        raise UserError(
            f"expected rows of one length, got {' and '.join(map(str, counts))} values",
            "data",
            "pass the model's inputs, then the targets",
        )
    try:
        return tuple(np.stack(column) for column in zip(*made, strict=True))
    except ValueError as error:
        raise UserError(
            f"cannot stack the examples: {error}", "data", "pass examples of the same shape"
        ) from None


def _parts(row: Any, specs: Sequence[InputSpec], where: str) -> list[np.ndarray]:
    if hasattr(row, "keys"):
        names = _column_order(list(row.keys()), specs)
        return [_array(row[n], _dtype_at(specs, i), f"{where}, {n!r}") for i, n in enumerate(names)]
    if isinstance(row, tuple | list):
        return [_array(p, _dtype_at(specs, i), f"{where}, value {i}") for i, p in enumerate(row)]
    if hasattr(row, "shape") or isinstance(row, Number):
        return [_array(row, _dtype_at(specs, 0), where)]
    raise UserError(
        f"expected {where} to be a tuple or a mapping, got a {type(row).__name__}",
        "data",
        "pass tuples (inputs, then targets) or mappings",
    )


def _column_order(names: list[Any], specs: Sequence[InputSpec]) -> list[Any]:
    """Return the columns that the model takes, in its order.

    They are the columns of its names, and for missing names the other columns in order. Further
    columns are ignored if all names are found.
    """
    model_names = [w.name for w in specs]
    if not model_names or all(name in names for name in model_names):
        return model_names or names
    unnamed = iter([name for name in names if name not in model_names])
    if len(names) != len(model_names):
        raise UserError(
            f"expected the columns {', '.join(model_names)}, "
            f"got {', '.join(map(str, names)) or 'none'}",
            "data",
            "pass columns with these names, or as many columns",
        )
    return [name if name in names else next(unnamed) for name in model_names]


def _dtype_at(specs: Sequence[InputSpec], index: int) -> np.dtype | None:
    return specs[index].dtype if index < len(specs) else None


def _array(data: Any, dtype: np.dtype | None, where: str) -> np.ndarray:
    try:
        made = numbers(data)
    except ValueError as error:
        raise UserError(
            f"{where}: {error}", "data", "pass numbers of one shape, or leave it out"
        ) from None
    if hasattr(data, "dtype"):
        return made
    if dtype is None:  # as in torch.tensor
        dtype = np.dtype(np.float32) if made.dtype == np.float64 else made.dtype
    return made.astype(dtype) if np.can_cast(made.dtype, dtype, "same_kind") else made
