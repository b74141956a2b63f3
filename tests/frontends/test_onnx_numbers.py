"""Spectra, determinants, scales of blocks and optimiser steps of ONNX: NumPy, ml_dtypes and ONNX's
own evaluator as oracles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from core_compiler.frontends.onnx import import_proto
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.frontends.onnx_models import agrees, one_node, onnxruntimes, ours

TRAINING = "ai.onnx.preview.training"


@settings(max_examples=examples(15), deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 15),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.sampled_from([0, 1, -2]),
)
def test_a_transform_of_any_length_is_numpys(size, length, parts, onesided, axis):
    shape = [3, 4]
    shape.insert(axis if axis >= 0 else 2, size)
    rng = np.random.default_rng(size)
    x = rng.standard_normal((*shape, parts)).astype(np.float32)
    arrays = {"x": x, "length": np.array(length), "axis": np.array(axis if axis >= 0 else -2)}
    proto = one_node("DFT", arrays, "y", opset=20, onesided=int(onesided))
    signal = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    made = np.fft.fft(signal, length, axis=axis if axis >= 0 else 2)
    if onesided:
        made = np.take(made, range(length // 2 + 1), axis=axis if axis >= 0 else 2)
    wanted = np.stack([made.real, made.imag], -1)
    np.testing.assert_allclose(ours(proto, arrays)[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [7, 8])
@pytest.mark.parametrize("onesided", [0, 1])
def test_there_and_back(length, onesided):
    x = np.random.default_rng(2).standard_normal((2, length, 1)).astype(np.float32)
    first = {"x": x, "length": np.array(length)}
    (spectrum,) = ours(one_node("DFT", first, "y", opset=20, onesided=onesided), first)
    second = {"x": spectrum, "length": np.array(length)}
    back = one_node("DFT", second, "y", opset=20, onesided=onesided, inverse=1)
    np.testing.assert_allclose(ours(back, second)[0][..., 0], x[..., 0], atol=1e-6)


@pytest.mark.parametrize("window", [True, False])
def test_frames_of_a_signal(window):
    x = np.random.default_rng(4).standard_normal((2, 50, 1)).astype(np.float32)
    arrays = {
        "x": x,
        "step": np.array(7),
        "window": np.hanning(16).astype(np.float32) if window else None,
        "length": np.array(16),
    }
    (made,) = ours(one_node("STFT", arrays, "y", opset=17), arrays)
    frames = np.stack([x[:, i : i + 16, 0] for i in range(0, 50 - 15, 7)], 1)
    wanted = np.fft.rfft(frames * (np.hanning(16) if window else 1))
    np.testing.assert_allclose(made[..., 0] + 1j * made[..., 1], wanted, atol=1e-5)


def test_a_transform_that_makes_no_sense_is_refused():
    x = np.zeros((2, 8, 1), np.float32)
    for arrays, reason in (
        ({"x": x, "length": np.array(0)}, "a transform of length 0"),
        ({"x": x, "length": None, "axis": np.array(2)}, "real and imaginary parts"),
        ({"x": x, "length": np.array(1 << 22)}, "its matrix is too large"),
    ):
        given_ = {n: a for n, a in arrays.items() if a is not None}
        with pytest.raises(UserError, match=reason):
            import_proto(one_node("DFT", arrays, "y", opset=20), inputs=given_)


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(1, 6), st.integers(0, 1000), st.booleans())
def test_a_determinant_is_numpys(n, seed, singular):
    a = np.random.default_rng(seed).integers(-3, 4, (2, 2, n, n)).astype(np.float64)
    if singular:
        a[0, 0, :, -1] = 2 * a[0, 0, :, 0]
    arrays = {"a": a}
    (made,) = ours(one_node("Det", arrays, "y"), arrays)
    np.testing.assert_allclose(made, np.linalg.det(a), rtol=1e-9, atol=1e-9)


def test_a_determinant_of_halves_is_rounded_once():
    a = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float16)
    (made,) = ours(one_node("Det", {"a": a}, "y"), {"a": a})
    assert made.dtype == np.float16
    np.testing.assert_allclose(made, np.linalg.det(a.astype(np.float64)), rtol=1e-3)


def test_an_inverse_is_onnxruntimes():
    arrays = {"x": np.random.default_rng(0).normal(size=(2, 5, 5)).astype(np.float32)}
    agrees(one_node("Inverse", arrays, "y", domain="com.microsoft"), arrays)


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_every_scale_of_a_block_and_what_lies_between(mode):
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
    x = np.concatenate([powers * f for f in (1, 1.25, 1.5, 1.75)] + [[0, np.inf, np.nan, -3]])
    arrays = {"x": x.astype(np.float32)}
    proto = one_node("Cast", arrays, "y", opset=25, to=TensorProto.FLOAT8E8M0, round_mode=mode)
    (made,) = ours(proto, arrays)
    with np.errstate(all="ignore"):
        wanted = numpy_helper.to_float8e8m0(arrays["x"], round_mode=mode)
    np.testing.assert_array_equal(made.view(np.uint8), wanted.view(np.uint8))


def test_scales_become_numbers_again():
    every = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu)
    arrays = {"x": every}
    (made,) = ours(one_node("Cast", arrays, "y", opset=25, to=TensorProto.FLOAT), arrays)
    np.testing.assert_array_equal(made, every.astype(np.float32))


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize(
    ("kind", "state", "attributes"),
    [
        ("Adagrad", "h", {"norm_coefficient": 0.1, "decay_factor": 0.2, "epsilon": 1e-3}),
        ("Adam", "v h", {"norm_coefficient": 0.1, "norm_coefficient_post": 0.05, "epsilon": 1e-3}),
        ("Momentum", "v", {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.8, "mode": "standard"}),
        ("Momentum", "v", {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.8, "mode": "nesterov"}),
    ],
)
def test_a_step_of_an_optimiser_with_two_parameters(kind, state, attributes, steps):
    rng = np.random.default_rng(5)
    arrays = {"r": np.array(0.1, np.float32), "t": np.array(steps)}
    outputs = []
    for group in ("x g " + state).split():
        for i, shape in enumerate(((3,), (2, 4))):
            arrays[f"{group}{i}"] = np.abs(rng.standard_normal(shape)).astype(np.float32)
            outputs += [f"new_{group}{i}"] if group != "g" else []
    proto = one_node(kind, arrays, " ".join(outputs), domain=TRAINING, **attributes)
    theirs = ReferenceEvaluator(proto).run(None, arrays)
    for mine, wanted in zip(ours(proto, arrays), theirs, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_random_numbers_are_the_same_in_every_run_and_follow_their_law():
    arrays = {"x": np.zeros((64, 64), np.float32)}
    for kind, more, mean, spread in (
        ("RandomUniformLike", {"low": -1.0, "high": 3.0}, 1, 4 / 12**0.5),
        ("RandomNormalLike", {"mean": 2.0, "scale": 3.0}, 2, 3),
    ):
        proto = one_node(kind, arrays, "y", **more)
        (first,), (again,) = ours(proto, arrays), ours(proto, arrays)
        np.testing.assert_array_equal(first, again)
        assert abs(first.mean() - mean) < 0.1 * spread
        assert abs(first.std() - spread) < 0.1 * spread
        (other,) = ours(one_node(kind, arrays, "y", seed=3.0, **more), arrays)
        assert (other != first).any()


def test_classes_are_drawn_by_their_shares():
    share = np.array([0.1, 0.6, 0.3])
    arrays = {"x": np.log(np.stack([share, share[::-1]])).astype(np.float32) + 5}
    (made,) = ours(one_node("Multinomial", arrays, "y", sample_size=4000), arrays)
    assert made.dtype == np.int32
    for row, wanted in zip(made, (share, share[::-1]), strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 4000, wanted, atol=0.03)


@pytest.mark.parametrize("equation", ["...ij,...jk", "...,...", "...ji,j", "...ba"])
def test_axes_that_an_equation_leaves_unnamed_keep_their_order(equation):
    """Without an arrow they come first, as they stand."""
    rng = np.random.default_rng(8)
    shapes = {
        "...ij,...jk": [(2, 3, 4, 5), (3, 5, 6)],
        "...,...": [(2, 3), (2, 3)],
        "...ji,j": [(2, 3, 4, 5), (4,)],
        "...ba": [(2, 3, 4, 5)],
    }[equation]
    arrays = {f"x{i}": rng.standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)}
    (made,) = ours(one_node("Einsum", arrays, "y", equation=equation), arrays)
    np.testing.assert_allclose(made, np.einsum(equation, *arrays.values()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32])
def test_between_integers_the_nearest_is_taken(mode, kind):
    """Within the range of their type, as ONNX's own evaluator does."""
    low, high = max(np.iinfo(kind).min, -999), min(np.iinfo(kind).max, 999)
    x = np.random.default_rng(5).integers(low, high, (1, 2, 5, 6)).astype(kind)
    arrays = {"x": x, "roi": None, "scales": np.array([1, 1, 1.6, 2.5], np.float32)}
    types = {"y": helper.np_dtype_to_tensor_dtype(x.dtype)}
    proto = one_node("Resize", arrays, "y", opset=19, types=types, mode=mode)
    (made,) = ours(proto, arrays)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": x, "scales": arrays["scales"]})
    np.testing.assert_array_equal(made, wanted)


def test_an_integer_to_a_power_that_is_none():
    """The exponent is not made an integer before."""
    arrays = {
        "x": np.array([4, 9, 2, -8, 10], np.int32),
        "p": np.array([0.5, 0.5, -1, 2, 2.5], np.float32),
    }
    proto = one_node("Pow", arrays, "y", types={"y": TensorProto.INT32})
    np.testing.assert_array_equal(ours(proto, arrays)[0], onnxruntimes(proto, arrays)[0])


def test_a_range_of_floats_does_not_round_its_step():
    """As many as ONNX says: ceil((limit - start) / step), each start + i step."""
    for numbers, kind in (
        ((1000, 1001, 0.001), np.float32),
        ((0, 7, 0.7), np.float32),
        ((5, 1, -0.3), np.float64),
        ((1, 0, 0.5), np.float32),
    ):
        arrays = {n: np.array(v, kind) for n, v in zip("abc", numbers, strict=True)}
        start, step = float(arrays["a"]), float(arrays["c"])
        types = {"y": helper.np_dtype_to_tensor_dtype(np.dtype(kind))}
        proto = one_node("Range", arrays, "y", types=types)
        (made,) = ours(proto, arrays)
        assert made.shape == onnxruntimes(proto, arrays)[0].shape
        np.testing.assert_array_equal(made, (start + np.arange(len(made)) * step).astype(kind))


@pytest.mark.parametrize(("size", "scale"), [(10, 0.7), (20, 0.35), (5, 0.6), (7, 1.9)])
def test_a_scaled_size_is_the_one_that_onnx_infers(size, scale):
    x = np.arange(size, dtype=np.float32).reshape(1, 1, size)
    arrays = {"x": x, "roi": None, "scales": np.array([1, 1, scale], np.float32)}
    agrees(one_node("Resize", arrays, "y", mode="linear"), arrays, atol=1e-5)


@pytest.mark.parametrize("kind", ["Mean", "L2", "LogSum", "LogSumExp"])
def test_integers_are_reduced_in_floats(kind):
    arrays = {"x": np.array([[3, 4, 11], [7, 2, 4]], np.int32), "axes": np.array([1])}
    proto = one_node(f"Reduce{kind}", arrays, "y", types={"y": TensorProto.INT32})
    np.testing.assert_array_equal(ours(proto, arrays)[0], onnxruntimes(proto, arrays)[0])
    if kind == "Mean":  # towards zero
        arrays["x"] = -arrays["x"]
        np.testing.assert_array_equal(ours(proto, arrays)[0], onnxruntimes(proto, arrays)[0])


@pytest.mark.parametrize("kind", ["Max", "Min"])
@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8, np.int64, np.bool_])
def test_the_extreme_of_no_integers_is_the_end_of_their_range(kind, dtype):
    arrays = {"x": np.zeros((2, 0), dtype), "axes": np.array([1])}
    types = {"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}
    proto = one_node(f"Reduce{kind}", arrays, "y", opset=20, types=types)
    (wanted,) = ReferenceEvaluator(proto).run(None, arrays)
    np.testing.assert_array_equal(ours(proto, arrays)[0], wanted)


def test_integers_shrink_by_a_fraction():
    arrays = {"x": np.array([-3, -2, -1, 0, 1, 2, 3], np.int32)}
    proto = one_node("Shrink", arrays, "y", types={"y": TensorProto.INT32}, bias=0.5, lambd=1.5)
    np.testing.assert_array_equal(ours(proto, arrays)[0], onnxruntimes(proto, arrays)[0])


def test_one_element_of_a_resized_axis_is_torchs_first():
    """``pytorch_half_pixel``: where one is left, it lies at 0, cubic too."""
    x = np.random.default_rng(6).standard_normal((1, 1, 5, 7)).astype(np.float32)
    arrays = {"x": x, "roi": None, "scales": None, "sizes": np.array([1, 1, 1, 1])}
    for mode in ("linear", "cubic"):
        proto = one_node(
            "Resize", arrays, "y", mode=mode, coordinate_transformation_mode="pytorch_half_pixel"
        )
        np.testing.assert_array_equal(ours(proto, arrays)[0], onnxruntimes(proto, arrays)[0])


def test_statistics_of_half_floats_are_floats():
    """The mean and the inverse deviation of a LayerNormalization are of its ``stash_type``."""
    x = np.array([[1, 2, 4], [3, -1, 0.5]], np.float16)
    arrays = {"x": x, "scale": np.array([1, 2, 1], np.float16)}
    proto = one_node(
        "LayerNormalization", arrays, "y mean spread", types={"y": TensorProto.FLOAT16}
    )
    for mine, theirs in zip(ours(proto, arrays), onnxruntimes(proto, arrays), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-6 if mine.dtype == np.float32 else 1e-3)


def test_before_version_11_a_shrinking_axis_takes_the_next_element():
    x = np.arange(60, dtype=np.float32).reshape(1, 1, 6, 10)
    for scales in ((1, 1, 0.6, 0.6), (1, 1, 0.5, 1.7), (1, 1, 2, 0.3)):
        arrays = {"x": x, "scales": np.array(scales, np.float32)}
        agrees(one_node("Resize", arrays, "y", opset=10, mode="nearest"), arrays)


@pytest.mark.parametrize("bounds", [{}, {"min": 0.0}, {"max": 6.0}, {"min": -1.0, "max": 1.0}])
def test_infinities_are_cut_where_clip_has_bounds_of_its_own(bounds):
    """Before opset 11 a bound that is left out is the largest number, after it there is none."""
    x = np.array([-np.inf, -1, 2, np.inf, np.nan], np.float32)
    agrees(one_node("Clip", {"x": x}, "y", opset=10, **bounds), {"x": x})
    now = {"x": x, **{name: np.array(value, np.float32) for name, value in bounds.items()}}
    (y,) = ours(one_node("Clip", {"x": x, "min": None, "max": None} | now, "y"), now)
    assert np.array_equal(y, np.clip(x, bounds.get("min"), bounds.get("max")), equal_nan=True)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_one_hot_is_as_deep_as_it_is_asked_for(kind):
    """Also where the indices' own dtype does not count as far."""
    indices = np.array([5, 100, 0 if kind is np.uint8 else -1], kind)
    arrays = {"i": indices, "depth": np.array(200), "values": np.array([0, 1], np.float32)}
    (made,) = ours(one_node("OneHot", arrays, "y", opset=11), arrays)
    assert np.array_equal(made, np.eye(200, dtype=np.float32)[indices.astype(int)])


def test_a_product_of_integers_is_not_scaled_by_a_fraction():
    ones = np.ones((2, 2), np.int32)
    arrays = {"x": ones, "y": ones, "c": ones}
    types = {"z": TensorProto.INT32}
    (made,) = ours(one_node("Gemm", arrays, "z", opset=13, types=types, beta=2.0), arrays)
    assert (made == 4).all()
    with pytest.raises(UserError, match=r"Gemm \(integers, with alpha 1 and beta 0.5"):
        ours(one_node("Gemm", arrays, "z", opset=13, types=types, beta=0.5), arrays)


@pytest.mark.parametrize("step", [-1, -2, 1])
@pytest.mark.parametrize("start", [-9, -4, -3, -1, 0, 2, 9])
def test_a_slice_from_beyond_either_end(start, step):
    x = np.arange(3, dtype=np.float32)
    for end in (-9, -3, -2, 0, 1, 9):
        arrays = {
            "x": x,
            "starts": np.array([start]),
            "ends": np.array([end]),
            "axes": np.array([0]),
            "steps": np.array([step]),
        }
        agrees(one_node("Slice", arrays, "y"), arrays)


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64])
def test_signs_of_numbers_without_any(kind):
    x = np.array([0, 1, np.iinfo(kind).max], kind)
    types = {"y": helper.np_dtype_to_tensor_dtype(x.dtype)}
    for name, wanted in (("Abs", x), ("Sign", np.sign(x))):
        (found,) = ours(one_node(name, {"x": x}, "y", types=types), {"x": x})
        assert found.dtype == kind and np.array_equal(found, wanted)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13])
def test_the_mask_of_a_dropout_that_drops_nothing_is_onnxruntimes(opset):
    arrays = {"x": np.ones((2, 3), np.float32)}
    kind = TensorProto.FLOAT if opset < 10 else TensorProto.BOOL
    proto = one_node("Dropout", arrays, "y mask", opset=opset, types={"mask": kind})
    proto.ir_version = 4
    agrees(proto, arrays)
    assert ours(proto, arrays)[1].dtype == onnxruntimes(proto, arrays)[1].dtype


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [1, 11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_axes_are_flattened_before_opset_13(kind, opset, axis):
    """Ties and all: of equals in several rows that were one, the first."""
    x = np.random.default_rng(3).integers(0, 3, (2, 3, 4)).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    proto = one_node(kind, {"x": x}, "y", opset=opset, **attributes)
    proto.ir_version = 4
    agrees(proto, {"x": x})
