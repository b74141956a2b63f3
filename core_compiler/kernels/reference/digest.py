"""Canonical bytes of tensors and their SHA-256: the identity of results.

Little endian, row-major, -0 kept, every NaN the dtype's canonical one; dtype and shape are part of
the digest, so equal digests mean equal tensors.
"""
from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from core_compiler.kernels.narrow import NARROW_FLOATS
from core_compiler.kernels.reference.dtypes import DTYPES, dtype_name

_NAN_BITS = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000} | {
    name: f.nan for name, f in NARROW_FLOATS.items()
}


def canonical(x: np.ndarray) -> np.ndarray:
    """x, contiguous, with every NaN replaced by its dtype's canonical one (x is not changed)."""
    name = dtype_name(x.dtype)
    x = np.ascontiguousarray(x)
    if name not in _NAN_BITS or name == "f4e2m1fn":
        return x
    nan = np.isnan(x)
    if nan.any():
        x = x.copy()
        storage = np.dtype(f"u{x.dtype.itemsize}")
        x.view(storage)[nan] = _NAN_BITS[name]
    return x


def canonical_bytes(x: np.ndarray) -> bytes:
    """The tensor's canonical bytes, without dtype and shape."""
    x = canonical(np.asarray(x))
    raw = x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "V" else x
    return raw.astype(raw.dtype.newbyteorder("<"), copy=False).tobytes()


def digest(tensors: Iterable[np.ndarray]) -> str:
    """SHA-256 (hex) over each tensor's dtype, shape and canonical bytes, in order."""
    sha = hashlib.sha256()
    for x in tensors:
        x = np.asarray(x)
        shape = ",".join(map(str, x.shape))
        sha.update(f"{dtype_name(x.dtype)}[{shape}]\n".encode())
        sha.update(canonical_bytes(x))
    return sha.hexdigest()


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal dtype, shape and canonical bytes: the contract's equality of results."""
    return (
        a.dtype == b.dtype and a.shape == b.shape and canonical_bytes(a) == canonical_bytes(b)
    )


assert set(_NAN_BITS) <= set(DTYPES)
