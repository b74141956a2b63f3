"""Quantisation against torch's decomposed ops and onnxruntime; rescaling against TOSA's text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - registers quantized_decomposed

from core_compiler.ir import dtype
from tests.ops.samples.base import Sample, generator, sample, torch_oracle, values

LIMITS = {"i8": (-128, 127), "ui8": (0, 255), "i16": (-32768, 32767)}
TORCH = {"i8": torch.int8, "ui8": torch.uint8, "i16": torch.int16}


def onnx_op(kind: str, **attributes) -> Callable[..., np.ndarray]:
    """One node of ONNX by onnxruntime."""

    def run(*arrays):
        names = [f"x{i}" for i in range(len(arrays))]
        node = helper.make_node(kind, names, ["y"], **attributes)
        given = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays, strict=True)
        ]
        made = helper.make_empty_tensor_value_info("y")
        graph = helper.make_graph([node], "one", given, [made])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        model.ir_version = 10
        kind_of = onnx.shape_inference.infer_shapes(model).graph.output[0]
        model.graph.output[0].CopyFrom(kind_of)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        return session.run(None, dict(zip(names, arrays, strict=True)))[0]

    return run


def _hard_numbers(scale: float) -> np.ndarray:
    """Numbers at, beside and between halves of a scale, limits, subnormals and infinities."""
    steps = np.arange(-300, 300, dtype=np.float32) * np.float32(0.5)
    exact = steps * np.float32(scale)
    beside = np.nextafter(exact, np.float32(np.inf))
    ends = np.array([0.0, -0.0, 1e-45, 3e38, -3e38, np.inf, -np.inf, 1e9], np.float32)
    return np.concatenate([exact, beside, ends]).reshape(8, -1)


def _tensors() -> list[Sample]:
    made = []
    for kind, zero in (("i8", 3), ("i8", -128), ("ui8", 128), ("i16", 0)):
        scale, point = np.array(0.37, np.float32), np.array(zero, dtype(kind).numpy)
        x = _hard_numbers(0.37)
        made.append(
            sample(
                "quantize",
                x,
                scale,
                point,
                oracle=onnx_op("QuantizeLinear"),
                exact=True,
                label=f"{kind}-zero{zero}",
                dtype=kind,
            )
        )
        small = values((5, 33), "f32", -60, 60)
        low, high = LIMITS[kind][0] + 1, LIMITS[kind][1]
        inverse = torch.ops.quantized_decomposed.quantize_per_tensor
        made.append(
            sample(
                "quantize",
                small,
                scale,
                point,
                oracle=torch_oracle(
                    lambda x, s, z, k=kind, lo=low, hi=high, f=inverse: f(
                        x, float(s), int(z), lo, hi, TORCH[k]
                    )
                ),
                exact=True,
                label=f"{kind}-reciprocal-zero{zero}",
                dtype=kind,
                low=low,
                high=high,
                reciprocal=True,
            )
        )
        q = values((5, 33), kind, *LIMITS[kind])
        made.append(
            sample(
                "dequantize",
                q,
                scale,
                point,
                oracle=onnx_op("DequantizeLinear"),
                exact=True,
                label=f"{kind}-zero{zero}",
            )
        )
    whole = values((5, 33), "i32", -(2**31), 2**31 - 1)
    made.append(
        sample(
            "dequantize",
            whole,
            np.array(0.01, np.float32),
            oracle=onnx_op("DequantizeLinear"),
            exact=True,
            label="bias",
        )
    )
    return made


def _channels() -> list[Sample]:
    made = []
    x = values((4, 6, 5), "f32", -40, 40)
    for axis in (0, 1, 2):
        count = x.shape[axis]
        scale = values((count,), "f32", 0.1, 0.6, axis)
        zero = values((count,), "i8", -9, 9, axis)
        common = {"exact": True, "label": f"axis{axis}", "axis": axis}
        oracle = onnx_op("QuantizeLinear", axis=axis)
        made.append(sample("quantize", x, scale, zero, oracle=oracle, dtype="i8", **common))
        q = values(x.shape, "i8", -128, 127)
        oracle = onnx_op("DequantizeLinear", axis=axis)
        made.append(sample("dequantize", q, scale, zero, oracle=oracle, **common))
        fake = torch_oracle(
            lambda x, s, z, a=axis: torch.fake_quantize_per_channel_affine(x, s, z, a, -127, 127)
        )
        made.append(
            sample(
                "fake_quantize",
                x,
                scale,
                zero.astype(np.int32),
                oracle=fake,
                low=-127,
                high=127,
                reciprocal=True,
                **common,
            )
        )
    scale, zero = np.array(0.21, np.float32), np.array(7, np.int32)
    fake = torch_oracle(lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, 0, 255))
    made.append(
        sample(
            "fake_quantize",
            x,
            scale,
            zero,
            oracle=fake,
            exact=True,
            low=0,
            high=255,
            reciprocal=True,
        )
    )
    return made


def tosa_scale(value: int, multiplier: int, shift: int, double_round: bool) -> int:
    """``apply_scale_32`` of TOSA's specification, in whole numbers."""
    half = 1 << (shift - 1)
    if double_round and shift > 31:
        half += (1 << 30) if value >= 0 else -(1 << 30)
    return (value * multiplier + half) >> shift


def _tosa_rescale(kind: str, axis=None, double_round=False, input_zero=0, output_zero=0):
    low, high = np.iinfo(dtype(kind).numpy).min, np.iinfo(dtype(kind).numpy).max

    def run(x, multiplier, shift):
        made = np.empty(x.shape, dtype(kind).numpy)
        for index in np.ndindex(x.shape):
            at = () if axis is None else (index[axis],)
            value = int(x[index]) - input_zero
            scaled = tosa_scale(value, int(multiplier[at]), int(shift[at]), double_round)
            made[index] = min(max(scaled + output_zero, low), high)
        return made

    return run


def _rescales() -> list[Sample]:
    made = []
    ends = np.array([-(2**31), 2**31 - 1, -1, 0, 1, 2**30, -(2**30)], np.int32)
    wide = np.concatenate([ends, values((41,), "i32", -(2**31), 2**31 - 1)]).reshape(4, 12)
    random = generator("rescale")
    for double_round in (False, True):
        for kind, zero in (("i8", 5), ("ui8", 128), ("i16", 0), ("i32", 0)):
            options = {"double_round": double_round, "output_zero": zero}
            per_axis = random.integers(1 << 30, 1 << 31, 12).astype(np.int32)
            shifts = random.integers(30, 40, 12).astype(np.int8)
            for axis, factors in ((1, (per_axis, shifts)), (None, (per_axis[0], shifts[0]))):
                made.append(
                    sample(
                        "rescale",
                        wide,
                        *map(np.asarray, factors),
                        oracle=_tosa_rescale(kind, axis, **options),
                        exact=True,
                        label=f"{kind}-{'double-' if double_round else ''}axis{axis}",
                        dtype=kind,
                        axis=axis,
                        **options,
                    )
                )
    q = values((6, 7), "ui8", 0, 255)
    options = {"input_zero": 128, "output_zero": -128}
    made.append(
        sample(
            "rescale",
            q,
            np.array(1 << 30, np.int32),
            np.array(30, np.int8),
            oracle=_tosa_rescale("i8", **options),
            exact=True,
            label="unsigned-to-signed",
            dtype="i8",
            **options,
        )
    )
    return made


def _tables() -> list[Sample]:
    made = []
    for kind, low in (("i8", -128), ("ui8", 0)):
        x, table = values((5, 77), kind, low, low + 255), values((256,), "i16", -32768, 32767)
        made.append(
            sample(
                "table", x, table, oracle=lambda x, t, low=low: t[x.astype(int) - low], exact=True
            )
        )

    def interpolated(x, table):
        """``apply_lookup_s`` of TOSA's specification."""
        index, fraction = (x.astype(np.int64) >> 7) + 256, x.astype(np.int64) & 127
        base, after = table[index].astype(np.int64), table[index + 1].astype(np.int64)
        return ((base << 7) + (after - base) * fraction).astype(np.int32)

    ends = np.array([-32768, 32767, 0, -1, 127, 128], np.int16)
    x = np.concatenate([ends, values((58,), "i16", -32768, 32767)]).reshape(8, 8)
    made.append(
        sample("table", x, values((513,), "i16", -32768, 32767), oracle=interpolated, exact=True)
    )
    return made


SAMPLES = [*_tensors(), *_channels(), *_rescales(), *_tables()]
