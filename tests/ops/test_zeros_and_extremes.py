"""Signed zeros, NaN, infinities and the ends of integers in what chooses, adds from +0 and shifts:
every way to execute an op gives what NumPy and torch give (numerics contract, version 2)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as arrays_of

from tests.cuda.helpers import CAPABILITIES, on_gpu
from tests.examples import examples
from tests.exporters.numpy_runs import computed
from tests.exporters.onnx_runs import exported, in_runtime, module_of
from tests.kernels.kernel_helpers import (
    assert_same_bits,
    compiled,
    group,
    interpreted,
    reference,
)

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

MINUS_NAN = np.array(0xFFC00000, np.uint32).view(np.float32)
SPECIAL = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, MINUS_NAN, 1, -1], np.float32)
#: Every row of three of these: first, last and only ones, ties of each kind.
ROWS = np.array(list(itertools.product(SPECIAL, repeat=3)), np.float32)
SOME = ROWS[:: len(ROWS) // 60]
LIMITS = np.array(list(itertools.product([-128, -1, 0, 127], repeat=3)), np.int8)


def _ptx(op, given):
    return on_gpu(op, given, (9, 0))[0]


#: How an op is executed: the kernel's plain loops by the interpreter, machine code, PTX.
KERNELS = {"interpreted": interpreted, "compiled": compiled, "ptx": _ptx}


def _everywhere(build, given, wanted, tmp_path, exports=True) -> None:
    """The reference, all kernels and the exports of one op give ``wanted``, bit for bit."""
    op = group(build, given)
    assert_same_bits(reference(op, [given]), [wanted], "reference")
    for name, run in KERNELS.items():
        assert_same_bits(run(op, [given]), [wanted], name)
    if exports:
        module = module_of(op.regions[0].ops[-1])
        assert_same_bits(computed(module, tmp_path, [given]), [wanted], "NumPy export")
        assert_same_bits(in_runtime(exported(module), [given]), [wanted], "ONNX export")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("given", [SOME, LIMITS], ids=["floats", "integers"])
def test_positions_of_extremes_are_numpys(kind, given, tmp_path):
    wanted = getattr(np, kind)(given, 1)
    _everywhere(lambda b, x: b.op(f"core.{kind}", (x,), axis=1), given, wanted, tmp_path)


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
def test_positions_of_extremes_in_all_rows(kind):
    """Against torch too, which NumPy agrees with."""
    op = group(lambda b, x: b.op(f"core.{kind}", (x,), axis=1), ROWS)
    wanted = getattr(torch, kind)(torch.tensor(ROWS), 1).numpy()
    np.testing.assert_array_equal(wanted, getattr(np, kind)(ROWS, 1))
    assert_same_bits(reference(op, [ROWS]), [wanted])
    assert_same_bits(compiled(op, [ROWS]), [wanted])


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_positions_of_extremes_of_other_floats(dtype):
    rows = ROWS.astype(dtype)
    op = group(lambda b, x: (b.argmax(x, axis=1), b.argmin(x, axis=1)), rows)
    wanted = [np.argmax(rows, 1), np.argmin(rows, 1)]
    for run in (reference, compiled):
        assert_same_bits(run(op, [rows]), wanted)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: f"sm_{c[0]}{c[1]}")
def test_positions_on_each_architecture(capability):
    op = group(lambda b, x: b.argmax(x, axis=1), SOME)
    assert_same_bits(on_gpu(op, [SOME], capability)[0], [np.argmax(SOME, 1)])


# -- pooling ---------------------------------------------------------------------------------------

_POOLS = [
    ((3,), (2,), (1,), (1,)),
    ((2,), (1,), (1,), (2,)),
    ((3, 2), (2, 1), (1, 1), (1, 1)),
    ((2, 3), (1, 2), (0, 1), (2, 1)),
]


def _pooled(x, window, stride, pad, dilation):
    pool = {1: torch.nn.functional.max_pool1d, 2: torch.nn.functional.max_pool2d}[len(window)]
    return pool(torch.tensor(x), window, stride, pad, dilation, return_indices=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(len(_POOLS)))
def test_places_of_maxima_are_torchs(number, tmp_path):
    window, stride, pad, dilation = _POOLS[number]
    rng = np.random.default_rng(number)
    sizes = (7,) if len(window) == 1 else (4, 5)
    x = rng.choice(SPECIAL, (6, 3, *sizes))
    x[:2] = rng.choice(SPECIAL[[3]], (2, 3, *sizes))  # nothing but -inf
    x[2:4] = rng.choice(SPECIAL[:2], (2, 3, *sizes))  # nothing but zeros
    _, wanted = _pooled(x, window, stride, pad, dilation)
    geometry = {"window": window, "strides": stride, "low": pad, "high": pad, "dilations": dilation}
    _everywhere(lambda b, v: b.max_pool_positions(v, **geometry), x, wanted.numpy(), tmp_path)


@pytest.mark.parametrize("low", [-128, 0], ids=["i8", "ui8"])
def test_places_of_maxima_of_the_lowest_integers(low, tmp_path):
    x = np.full((1, 1, 4, 4), low, np.int8 if low else np.uint8)
    x[0, 0, 3, 3] = low + 1
    geometry = {
        "window": (3, 3),
        "strides": (2, 2),
        "low": (1, 1),
        "high": (0, 0),
        "dilations": (1, 1),
    }
    wanted = np.array([[[[0, 1], [4, 15]]]], np.int64)
    _everywhere(lambda b, v: b.max_pool_positions(v, **geometry), x, wanted, tmp_path)


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.sampled(12)
@pytest.mark.parametrize("shape", [(6, 1), (6, 2), (6, 40), (6, 1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_the_sum_of_minus_zeros_is_plus_zero(shape, dtype, tmp_path):
    """Whatever the number of terms, as NumPy and torch have it."""
    x = np.full(shape, -0.0, dtype)
    axes = tuple(range(1, len(shape)))
    wanted = x.sum(axes)
    assert_same_bits([torch.tensor(x).sum(axes).numpy()], [wanted])
    assert not np.signbit(wanted).any()
    _everywhere(lambda b, v: b.reduce_sum(v, axes=axes), x, wanted, tmp_path)


def test_the_sum_over_no_axes_and_the_running_sum_keep_the_first_bits():
    x = np.full((3, 2), -0.0, np.float32)
    assert np.signbit(np.cumsum(x, 1)).all()
    for build, wanted in (
        (lambda b, v: b.reduce_sum(v, axes=()), x),
        (lambda b, v: b.cumsum(v, axis=1), np.cumsum(x, 1)),
    ):
        op = group(build, x)
        for run in (reference, interpreted, compiled, _ptx):
            assert_same_bits(run(op, [x]), [wanted])


@pytest.mark.parametrize("kind", ["reduce_prod", "reduce_max", "reduce_min"])
def test_other_reductions_over_one_element_keep_it(kind):
    x = SPECIAL.reshape(-1, 1)
    op = group(lambda b, v: b.op(f"core.{kind}", (v,), axes=(1,)), x)
    for run in (reference, compiled):
        assert_same_bits(run(op, [x]), [x[:, 0]])


def test_the_average_of_one_position_starts_from_plus_zero():
    x = np.full((1, 2, 3), -0.0, np.float32)
    one = {"window": (1,), "strides": (1,), "low": (0,), "high": (0,), "dilations": (1,)}
    op = group(lambda b, v: b.avg_pool(v, **one), x)
    wanted = torch.nn.functional.avg_pool1d(torch.tensor(x), 1).numpy()
    for run in (reference, compiled, _ptx):
        assert_same_bits(run(op, [x]), [wanted])


# -- shifts ----------------------------------------------------------------------------------------

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", _INTEGERS)
def test_shifts_are_numpys(name, tmp_path):
    """NumPy fills with the sign, or with 0, beyond the width and for negative counts."""
    info = np.iinfo(name)
    values = [info.min, info.max, 0, 1, 5, info.max - 1]
    counts = [n for n in (0, 1, info.bits - 1, info.bits, 120, -1) if info.min <= n]
    pairs = np.array(list(itertools.product(values, counts)), name)
    a, n = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    for kind, numpy in (("shl", np.left_shift), ("shr", np.right_shift)):
        op = group(lambda b, x, y, kind=kind: b.op(f"core.{kind}", (x, y)), a, n)
        wanted = [numpy(a, n)]
        for run in (reference, interpreted, compiled, _ptx):
            assert_same_bits(run(op, [a, n]), wanted, kind)
        module = module_of(op.regions[0].ops[-1])
        assert_same_bits(computed(module, tmp_path, [a, n]), wanted, "NumPy export")
        assert_same_bits(in_runtime(exported(module), [a, n]), wanted, "ONNX export")


# -- more of the same, drawn -----------------------------------------------------------------------

_FLOATS = st.sampled_from(list(SPECIAL)) | st.floats(width=32)
_ROWS = arrays_of(np.float32, (9, 5), elements=_FLOATS)


@given(_ROWS)
@settings(max_examples=examples(40))
def test_drawn_rows(x):
    for build, wanted in (
        (
            lambda b, v: (b.argmax(v, axis=1), b.argmin(v, axis=1)),
            [np.argmax(x, 1), np.argmin(x, 1)],
        ),
        (lambda b, v: b.argmax(v, axis=0), [np.argmax(x, 0)]),
        (lambda b, v: b.argsort(v, axis=1), [np.argsort(x, 1, kind="stable")]),
    ):
        op = group(build, x)
        for run in (reference, compiled):
            assert_same_bits(run(op, [x]), wanted)


@given(
    arrays_of(np.float32, (2, 2, 5, 4), elements=_FLOATS),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 2),
    st.data(),
)
@settings(max_examples=examples(40))
def test_drawn_windows(x, window, stride, dilation, data):
    pad = data.draw(st.integers(0, window // 2))
    if (window - 1) * dilation + 1 > 4 + 2 * pad or (dilation > 1 and pad):
        dilation = 1
    both = ((window, window), (stride, stride), (pad, pad), (dilation, dilation))
    _, wanted = _pooled(x, *both)
    pool = dict(zip(("window", "strides", "low", "dilations"), both, strict=True))
    op = group(lambda b, v: b.max_pool_positions(v, **pool, high=pool["low"]), x)
    for run in (reference, interpreted):
        assert_same_bits(run(op, [x]), [wanted.numpy()])
