"""The cases of ``benchmarks/ops.py``: families of ops, each in several dtypes and shapes.

A case is a function of torch tensors, or a module with weights, and the shapes of its inputs. The
shapes of a family are an edge (one row, an odd size) and a middle of what models contain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

FLOATS = ("f32", "bf16", "f16")
DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
    "bool": torch.bool,
}


@dataclass(frozen=True)
class Case:
    """A case: ``make()`` returns a module and its inputs, seeded."""

    family: str
    name: str
    dtype: str
    make: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def filled(shape: tuple[int, ...], dtype: str, most: int = 0) -> torch.Tensor:
    """Normally distributed floats; integers below ``most`` (0: of all values up to a byte's)."""
    kind = DTYPES[dtype]
    if kind.is_floating_point:
        return torch.randn(shape).to(kind)
    if kind is torch.bool:
        return torch.rand(shape) < 0.5
    low, high = (0, most) if most else (0 if dtype == "u8" else -100, 100)
    return torch.randint(low, high, shape, dtype=kind)


def cases() -> list[Case]:
    """Return every case; names are unique."""
    made = [case for family in FAMILIES for case in family()]
    assert len({(c.name, c.dtype) for c in made}) == len(made)
    return made


def _module(family, name, build, shapes, dtypes=FLOATS) -> Iterator[Case]:
    """Cases of a module with weights, one a dtype."""
    for dtype in dtypes:

        def make(dtype=dtype):
            torch.manual_seed(0)
            inputs = tuple(filled(shape, dtype) for shape in shapes)
            return build().to(DTYPES[dtype]).eval(), inputs

        yield Case(family, name, dtype, make)


def _function(family, name, function, *inputs, dtypes=FLOATS) -> Iterator[Case]:
    """Cases of a function; an input is a shape, or (shape, dtype, most) of fixed dtype."""
    for dtype in dtypes:

        def make(dtype=dtype):
            torch.manual_seed(0)
            made = []
            for given in inputs:
                fixed = given and isinstance(given[0], tuple)
                made.append(filled(*given) if fixed else filled(given, dtype))
            return Function(function), tuple(made)

        yield Case(family, name, dtype, make)


def products() -> Iterator[Case]:
    family = "products"
    for m, k, n in ((128, 768, 3072), (1, 4096, 4096), (16, 2048, 5632), (197, 768, 768)):
        name = f"linear {m}x{k}x{n}"
        yield from _module(family, name, lambda k=k, n=n: nn.Linear(k, n), [(m, k)])
    yield from _module(
        family, "linear 128x768x3072", lambda: nn.Linear(768, 3072), [(128, 768)], ("f64",)
    )
    for size in (256, 512, 1024):
        shapes = (size, size), (size, size)
        yield from _function(family, f"matmul {size}", torch.matmul, *shapes)
    yield from _function(
        family, "batched 12x128x64x128", torch.matmul, (12, 128, 64), (12, 64, 128)
    )
    yield from _function(
        family, "matrix times vector 4096", torch.mv, (4096, 4096), (4096,), dtypes=("f32",)
    )
    yield from _function(
        family, "matmul 256", torch.matmul, (256, 256), (256, 256), dtypes=("i32", "f64")
    )
    yield from _function(
        family,
        "int_mm 256x1024x1024",
        torch._int_mm,
        ((256, 1024), "i8", 0),
        ((1024, 1024), "i8", 0),
        dtypes=("i8",),
    )


def convolutions() -> Iterator[Case]:
    family = "convolutions"

    def conv(name, *facts, size, rank=2, dtypes=FLOATS, transposed=False, **more):
        kinds = {
            (1, False): nn.Conv1d,
            (2, False): nn.Conv2d,
            (3, False): nn.Conv3d,
            (1, True): nn.ConvTranspose1d,
            (2, True): nn.ConvTranspose2d,
        }
        kind = kinds[rank, transposed]
        shape = (1, facts[0], *((size,) * rank))
        return _module(family, name, lambda: kind(*facts, **more), [shape], dtypes)

    yield from conv("3x3, 64 channels, 56", 64, 64, 3, padding=1, size=56)
    yield from conv("1x1, 256 to 64, 56", 256, 64, 1, size=56)
    yield from conv("1x1, 512 to 2048, 7", 512, 2048, 1, size=7)
    yield from conv("3x3 stride 2, 128, 56", 128, 128, 3, padding=1, stride=2, size=56)
    yield from conv("3x3, 512 channels, 7", 512, 512, 3, padding=1, size=7)
    yield from conv("7x7 stride 2, colours, 224", 3, 64, 7, padding=3, stride=2, size=224)
    yield from conv("dilated 3x3, 64, 56", 64, 64, 3, padding=2, dilation=2, size=56)
    yield from conv("5x5, 32 channels, 28", 32, 32, 5, padding=2, size=28)
    yield from conv("depthwise 3x3 of 144, 56", 144, 144, 3, padding=1, groups=144, size=56)
    yield from conv("depthwise 7x7 of 96, 56", 96, 96, 7, padding=3, groups=96, size=56)
    yield from conv(
        "depthwise 5x5 stride 2 of 240, 28", 240, 240, 5, padding=2, stride=2, groups=240, size=28
    )
    yield from conv("grouped 3x3, 32 of 256, 14", 256, 256, 3, padding=1, groups=32, size=14)
    yield from conv(
        "transposed 4x4 stride 2, 64, 28", 64, 32, 4, padding=1, stride=2, size=28, transposed=True
    )
    yield from conv(
        "1-d 3, 80 to 384, 3000", 80, 384, 3, padding=1, size=1500, rank=1, dtypes=("f32", "bf16")
    )
    yield from conv(
        "1-d depthwise 31 of 256, 500",
        256,
        256,
        31,
        padding=15,
        groups=256,
        size=500,
        rank=1,
        dtypes=("f32",),
    )
    yield from conv(
        "3-d 3, 16 channels, 24", 16, 16, 3, padding=1, size=24, rank=3, dtypes=("f32",)
    )


def attention() -> Iterator[Case]:
    family, sdpa = "attention", F.scaled_dot_product_attention
    for heads, queries, keys in ((8, 512, 512), (12, 64, 64), (12, 197, 197), (32, 1, 1024)):
        shapes = (1, heads, queries, 64), *[(1, heads, keys, 64)] * 2
        yield from _function(family, f"{heads} heads, {queries} of {keys}", sdpa, *shapes)
    shapes = [(1, 12, 256, 64)] * 3
    yield from _function(
        family, "causal, 12 heads, 256", lambda q, k, v: sdpa(q, k, v, is_causal=True), *shapes
    )
    yield from _function(
        family,
        "masked, 12 heads, 128",
        lambda q, k, v, m: sdpa(q, k, v, attn_mask=m),
        *[(1, 12, 128, 64)] * 3,
        ((1, 1, 128, 128), "bool", 0),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "grouped queries, 32 of 8 heads, 1 of 1024",
        lambda q, k, v: sdpa(q, k, v, enable_gqa=True),
        (1, 32, 1, 64),
        *[(1, 8, 1024, 64)] * 2,
    )


def elementwise() -> Iterator[Case]:
    family, shape = "elementwise", (512, 2048)
    for name in ("gelu", "silu", "relu", "sigmoid", "tanh", "exp", "hardswish"):
        function = getattr(F, name, None) or getattr(torch, name)
        dtypes = FLOATS if name in ("gelu", "silu", "exp") else ("f32", "bf16")
        yield from _function(family, name, function, shape, dtypes=dtypes)
    for name in ("erf", "log", "sqrt", "sin", "pow"):
        function = (lambda x: x.abs() ** 1.7) if name == "pow" else getattr(torch, name)
        if name in ("log", "sqrt"):
            function = _of_magnitude(function)
        yield from _function(family, name, function, shape, dtypes=("f32",))
    yield from _function(family, "add", torch.add, shape, shape, dtypes=(*FLOATS, "i32", "f64"))
    yield from _function(family, "mul and add", lambda x, y, z: x * y + z, shape, shape, shape)
    yield from _function(family, "add a row", torch.add, shape, (2048,))
    yield from _function(
        family, "where", torch.where, (shape, "bool", 0), shape, shape, dtypes=("f32",)
    )
    yield from _function(family, "clamp", lambda x: x.clamp(-1, 1), shape, dtypes=("f32", "i32"))
    yield from _function(family, "to f32", lambda x: x.float(), shape, dtypes=("bf16", "f16", "i8"))
    yield from _function(family, "to bf16", lambda x: x.bfloat16(), shape, dtypes=("f32",))
    yield from _function(
        family, "compare and count", lambda x, y: (x > y).sum(-1), shape, shape, dtypes=("f32",)
    )


def _of_magnitude(function: Callable) -> Callable:
    return lambda x: function(x.abs())


def movement() -> Iterator[Case]:
    family, both = "data movement", ("f32", "bf16")
    one = (256, 256)
    yield from _function(
        family, "concatenate 8 x 256x256", lambda *x: torch.cat(x, 1), *[one] * 8, dtypes=both
    )
    yield from _function(
        family, "stack 8 x 256x256", lambda *x: torch.stack(x), *[one] * 8, dtypes=("f32",)
    )
    yield from _function(
        family,
        "split in 3, 512x2304",
        lambda x: [t.contiguous() for t in x.split(768, -1)],
        (512, 2304),
        dtypes=both,
    )
    yield from _function(
        family, "pad 64x56x56", lambda x: F.pad(x, (1, 1, 1, 1)), (1, 64, 56, 56), dtypes=both
    )
    yield from _function(
        family,
        "reflect pad 64x56x56",
        lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        (1, 64, 56, 56),
        dtypes=("f32",),
    )
    yield from _function(
        family, "roll 512x1024", lambda x: torch.roll(x, 3, -1), (512, 1024), dtypes=("f32",)
    )
    yield from _function(
        family, "repeat 64x1024", lambda x: x.repeat(8, 1), (64, 1024), dtypes=("f32",)
    )
    yield from _function(
        family, "flip 512x1024", lambda x: x.flip(-1), (512, 1024), dtypes=("f32",)
    )
    yield from _function(
        family,
        "slice, every second",
        lambda x: x[:, ::2].contiguous(),
        (512, 2048),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "unfold 3x3 of 64x56x56",
        lambda x: F.unfold(x, 3, padding=1),
        (1, 64, 56, 56),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "fold 3x3 to 16x28x28",
        lambda x: F.fold(x, (28, 28), 3, padding=1),
        (1, 144, 784),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "pixel shuffle 2, 256x56x56",
        lambda x: F.pixel_shuffle(x, 2),
        (1, 256, 56, 56),
        dtypes=both,
    )
    yield from _function(
        family,
        "channels last 64x56x56",
        lambda x: x.permute(0, 2, 3, 1).contiguous(),
        (1, 64, 56, 56),
        dtypes=(*both, "u8"),
    )
    yield from _function(
        family, "transpose 1024", lambda x: x.t().contiguous(), (1024, 1024), dtypes=(*both, "u8")
    )
    yield from _function(
        family,
        "heads apart 128x12x64",
        lambda x: x.view(1, 128, 12, 64).transpose(1, 2).contiguous(),
        (1, 128, 768),
        dtypes=both,
    )
    yield from _function(
        family,
        "gather rows, 2048 of 8192x512",
        lambda x, i: x[i],
        (8192, 512),
        ((2048,), "i64", 8192),
        dtypes=both,
    )
    yield from _function(
        family,
        "gather elements, 512x1024",
        lambda x, i: torch.gather(x, 1, i),
        (512, 1024),
        ((512, 1024), "i64", 1024),
        dtypes=("f32",),
    )
    yield from _module(
        family,
        "embedding 512 of 50257x768",
        lambda: nn.Sequential(_Indices(), nn.Embedding(50257, 768)),
        [(1, 512)],
        ("f32",),
    )
    yield from _function(
        family,
        "scatter-add rows, 4096 to 1024x256",
        lambda x, i, u: x.index_add(0, i, u),
        (1024, 256),
        ((4096,), "i64", 1024),
        (4096, 256),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "scatter elements, 512x1024",
        lambda x, i, u: x.scatter(1, i, u),
        (512, 1024),
        ((512, 1024), "i64", 1024),
        (512, 1024),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "masked fill 512x1024",
        lambda x, m: x.masked_fill(m, 0),
        (512, 1024),
        ((512, 1024), "bool", 0),
        dtypes=("f32",),
    )
    yield from _function(family, "triangle 1024", torch.tril, (1024, 1024), dtypes=("f32",))


class _Indices(nn.Module):
    """Row numbers from normally distributed numbers."""

    def forward(self, x):
        return (x.abs() * 10000).long() % 50257


def reductions() -> Iterator[Case]:
    family = "reductions"
    for name, shape, axis in (
        ("sum of rows, 2048x2048", (2048, 2048), 1),
        ("sum of columns, 2048x2048", (2048, 2048), 0),
        ("sum of the middle, 64x256x256", (64, 256, 256), 1),
        ("sum of short rows, 65536x32", (65536, 32), 1),
    ):
        yield from _function(
            family, name, lambda x, axis=axis: x.sum(axis), shape, dtypes=("f32", "bf16")
        )
    yield from _function(
        family, "sum of all, 4M", lambda x: x.sum(), (2048, 2048), dtypes=("f32", "f64")
    )
    yield from _function(
        family, "sum of all, 4M", lambda x: x.sum(), ((2048, 2048), "i32", 0), dtypes=("i32",)
    )
    yield from _function(
        family,
        "mean over images, 8x256x32x32",
        lambda x: x.mean((2, 3)),
        (8, 256, 32, 32),
        dtypes=("f32",),
    )
    yield from _function(
        family, "max with index, 512x2048", lambda x: x.max(-1), (512, 2048), dtypes=("f32", "bf16")
    )
    yield from _function(
        family, "argmax of columns, 512x2048", lambda x: x.argmax(0), (512, 2048), dtypes=("f32",)
    )
    yield from _function(
        family, "argmax of 50257", lambda x: x.argmax(-1), (8, 50257), dtypes=("f32",)
    )
    yield from _function(
        family, "variance of rows, 512x2048", lambda x: x.var(-1), (512, 2048), dtypes=("f32",)
    )
    yield from _function(
        family,
        "log-sum-exp of 50257",
        lambda x: torch.logsumexp(x, -1),
        (16, 50257),
        dtypes=("f32", "bf16"),
    )
    yield from _function(
        family, "norm of rows, 512x2048", lambda x: x.norm(dim=-1), (512, 2048), dtypes=("f32",)
    )
    yield from _function(
        family, "any, 512x2048", lambda x: (x > 3).any(-1), (512, 2048), dtypes=("f32",)
    )


def normalisations() -> Iterator[Case]:
    family = "normalisations"
    yield from _function(family, "softmax 512x1024", lambda x: F.softmax(x, -1), (512, 1024))
    yield from _function(
        family, "softmax 64x50257", lambda x: F.softmax(x, -1), (64, 50257), dtypes=("f32", "bf16")
    )
    yield from _function(
        family,
        "softmax of short rows, 32768x16",
        lambda x: F.softmax(x, -1),
        (32768, 16),
        dtypes=("f32", "bf16"),
    )
    yield from _function(
        family,
        "softmax of channels, 8x64x56x56",
        lambda x: F.softmax(x, 1),
        (8, 64, 56, 56),
        dtypes=("f32",),
    )
    yield from _function(
        family, "log-softmax 512x1024", lambda x: F.log_softmax(x, -1), (512, 1024), dtypes=("f32",)
    )
    for size in (768, 4096):
        yield from _module(
            family, f"layer norm 512x{size}", lambda size=size: nn.LayerNorm(size), [(512, size)]
        )
    yield from _module(
        family, "RMS norm 512x2048", lambda: nn.RMSNorm(2048), [(512, 2048)], ("f32", "bf16")
    )
    yield from _module(
        family,
        "group norm 32, 2x256x32x32",
        lambda: nn.GroupNorm(32, 256),
        [(2, 256, 32, 32)],
        ("f32", "bf16"),
    )
    yield from _module(
        family,
        "instance norm, 2x64x56x56",
        lambda: nn.InstanceNorm2d(64),
        [(2, 64, 56, 56)],
        ("f32",),
    )
    yield from _module(
        family, "batch norm, 8x64x56x56", lambda: nn.BatchNorm2d(64), [(8, 64, 56, 56)], ("f32",)
    )
    yield from _function(
        family,
        "cross entropy 512x1000",
        lambda x, y: F.cross_entropy(x, y),
        (512, 1000),
        ((512,), "i64", 1000),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "cross entropy 64x50257",
        lambda x, y: F.cross_entropy(x, y),
        (64, 50257),
        ((64,), "i64", 50257),
        dtypes=("f32",),
    )


def windows() -> Iterator[Case]:
    family, image = "windows", (1, 64, 112, 112)
    yield from _function(
        family,
        "max pool 3 stride 2",
        lambda x: F.max_pool2d(x, 3, 2, 1),
        image,
        dtypes=("f32", "bf16"),
    )
    yield from _function(family, "max pool 2", lambda x: F.max_pool2d(x, 2), image, dtypes=("f32",))
    yield from _function(
        family,
        "average pool 3 stride 2",
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        image,
        dtypes=("f32", "bf16"),
    )
    yield from _function(
        family,
        "adaptive average pool 30 to 7",
        lambda x: F.adaptive_avg_pool2d(x, 7),
        (4, 256, 30, 30),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "global average pool, 8x2048x7x7",
        lambda x: F.adaptive_avg_pool2d(x, 1),
        (8, 2048, 7, 7),
        dtypes=("f32", "bf16"),
    )
    yield from _function(
        family,
        "nearest upsampling 2, 64x56x56",
        lambda x: F.interpolate(x, scale_factor=2),
        (1, 64, 56, 56),
        dtypes=("f32", "bf16"),
    )
    yield from _function(
        family,
        "bilinear upsampling 2, 64x56x56",
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
        (1, 64, 56, 56),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "bicubic upsampling 2, 16x56x56",
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
        (1, 16, 56, 56),
        dtypes=("f32",),
    )
    yield from _function(
        family,
        "grid sample 32x56x56",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        (1, 32, 56, 56),
        (1, 56, 56, 2),
        dtypes=("f32",),
    )


def orders() -> Iterator[Case]:
    family = "sorting and scans"
    yield from _function(
        family, "sort 256x4096", lambda x: x.sort(-1)[0], (256, 4096), dtypes=("f32", "i32")
    )
    yield from _function(
        family, "argsort 1M", lambda x: x.argsort(stable=True), (1 << 20,), dtypes=("f32",)
    )
    yield from _function(
        family, "top 50 of 64x50257", lambda x: x.topk(50), (64, 50257), dtypes=("f32", "bf16")
    )
    yield from _function(
        family, "top 5 of 512x1000", lambda x: x.topk(5), (512, 1000), dtypes=("f32",)
    )
    yield from _function(
        family, "cumulative sum 512x2048", lambda x: x.cumsum(-1), (512, 2048), dtypes=("f32",)
    )
    yield from _function(
        family,
        "cumulative sum of columns 512x2048",
        lambda x: x.cumsum(0),
        (512, 2048),
        dtypes=("f32",),
    )
    yield from _function(
        family, "cumulative product 512x2048", lambda x: x.cumprod(-1), (512, 2048), dtypes=("f32",)
    )
    yield from _function(
        family, "distances 512 x 512 of 64", torch.cdist, (512, 64), (512, 64), dtypes=("f32",)
    )
    yield from _function(
        family,
        "bins of 1M",
        lambda x: torch.bincount(x, minlength=1000),
        ((1 << 20,), "i64", 1000),
        dtypes=("i64",),
    )


def recurrent() -> Iterator[Case]:
    family = "recurrent"
    for name, kind in (("LSTM", nn.LSTM), ("GRU", nn.GRU)):
        yield from _module(
            family,
            f"{name} 256, 64 steps of 8",
            lambda kind=kind: kind(128, 256),
            [(64, 8, 128)],
            ("f32",),
        )


FAMILIES = (
    products,
    convolutions,
    attention,
    elementwise,
    movement,
    reductions,
    normalisations,
    windows,
    orders,
    recurrent,
)
