"""Weights in the blocks of GGUF files, as the tensor operations that dequantise them.

A row of such a tensor is a sequence of blocks of bytes: scales (and minima), then integers of a
few bits. :func:`dequantize` is written in plain tensor operations, so that a module that calls it
can be exported: its weights keep their bits in the program, which dequantises them. ::

    from core_compiler.frontends.pytorch import gguf

    class Linear(torch.nn.Module):
        def __init__(self, raw, kind):
            super().__init__()
            self.kind = kind
            self.register_buffer("raw", torch.from_numpy(raw))

        def forward(self, x):
            return x @ gguf.dequantize(self.raw, self.kind).T

``raw`` is the ``data`` of a tensor of ``gguf.GGUFReader`` (package gguf), ``kind`` the name of its
type. The formats are those of ``ggml-quants.c`` in https://github.com/ggml-org/ggml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_compiler.support.errors import UserError, nearest

if TYPE_CHECKING:
    from torch import Tensor

#: Name of a type -> numbers of a block, and its fields in order with the bytes of each: ``d`` and
#: ``m`` are the scale and the minimum in f16, ``s`` scales of parts of the block, ``l`` the lower
#: bits of the integers, ``h`` the upper ones, ``q`` all of them.
FORMATS: dict[str, tuple[int, dict[str, int]]] = {
    "Q4_0": (32, {"d": 2, "l": 16}),
    "Q4_1": (32, {"d": 2, "m": 2, "l": 16}),
    "Q5_0": (32, {"d": 2, "h": 4, "l": 16}),
    "Q5_1": (32, {"d": 2, "m": 2, "h": 4, "l": 16}),
    "Q8_0": (32, {"d": 2, "q": 32}),
    "Q4_K": (256, {"d": 2, "m": 2, "s": 12, "l": 128}),
    "Q5_K": (256, {"d": 2, "m": 2, "s": 12, "h": 32, "l": 128}),
    "Q6_K": (256, {"l": 128, "h": 64, "s": 16, "d": 2}),
}


def dequantize(raw: Tensor, kind: str) -> Tensor:
    """Return the numbers of a GGUF tensor, f32 [..., columns]; the bits are those of ggml.

    ``raw``: its bytes, u8 [..., bytes of a row]; ``kind``: its type, such as ``"Q4_0"``. Raise
    UserError for another type, or if a row is not a whole number of blocks.
    """
    if kind not in FORMATS:
        fix = nearest(kind, FORMATS, f"choose one of {', '.join(FORMATS)}")
        raise UserError(f"unsupported GGUF type {kind!r}", "dequantize", fix)
    count, layout = FORMATS[kind]
    size = sum(layout.values())
    if raw.shape[-1] % size:
        raise UserError(
            f"expected rows of blocks of {size} bytes, got {raw.shape[-1]} bytes",
            f"a tensor of {kind}",
            "pass the bytes of the tensor as u8 [rows, bytes of a row]",
        )
    blocks = raw.unflatten(-1, (-1, size))
    fields = dict(zip(layout, blocks.split(list(layout.values()), -1), strict=True))
    rows = _of_super_blocks(fields) if count == 256 else _of_blocks(fields)
    return rows.flatten(raw.dim() - 1)


def _of_blocks(fields: dict[str, Tensor]) -> Tensor:
    """Return the numbers of blocks of 32: scale times integer, plus the minimum."""
    scale = _halves(fields["d"])
    if "q" in fields:
        return scale * _signed(fields["q"]).float()
    whole = _bits(fields["l"], 4, 16)
    if "h" in fields:
        whole = whole | (_bits(fields["h"].unsqueeze(-1), 1, 1).flatten(-2) << 4)
    if "m" in fields:
        return scale * whole.float() + _halves(fields["m"])
    offset = 16 if "h" in fields else 8
    return scale * (_signed(whole) - offset).float()


def _of_super_blocks(fields: dict[str, Tensor]) -> Tensor:
    """Return the numbers of blocks of 256, whose parts of 32 (Q6_K: 16) have scales of integers."""
    scale = _halves(fields["d"])
    if "m" not in fields:
        scale = (scale * _signed(fields["s"]).float()).unsqueeze(-1)
        whole = _bits(fields["l"].unflatten(-1, (-1, 64)), 4, 64).flatten(-2)
        whole = whole | (_bits(fields["h"].unflatten(-1, (-1, 32)), 2, 32).flatten(-2) << 4)
        return scale * (_signed(whole) - 32).float().unflatten(-1, (16, 16))
    scales, minima = _six_bits(fields["s"])
    scale = (scale * scales.float()).unsqueeze(-1)
    least = (_halves(fields["m"]) * minima.float()).unsqueeze(-1)
    whole = _bits(fields["l"].unflatten(-1, (-1, 32)), 4, 32).flatten(-2).unflatten(-1, (8, 32))
    if "h" in fields:
        whole = whole | (_bits(fields["h"], 1, 32).unflatten(-1, (8, 32)) << 4)
    return scale * whole.float() - least


def _halves(field: Tensor) -> Tensor:
    """Return two bytes of each block, an f16, as f32 [..., 1]."""
    import torch

    return field.contiguous().view(torch.float16).float()


def _signed(field: Tensor) -> Tensor:
    import torch

    return field.to(torch.int8)


def _bits(field: Tensor, bits: int, width: int) -> Tensor:
    """Return ``width`` bytes a row as numbers of ``bits`` bits: all lowest ones, then the next."""
    import torch

    steps = torch.arange(0, 8, bits, dtype=torch.uint8).reshape(-1, 1)
    parts = (field.unflatten(-1, (1, width)) >> steps) & ((1 << bits) - 1)
    return parts.flatten(-2)


def _six_bits(field: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eight scales and minima of 6 bits in 12 bytes, whose last 4 have lower bits."""
    import torch

    first, second, both = field.unflatten(-1, (3, 4)).unbind(-2)
    low = both & 15, both >> 4
    parts = [
        torch.cat([upper & 63, lower | ((upper >> 2) & 48)], -1)
        for upper, lower in zip((first, second), low, strict=True)
    ]
    return parts[0], parts[1]
