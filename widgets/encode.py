"""Encoding of a view's data: JSON text plus one block of bytes for the typed arrays.

Any numpy array inside the data becomes `{"$": dtype, "at": byte offset, "n": length}` in the JSON
and its little-endian bytes go into the blob. The blob starts with an 8-byte header: the CRC-32 of
the rest (also `stamp` in the JSON) and zero, so that the browser can check whether the two traits
that it received belong together.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

HEADER_BYTES = 8
_NAMES = {
    np.dtype(np.uint8): "u8",
    np.dtype(np.uint16): "u16",
    np.dtype(np.uint32): "u32",
    np.dtype(np.int8): "i8",
    np.dtype(np.int16): "i16",
    np.dtype(np.int32): "i32",
    np.dtype(np.float32): "f32",
    np.dtype(np.float64): "f64",
}


def pack(data: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return JSON text and blob of `data`.

    `data` consists of mappings, sequences, strings, numbers and 1-d numpy arrays.

    64-bit integers are sent as 32-bit ones if they fit, else as f64; beyond 2**53 is an error.
    Outside arrays, NaN and infinities, which JSON lacks, become None. Equal data gives equal
    bytes.
    """
    parts: list[bytes] = []
    at = HEADER_BYTES

    def encode(value: Any) -> Any:
        nonlocal at
        kind = type(value)  # exact types first: a stage of 1,000 ops has 10,000 values
        if kind is str or kind is int or kind is bool or value is None:
            return value
        if kind is float:
            return value if value - value == 0 else None
        if kind is list or kind is tuple:
            return [encode(item) for item in value]
        if kind is dict:
            return {str(key): encode(item) for key, item in value.items()}
        if isinstance(value, np.ndarray):
            array = _portable(value)
            raw = array.tobytes()
            reference = {"$": _NAMES[array.dtype], "at": at, "n": int(array.size)}
            padding = -len(raw) % HEADER_BYTES
            parts.append(raw + bytes(padding))
            at += len(raw) + padding
            return reference
        if isinstance(value, np.generic):
            return encode(value.item())
        if isinstance(value, Mapping):
            return {str(key): encode(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [encode(item) for item in value]
        return value

    encoded = encode(data)
    if not parts:
        return _dumps(encoded), b""
    body = b"".join(parts)
    stamp = zlib.crc32(body)
    return _dumps({**encoded, "stamp": stamp}), struct.pack("<II", stamp, 0) + body


def finite(value: Any) -> Any:
    """Return `value` with numbers that JSON lacks (NaN, infinities) as None."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return value


def _dumps(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _portable(array: np.ndarray) -> np.ndarray:
    """Return the array in one of the little-endian types of JavaScript."""
    if array.ndim != 1:
        raise ValueError(f"only 1-d arrays can be packed, got shape {array.shape}")
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        if low >= -(2**31) and high < 2**31:
            return array.astype(np.int32)
        if max(-low, high) > 2**53:
            raise ValueError("integers beyond 2**53 cannot be packed exactly")
        return array.astype(np.float64)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype.newbyteorder("=") not in _NAMES:
        raise ValueError(f"dtype {array.dtype} cannot be packed; use f32, f64 or an integer type")
    return np.ascontiguousarray(array)
