"""Seeded random numbers for weights and inputs: the same bits on every machine.

torch's and NumPy's normal generators may change between versions and vector widths. Here every
number comes from the raw 64-bit words of Philox (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", SC 2011), whose stream NumPy guarantees, by integer arithmetic and one multiplication,
so a sample model has the same weights wherever it is built.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import nn

_HALF = 32767.5
_PIECES_PER_WORD = 4


def _words(key: str, seed: int, count: int) -> np.ndarray:
    """Return `count` uint64 words of the stream named `key` under `seed`."""
    digest = hashlib.sha256(f"{seed}/{key}".encode()).digest()
    return np.random.Philox(key=int.from_bytes(digest[:16], "little")).random_raw(count)


def _pieces(key: str, seed: int, count: int) -> np.ndarray:
    """Return `count` uint16 numbers, little-endian quarters of the words on any machine."""
    words = _words(key, seed, -(-count // _PIECES_PER_WORD))
    return words.astype("<u8", copy=False).view("<u2")[:count]


def uniform(key: str, seed: int, shape: tuple[int, ...], deviation: float) -> torch.Tensor:
    """Return f32 numbers of the given shape and deviation, uniform on 65,536 steps, mean 0."""
    pieces = _pieces(key, seed, math.prod(shape)).astype(np.float32)
    pieces -= np.float32(_HALF)
    pieces *= np.float32(deviation * math.sqrt(3.0) / (_HALF + 0.5))
    return torch.from_numpy(pieces.reshape(shape))


def bell(key: str, seed: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return near-normal f32 numbers (sum of four uniforms), mean 0, deviation 1."""
    pieces = _pieces(key, seed, math.prod(shape) * 4).reshape(-1, 4)
    centred = pieces.sum(axis=1, dtype=np.int64) * 2 - 4 * 65535
    scale = 1.0 / (2 * 65536 * math.sqrt(4 / 12))
    return torch.from_numpy((centred * scale).astype(np.float32).reshape(shape))


def integers(key: str, seed: int, shape: tuple[int, ...], low: int, high: int) -> torch.Tensor:
    """Return i64 numbers of the given shape in [low, high)."""
    words = _words(key, seed, math.prod(shape))
    # The high half of a word times the range, shifted: the modulo bias is negligible below 2^32.
    scaled = ((words >> np.uint64(32)) * np.uint64(high - low)) >> np.uint64(32)
    return torch.from_numpy((scaled.astype(np.int64) + low).reshape(shape))


def fill(model: nn.Module, seed: int) -> None:
    """Set every parameter of `model` in place, each from the stream of its own name.

    Linear and convolution weights are scaled by their fan-in (He et al. 2015), embeddings have
    deviation 0.02 (BERT). Biases, norm weights (around 1) and norm biases are varied on purpose:
    at the usual 0 and 1 a compiler could drop them unnoticed.
    """
    places = {  # a parameter that several modules share is that of the last
        parameter: (module, name, f"{module_name}.{name}")
        for module_name, module in model.named_modules()
        for name, parameter in module.named_parameters(recurse=False)
    }
    with torch.no_grad():
        for parameter, (module, name, key) in places.items():
            parameter.copy_(_initial(module, name, key, seed, tuple(parameter.shape)))


def _initial(
    module: nn.Module, name: str, key: str, seed: int, shape: tuple[int, ...]
) -> torch.Tensor:
    if isinstance(module, nn.Embedding):
        return uniform(key, seed, shape, 0.02)
    if name == "bias":
        return uniform(key, seed, shape, 0.05)
    if len(shape) == 1:  # the weight of a norm
        return 1.0 + uniform(key, seed, shape, 0.1)
    fan_in = math.prod(shape[1:])
    gain = 2.0 if isinstance(module, nn.Conv2d) else 1.0
    return uniform(key, seed, shape, math.sqrt(gain / fan_in))


def shortened(values: torch.Tensor, bits: int = 20) -> torch.Tensor:
    """Return f64 `values` rounded to `bits` significant bits, as f32.

    Values derived from data (batch-norm statistics, trained weights) are computed in f64 and
    rounded far above f64's own rounding errors, which depend on the machine's vector width.
    """
    mantissa, exponent = torch.frexp(values.to(torch.float64))
    steps = float(2**bits)
    return torch.ldexp(torch.round(mantissa * steps) / steps, exponent).to(torch.float32)
