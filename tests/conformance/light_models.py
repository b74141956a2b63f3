"""The light models of the ONNX suite, whose weights are one constant each, with random weights."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = tuple(sorted(p.stem.removeprefix("light_") for p in FOLDER.glob("light_*.onnx")))
#: What each input of a normalisation is drawn around: scale, bias, mean, variance.
_STATISTICS = {1: (1.0, 0.1), 2: (0.0, 0.1), 3: (0.0, 0.1), 4: (1.0, 0.2)}


def path(name: str) -> Path:
    return FOLDER / f"light_{name}.onnx"


def random_model(name: str, seed: int = 0) -> onnx.ModelProto:
    """A light model whose weights are drawn so that no layer drowns or explodes."""
    model = onnx.load(path(name))
    draw = np.random.default_rng(seed)
    graph = model.graph
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    readers = {n: (node, i) for node in graph.node for i, n in enumerate(node.input)}
    kept, weights = [], []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(map(int, shapes[node.input[0]]))
        array = _drawn(draw, shape, *readers[node.output[0]])
        weights.append(numpy_helper.from_array(array, node.output[0]))
    used = {n for node in kept for n in node.input}
    stored = [t for t in graph.initializer if t.name in used]
    inputs = [i for i in graph.input if i.name in used and i.name not in shapes]
    for field, new in (
        (graph.node, kept),
        (graph.initializer, [*stored, *weights]),
        (graph.input, inputs),
    ):
        copies = [type(each).FromString(each.SerializeToString()) for each in new]
        del field[:]
        field.extend(copies)
    model.ir_version = max(model.ir_version, 4)  # weights need be no inputs since
    return model


def in_f64(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with f64 in place of f32: what it computes without roundings that matter."""
    wide = type(model).FromString(model.SerializeToString())
    for stored in wide.graph.initializer:
        array = numpy_helper.to_array(stored)
        if array.dtype == np.float32:
            stored.CopyFrom(numpy_helper.from_array(array.astype(np.float64), stored.name))
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    del wide.graph.value_info[:]
    return wide


def random_inputs(model: onnx.ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    """Normal numbers for every input, by name."""
    draw = np.random.default_rng(seed)
    stored = {t.name for t in model.graph.initializer}
    return {
        i.name: draw.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for i in model.graph.input
        if i.name not in stored
    }


def _drawn(draw, shape: tuple[int, ...], reader, place: int) -> np.ndarray:
    if reader.op_type == "BatchNormalization":
        centre, spread = _STATISTICS[place]
        return (
            np.abs(centre + spread * draw.standard_normal(shape)).astype(np.float32)
            if (place == 4)
            else (centre + spread * draw.standard_normal(shape)).astype(np.float32)
        )
    if len(shape) < 2 or reader.op_type in ("Unsqueeze", "Mul", "Add"):
        centre = 1.0 if reader.op_type in ("Unsqueeze", "Mul") else 0.0
        return (centre + 0.1 * draw.standard_normal(shape)).astype(np.float32)
    fan_in = prod(shape[1:]) if reader.op_type == "Conv" else min(shape)
    return (draw.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)
