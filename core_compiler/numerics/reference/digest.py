"""Canonical bytes of tensors and their SHA-256: the identity of results.

Little endian, row-major, -0 kept, every NaN the dtype's canonical one; dtype and shape are part of
the digest, so equal digests mean equal tensors.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable

import numpy as np

from core_compiler.numerics.jit import inline_jit, jit, reads, specialise, writes
from core_compiler.numerics.narrow import NARROW_FLOATS
from core_compiler.numerics.primitives import NUMBERS
from core_compiler.numerics.reference.dtypes import dtype_name

#: The leaf hash: lanes of 64 bits, and an odd multiplier (2**64 over the golden ratio).
LANES, MULTIPLIER = 64, 0x9E3779B97F4A7C15
BLOCK_BYTES = 8 * LANES

_NAN_BITS = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000} | {
    name: f.nan for name, f in NARROW_FLOATS.items()
}


def canonical(x: np.ndarray) -> np.ndarray:
    """Return x, contiguous, with every NaN replaced by the canonical one (x is not changed)."""
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
    """Return the tensor's canonical bytes, without dtype and shape."""
    x = canonical(np.asarray(x))
    raw = x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "V" else x
    return raw.astype(raw.dtype.newbyteorder("<"), copy=False).tobytes()


def digest(tensors: Iterable[np.ndarray]) -> str:
    """Return the SHA-256 (hex) over each tensor's dtype, shape and canonical bytes, in order."""
    sha = hashlib.sha256()
    for x in tensors:
        x = np.asarray(x)
        shape = ",".join(map(str, x.shape))
        sha.update(f"{dtype_name(x.dtype)}[{shape}]\n".encode())
        sha.update(canonical_bytes(x))
    return sha.hexdigest()


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether dtype, shape and canonical bytes are equal: the contract's equality."""
    return a.dtype == b.dtype and a.shape == b.shape and canonical_bytes(a) == canonical_bytes(b)


def leaf(x: np.ndarray) -> int:
    """Return the receipts' 64-bit hash of a tensor's canonical bytes (``docs/numerics.md``).

    See the section "Digests". Not cryptographic: it detects accidental differences; audits use
    ``digest``.
    """
    x = np.ascontiguousarray(x)
    name = dtype_name(x.dtype)
    if name not in _SIGNLESS_INFINITY:
        x = canonical(x)
    raw = x.reshape(-1).view(np.uint8)
    whole = len(raw) // BLOCK_BYTES * BLOCK_BYTES
    rest = np.zeros(BLOCK_BYTES if whole < len(raw) else 0, np.uint8)
    rest[: len(raw) - whole] = raw[whole:]
    lane = _FIRST.copy()
    for part in (raw[:whole], rest):
        if part.ctypes.data % 8:
            part = part.copy()
        _leaf_kernel(name)(part.view(np.uint64), lane)
    total = np.full(1, len(raw), np.uint64)
    _fold_kernel()(lane, total)
    return int(total[0])


#: The initial values of the lanes.
_FIRST = np.arange(1, LANES + 1, dtype=np.uint64) * np.uint64(MULTIPLIER)

#: Floats whose NaN the hash canonicalises as it reads: bits, and those of infinity.
_SIGNLESS_INFINITY = {
    "f64": (64, 0x7FF0000000000000),
    "f32": (32, 0x7F800000),
    "bf16": (16, 0x7F80),
    "f16": (16, 0x7C00),
}


def _leaf_loop(words, lane):
    own = lane.copy()  # a local array stays in registers: 5 times as fast
    for block in range(0, words.shape[0], LANES):
        part = words[block : block + LANES]
        for l in range(LANES):  # noqa: E741
            word = part[l]
            if BITS:  # noqa: F821
                word = plain(word)  # noqa: F821
            mixed = (own[l] ^ word) * u64(MULTIPLIER)  # noqa: F821
            own[l] = mixed ^ (mixed >> u64(32))  # noqa: F821
    lane[:] = own


def _plain(word):
    """Return a word with the NaN among its values made canonical."""
    made = word
    for k in range(64 // BITS):  # noqa: F821
        place = u64(k * BITS)  # noqa: F821
        if (word >> place) & u64(MAGNITUDE) > u64(INFINITY):  # noqa: F821
            made = (made & ~(u64(ALL) << place)) | (u64(NAN) << place)  # noqa: F821
    return made


def _fold_loop(lane, total):
    folded = total[0]
    for l in range(LANES):  # noqa: E741
        folded = (folded ^ lane[l]) * u64(MULTIPLIER)  # noqa: F821
        folded ^= folded >> u64(29)  # noqa: F821
    total[0] = folded


@functools.cache
def _fold_kernel():
    element = NUMBERS["u64"]
    loop = specialise(_fold_loop, "leaf_hash_fold", u64=element)
    return jit(loop, writes(element, 1), writes(element, 1))


@functools.cache
def _leaf_kernel(name: str):
    element = NUMBERS["u64"]
    bits, infinity = _SIGNLESS_INFINITY.get(name, (0, 0))
    bound: dict = {"u64": element, "BITS": bits}
    if bits:
        bound |= {
            "ALL": 2**bits - 1,
            "MAGNITUDE": 2 ** (bits - 1) - 1,
            "INFINITY": infinity,
            "NAN": _NAN_BITS[name],
        }
        bound["plain"] = inline_jit(specialise(_plain, f"plain_{name}", **bound))
    loop = specialise(_leaf_loop, f"leaf_hash_{name}", **bound)
    return jit(loop, reads(element, 1), writes(element, 1))
