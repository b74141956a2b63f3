"""Order-preserving integer keys of values, so that maxima, arg-forms and sorts are exact.

Two orders of the contract: ``max`` and ``min`` put -0 below +0; arg-forms and sorts treat them as
equal. A NaN is greatest, or least if a minimum must return it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from core_compiler.numerics.reference.dtypes import is_float, widen

_INTEGER_OF: dict[np.dtype, Any] = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}


def order_keys(x: np.ndarray, nan_least: bool = False, zeros_equal: bool = False) -> np.ndarray:
    """Return integer keys with x's shape and order."""
    x = widen(np.asarray(x))
    if x.dtype == np.bool_:
        return x.astype(np.uint8)
    if not is_float(x.dtype):
        return x
    integer = _INTEGER_OF[x.dtype]
    bits = np.ascontiguousarray(x).view(integer).reshape(x.shape)
    info = np.iinfo(integer)
    keys = np.where(bits < 0, bits ^ info.max, bits)
    if zeros_equal:
        keys = np.where(x == 0, integer(0), keys)
    return np.where(x != x, info.min if nan_least else info.max, keys).astype(integer)


def values_of_keys(keys: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the inverse of ``order_keys`` (default zeros), canonical NaN, in ``dtype``."""
    from core_compiler.numerics.reference.dtypes import cast

    if not is_float(dtype):
        return keys.astype(dtype)
    wide = np.dtype(np.float64 if keys.dtype == np.int64 else np.float32)
    info = np.iinfo(keys.dtype)
    bits = np.where(keys < 0, keys ^ info.max, keys).astype(keys.dtype)
    values = bits.view(wide).reshape(keys.shape).copy()
    values[(keys == info.max) | (keys == info.min)] = np.nan
    return values if wide == dtype else cast(values, dtype)


def lowest_key(x: np.ndarray) -> object:
    """Return the key below all values of x: -inf's, or the integer type's minimum."""
    keys = order_keys(np.zeros(0, x.dtype))
    if is_float(x.dtype):
        wide = np.float64 if keys.dtype == np.int64 else np.float32
        return order_keys(np.array([-np.inf], wide))[0]
    return np.iinfo(keys.dtype).min if keys.dtype != np.bool_ else 0
