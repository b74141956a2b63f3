"""Arrays that one line of Python generates, for reduced inputs and weights.

Each recipe is a function of ``(shape, dtype)``; the simplest come first.  ``expression_for`` finds
the line for an array, and a reproducer's file calls the functions here with a type's text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.debug.bits import same_bits
from core_compiler.ir import DType, TensorType, tensor
from core_compiler.ir.parser import parse_type

#: Arrays of at most this many elements are written out.
INLINE = 64


def _zeros(shape, dtype: DType) -> np.ndarray:
    return np.zeros(shape, dtype.numpy)


def _ones(shape, dtype: DType) -> np.ndarray:
    return np.ones(shape, dtype.numpy)


def _ramp(shape, dtype: DType) -> np.ndarray:
    """Return -2, -1, 0, 1, 2, -2... as floats; 0, 1, 2, 3, 4, 0... as integers.

    Dtypes with fewer values alternate 0 and 1.
    """
    count = np.arange(int(np.prod(shape))).reshape(shape)
    if dtype.is_float:
        return (count % 5 - 2).astype(dtype.numpy)
    return (count % (5 if dtype.bits > 3 else 2)).astype(dtype.numpy)


def _normal(shape, dtype: DType) -> np.ndarray:
    """Return seeded normal values; integers are 0 or 1."""
    random = np.random.default_rng(0)
    if dtype.is_float:
        return random.standard_normal(shape).astype(dtype.numpy)
    return random.integers(0, 2, shape).astype(dtype.numpy)


RECIPES: Mapping[str, Callable[[Any, DType], np.ndarray]] = {
    "zeros": _zeros,
    "ones": _ones,
    "ramp": _ramp,
    "normal": _normal,
}


def zeros(type_: str) -> np.ndarray:
    """Return zeros: ``zeros("2x3xf32")``."""
    return _of(type_, _zeros)


def ones(type_: str) -> np.ndarray:
    """Return ones: ``ones("2x3xf32")``."""
    return _of(type_, _ones)


def ramp(type_: str) -> np.ndarray:
    """Return a ramp: ``ramp("2x3xf32")`` is -2, -1, 0, 1, 2, -2...

    For integers: 0, 1, 2, 3, 4, 0...
    """
    return _of(type_, _ramp)


def normal(type_: str) -> np.ndarray:
    """Return seeded normal values: ``normal("2x3xf32")``."""
    return _of(type_, _normal)


def array(type_: str, numbers: list) -> np.ndarray:
    """Return an array of given values: ``array("2x2xf32", [[1.0, 2.0], [3.0, 4.0]])``."""
    kind = _type(type_)
    return np.array(numbers).astype(kind.dtype.numpy).reshape(_shape(kind))


def stored(path: Path | str, name: str, type_: str) -> np.ndarray:
    """Return an array of an ``.npz`` file: ``stored(file, "input0", "2x3xf32")``.

    The file holds it as bytes.
    """
    kind = _type(type_)
    with np.load(path, allow_pickle=False) as archive:
        return np.frombuffer(archive[name].tobytes(), kind.dtype.numpy).reshape(_shape(kind))


def expression_for(values: np.ndarray, name: str, dtype: DType) -> tuple[str, bool]:
    """Return the expression for ``values``, and whether its bytes must be stored under ``name``."""
    kind = tensor(values.shape, dtype)
    text = f'"{_short(kind)}"'
    for recipe, make in RECIPES.items():
        if same_bits(make(values.shape, dtype), values):
            return f"{recipe}({text})", False
    finite = values.dtype.kind in "biu" or bool(np.isfinite(values.astype(np.float64)).all())
    if values.size <= INLINE and finite:
        return f"array({text}, {_numbers(values)})", False
    return f'stored(STORED, "{name}", {text})', True


def _numbers(values: np.ndarray) -> Any:
    if values.dtype.kind in "biu":
        return values.tolist()
    # Every float format here is a subset of f64, whose shortest decimal restores the bits.
    return values.astype(np.float64).tolist()


def _short(kind: TensorType) -> str:
    return "x".join([*map(str, kind.shape), kind.dtype.name])


def _type(text: str) -> TensorType:
    kind = parse_type(f"tensor<{text}>")
    assert isinstance(kind, TensorType)
    return kind


def _shape(kind: TensorType) -> tuple[Any, ...]:
    return kind.shape  # an array's shape is static


def _of(text: str, recipe) -> np.ndarray:
    kind = _type(text)
    return recipe(kind.shape, kind.dtype)
