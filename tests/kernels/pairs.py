"""Pairs of f32 inputs of binary functions: sampled by Philox, and of special values.

A sixteenth is drawn each way of a mix: bits of both at random, a special value beside random bits,
and pairs whose result says something (neither overflow, underflow nor a constant).  Every choice is
the contract's own arithmetic, so pair n is the same everywhere.
"""

from __future__ import annotations

import numba
import numpy as np

from core_compiler.numerics.functions import NAMESPACE
from core_compiler.numerics.reference.random import random_bits
from tests.kernels.ulp import specials

SEED = 20261125
#: A stream of random numbers for each function.
STREAMS = {"pow": 0, "atan2": 1, "fmod": 2, "remainder": 3}
#: Of 16 kinds: bits of both at random; then two with a special value for one of them.
RANDOM, FIRST_SPECIAL, SECOND_SPECIAL = 4, 4, 5
#: Of ``pow``: then a base of any size, one near 1, a negative one with a whole exponent.
ANY_BASE, NEAR_ONE = 10, 14
#: Of ``pow``: the logarithms to base 2 of the results: normal numbers and a little beyond.
LOWEST, HIGHEST = -151.0, 129.0
#: Of the others: how far the exponents of the two are apart at most.
APART = 30

_log2, _round = NAMESPACE["log2_f64"], NAMESPACE["round_even_f64"]


def pairs(name: str, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs ``first`` to ``first + count`` of a function: two f32 arrays."""
    words = random_bits((count, 4), SEED, STREAMS[name], first=4 * first)
    x, y = words[:, 0].copy(), words[:, 1].copy()
    mix = _mix_of_powers if name == "pow" else _mix_of_ratios
    mix(words, specials(np.float32), x.view(np.float32), y.view(np.float32), x, y)
    return x.view(np.float32), y.view(np.float32)


def special_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Each special value with each."""
    first, second = np.meshgrid(*[specials(np.float32)] * 2)
    return first.ravel(), second.ravel()


@numba.njit(nogil=True, error_model="numpy")
def _random_or_special(word, special, x, y, i):
    """Whether pair ``i`` is random bits, or has a special value; which it is given here."""
    kind, chosen = word[2] & np.uint32(15), word[3] % np.uint32(special.size)
    if kind == FIRST_SPECIAL:
        x[i] = special[chosen]
    elif kind == SECOND_SPECIAL:
        y[i] = special[chosen]
    return kind < RANDOM or kind in (FIRST_SPECIAL, SECOND_SPECIAL)


@numba.njit(nogil=True, error_model="numpy")
def _mix_of_powers(words, special, x, y, x_bits, y_bits):
    step = (HIGHEST - LOWEST) * 2.0**-32
    for i in range(x.size):
        if _random_or_special(words[i], special, x, y, i):
            continue
        kind, word = words[i, 2] & np.uint32(15), words[i, 3]
        if ANY_BASE <= kind < NEAR_ONE:  # 1 + 2**-k up to twice as far, or 1 less that
            far = np.uint32(1 + (words[i, 2] >> np.uint32(4)) % np.uint32(23))
            offset = x_bits[i] >> (far + np.uint32(8))
            below = (words[i, 2] >> np.uint32(31)) & np.uint32(1)
            x_bits[i] = (
                np.uint32(0x3F800000) + offset if below == 0 else (np.uint32(0x3F800000) - offset)
            )
        else:
            x_bits[i] &= np.uint32(0x7FFFFFFF)
        exponent = (LOWEST + np.float64(word) * step) / _log2(np.float64(x[i]))
        if kind >= NEAR_ONE:
            exponent = _round(exponent)
            x_bits[i] |= np.uint32(0x80000000)
        y[i] = np.float32(exponent)


@numba.njit(nogil=True, error_model="numpy")
def _mix_of_ratios(words, special, x, y, x_bits, y_bits):
    for i in range(x.size):
        if _random_or_special(words[i], special, x, y, i):
            continue
        word = words[i, 3]
        exponent = np.int64((x_bits[i] >> np.uint32(23)) & np.uint32(0xFF))
        exponent += np.int64(word % np.uint32(2 * APART + 1)) - APART
        exponent = min(max(exponent, 0), 254)
        y_bits[i] = (y_bits[i] & np.uint32(0x807FFFFF)) | np.uint32(exponent << 23)
