"""The order of every kind of sum, revealed by masked inputs, is the contract's; torch's is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import core_compiler as cc
from core_compiler.debug.evaluate import Evaluator
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ir import Module
from core_compiler.training.config import Training
from core_compiler.training.graph.autodiff import pullback
from core_compiler.training.optimisers.optimizers import SGD
from tests.cuda.helpers import CAPABILITIES
from tests.cuda.simulated_target import SimulatedCUDA
from tests.kernels import order_probe as probe
from tests.kernels.order_probe import BLOCK, NoTree, Tree
from tests.passes.programs import program
from tests.slow import slow_but


@dataclass(frozen=True)
class Case:
    """A sum of ``n``: ``build`` the op, ``given`` its operands for BLOCK rows of summands, ``read``
    the sums in its result, of which there may be several for a row (on a second axis).

    ``of``: what is summed is the gradient with respect to this operand; the last array given is the
    cotangent of the result."""

    n: int
    wanted: Tree
    build: Any
    given: Callable[[np.ndarray], list[np.ndarray]]
    read: Callable[[np.ndarray], np.ndarray] = lambda y: y
    kind: str = "float32"
    of: int | None = None

    @property
    def module(self) -> Module:
        """The program: the op, or its gradient alone."""
        shapes = [
            f"{'x'.join(map(str, a.shape))}x{_NAMES[a.dtype.name]}"
            for a in self.given(np.ones((BLOCK, self.n), self.kind))
        ]
        if self.of is None:
            return program(self.build, *shapes)
        made = pullback(program(self.build, *shapes[:-1]))
        body = made.main.body
        floats = [v for v in body.arguments[: len(shapes) - 1] if v.type.dtype.is_float]
        wanted = body.outputs[floats.index(body.arguments[self.of])]
        return made.with_function(made.main.with_(body=body.with_(outputs=(wanted,))))


def ones(*shape, kind="float32"):
    return np.ones(shape, kind)


def last_axis(n: int, kind: str = "float32") -> Case:
    return Case(
        n, probe.lanes(n), lambda b, x: b.reduce_sum(x, axes=(1,)), lambda x: [x], kind=kind
    )


def first_axis(n: int) -> Case:
    return Case(
        n,
        probe.sequence(n),
        lambda b, x: b.reduce_sum(x, axes=(0,)),
        lambda x: [np.ascontiguousarray(x.T)],
    )


def two_groups(outer: int, inner: int) -> Case:
    def given(x):
        return [np.ascontiguousarray(x.reshape(BLOCK, outer, inner).swapaxes(0, 1))]

    return Case(
        outer * inner,
        probe.two_groups(outer, inner),
        lambda b, x: b.reduce_sum(x, axes=(0, 2)),
        given,
    )


def mean(n: int) -> Case:
    return Case(
        n,
        probe.lanes(n),
        lambda b, x: b.mean(x, axes=(1,)),
        lambda x: [x],
        lambda y: y * np.float64(n),
    )


def matmul(n: int, columns: int = 37, kind: str = "float32") -> Case:
    return Case(
        n,
        probe.sequence(n),
        lambda b, x, w: b.matmul(x, w),
        lambda x: [x, ones(n, columns, kind=kind)],
        kind=kind,
    )


def right_factor(n: int) -> Case:
    """The mask in the other operand, where kernels pack it."""
    return Case(
        n,
        probe.sequence(n),
        lambda b, x, w: b.matmul(x, w),
        lambda x: [ones(9, n), np.ascontiguousarray(x.T)],
        lambda y: y.T,
    )


def batched(n: int) -> Case:
    return Case(
        n,
        probe.sequence(n),
        lambda b, x, w: b.matmul(x, w),
        lambda x: [x.reshape(4, BLOCK // 4, n), ones(4, n, 5)],
        lambda y: y.reshape(BLOCK, 5),
    )


def convolution(channels: int, height: int, width: int, groups: int = 1) -> Case:
    """The window stands in the middle of a picture that is larger by one on each side."""

    def given(x):
        picture = np.zeros((BLOCK, channels, height + 2, width + 2), np.float32)
        picture[:, :, 1:-1, 1:-1] = x.reshape(BLOCK, channels, height, width)
        whole = np.concatenate([picture] * groups, axis=1)
        return [whole, ones(6 * groups, channels, height, width)]

    def build(b, x, w):
        return b.conv(
            x, w, strides=(1, 1), low=(0, 0), high=(0, 0), dilations=(1, 1), groups=groups
        )

    return Case(
        channels * height * width,
        probe.convolution(channels, height, width),
        build,
        given,
        lambda y: y[:, :, 1, 1],
    )


def weight_gradient(images: int, height: int, width: int) -> Case:
    """The mask in dy: an output channel is a row; all elements of its weight are the same sum."""

    def given(x):
        dy = x.reshape(BLOCK, images, height, width).swapaxes(0, 1)
        return [ones(images, 2, height + 2, width + 2), np.ascontiguousarray(dy)]

    def build(b, x, dy):
        return b.conv_weight_gradient(
            x,
            dy,
            kernel=(3, 3),
            strides=(1, 1),
            low=(0, 0),
            high=(0, 0),
            dilations=(1, 1),
            groups=1,
        )

    n = images * height * width
    return Case(n, probe.sequence(n), build, given, lambda y: y.reshape(BLOCK, -1))


def scatter(n: int) -> Case:
    """All n - 1 updates hit one row of a table (an embedding's gradient), a column a sum."""

    def given(x):
        table = np.zeros((3, BLOCK), np.float32)
        table[1] = x[:, 0]
        where = np.ones((n - 1, 1), np.int64)
        return [table, where, np.ascontiguousarray(x[:, 1:].T)]

    return Case(
        n,
        probe.scattered(n),
        lambda b, x, i, u: b.scatter_nd(x, i, u, mode="add"),
        given,
        lambda y: y[1],
    )


def running(n: int, axis: int = 1) -> Case:
    if axis:
        return Case(
            n, probe.scan(n), lambda b, x: b.cumsum(x, axis=1), lambda x: [x], lambda y: y[:, -1]
        )
    return Case(
        n,
        probe.scan(n),
        lambda b, x: b.cumsum(x, axis=0),
        lambda x: [np.ascontiguousarray(x.T)],
        lambda y: y[-1],
    )


def pooling(height: int, width: int) -> Case:
    def build(b, x):
        return b.avg_pool(
            x, window=(height, width), strides=(1, 1), low=(0, 0), high=(0, 0), dilations=(1, 1)
        )

    def given(x):
        picture = np.zeros((BLOCK, 2, height + 2, width + 2), np.float32)
        picture[:, :, 1:-1, 1:-1] = x.reshape(BLOCK, 1, height, width)
        return [picture]

    n = height * width
    return Case(n, probe.sequence(n, n), build, given, lambda y: y[:, :, 1, 1] * np.float64(n))


def input_gradient(
    channels: int, side: int, stride: int = 1, groups: int = 1, inputs: int = 2
) -> Case:
    """The mask in dy.  One input position is read, whose taps that hit an output position are the
    summands: kh ascends while the output's row descends."""
    place = side + stride - 2 + (side - 1) % stride
    hits = [k for k in range(side) if (place - k) % stride == 0 and place >= k]
    count = place // stride + 2
    across = (count - 1) * stride + side
    n = channels * len(hits) ** 2

    def given(x):
        dy = np.zeros((BLOCK, groups, channels, count, count), np.float32)
        terms = x.reshape(BLOCK, 1, channels, len(hits), len(hits))
        for i, kh in enumerate(hits):
            for j, kw in enumerate(hits):
                at = (place - kh) // stride, (place - kw) // stride
                dy[:, :, :, *at] = terms[:, :, :, i, j]
        return [
            ones(BLOCK, inputs * groups, across, across),
            ones(groups * channels, inputs, side, side),
            dy.reshape(BLOCK, groups * channels, count, count),
        ]

    def build(b, x, w):
        return b.conv(
            x, w, strides=(stride, stride), low=(0, 0), high=(0, 0), dilations=(1, 1), groups=groups
        )

    wanted = probe.convolution(channels, side, side, len(hits) ** 2)
    return Case(n, wanted, build, given, lambda y: y[:, :, place, place], of=0)


def pool_gradient(kind: str, height: int, width: int) -> Case:
    """The mask in dy: all windows of a picture hold its middle, where the largest element is; its
    contributions ascend in the linear index of the output."""
    n = height * width

    def given(x):
        picture = np.zeros((BLOCK, 1, 2 * height - 1, 2 * width - 1), np.float32)
        picture[:, :, height - 1, width - 1] = 1
        return [picture, x.reshape(BLOCK, 1, height, width)]

    def build(b, x):
        return getattr(b, f"{kind}_pool")(
            x, window=(height, width), strides=(1, 1), low=(0, 0), high=(0, 0), dilations=(1, 1)
        )

    many = np.float64(n if kind == "avg" else 1)
    return Case(
        n, probe.sequence(n), build, given, lambda y: y[:, :, height - 1, width - 1] * many, of=0
    )


def linear_weight(n: int, outer: int = 1) -> Case:
    """The gradient of a linear layer's weight, n = outer * inner examples: a product with a
    transposed left operand, the mask in it; batch axes come first in K."""

    def build(b, x, w):
        return b.contract(x, w, batch_a=(), batch_b=(), contract_a=(2,), contract_b=(1,))

    def given(x):
        rows = np.ascontiguousarray(x.T).reshape(outer, n // outer, BLOCK)
        return [rows, ones(5, BLOCK), ones(outer, n // outer, 5)]

    return Case(n, probe.sequence(n), build, given, lambda y: y.T, of=1)


def transposed_left(n: int, columns: int) -> Case:
    return Case(
        n,
        probe.sequence(n),
        lambda b, x, w: b.matmul(x, w),
        lambda x: [np.ascontiguousarray(x.T), ones(BLOCK, columns), ones(n, columns)],
        of=1,
    )


def embedding_gradient(n: int) -> Case:
    """All positions read one row of a table."""
    return Case(
        n,
        probe.sequence(n),
        lambda b, x, i: b.take(x, i, axis=0),
        lambda x: [ones(3, BLOCK), np.ones(n, np.int64), np.ascontiguousarray(x.T)],
        lambda y: y[1],
        of=0,
    )


def gather_gradient(n: int, along: bool) -> Case:
    """Elements of rows read n times each: ``take_along`` or ``gather_nd``."""

    def build(b, x, i):
        return b.take_along(x, i, axis=1) if along else b.gather_nd(x, i, batch_dims=1)

    shape = (BLOCK, n) if along else (BLOCK, n, 1)
    return Case(
        n,
        probe.sequence(n),
        build,
        lambda x: [ones(BLOCK, 3), np.ones(shape, np.int64), x],
        lambda y: y[:, 1],
        of=0,
    )


def bias_gradient(outer: int, inner: int) -> Case:
    """Of a channel's bias: over the images, and over the pixels of each."""

    def given(x):
        dy = x.reshape(BLOCK, outer, inner // 2, 2).swapaxes(0, 1)
        return [ones(BLOCK), np.ascontiguousarray(dy)]

    def build(b, c):
        return b.broadcast(c, shape=(outer, BLOCK, inner // 2, 2), dims=(1,))

    return Case(outer * inner, probe.two_groups(outer, inner), build, given, of=0)


def batch_statistics(outer: int, inner: int) -> Case:
    """Batch normalisation's mean of a channel, beside its variance."""

    def build(b, x):
        return b.mean(x, axes=(0, 2, 3)), b.variance(x, axes=(0, 2, 3))

    def given(x):
        return [np.ascontiguousarray(x.reshape(BLOCK, outer, inner // 2, 2).swapaxes(0, 1))]

    n = outer * inner
    return Case(n, probe.two_groups(outer, inner), build, given, lambda y: y * np.float64(n))


def _unmasked(y: np.ndarray) -> np.ndarray:
    """What most elements of each row are: those that are neither M nor -M."""
    return np.median(y.astype(np.float64), axis=1)


def softmax_gradient(n: int, log: bool = False) -> Case:
    """y (dy - sum of dy y) where all of y is 1/n; of the logarithm dy - y (sum of dy)."""

    def build(b, x):
        return b.log_softmax(x, axis=1) if log else b.softmax(x, axis=1)

    def read(dx):
        return (1 - _unmasked(dx) * (1 if log else n)) * n

    return Case(n, probe.lanes(n), build, lambda x: [np.zeros_like(x), x], read, of=0)


def layer_norm(n: int) -> Case:
    """(x - mean) / deviation of ones and of a smaller M, whose square is finite: the deviation is
    M sqrt(2 / n)."""
    large = 2.0**40

    def read(y):
        return (1 - _unmasked(y) * large * np.sqrt(2 / n)) * n

    return Case(
        n,
        probe.lanes(n),
        lambda b, x: b.layer_norm(x, axis=1, epsilon=1e-5),
        lambda x: [np.clip(x, -large, large)],
        read,
    )


def layer_norm_gradient(n: int) -> Case:
    """dy - mean of dy where x is 0 and epsilon 1."""
    return Case(
        n,
        probe.lanes(n),
        lambda b, x: b.layer_norm(x, axis=1, epsilon=1.0),
        lambda x: [np.zeros_like(x), x],
        lambda dx: (1 - _unmasked(dx)) * n,
        of=0,
    )


def attention_values(n: int) -> Case:
    """The sum over n keys, each with the share 1/n."""

    def given(x):
        return [
            np.zeros((1, 1, 3, 8), np.float32),
            np.zeros((1, 1, n, 8), np.float32),
            np.ascontiguousarray(x.T)[None, None],
        ]

    return Case(
        n,
        probe.sequence(n),
        lambda b, q, k, v: b.attention(q, k, v),
        given,
        lambda y: y[0, 0].T * np.float64(n),
    )


def attention_scores(n: int) -> Case:
    """The mask in the queries: of two keys one is 1, its score s, the other 0; the first one's
    share is the sigmoid of s / n."""

    def given(x):
        keys = np.stack([ones(n), np.zeros(n, np.float32)])
        return [x[None, None], keys[None, None], np.array([[[[1], [0]]]], np.float32)]

    def read(y):
        share = y[0, 0].astype(np.float64)
        return np.log(share / (1 - share)) * n

    return Case(
        n, probe.sequence(n), lambda b, q, k, v: b.attention(q, k, v, scale=1 / n), given, read
    )


def attention_gradient(n: int) -> Case:
    """Of the values: over n queries, each of whose shares is 1/4."""

    def given(x):
        return [
            np.zeros((1, 1, n, 8), np.float32),
            np.zeros((1, 1, 4, 8), np.float32),
            ones(1, 1, 4, BLOCK),
            np.ascontiguousarray(x.T)[None, None],
        ]

    return Case(
        n,
        probe.sequence(n),
        lambda b, q, k, v: b.attention(q, k, v),
        given,
        lambda y: y[0, 0].T * 4.0,
        of=2,
    )


CASES = {
    **{f"sum-{n}": partial(last_axis, n) for n in (2, 31, 32, 33, 70, 255, 256, 257, 600)},
    "sum-f64": partial(last_axis, 70, "float64"),
    **{f"column-{n}": partial(first_axis, n) for n in (2, 255, 256, 257, 600)},
    "two-groups": partial(two_groups, 5, 40),
    "mean": partial(mean, 70),
    **{f"matmul-{n}": partial(matmul, n) for n in (2, 31, 256, 257, 600)},
    "matmul-f64": partial(matmul, 300, kind="float64"),
    "one-column": partial(matmul, 300, 1),
    "right-factor": partial(right_factor, 600),
    "batched": partial(batched, 300),
    "conv-3x3": partial(convolution, 5, 3, 3),
    "conv-3x3-blocks": partial(convolution, 70, 3, 3),
    "conv-1x1": partial(convolution, 300, 1, 1),
    "conv-2x2-blocks": partial(convolution, 100, 2, 2),
    "conv-7x7": partial(convolution, 3, 7, 7),
    "conv-groups": partial(convolution, 34, 3, 3, 2),
    "depthwise": partial(convolution, 1, 3, 3, 4),
    "weight-gradient": partial(weight_gradient, 3, 10, 10),
    "scatter": partial(scatter, 300),
    "cumsum-300": partial(running, 300),
    "cumsum-600": partial(running, 600),
    "cumsum-columns": partial(running, 600, 0),
    "pooling": partial(pooling, 3, 3),
    "pooling-5x7": partial(pooling, 5, 7),
    "input-gradient": partial(input_gradient, 5, 3),
    "input-gradient-blocks": partial(input_gradient, 70, 3),
    "input-gradient-2x2": partial(input_gradient, 100, 2),
    "input-gradient-strided": partial(input_gradient, 100, 3, 2),
    "input-gradient-one-tap": partial(input_gradient, 150, 2, 2),
    "input-gradient-groups": partial(input_gradient, 34, 3, 1, 2),
    "average-pool-gradient": partial(pool_gradient, "avg", 3, 5),
    "average-pool-gradient-306": partial(pool_gradient, "avg", 17, 18),
    "max-pool-gradient": partial(pool_gradient, "max", 3, 5),
    "max-pool-gradient-306": partial(pool_gradient, "max", 17, 18),
    "linear-weight": partial(linear_weight, 300),
    "linear-weight-two-axes": partial(linear_weight, 300, 3),
    "transposed-left": partial(transposed_left, 600, 37),
    "transposed-left-one-column": partial(transposed_left, 300, 1),
    "embedding-gradient": partial(embedding_gradient, 300),
    "take-along-gradient": partial(gather_gradient, 300, True),
    "gather-gradient": partial(gather_gradient, 300, False),
    "bias-gradient": partial(bias_gradient, 5, 40),
    "bias-gradient-300-images": partial(bias_gradient, 300, 2),
    "batch-statistics": partial(batch_statistics, 5, 40),
    "softmax-gradient": partial(softmax_gradient, 70),
    "log-softmax-gradient": partial(softmax_gradient, 70, True),
    "layer-norm": partial(layer_norm, 70),
    "layer-norm-gradient": partial(layer_norm_gradient, 70),
    "attention-values": partial(attention_values, 300),
    "attention-scores": partial(attention_scores, 70),
    "attention-gradient": partial(attention_gradient, 300),
}
QUICK = ("sum-33", "sum-257", "column-257", "two-groups", "matmul-257", "conv-3x3-blocks",
         "weight-gradient", "scatter", "cumsum-300", "pooling", "input-gradient-one-tap",
         "average-pool-gradient", "max-pool-gradient", "linear-weight-two-axes",
         "embedding-gradient", "batch-statistics", "softmax-gradient", "layer-norm",
         "attention-scores", "attention-gradient")  # fmt: skip
#: The others of a convolution take seconds to compile, and cases like it have them.
ONE_WAY = ("conv-3x3-blocks", "input-gradient-one-tap")
#: Threads and tilings of the CPU's kernels.
WAYS = {f"{t}-{tiles}": (t, tiles) for t in (1, 2) for tiles in ("default", "small")}


def _sums(case: Case, run: Callable[..., np.ndarray]) -> probe.Sums:
    """Runs the case's op; NoTree where results that are one sum differ."""

    def sums(rows):
        found = case.read(run(*case.given(rows)))
        found = found.reshape(BLOCK, -1)
        if np.any(found != found[:, :1]):
            raise NoTree("elements of one sum have different orders")
        return found[:, 0]

    return sums


def on_cpu(case: Case, threads: int, tiles: str) -> probe.Sums:
    """Compiled by the whole pipeline."""
    options = Options(threads=threads, target={"tiles": tiles})
    executable = compilation.start(case.module, options=options).finish()
    return _sums(case, lambda *arrays: executable(*arrays)[0])


_NAMES = {"float32": "f32", "float64": "f64", "int64": "i64"}


def by_reference(case: Case) -> probe.Sums:
    module = case.module

    def run(*arrays):
        return Evaluator(module.weights).block(module.main.body, list(arrays))[0]

    return _sums(case, run)


def _assert_contract(case: Case, sums: probe.Sums) -> None:
    revealed = probe.reveal(sums, case.n, case.kind)
    assert revealed == case.wanted, probe.told(revealed, case.wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_the_order_on_the_cpu_is_the_contracts(name):
    case = CASES[name]()
    for threads, tiles in [(2, "default")] if name in ONE_WAY else WAYS.values():
        _assert_contract(case, on_cpu(case, threads, tiles))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_order_of_the_reference_is_the_contracts(name):
    case = CASES[name]()
    _assert_contract(case, by_reference(case))


LONG = {
    **{f"sum-{n}": partial(last_axis, n) for n in (4096, 4097, 9000)},
    "column-5000": partial(first_axis, 5000),
    "matmul-5000": partial(matmul, 5000),
    "cumsum-5000": partial(running, 5000),
    "conv-512": partial(convolution, 512, 3, 3),
    "weight-gradient-5000": partial(weight_gradient, 2, 50, 50),
}


@pytest.mark.parametrize("name", slow_but(("sum-4097",), LONG))
def test_the_order_of_long_sums_at_sampled_pairs(name):
    case = LONG[name]()
    random = np.random.default_rng(3)
    near = [(i, i + 1) for i in random.integers(0, case.n - 1, BLOCK // 2)]
    pairs = near + [tuple(random.choice(case.n, 2, replace=False)) for _ in range(BLOCK // 2)]
    pairs = [(int(i), int(j)) for i, j in pairs]
    found = probe.meetings(on_cpu(case, 2, "default"), case.n, pairs)
    assert found == probe.meeting_in(case.wanted, pairs)


#: As PTX, on the interpreter: short sums.
ON_GPU = {
    "sum-70": partial(last_axis, 70),
    "column-300": partial(first_axis, 300),
    "matmul-300": partial(matmul, 300, 3),
    "conv-3x3": partial(convolution, 2, 3, 3),
    "weight-gradient": partial(weight_gradient, 1, 6, 6),
    "scatter": partial(scatter, 40),
    "cumsum": partial(running, 40),
    "pooling": partial(pooling, 3, 3),
    "input-gradient": partial(input_gradient, 3, 2, inputs=1),
    "input-gradient-one-tap": partial(input_gradient, 66, 2, 2, inputs=1),
    "average-pool-gradient": partial(pool_gradient, "avg", 3, 2),
    "max-pool-gradient": partial(pool_gradient, "max", 3, 2),
    "linear-weight": partial(linear_weight, 70, 2),
    "transposed-left": partial(transposed_left, 260, 3),
    "embedding-gradient": partial(embedding_gradient, 40),
    "take-along-gradient": partial(gather_gradient, 9, True),
    "bias-gradient": partial(bias_gradient, 3, 40),
    "batch-statistics": partial(batch_statistics, 3, 40),
    "softmax-gradient": partial(softmax_gradient, 40),
    "layer-norm": partial(layer_norm, 40),
    "layer-norm-gradient": partial(layer_norm_gradient, 40),
    "attention-values": partial(attention_values, 40),
    "attention-scores": partial(attention_scores, 40),
    "attention-gradient": partial(attention_gradient, 40),
}
ON_GPUS = {
    f"{name}-sm_{major}{minor}": (name, (major, minor))
    for name in ON_GPU
    for major, minor in CAPABILITIES
}
QUICK_ON_GPU = ("max-pool-gradient-sm_90",)


@pytest.mark.parametrize("name", slow_but(QUICK_ON_GPU, ON_GPUS))
def test_the_order_on_a_gpu_is_the_contracts(name):
    """Compiled by the whole pipeline, on a simulated GPU."""
    what, capability = ON_GPUS[name]
    case, target = ON_GPU[what](), SimulatedCUDA(capability)
    options = Options(target={"architecture": target.driver.gpu.architecture})
    executable = compilation.start(case.module, target, options).finish()
    _assert_contract(case, _sums(case, lambda *arrays: executable(*arrays)[0]))


# -- shards ----------------------------------------------------------------------------------------


class Weighted(torch.nn.Module):
    """Its loss is the sum of the products of an example with the weight, which is 0."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(BLOCK))

    def forward(self, x):
        return (x * self.weight).sum()


def _over_shards(shards: int, target="cpu", **options) -> probe.Sums:
    """One example a shard: the gradient of the weight is the mean of the examples."""
    how = Training(loss=None, optimizer=SGD(0.0), shards=shards, keep_gradients=True)
    step = cc.compile(
        Weighted(), (ones(shards, BLOCK),), training=how, target=target, options=options
    )

    def sums(rows):
        step(np.ascontiguousarray(rows.T))
        return np.asarray(step.gradients["weight"]) * np.float64(shards)

    return sums


@pytest.mark.parametrize("shards", slow_but((7,), (2, 3, 5, 6, 7, 8, 13)))
def test_shards_are_added_by_the_contracts_tree(shards):
    """Those of a training step, as they run one after another."""
    assert probe.reveal(_over_shards(shards), shards) == probe.shards(shards)


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: f"sm_{c[0]}{c[1]}")
def test_shards_on_a_gpu_are_added_by_the_contracts_tree(capability):
    target = SimulatedCUDA(capability)
    sums = _over_shards(7, target, architecture=target.driver.gpu.architecture)
    assert probe.reveal(sums, 7) == probe.shards(7)


# -- the probe itself ------------------------------------------------------------------------------


def _chain(rows):
    """From the first to the last."""
    return np.cumsum(rows, axis=1, dtype=np.float32)[:, -1]


def _backwards(rows):
    return _chain(rows[:, ::-1])


def _halves(rows):
    middle = rows.shape[1] // 2
    return rows[:, 0] if not middle else _halves(rows[:, :middle]) + _halves(rows[:, middle:])


def _swapped(rows):
    order = [*range(5), 6, 5, *range(7, rows.shape[1])]
    return _chain(rows[:, order])


def _chunks(rows, size):
    return _chain(
        np.stack([_chain(rows[:, i : i + size]) for i in range(0, rows.shape[1], size)], 1)
    )


def _exact(rows):
    return np.array([math.fsum(row) for row in rows])


def test_the_probe_reveals_known_trees():
    backwards = frozenset(sum(1 << i for i in range(k, 6)) for k in range(5))
    assert probe.reveal(_backwards, 6) == backwards
    halves = frozenset([0b11, 0b1100, 0b1111, 0b110000, 0b11000000, 0b11110000, 0b11111111])
    assert probe.reveal(_halves, 8) == halves
    assert probe.told(backwards, halves).startswith("only the contract adds up [0, 1]")


def test_the_probe_says_what_is_no_tree():
    """An accumulator so wide that it loses nothing; results of which each has its own order."""
    with pytest.raises(NoTree):
        probe.reveal(_exact, 9)
    two = Case(5, frozenset(), None, lambda x: [x])
    with pytest.raises(NoTree, match="different orders"):
        probe.reveal(_sums(two, lambda x: np.stack([_chain(x), _backwards(x)], 1)), 5)


@pytest.mark.parametrize(
    "sums",
    [_chain, _backwards, _halves, _swapped, partial(_chunks, size=128)],
    ids=["chain", "backwards", "halves", "swapped", "chunks of 128"],
)
def test_a_kernel_that_adds_in_another_order_is_seen(sums):
    """One swap in a chain, another size of chunks, none at all."""
    assert probe.reveal(partial(_chunks, size=256), 300) == probe.sequence(300)
    revealed = probe.reveal(sums, 300)
    assert revealed != probe.sequence(300)
    assert "adds up" in probe.told(revealed, probe.sequence(300))


def _order_of_torch(sums: probe.Sums, n: int) -> Tree | None:
    try:
        return probe.reveal(sums, n)
    except NoTree:
        return None


def test_torch_adds_in_another_order():
    """The negative control: a probe that finds the contract everywhere would find it here."""
    n = 1000
    made = _order_of_torch(lambda rows: torch.from_numpy(rows).sum(1).numpy(), n)
    assert made not in (probe.lanes(n), probe.sequence(n))
    weight = torch.ones(n, 16)
    made = _order_of_torch(lambda rows: torch.mm(torch.from_numpy(rows), weight)[:, 3].numpy(), n)
    assert made != probe.sequence(n)
