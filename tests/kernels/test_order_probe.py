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

from core_compiler import compiler
from core_compiler.compiler import Options
from tests.cuda.helpers import on_gpu
from tests.kernels import order_probe as probe
from tests.kernels.kernel_helpers import group, reference
from tests.kernels.order_probe import BLOCK, NoTree, Tree
from tests.passes.programs import program
from tests.slow import slow_but


@dataclass(frozen=True)
class Case:
    """A sum of ``n``: ``build`` the op, ``given`` its operands for BLOCK rows of summands, ``read``
    the sums in its result, of which there may be several for a row (on a second axis)."""

    n: int
    wanted: Tree
    build: Any
    given: Callable[[np.ndarray], list[np.ndarray]]
    read: Callable[[np.ndarray], np.ndarray] = lambda y: y
    kind: str = "float32"


def ones(*shape, kind="float32"):
    return np.ones(shape, kind)


def last_axis(n: int, kind: str = "float32") -> Case:
    return Case(n, probe.lanes(n), lambda b, x: b.reduce_sum(x, axes=(1,)), lambda x: [x],
                kind=kind)  # fmt: skip


def first_axis(n: int) -> Case:
    return Case(n, probe.sequence(n), lambda b, x: b.reduce_sum(x, axes=(0,)),
                lambda x: [np.ascontiguousarray(x.T)])  # fmt: skip


def two_groups(outer: int, inner: int) -> Case:
    def given(x):
        return [np.ascontiguousarray(x.reshape(BLOCK, outer, inner).swapaxes(0, 1))]

    return Case(outer * inner, probe.two_groups(outer, inner),
                lambda b, x: b.reduce_sum(x, axes=(0, 2)), given)  # fmt: skip


def mean(n: int) -> Case:
    return Case(n, probe.lanes(n), lambda b, x: b.mean(x, axes=(1,)), lambda x: [x],
                lambda y: y * np.float64(n))  # fmt: skip


def matmul(n: int, columns: int = 37, kind: str = "float32") -> Case:
    return Case(n, probe.sequence(n), lambda b, x, w: b.matmul(x, w),
                lambda x: [x, ones(n, columns, kind=kind)], kind=kind)  # fmt: skip


def right_factor(n: int) -> Case:
    """The mask in the other operand, where kernels pack it."""
    return Case(n, probe.sequence(n), lambda b, x, w: b.matmul(x, w),
                lambda x: [ones(9, n), np.ascontiguousarray(x.T)], lambda y: y.T)  # fmt: skip


def batched(n: int) -> Case:
    return Case(n, probe.sequence(n), lambda b, x, w: b.matmul(x, w),
                lambda x: [x.reshape(4, BLOCK // 4, n), ones(4, n, 5)],
                lambda y: y.reshape(BLOCK, 5))  # fmt: skip


def convolution(channels: int, height: int, width: int, groups: int = 1) -> Case:
    """The window stands in the middle of a picture that is larger by one on each side."""

    def given(x):
        picture = np.zeros((BLOCK, channels, height + 2, width + 2), np.float32)
        picture[:, :, 1:-1, 1:-1] = x.reshape(BLOCK, channels, height, width)
        whole = np.concatenate([picture] * groups, axis=1)
        return [whole, ones(6 * groups, channels, height, width)]

    def build(b, x, w):
        return b.conv(x, w, strides=(1, 1), low=(0, 0), high=(0, 0), dilations=(1, 1),
                      groups=groups)  # fmt: skip

    return Case(channels * height * width, probe.convolution(channels, height, width), build,
                given, lambda y: y[:, :, 1, 1])  # fmt: skip


def weight_gradient(images: int, height: int, width: int) -> Case:
    """The mask in dy: an output channel is a row; all elements of its weight are the same sum."""

    def given(x):
        dy = x.reshape(BLOCK, images, height, width).swapaxes(0, 1)
        return [ones(images, 2, height + 2, width + 2), np.ascontiguousarray(dy)]

    def build(b, x, dy):
        return b.conv_weight_gradient(x, dy, kernel=(3, 3), strides=(1, 1), low=(0, 0),
                                      high=(0, 0), dilations=(1, 1), groups=1)  # fmt: skip

    n = images * height * width
    return Case(n, probe.sequence(n), build, given, lambda y: y.reshape(BLOCK, -1))


def scatter(n: int) -> Case:
    """All n - 1 updates hit one row of a table (an embedding's gradient), a column a sum."""

    def given(x):
        table = np.zeros((3, BLOCK), np.float32)
        table[1] = x[:, 0]
        where = np.ones((n - 1, 1), np.int64)
        return [table, where, np.ascontiguousarray(x[:, 1:].T)]

    return Case(n, probe.scattered(n), lambda b, x, i, u: b.scatter_nd(x, i, u, mode="add"), given,
                lambda y: y[1])  # fmt: skip


def running(n: int, axis: int = 1) -> Case:
    if axis:
        return Case(n, probe.scan(n), lambda b, x: b.cumsum(x, axis=1), lambda x: [x],
                    lambda y: y[:, -1])  # fmt: skip
    return Case(n, probe.scan(n), lambda b, x: b.cumsum(x, axis=0),
                lambda x: [np.ascontiguousarray(x.T)], lambda y: y[-1])  # fmt: skip


def pooling(height: int, width: int) -> Case:
    def build(b, x):
        return b.avg_pool(x, window=(height, width), strides=(1, 1), low=(0, 0), high=(0, 0),
                          dilations=(1, 1))  # fmt: skip

    def given(x):
        picture = np.zeros((BLOCK, 2, height + 2, width + 2), np.float32)
        picture[:, :, 1:-1, 1:-1] = x.reshape(BLOCK, 1, height, width)
        return [picture]

    n = height * width
    return Case(n, probe.sequence(n, n), build, given, lambda y: y[:, :, 1, 1] * np.float64(n))


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
}
QUICK = ("sum-33", "sum-257", "column-257", "two-groups", "matmul-257", "conv-3x3-blocks",
         "weight-gradient", "scatter", "cumsum-300", "pooling")  # fmt: skip
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
    shapes = [f"{'x'.join(map(str, a.shape))}x{_NAMES[a.dtype.name]}"
              for a in case.given(np.ones((BLOCK, case.n), case.kind))]  # fmt: skip
    options = Options(threads=threads, target={"tiles": tiles})
    executable = compiler.start(program(case.build, *shapes), options=options).finish()
    return _sums(case, lambda *arrays: executable(*arrays)[0])


_NAMES = {"float32": "f32", "float64": "f64", "int64": "i64"}


def by_reference(case: Case) -> probe.Sums:
    def run(*arrays):
        return reference(group(case.build, *arrays), arrays)[0]

    return _sums(case, run)


def _assert_contract(case: Case, sums: probe.Sums) -> None:
    revealed = probe.reveal(sums, case.n, case.kind)
    assert revealed == case.wanted, probe.told(revealed, case.wanted)


@pytest.mark.parametrize("name", slow_but(QUICK, CASES))
def test_the_order_on_the_cpu_is_the_contracts(name):
    case = CASES[name]()
    for threads, tiles in WAYS.values() if name != "conv-3x3-blocks" else [(2, "default")]:
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


#: As PTX, on the interpreter: fewer rows, and short sums.
ON_GPU = {
    "sum-70": partial(last_axis, 70),
    "column-300": partial(first_axis, 300),
    "matmul-300": partial(matmul, 300, 3),
    "conv-3x3": partial(convolution, 2, 3, 3),
    "weight-gradient": partial(weight_gradient, 1, 6, 6),
    "scatter": partial(scatter, 40),
    "cumsum": partial(running, 40),
    "pooling": partial(pooling, 3, 3),
}


@pytest.mark.parametrize("name", slow_but(("sum-70",), ON_GPU))
def test_the_order_on_a_gpu_is_the_contracts(name):
    case = ON_GPU[name]()

    def run(*arrays):
        return on_gpu(group(case.build, *arrays), arrays, (9, 0))[0][0]

    _assert_contract(case, _sums(case, run))


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
    return _chain(np.stack([_chain(rows[:, i : i + size])
                            for i in range(0, rows.shape[1], size)], 1))  # fmt: skip


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
