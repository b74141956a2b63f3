"""Reductions, scans, contractions, convolutions, pooling; oracles: NumPy and torch in f64."""

from __future__ import annotations

import numpy as np

from tests.ops.samples.base import Sample, in_floats, sample, torch_oracle, values

INTEGERS = ("i8", "ui8", "i32", "i64", "ui64")


def _same(function):
    """An integer oracle that keeps the operand's dtype."""
    return lambda x, **_: function(x).astype(x.dtype)


def _reductions() -> list[Sample]:
    x = values((3, 5, 70))
    made = []
    for axes in ((), (0,), (1,), (2,), (0, 2), (0, 1, 2)):
        label = "axes" + "".join(map(str, axes))
        made += in_floats(
            "reduce_sum", x, oracle=lambda x, a=axes: x.sum(a), axes=axes, label=label, slack=4
        )
        for kind, oracle in (("reduce_max", np.max), ("reduce_min", np.min)):
            made += in_floats(
                kind, x, oracle=lambda x, f=oracle, a=axes: f(x, a), axes=axes, label=label
            )
    near_one = values((4, 30), "f32", 0.9, 1.1)
    made += in_floats("reduce_prod", near_one, oracle=lambda x: x.prod(1), axes=(1,), slack=4)
    # A long row takes the second level of lanes; a long column several chunks of the sequence.
    made += in_floats(
        "reduce_sum",
        values((2, 9000)),
        oracle=lambda x: x.sum(1),
        axes=(1,),
        label="long-row",
        slack=16,
    )
    made += in_floats(
        "reduce_sum",
        values((700, 3)),
        oracle=lambda x: x.sum(0),
        axes=(0,),
        label="long-column",
        slack=16,
    )
    for name in INTEGERS:
        x = values((4, 6), name, -100, 100)
        made += [
            sample("reduce_sum", x, oracle=lambda x: x.sum(1, x.dtype), axes=(1,), exact=True),
            sample("reduce_prod", x, oracle=lambda x: x.prod(1, x.dtype), axes=(1,), exact=True),
            sample("reduce_max", x, oracle=lambda x: x.max(0), axes=(0,), exact=True),
            sample("reduce_min", x, oracle=lambda x: x.min(0), axes=(0,), exact=True),
            sample(
                "reduce_and", x, oracle=lambda x: np.bitwise_and.reduce(x, 0), axes=(0,), exact=True
            ),
            sample(
                "reduce_or", x, oracle=lambda x: np.bitwise_or.reduce(x, 0), axes=(0,), exact=True
            ),
        ]
    flags = values((4, 6, 2), "i1")
    made += [
        sample("reduce_and", flags, oracle=lambda x: x.all((0, 2)), axes=(0, 2), exact=True),
        sample("reduce_or", flags, oracle=lambda x: x.any((0, 2)), axes=(0, 2), exact=True),
    ]
    empty = np.zeros((0, 3), np.float32)
    for kind, oracle in (("reduce_sum", np.zeros), ("reduce_prod", np.ones)):
        made.append(
            sample(
                kind,
                empty,
                oracle=lambda x, f=oracle: f(3, np.float32),
                axes=(0,),
                exact=True,
                label="empty",
            )
        )
    return made


def _args() -> list[Sample]:
    made = []
    for name in ("f32", "f64", "bf16", "i8", "i64", "ui8"):
        x = values((4, 9, 2), name, -3, 3)
        if name[0] in "fb":
            x[0, 4, 0] = np.nan
        for kind, oracle in (("argmax", np.argmax), ("argmin", np.argmin)):
            made.append(
                sample(
                    kind,
                    x,
                    oracle=lambda x, f=oracle: f(x.astype(np.float64), 1),
                    axis=1,
                    exact=True,
                )
            )
    made.append(
        sample(
            "argmax",
            x,
            oracle=lambda x: x.argmax(0).astype(np.int32),
            axis=0,
            dtype="i32",
            exact=True,
            label="dtype",
        )
    )
    return made


SCANS = {
    "cumsum": (np.cumsum, 0),
    "cumprod": (np.cumprod, 1),
    "cummax": (np.maximum.accumulate, None),
    "cummin": (np.minimum.accumulate, None),
}


def _scan(kind: str, axis: int, reverse: bool, exclusive: bool):
    function, start = SCANS[kind]

    def oracle(x):
        x = np.flip(x, axis) if reverse else x
        made = function(x, axis).astype(x.dtype)
        if exclusive:
            made = np.roll(made, 1, axis)
            first = [slice(None)] * x.ndim
            first[axis] = 0
            made[tuple(first)] = start if start is not None else _start(kind, x.dtype)
        return np.flip(made, axis) if reverse else made

    return oracle


def _start(kind: str, dtype):
    if dtype.kind == "f":
        return -np.inf if kind == "cummax" else np.inf
    return np.iinfo(dtype).min if kind == "cummax" else np.iinfo(dtype).max


def _scans() -> list[Sample]:
    made = []
    for kind in SCANS:
        for reverse in (False, True):
            for exclusive in (False, True):
                flags = {"axis": 1, "reverse": reverse, "exclusive": exclusive}
                label = f"{'reverse' * reverse}{'exclusive' * exclusive}"
                oracle = _scan(kind, 1, reverse, exclusive)
                x = values((2, 12, 3), "f32", 0.7, 1.4)
                made += in_floats(kind, x, oracle=oracle, label=label, slack=8, **flags)
                for name in ("i32", "ui8"):
                    made.append(
                        sample(
                            kind,
                            values((2, 12, 3), name, -3, 3),
                            oracle=oracle,
                            exact=True,
                            label=label,
                            **flags,
                        )
                    )
    made += in_floats(
        "cumsum", values((2, 900)), oracle=lambda x: x.cumsum(1), axis=1, slack=16, label="chunks"
    )
    return made


def _integer_matmul(a, b):
    wide = np.int64 if a.dtype.itemsize < 8 else a.dtype
    return np.matmul(a.astype(wide), b.astype(wide)).astype(
        np.int32 if wide is np.int64 else a.dtype
    )


def _contractions() -> list[Sample]:
    made = []
    for m, k, n in ((3, 4, 5), (1, 300, 2), (17, 513, 33), (2, 0, 3)):
        a, b = values((m, k), key="a"), values((k, n), key="b")
        made += in_floats("matmul", a, b, oracle=np.matmul, label=f"{m}x{k}x{n}", slack=8)
    a, b = values((2, 3, 4, 5)), values((2, 3, 5, 6))
    made += in_floats("matmul", a, b, oracle=np.matmul, label="batch", slack=4)
    for name in ("f16", "bf16"):
        narrow = list(
            in_floats(
                "matmul",
                a,
                b,
                oracle=np.matmul,
                dtypes=(name,),
                label="unrounded",
                accumulate="f32",
            )
        )
        made += narrow
    for name in INTEGERS:
        operands = values((4, 30), name, -100, 100, "a"), values((30, 5), name, -100, 100, "b")
        made.append(sample("matmul", *operands, oracle=_integer_matmul, exact=True))
    f8 = values((4, 8), "f8E4M3FN", -2, 2, "a"), values((8, 3), "f8E4M3FN", -2, 2, "b")
    made.append(sample("matmul", *f8, oracle=np.matmul, accumulate="f32"))
    x, y = values((3, 2, 4, 5), key="x"), values((5, 3, 6, 4), key="y")
    made += in_floats(
        "contract",
        x,
        y,
        oracle=lambda x, y: np.einsum("bmcd,dbnc->bmn", x, y),
        batch_a=(0,),
        batch_b=(1,),
        contract_a=(2, 3),
        contract_b=(3, 0),
        slack=4,
    )
    made += in_floats(
        "contract",
        values((3,), key="u"),
        values((4,), key="v"),
        label="outer",
        oracle=np.multiply.outer,
        contract_a=(),
        contract_b=(),
    )
    w, bias = values((5, 7), key="w"), values((7,), key="bias")
    for shape in ((5,), (3, 5), (2, 3, 5)):
        made += in_floats(
            "linear",
            values(shape),
            w,
            bias,
            oracle=lambda x, w, c: x @ w + c,
            label=f"rank{len(shape)}",
            slack=4,
        )
    made += in_floats("linear", values((3, 5)), w, oracle=np.matmul, label="plain", slack=4)
    return made


#: spatial rank -> torch's functions
CONV = {1: "conv1d", 2: "conv2d", 3: "conv3d"}


def _torch_conv(strides, low, dilations, groups, high=None):
    def function(x, w):
        from torch.nn import functional

        pads = [p for pair in reversed(list(zip(low, high or low, strict=True))) for p in pair]
        conv = getattr(functional, CONV[x.ndim - 2])
        return conv(functional.pad(x, pads), w, None, strides, 0, dilations, groups)

    return torch_oracle(function)


def _convolutions() -> list[Sample]:
    made = []
    cases = (  # x, w, strides, low, high, dilations, groups
        ((2, 3, 9), (4, 3, 3), (1,), (1,), (1,), (1,), 1),
        ((2, 3, 7, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1),
        ((1, 40, 6, 6), (5, 40, 3, 3), (2, 2), (1, 0), (1, 2), (1, 1), 1),
        ((1, 4, 9, 9), (6, 2, 3, 3), (1, 2), (2, 2), (2, 2), (2, 2), 2),
        ((2, 6, 5, 5), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 6),
        ((1, 300, 3, 3), (4, 300, 1, 1), (1, 1), (0, 0), (0, 0), (1, 1), 1),
        ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), (1, 2, 1), (0, 1, 1), (0, 1, 1), (1, 1, 1), 1),
        ((1, 2, 8, 8), (3, 2, 3, 3), (1, 1), (-1, 0), (-1, 0), (1, 1), 1),
    )
    for x, w, strides, low, high, dilations, groups in cases:
        made += in_floats(
            "conv",
            values(x, key="x"),
            values(w, key="w"),
            slack=8,
            oracle=_torch_conv(strides, low, dilations, groups, high),
            strides=strides,
            low=low,
            high=high,
            dilations=dilations,
            groups=groups,
            label=f"{x}{w}".replace(" ", ""),
        )
    x, w = values((1, 3, 5, 5), "i8", -9, 9, "x"), values((4, 3, 3, 3), "i8", -9, 9, "w")
    wide = _torch_conv((1, 1), (1, 1), (1, 1), 1)
    made.append(
        sample(
            "conv",
            x,
            w,
            oracle=lambda x, w: wide(*(v.astype(np.float64) for v in (x, w))).astype(np.int32),
            strides=(1, 1),
            low=(1, 1),
            high=(1, 1),
            dilations=(1, 1),
            exact=True,
        )
    )
    for x, w, stride, pad, extra, dilation, groups in (
        ((2, 4, 5, 6), (4, 3, 3, 3), (2, 2), (1, 1), (1, 0), (1, 1), 1),
        ((1, 4, 4), (4, 2, 3), (3,), (0,), (2,), (2,), 2),
        ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), (2, 1, 2), (0, 0, 1), (0, 0, 1), (1, 1, 1), 1),
        ((1, 40, 4, 4), (40, 3, 3, 3), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    ):
        made += in_floats(
            "conv_transpose",
            values(x, key="x"),
            values(w, key="w"),
            slack=8,
            oracle=torch_oracle(_transposed(stride, pad, extra, groups, dilation)),
            strides=stride,
            low=pad,
            high=pad,
            dilations=dilation,
            output_padding=extra,
            groups=groups,
            label=f"{x}{w}".replace(" ", ""),
        )
    return made


def _transposed(stride, pad, extra, groups, dilation):
    def function(x, w):
        from torch.nn import functional

        conv = getattr(functional, f"conv_transpose{x.ndim - 2}d")
        return conv(x, w, None, stride, pad, extra, groups, dilation)

    return function


def _pools() -> list[Sample]:
    from torch.nn import functional

    made = []
    for shape, window, stride, pad, dilation in (
        ((2, 3, 9), (3,), (2,), (1,), (1,)),
        ((2, 3, 8, 7), (3, 2), (2, 1), (1, 1), (1, 1)),
        ((1, 2, 9, 9), (3, 3), (1, 2), (1, 0), (2, 2)),
        ((1, 2, 5, 6, 4), (2, 2, 2), (2, 2, 2), (0, 1, 0), (1, 1, 1)),
    ):
        rank = len(window)
        options = {
            "window": window,
            "strides": stride,
            "low": pad,
            "high": pad,
            "dilations": dilation,
        }
        largest = getattr(functional, f"max_pool{rank}d")
        average = getattr(functional, f"avg_pool{rank}d")
        oracle = torch_oracle(lambda x, f=largest, a=(window, stride, pad, dilation): f(x, *a))
        made += in_floats("max_pool", values(shape), oracle=oracle, **options)
        if set(dilation) == {1}:
            for counted in (False, True):
                oracle = torch_oracle(
                    lambda x, f=average, a=(window, stride, pad, False, counted): f(x, *a)
                )
                made += in_floats(
                    "avg_pool",
                    values(shape),
                    oracle=oracle,
                    slack=4,
                    label=f"count{counted}",
                    count_padding=counted,
                    **options,
                )
    whole = values((1, 2, 5, 5), "i32", -9, 9)
    options = {
        "window": (2, 2),
        "strides": (2, 2),
        "low": (0, 0),
        "high": (1, 1),
        "dilations": (1, 1),
    }
    oracle = torch_oracle(lambda x: functional.max_pool2d(x, 2, 2, ceil_mode=True))
    made.append(
        sample(
            "max_pool",
            whole,
            exact=True,
            label="ceil",
            **options,
            oracle=lambda x: oracle(x.astype(np.float64)).astype(np.int32),
        )
    )
    made += in_floats(
        "avg_pool",
        values((1, 2, 5, 5)),
        slack=4,
        label="ceil",
        **options,
        oracle=torch_oracle(lambda x: functional.avg_pool2d(x, 2, 2, 0, True)),
    )
    return made


SAMPLES = [*_reductions(), *_args(), *_scans(), *_contractions(), *_convolutions(), *_pools()]
