"""Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011), key = seed.

Counter = (global element index // 4, stream, iteration, loop trip); the element takes word index %
4. A number depends on nothing else: not on shape, sharding, threads or order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from core_compiler.numerics.functions import NAMESPACE
from core_compiler.numerics.jit import inline_jit, instantiate, jit, reads, specialise, writes
from core_compiler.numerics.primitives import NUMBERS

ROUNDS = 10
# ruff: noqa: F821  (primitives are bound by ``random_functions``)


def philox4x32(c0, c1, c2, c3, k0, k1):
    """Apply ten rounds of Philox to a counter of four u32 and a key of two; return four u32."""
    for _ in range(ROUNDS):
        h0, l0 = mulhi_u32(u32(0xD2511F53), c0), mul_u32(u32(0xD2511F53), c0)
        h1, l1 = mulhi_u32(u32(0xCD9E8D57), c2), mul_u32(u32(0xCD9E8D57), c2)
        c0, c1 = xor_u32(xor_u32(h1, c1), k0), l1
        c2, c3 = xor_u32(xor_u32(h0, c3), k1), l0
        k0, k1 = add_u32(k0, u32(0x9E3779B9)), add_u32(k1, u32(0xBB67AE85))
    return c0, c1, c2, c3


def uniform_from_bits_f32(u):
    """Return (u >> 8) * 2**-24, in [0, 1)."""
    return mul_f32(convert_u32_f32(shr_u32(u, u32(8))), f32(5.9604644775390625e-08))


def normal_pair_f32(u, v):
    """Return two standard normals from two words (Box and Muller, 1958)."""
    u1 = mul_f32(convert_u32_f32(add_u32(shr_u32(u, u32(8)), u32(1))), f32(5.9604644775390625e-08))
    angle = mul_f32(f32(6.2831853071795864), uniform_from_bits_f32(v))
    r = sqrt_f32(mul_f32(f32(-2.0), log_f32(u1)))
    return mul_f32(r, cos_f32(angle)), mul_f32(r, sin_f32(angle))


def random_functions(compile_, names: dict) -> dict:
    """Return the three functions above for one target; ``names``: its primitives and functions."""
    sources = {f.__name__: f for f in (philox4x32, uniform_from_bits_f32, normal_pair_f32)}
    return instantiate(sources, compile_, {**names, "ROUNDS": ROUNDS})


def random_bits(
    shape: Sequence[int],
    seed: int,
    stream: int = 0,
    iteration: int = 0,
    trip: int = 0,
    first: int = 0,
) -> np.ndarray:
    """Return u32 [*shape]; element i has the global index first + i of the unsharded tensor."""
    size = math.prod(shape)
    words, skip = _words(size, seed, stream, iteration, trip, first)
    return words[skip : skip + size].reshape(shape)


def uniform(
    shape: Sequence[int],
    seed: int,
    stream: int = 0,
    iteration: int = 0,
    trip: int = 0,
    first: int = 0,
) -> np.ndarray:
    """Return f32 [*shape], (u >> 8) * 2**-24 in [0, 1): integer work and one exact product."""
    bits = random_bits(shape, seed, stream, iteration, trip, first)
    return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def normal(
    shape: Sequence[int],
    seed: int,
    stream: int = 0,
    iteration: int = 0,
    trip: int = 0,
    first: int = 0,
) -> np.ndarray:
    """Return f32 [*shape], standard normal.

    Words (0, 1) yield elements 0 and 1, (2, 3) the others.
    """
    size = math.prod(shape)
    words, skip = _words(size, seed, stream, iteration, trip, first)
    out = np.empty(words.shape, np.float32)
    _normal_kernel()(words, out)
    return out[skip : skip + size].reshape(shape)


def _words(size, seed, stream, iteration, trip, first) -> tuple[np.ndarray, int]:
    """Return (words of the counters that cover the elements, position of the first element)."""
    start, end = first // 4, -(-(first + size) // 4)
    if end > 1 << 32:
        raise ValueError(f"random tensor of {first + size} elements: the counter holds 2**34")
    out = np.empty(4 * (end - start), np.uint32)
    words = [np.uint32(v & 0xFFFFFFFF) for v in (stream, iteration, trip, seed, seed >> 32)]
    _bits_kernel()(np.uint32(start), *words, out)
    return out, first - 4 * start


def _bits_loop(start, stream, iteration, trip, k0, k1, out):
    for i in range(out.shape[0] // 4):
        counter = add_u32(start, u32(i))
        w0, w1, w2, w3 = philox4x32(counter, stream, iteration, trip, k0, k1)
        out[4 * i] = w0
        out[4 * i + 1] = w1
        out[4 * i + 2] = w2
        out[4 * i + 3] = w3


def _normal_loop(words, out):
    for i in range(out.shape[0] // 2):
        x, y = normal_pair_f32(words[2 * i], words[2 * i + 1])
        out[2 * i] = x
        out[2 * i + 1] = y


#: The scalar functions, for generated CPU source.
RANDOM: dict = random_functions(inline_jit, NAMESPACE)


@functools.cache
def _bits_kernel():
    loop = specialise(_bits_loop, "random_bits", **NAMESPACE, **RANDOM)
    return jit(loop, *[NUMBERS["u32"]] * 6, writes(NUMBERS["u32"], 1))


@functools.cache
def _normal_kernel():
    loop = specialise(_normal_loop, "random_normal", **NAMESPACE, **RANDOM)
    return jit(loop, reads(NUMBERS["u32"], 1), writes(NUMBERS["f32"], 1))
