"""Dtypes of reference arrays: names, the arithmetic dtype of each, casts between all of them."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

from core_compiler.support import lazy_module

# Functions that use only NumPy must not pay for Numba's import.
_numba = lazy_module.module("core_compiler.numerics.jit")
_functions = lazy_module.module("core_compiler.numerics.functions")
_narrow = lazy_module.module("core_compiler.numerics.narrow")
_primitives = lazy_module.module("core_compiler.numerics.primitives")

#: Narrow float formats (``narrow.NARROW_FLOATS``) as NumPy dtypes.
NARROW_DTYPES: dict[str, np.dtype] = {
    name: np.dtype(scalar)
    for name, scalar in {
        "bf16": ml_dtypes.bfloat16,
        "f16": np.float16,
        "f8e5m2": ml_dtypes.float8_e5m2,
        "f8e4m3": ml_dtypes.float8_e4m3,
        "f8e3m4": ml_dtypes.float8_e3m4,
        "f8e4m3fn": ml_dtypes.float8_e4m3fn,
        "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
        "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
        "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
        "f4e2m1fn": ml_dtypes.float4_e2m1fn,
    }.items()
}
_NARROW_INTS = {
    "i2": ml_dtypes.int2,
    "i4": ml_dtypes.int4,
    "u2": ml_dtypes.uint2,
    "u4": ml_dtypes.uint4,
}
#: Every dtype of the contract by name.
DTYPES: dict[str, np.dtype] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    **NARROW_DTYPES,
    **{f"i{n}": np.dtype(f"int{n}") for n in (8, 16, 32, 64)},
    **{f"u{n}": np.dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    **{name: np.dtype(scalar) for name, scalar in _NARROW_INTS.items()},
    "bool": np.dtype(np.bool_),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def dtype_name(dtype: np.dtype) -> str:
    """Return the contract's name of a NumPy dtype; TypeError for unsupported ones."""
    try:
        return _NAMES[np.dtype(dtype)]
    except KeyError:
        known = ", ".join(DTYPES)
        raise TypeError(f"unsupported dtype {dtype}, expected one of {known}") from None


def is_float(dtype: np.dtype) -> bool:
    return dtype_name(dtype) in ("f32", "f64") or dtype_name(dtype) in NARROW_DTYPES


def widen(x: np.ndarray) -> np.ndarray:
    """Return x in its arithmetic dtype.

    Narrow floats become f32, i2 and i4 become i8 (exact); f32, f64, bool and other integers stay as
    they are.
    """
    name = dtype_name(x.dtype)
    if name in NARROW_DTYPES:
        return _decode(x)
    return x.astype(np.int8 if name[0] == "i" else np.uint8) if name in _NARROW_INTS else x


def cast(x: np.ndarray, dtype: np.dtype, saturate: bool = False) -> np.ndarray:
    """Return x converted to dtype, with its shape.

    Float to float rounds once to nearest even, canonical NaN; ``saturate`` is for targets of at
    most 16 bits (too large values become the largest finite one). Float to integer truncates,
    saturates, NaN becomes 0. Integer to float rounds to nearest even. Integer to integer wraps. To
    bool: not equal to zero; from bool: 0 or 1.
    """
    x, target = np.asarray(x), np.dtype(dtype)
    source_name, name = dtype_name(x.dtype), dtype_name(target)
    if source_name == name:
        return x.copy()
    x = widen(x)
    if name == "bool":
        return x != 0
    if name in NARROW_DTYPES:
        return _encode(_for_narrowing(x), name, saturate)
    if name in _NARROW_INTS:
        if is_float(x.dtype):
            info = ml_dtypes.iinfo(target)
            x = np.clip(cast(x, np.dtype(np.int32)), int(info.min), int(info.max))
        return (
            (x.astype(np.int64) & 15).astype(np.uint8).astype(target)
            if name[0] == "u"
            else (_wrap_signed(x.astype(np.int64), int(name[1:])).astype(target))
        )
    if dtype_name(x.dtype) in ("f32", "f64") and name[0] in "iu":
        out = np.empty(x.shape, target)
        flat = np.ascontiguousarray(x).reshape(-1)
        _converter(dtype_name(x.dtype), name)(flat, out.reshape(-1))
        return out
    with np.errstate(all="ignore"):
        return canonical_nan(x.astype(target)) if is_float(target) else x.astype(target)


def canonical_nan(x: np.ndarray) -> np.ndarray:
    """Return x (f32 or f64, changed in place) with every NaN replaced by the canonical one."""
    nan = x != x
    if nan.any():
        x[nan] = np.nan
    return x


def accumulator(dtype: np.dtype) -> np.dtype:
    """Return the dtype of sums of ``dtype``: f64, f32, i64 (u64) or i32, which wraps."""
    name = dtype_name(dtype)
    if name in ("f64", "i64", "u64"):
        return np.dtype(dtype)
    return np.dtype(np.float32 if is_float(dtype) else np.int32)


def _wrap_signed(x: np.ndarray, bits: int) -> np.ndarray:
    half = 1 << (bits - 1)
    return ((x + half) & ((1 << bits) - 1)) - half


def _for_narrowing(x: np.ndarray) -> np.ndarray:
    """Return f32 values whose rounding to 16 bits or fewer equals one rounding of x."""
    if x.dtype == np.float32:
        return x
    if x.dtype in (np.int8, np.uint8, np.int16, np.uint16, np.bool_):
        return x.astype(np.float32)
    wide = x.astype(np.float64)
    if x.dtype in (np.int64, np.uint64):  # round to odd at 53 bits; the top bits decide
        low = (x & x.dtype.type(0x7FF)) != 0
        with np.errstate(over="ignore"):
            head = (x & ~x.dtype.type(0x7FF)).astype(np.float64)
        big = np.abs(wide) >= 2.0**53
        wide = np.where(big & low, np.nextafter(head, np.inf), wide)
    out = np.empty(x.shape, np.float32)
    _odd_loop()(np.ascontiguousarray(wide).reshape(-1), out.reshape(-1))
    return out


def _encode(x: np.ndarray, name: str, saturate: bool) -> np.ndarray:
    bits, target = _narrow.NARROW_FLOATS[name].bits, NARROW_DTYPES[name]
    storage = np.uint16 if bits == 16 else np.uint8
    if bits == 16 and not saturate:  # as NumPy and ml_dtypes do, but for NaN
        with np.errstate(all="ignore"):
            made, nan = x.astype(target), x != x
        if nan.any():
            made.view(storage)[nan] = _narrow.NARROW_FLOATS[name].nan
        return made
    out = np.empty(x.shape, storage)
    _encoder(name)(np.ascontiguousarray(x).reshape(-1), bool(saturate), out.reshape(-1))
    return out.view(target)


def _decode(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return canonical_nan(x.astype(np.float32))


def _map_loop(x, out):
    for i in range(x.shape[0]):
        out[i] = op(x[i])  # noqa: F821


def _encode_loop(x, saturate, out):
    for i in range(x.shape[0]):
        out[i] = store(op(x[i], saturate))  # noqa: F821


def _map(loop, name: str, op, source, target, *between):
    """Return a compiled loop over a flat array: ``loop`` with ``op``."""
    types = _numba.reads(source, 1), *between, _numba.writes(target, 1)
    return _numba.jit(_numba.specialise(loop, name, **op), *types)


@functools.cache
def _converter(source: str, target: str):
    op = {"op": _functions.NAMESPACE[f"convert_{source}_{target}"]}
    numbers = _primitives.NUMBERS
    return _map(_map_loop, f"convert_{source}_{target}", op, numbers[source], numbers[target])


@functools.cache
def _odd_loop():
    op = {"op": _functions.NAMESPACE["convert_f64_f32_odd"]}
    return _map(
        _map_loop, "convert_odd", op, _primitives.NUMBERS["f64"], _primitives.NUMBERS["f32"]
    )


@functools.cache
def _encoder(name: str):
    code, names, numbers = _storage(name), _functions.NAMESPACE, _primitives.NUMBERS
    op = {"op": names[f"convert_f32_{name}"], "store": names[f"convert_i32_{code}"]}
    between = _primitives.boolean
    return _map(_encode_loop, f"encode_{name}", op, numbers["f32"], numbers[code], between)


def _storage(name: str) -> str:
    """Return the integer dtype in which a narrow float's codes are stored."""
    return "u16" if _narrow.NARROW_FLOATS[name].bits == 16 else "u8"
