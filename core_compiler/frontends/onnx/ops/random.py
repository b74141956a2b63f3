"""Random ops of ONNX, by :mod:`core_compiler.frontends.random_numbers`.

ONNX leaves the generator open.  In inference a node's ``seed`` selects its numbers, in training the
seed of the step does.
"""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.onnx.reading import dtype_of
from core_compiler.frontends.onnx.table import TABLE, NotSupported, onnx_op
from core_compiler.ir import DType, dtype

F32, I32, I64 = dtype("f32"), dtype("i32"), dtype("i64")


def _numbers(b, kind: str, shape, wanted: DType = F32):
    """Emit ``core.random_<kind>``; ``seed`` is a float in ONNX, and its bits are used."""
    seed = int(np.float32(b.attr("seed", 0.0)).view(np.uint32))
    return b.importer.draws.numbers(b, kind, shape, wanted, seed)


def _dtype(b, like=None) -> DType:
    given = b.attr("dtype")
    if given is not None:
        return dtype_of(given, b.node.name)
    return like if like is not None and like.is_float else F32


def _uniform(b, shape, kind: DType):
    low, high = float(b.attr("low", 0.0)), float(b.attr("high", 1.0))
    return _moved(b, _numbers(b, "uniform", shape, kind), high - low, low)


def _normal(b, shape, kind: DType):
    scale, mean = float(b.attr("scale", 1.0)), float(b.attr("mean", 0.0))
    return _moved(b, _numbers(b, "normal", shape, kind), scale, mean)


def _moved(b, x, scale: float, start: float):
    return b.add(b.mul(x, b.scalar_like(scale, x)), b.scalar_like(start, x))


for _law, _draw in (("Uniform", _uniform), ("Normal", _normal)):
    TABLE[f"Random{_law}"] = lambda b, draw=_draw: draw(b, b.attr("shape"), _dtype(b))
    TABLE[f"Random{_law}Like"] = lambda b, x, draw=_draw: draw(
        b, x.type.shape, _dtype(b, x.type.dtype)
    )


@onnx_op("Dropout")
def dropout(b, x, ratio=None, mode=None):
    """Drop elements in training, regardless of ``training_mode``.

    Most models that users train were exported for inference.
    """
    given = b.attr("ratio", 0.5)
    if b.opset >= 12:
        given = 0.5 if ratio is None else float(b.const(ratio, "the ratio"))
    if b.importer.training and given:
        made, kept = b.importer.draws.dropped(b, x, float(given))
        return made, b.to(kept, x.type.dtype) if b.opset < 10 else kept
    trains = mode is not None and given and bool(b.const(mode, "training_mode"))
    if trains or (b.opset < 7 and not b.attr("is_test", 0)):
        raise NotSupported("dropout in training mode; export the model in evaluation mode")
    if len(b.node.output) > 1 and b.node.output[1]:
        # Before opset 12 the mask of a Dropout that drops nothing is unspecified: onnxruntime's is
        # 0.
        kind = "i1" if b.opset >= 10 else x.type.dtype
        return x, b.expand(b.constant(int(b.opset >= 12), kind), x.type.shape)
    return x


@onnx_op("Multinomial")
def multinomial(b, x):
    """Draw ``sample_size`` classes per row of unnormalised log-probabilities.

    The class is the number of classes whose cumulative share a uniform number reaches.
    """
    if x.type.rank != 2 or not x.type.shape[1]:
        raise NotSupported(f"expected logits of shape (batch, classes), got {x.type.shape}")
    (rows, classes), count = x.type.shape, int(b.attr("sample_size", 1))
    share = b.cumsum(b.softmax(b.to(x, F32), axis=1), axis=1)
    shape = (rows, count, classes)
    drawn = b.broadcast(_numbers(b, "uniform", (rows, count)), shape=shape, dims=(0, 1))
    passed = b.ge(drawn, b.broadcast(share, shape=shape, dims=(0, 2)))
    found = b.reduce_sum(b.cast(passed, dtype=I64), axes=(2,))
    last = b.scalar_like(classes - 1, found)  # rounding can make the shares add up to less than 1
    kind = I32 if b.attr("dtype") is None else dtype_of(b.attr("dtype"), b.node.name)
    return b.to(b.min(found, last), kind)
