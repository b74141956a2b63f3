"""ONNX graphs of the corpus: a few nodes each, on seeded inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_KINDS = {
    "f": TensorProto.FLOAT,
    "i": TensorProto.INT64,
    "b": TensorProto.BOOL,
    "u": TensorProto.UINT8,
    "j": TensorProto.INT32,
}
Node = tuple[str, str, str, dict[str, Any]]


def models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Name and model; names are unique."""
    from tests.mutations.edges.onnx import GRAPHS

    for name, (inputs, constants, nodes, *opset) in (_GRAPHS | GRAPHS).items():
        yield f"onnx_{name}", _graph(name, inputs, constants, nodes, *opset)


def _graph(
    name: str,
    inputs: Mapping[str, Sequence],
    constants: Mapping[str, Any],
    nodes: Sequence[tuple],
    opset: int = 21,
) -> onnx.ModelProto:
    """``nodes``: (op, inputs, outputs, attributes); every value that no node reads is a result."""
    made, read, written = [], set(), []
    for op, takes, gives, *attributes in nodes:
        takes, gives = takes.split(), gives.split()
        takes = ["" if t == "_" else t for t in takes]
        gives = ["" if g == "_" else g for g in gives]
        made.append(helper.make_node(op, takes, gives, **(attributes[0] if attributes else {})))
        read.update(takes)
        written += [g for g in gives if g]
    outputs = [helper.make_empty_tensor_value_info(w) for w in written if w not in read]
    graph = helper.make_graph(
        made,
        name,
        [helper.make_tensor_value_info(k, _KINDS[s[0]], s[1:]) for k, s in inputs.items()],
        outputs,
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def rand(*shape: int) -> np.ndarray:
    random = np.random.default_rng(sum(shape))
    return (random.standard_normal(shape) * 0.5).astype(np.float32)


def _i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def num(value: float) -> np.ndarray:
    return np.array(value, np.float32)


_X = {"x": ("f", 2, 3, 5, 6)}
XY = {"x": ("f", 3, 4)}


def _each(*ops: str) -> list[tuple]:
    return [(op, "x", f"y{n}") for n, op in enumerate(ops)]


#: Of which the standard leaves the values open, and onnxruntime has others than its reference: the
#: mean of no elements.
OPEN = ("onnx_average_of_nothing",)

_GRAPHS: dict[str, tuple] = {
    "conv": (_X, {"w": rand(4, 3, 3, 3), "b": rand(4), "g": rand(4, 1, 2, 2)}, [
        ("Conv", "x w b", "y", {"pads": [1, 0, 2, 1], "strides": [2, 1]}), ("Relu", "y", "r"),
        ("Conv", "r g", "z", {"group": 4, "auto_pad": "SAME_UPPER", "strides": [1, 2]})]),
    "conv_same_lower": (_X, {"w": rand(4, 3, 2, 2)}, [
        ("Conv", "x w", "y", {"auto_pad": "SAME_LOWER", "strides": [2, 2]})]),
    "conv_transpose": (_X, {"w": rand(3, 2, 3, 3), "b": rand(2)}, [
        ("ConvTranspose", "x w b", "y", {"strides": [2, 2], "pads": [1, 1, 0, 1],
                                         "output_padding": [1, 0]})]),
    "conv_transpose_shape": (_X, {"w": rand(3, 2, 3, 3)}, [
        ("ConvTranspose", "x w", "y", {"strides": [2, 2], "output_shape": [10, 12]})]),
    "pools": (_X, {}, [
        ("MaxPool", "x", "a", {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("AveragePool", "x", "b", {"kernel_shape": [2, 2], "pads": [1, 0, 1, 1]}),
        ("AveragePool", "x", "c", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1],
                                   "count_include_pad": 1}),
        ("GlobalAveragePool", "x", "d"), ("GlobalMaxPool", "x", "e"),
        ("LpPool", "x", "f", {"kernel_shape": [2, 2], "p": 2})], 19),
    "infinities": (_X, {}, [
        ("Relu", "x", "r"), ("Log", "r", "l"), ("Neg", "l", "p"),
        ("IsInf", "l", "a", {"detect_negative": 0}), ("IsInf", "p", "b", {"detect_negative": 0}),
        ("IsInf", "l", "c", {"detect_positive": 0}), ("IsInf", "p", "d", {"detect_positive": 0}),
        ("IsInf", "l", "e"), ("IsNaN", "l", "f")], 20),
    "shrunk_at_its_bound": (_X, {}, [
        ("Round", "x", "r"), ("Shrink", "r", "y", {"lambd": 1.0, "bias": 0.5})]),
    "quantised_of_one_sign": (_X, {"small": num(0.01), "shift": num(9.0)}, [
        ("Abs", "x", "z"), ("Mul", "z small", "w"), ("DynamicQuantizeLinear", "w", "a b c"),
        ("Neg", "z", "n"), ("DynamicQuantizeLinear", "n", "d e f"),
        ("Add", "z shift", "p"), ("DynamicQuantizeLinear", "p", "g h i")]),
    "average_of_nothing": (_X, {}, [
        ("AveragePool", "x", "a", {"kernel_shape": [2, 2], "dilations": [6, 7],
                                   "pads": [1, 1, 1, 1]})], 19),
    "max_pool_indices": ({"x": ("f", 2, 3, 4, 6)}, {}, [
        ("MaxPool", "x", "a i", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("MaxUnpool", "a i", "u", {"kernel_shape": [2, 2], "strides": [2, 2]})], 19),
    "batch_norm": (_X, {"s": rand(3), "b": rand(3), "m": rand(3), "v": np.abs(rand(3)) + 0.1}, [
        ("BatchNormalization", "x s b m v", "y", {"epsilon": 0.01}),
        ("InstanceNormalization", "x s b", "z"), ("LRN", "x", "l", {"size": 3, "alpha": 0.3})]),
    "layer_norm": ({"x": ("f", 2, 3, 8)}, {"s": rand(8), "b": rand(8)}, [
        ("LayerNormalization", "x s b", "y", {"axis": -1, "epsilon": 0.001}),
        ("LpNormalization", "x", "l", {"axis": 1, "p": 1}),
        ("MeanVarianceNormalization", "x", "m", {"axes": [1]})]),
    "group_norm": (_X, {"s": rand(3), "b": rand(3)}, [
        ("GroupNormalization", "x s b", "y", {"num_groups": 3})]),
    "gemm": ({"x": ("f", 4, 6)}, {"w": rand(5, 6), "b": rand(5)}, [
        ("Gemm", "x w b", "y", {"transB": 1, "alpha": 0.5, "beta": 2.0}), ("Softmax", "y", "s"),
        ("LogSoftmax", "y", "l", {"axis": 0})]),
    "gemm_transposed": ({"x": ("f", 6, 4)}, {"w": rand(6, 5)}, [
        ("Gemm", "x w", "y", {"transA": 1})]),
    "matmul": ({"x": ("f", 2, 4, 6), "y": ("f", 6, 3)}, {}, [
        ("MatMul", "x y", "z"), ("Einsum", "x y", "e", {"equation": "bij,jk->kb"})]),
    "unary": (XY, {}, _each("Abs", "Neg", "Exp", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh",
                            "Tanh", "Asinh", "Erf", "Sigmoid", "Floor", "Ceil", "Round", "Sign",
                            "Relu", "Softsign", "Softplus", "Mish", "HardSwish", "Reciprocal",
                            "IsNaN", "IsInf", "Identity")),
    "activations": (XY, {"p": rand(4)}, [
        ("Elu", "x", "a", {"alpha": 0.7}), ("Selu", "x", "b"), ("Celu", "x", "c", {"alpha": 0.5}),
        ("LeakyRelu", "x", "d", {"alpha": 0.3}), ("HardSigmoid", "x", "e", {"alpha": 0.3}),
        ("ThresholdedRelu", "x", "f", {"alpha": 0.2}), ("PRelu", "x p", "g"), ("Gelu", "x", "h"),
        ("Gelu", "x", "i", {"approximate": "tanh"}),
        ("Shrink", "x", "j", {"lambd": 0.3, "bias": 0.1}),
        ("Hardmax", "x", "k")]),
    "positive": (XY, {"one": num(1.5)}, [
        ("Abs", "x", "a"), ("Add", "a one", "b"), ("Log", "b", "c"), ("Sqrt", "b", "d"),
        ("Acosh", "b", "e"), ("Tanh", "x", "t"), ("Asin", "t", "f"), ("Acos", "t", "g"),
        ("Atanh", "t", "h"), ("Pow", "b x", "i")]),
    "binary": ({"x": ("f", 3, 4), "y": ("f", 4)}, {}, [
        ("Add", "x y", "a"), ("Sub", "x y", "b"), ("Mul", "x y", "c"), ("Div", "x y", "d"),
        ("Max", "x y", "e"), ("Min", "x y", "f"), ("Mean", "x y", "g"), ("Sum", "x y x", "h"),
        ("Mod", "x y", "i", {"fmod": 1}), ("Less", "x y", "j"), ("Greater", "x y", "k"),
        ("LessOrEqual", "x y", "l"), ("GreaterOrEqual", "x y", "m"), ("Equal", "x y", "n"),
        ("Where", "j x y", "o"), ("And", "j k", "p"), ("Or", "j k", "q"), ("Xor", "j k", "r"),
        ("Not", "j", "s"), ("And", "j l", "t"), ("Or", "j l", "u"), ("Xor", "j l", "v")]),
    "integers": ({"x": ("i", 3, 4), "y": ("i", 4)}, {"two": _i(2), "seven": _i(7)}, [
        ("Add", "x y", "a"), ("Mul", "x y", "c"), ("Div", "x two", "d"), ("Mod", "x seven", "i"),
        ("BitwiseAnd", "x y", "p"), ("BitwiseOr", "x y", "q"), ("BitwiseXor", "x y", "r"),
        ("BitwiseNot", "x", "s"), ("Abs", "x", "t"), ("Sign", "x", "u"), ("Neg", "x", "v")]),
    "shrunk_integers": ({"x": ("i", 3, 4)}, {}, [
        ("Shrink", "x", "y", {"lambd": 0.5, "bias": 0.5})]),
    "shifts": ({"x": ("u", 3, 4)}, {"two": np.array([2], np.uint8)}, [
        ("BitShift", "x two", "a", {"direction": "LEFT"}),
        ("BitShift", "x two", "b", {"direction": "RIGHT"})]),
    "casts": (XY, {}, [
        ("Cast", "x", "a", {"to": TensorProto.INT32}),
        ("Cast", "x", "b", {"to": TensorProto.DOUBLE}),
        ("Cast", "x", "c", {"to": TensorProto.FLOAT16}), ("CastLike", "x a", "d"),
        ("Cast", "x", "e", {"to": TensorProto.BOOL})]),
    # Numbers that the narrow floats do not reach.
    "casts_out_of_range": (XY, {"large": num(600.0)}, [
        ("Mul", "x large", "y"), ("Cast", "y", "e", {"to": TensorProto.FLOAT8E4M3FN}),
        ("Cast", "e", "a", {"to": TensorProto.FLOAT}),
        ("Cast", "y", "f", {"to": TensorProto.FLOAT8E5M2, "saturate": 0}),
        ("Cast", "f", "b", {"to": TensorProto.FLOAT}), ("Mul", "y large", "z"),
        ("Cast", "z", "g", {"to": TensorProto.FLOAT16}),
        ("Cast", "z", "h", {"to": TensorProto.FLOAT8E5M2}),
        ("Cast", "h", "c", {"to": TensorProto.FLOAT})]),
    "reductions": (_X, {"axes": _i(1, -1), "one": _i(2)}, [
        ("ReduceSum", "x axes", "a", {"keepdims": 0}), ("ReduceMean", "x one", "b"),
        ("ReduceMax", "x axes", "c"), ("ReduceMin", "x one", "d", {"keepdims": 0}),
        ("ReduceProd", "x one", "e"), ("ReduceL1", "x axes", "f"), ("ReduceL2", "x axes", "g"),
        ("ReduceLogSumExp", "x one", "h"), ("ReduceSumSquare", "x axes", "i"),
        ("ReduceSum", "x", "j"), ("ArgMax", "x", "k", {"axis": 1}),
        ("ArgMin", "x", "l", {"axis": -1, "keepdims": 0})]),
    "grid_far_outside": ({"x": ("f", 1, 2, 4, 5)}, {
        "g": np.linspace(-7, 6, 48, dtype=np.float32).reshape(1, 4, 6, 2)}, [
        ("GridSample", "x g", "a", {"padding_mode": "reflection", "align_corners": 1}),
        ("GridSample", "x g", "b", {"padding_mode": "reflection", "mode": "nearest"}),
        ("GridSample", "x g", "c", {"padding_mode": "border"}),
    ]),
    "scans": (XY, {"one": np.array(1, np.int64)}, [
        ("CumSum", "x one", "a"), ("CumSum", "x one", "b", {"exclusive": 1, "reverse": 1})]),
    "shapes": ({"x": ("f", 2, 3, 4)}, {
        "shape": _i(0, -1), "axes": _i(1), "axes3": _i(0, 3), "rep": _i(1, 2, 1), "one": num(0.5),
        "starts": _i(1, -1), "ends": _i(3, -5), "sa": _i(1, 2), "steps": _i(1, -2),
        "exp": _i(2, 1, 3, 4), "pads": _i(0, 1, 0, 1, 0, 2)}, [
        ("Reshape", "x shape", "a"), ("Transpose", "x", "b", {"perm": [2, 0, 1]}),
        ("Unsqueeze", "x axes3", "c"), ("Tile", "x rep", "d"),
        ("Slice", "x starts ends sa steps", "e"),
        ("Expand", "x exp", "f"), ("Pad", "x pads one", "g"), ("Flatten", "x", "h", {"axis": 2}),
        ("Concat", "x x", "i", {"axis": 1}), ("Split", "x", "j k l", {"axis": 1, "num_outputs": 3}),
        ("Squeeze", "j axes", "m"), ("Shape", "x", "n", {"start": 1}), ("Size", "x", "o"),
        ("Trilu", "x", "p", {"upper": 0}), ("Pad", "x pads", "q", {"mode": "edge"})]),
    "space": ({"x": ("f", 1, 8, 4, 6)}, {}, [
        ("DepthToSpace", "x", "a", {"blocksize": 2}),
        ("DepthToSpace", "x", "b", {"blocksize": 2, "mode": "CRD"}),
        ("SpaceToDepth", "x", "c", {"blocksize": 2})]),
    "resize": ({"x": ("f", 1, 2, 4, 5)}, {
        "scales": np.array([1, 1, 2, 1.5], np.float32), "sizes": _i(1, 2, 7, 3)}, [
        ("Resize", "x _ scales", "a", {"mode": "nearest", "nearest_mode": "floor",
                                       "coordinate_transformation_mode": "asymmetric"}),
        ("Resize", "x _ _ sizes", "b", {"mode": "linear"}),
        ("Resize", "x _ _ sizes", "c", {"mode": "linear",
                                        "coordinate_transformation_mode": "align_corners"}),
        ("Resize", "x _ scales", "d", {"mode": "cubic", "cubic_coeff_a": -0.6})], 19),
    "gathers": ({"x": ("f", 3, 4)}, {
        "i": _i(2, 0), "ie": np.array([[0, 1], [2, -1]], np.int64), "u": rand(2, 4),
        "v": rand(2, 2), "nd": np.array([[0, 1], [2, 3]], np.int64), "un": rand(2),
        "d": np.array(5, np.int64),
        "neg": np.array([[0, -1], [-2, 3]], np.int64), "last": _i(-1, 0),
        "onoff": np.array([0.0, 2.0], np.float32)}, [
        ("Gather", "x i", "a", {"axis": 1}), ("GatherElements", "x ie", "b", {"axis": 1}),
        ("GatherND", "x nd", "c"), ("ScatterElements", "x ie v", "e", {"axis": 0}),
        ("ScatterND", "x nd un", "f", {"reduction": "add"}),
        ("OneHot", "i d onoff", "g", {"axis": 0}),
        ("GatherND", "x neg", "k"), ("ScatterND", "x neg un", "l"), ("Gather", "x last", "m"),
        ("ScatterElements", "x ie v", "h", {"axis": 1, "reduction": "max"})]),
    "top_k": (XY, {"k": _i(2)}, [
        ("TopK", "x k", "a b", {"axis": 1}), ("TopK", "x k", "c d", {"axis": 0, "largest": 0})]),
    "clip": (XY, {"lo": num(-0.3), "hi": num(0.4)}, [
        ("Clip", "x lo hi", "a"), ("Clip", "x _ hi", "b"), ("Clip", "x lo", "c")]),
    "constants": (XY, {"shape": _i(3, 4), "a0": np.array(0, np.int64), "a5": np.array(8, np.int64),
                       "a2": np.array(2, np.int64)}, [
        ("ConstantOfShape", "shape", "a", {"value": numpy_helper.from_array(rand(1)[:1])}),
        ("Add", "a x", "b"), ("Range", "a0 a5 a2", "r"), ("Cast", "r", "rf", {"to": 1}),
        ("Add", "rf x", "c"), ("EyeLike", "x", "e", {"k": 1})]),
    "lstm": ({"x": ("f", 3, 2, 4)}, {"w": rand(2, 12, 4), "r": rand(2, 12, 3), "b": rand(2, 24)}, [
        ("LSTM", "x w r b", "y h c", {"hidden_size": 3, "direction": "bidirectional"})]),
    "lstm_peepholes": ({"x": ("f", 3, 2, 4)}, {
        "w": rand(1, 12, 4), "r": rand(1, 12, 3), "p": rand(1, 9), "h0": rand(1, 2, 3),
        "c0": rand(1, 2, 3)}, [
        ("LSTM", "x w r _ _ h0 c0 p", "y h c", {"hidden_size": 3, "direction": "reverse"})]),
    "gru": ({"x": ("f", 3, 2, 4)}, {"w": rand(1, 9, 4), "r": rand(1, 9, 3), "b": rand(1, 18)}, [
        ("GRU", "x w r b", "y h", {"hidden_size": 3, "linear_before_reset": 1})]),
    "gru_reset_after": ({"x": ("f", 3, 2, 4)}, {"w": rand(1, 9, 4), "r": rand(1, 9, 3)}, [
        ("GRU", "x w r", "y h", {"hidden_size": 3})]),
    "rnn": ({"x": ("f", 3, 2, 4)}, {"w": rand(1, 3, 4), "r": rand(1, 3, 3), "b": rand(1, 6)}, [
        ("RNN", "x w r b", "y h", {"hidden_size": 3, "activations": ["Relu"]})]),
    "quantize": (XY, {"s": num(0.05), "z": np.array(7, np.uint8)}, [
        ("QuantizeLinear", "x s z", "q"), ("DequantizeLinear", "q s z", "y"),
        ("DynamicQuantizeLinear", "x", "a b c")]),
    "picks": ({"x": ("f", 3, 5), "t": ("j", 3, 2)}, {"i": np.int32([[1], [4], [0]]),
                                                   "five": np.int32(5)}, [
        ("LogSoftmax", "x", "l"), ("Mod", "t five", "p"),
        ("GatherElements", "l i", "a", {"axis": 1}), ("Neg", "a", "c"),
        ("GatherElements", "l p", "b", {"axis": 1}), ("Neg", "b", "d")]),
    # A row of zeros, all of them equal, and others.
    "equals": ({"x": ("f", 3, 5)}, {"mask": np.float32([[1], [0], [1]])}, [
        ("Mul", "x mask", "z"), ("ArgMax", "z", "a", {"axis": 1}),
        ("ArgMax", "z", "b", {"axis": 1, "select_last_index": 1}),
        ("ArgMin", "z", "c", {"axis": 1, "select_last_index": 1, "keepdims": 0}),
        ("LpNormalization", "z", "d", {"axis": 1}),
        ("LpNormalization", "z", "e", {"axis": 1, "p": 1}), ("Softmax", "z", "g", {"axis": 1}),
        ("Hardmax", "z", "h", {"axis": 1})]),
    "losses": ({"x": ("f", 3, 5)}, {"t": _i(1, 4, 0), "w": np.abs(rand(5))}, [
        ("SoftmaxCrossEntropyLoss", "x t", "a"), ("LogSoftmax", "x", "l"),
        ("NegativeLogLikelihoodLoss", "l t w", "b"),
        ("SoftmaxCrossEntropyLoss", "x t w", "c p", {"reduction": "sum"})]),
    "opset_9": (_X, {}, [
        ("ReduceSum", "x", "a", {"axes": [1, 2]}), ("Unsqueeze", "x", "b", {"axes": [0]}),
        ("Softmax", "x", "c", {"axis": 2}), ("Clip", "x", "d", {"min": -0.2, "max": 0.3}),
        ("Slice", "x", "e", {"axes": [1, 3], "starts": [0, 1], "ends": [2, -1]}),
        ("Pad", "x", "f", {"pads": [0, 0, 1, 1, 0, 0, 0, 2], "value": 0.3}),
        ("Upsample", "x s", "g", {"mode": "nearest"})], 9),
}  # fmt: skip


def body(inputs: str, outputs: str, nodes: Sequence[tuple], kinds: str = "") -> onnx.GraphProto:
    """A subgraph: ``kinds`` are the types of its inputs, in order ("f" where it says nothing);
    integers and booleans are single numbers, as onnxruntime wants to know of loops."""
    made = [helper.make_node(op, t.split(), g.split(), **dict(*more)) for op, t, g, *more in nodes]
    typed = zip(inputs.split(), kinds.ljust(9, "f"), strict=False)
    return helper.make_graph(
        made,
        "body",
        [helper.make_tensor_value_info(n, _KINDS[k], None if k == "f" else []) for n, k in typed],
        [helper.make_empty_tensor_value_info(n) for n in outputs.split()],
    )


_GRAPHS |= {
    "loop": (XY, {"trips": np.array(4, np.int64), "go": np.array(True), "half": num(0.5)}, [
        ("Loop", "trips go x", "y all", {"body": body("i c v", "c2 w s", [
            ("Identity", "c", "c2"), ("Mul", "v half", "h"), ("Add", "h x", "w"),
            ("ReduceSum", "w", "s")], "ib")})]),
    # A kernel with two results, and a loop that carries both and exchanges them.
    "loop_swaps": (XY, {"go": np.array(True), "half": num(0.3), "most": num(30.0)}, [
        ("Mul", "x half", "p"), ("Sub", "x p", "q"),
        ("Loop", "_ go p q", "r s", {"body": body("i c a b", "c2 b2 a2", [
            ("Add", "a half", "a2"), ("Identity", "b", "b2"), ("ReduceSum", "a2", "t"),
            ("Squeeze", "t", "u"), ("Less", "u most", "c2")], "ib")})]),
    # A loop that begins, each time that it runs, with what is made outside of both.
    "loop_in_a_loop": (XY, {"go": np.array(True), "half": num(0.3), "most": num(30.0),
                            "many": np.array(99, np.int64)}, [
        ("Mul", "x half", "p"), ("Sub", "x p", "q"),
        ("Loop", "_ go q", "y", {"body": body("i c v", "c2 w", [
            ("Loop", "many go p", "t", {"body": body("j d u", "d2 u2", [
                ("Add", "u half", "u2"), ("ReduceSum", "u2", "s"), ("Squeeze", "s", "s1"),
                ("Less", "s1 most", "d2")], "ib")}),
            ("Mul", "t half", "h"), ("Add", "v h", "w"), ("ReduceSum", "w", "e"),
            ("Squeeze", "e", "e1"), ("Less", "e1 most", "c2")], "ib")})]),
    # A loop that begins with one tensor twice, and reads nothing else.
    "loop_begins_twice": (XY, {"go": np.array(True)}, [
        ("Exp", "x", "p"),
        ("Loop", "_ go p p", "r s", {"body": body("i c a b", "c2 a2 b2", [
            ("Add", "a a", "a2"), ("Sin", "b", "b1"), ("Abs", "b1", "b2"),
            ("ReduceSum", "a2", "e"), ("ReduceSum", "b2", "f"), ("Less", "e f", "g"),
            ("Squeeze", "g", "c2")], "ib")})]),
    # A convolution's result goes round.
    "loop_of_pictures": ({"x": ("f", 1, 4, 5, 5)}, {
        "w": rand(4, 4, 3, 3), "go": np.array(True), "half": num(0.5), "most": num(400.0)}, [
        ("Conv", "x w", "p", {"pads": [1, 1, 1, 1]}),
        ("Loop", "_ go p", "r", {"body": body("i c a", "c2 a2", [
            ("Abs", "a", "b"), ("Add", "b half", "a2"), ("ReduceSum", "a2", "e"),
            ("Squeeze", "e", "f"), ("Less", "f most", "c2")], "ib")})]),
    # Three values go round: each is copied to where another one is still read.
    "loop_rotates": (XY, {"go": np.array(True), "half": num(0.3), "most": num(30.0)}, [
        ("Mul", "x half", "p"), ("Sub", "x p", "q"), ("Add", "x p", "o"),
        ("Loop", "_ go p q o", "r s t", {"body": body("i c a b d", "c2 b2 d2 a2", [
            ("Identity", "a", "a2"), ("Identity", "b", "b2"), ("Add", "d half", "d2"),
            ("ReduceSum", "d2", "t"), ("Squeeze", "t", "u"), ("Less", "u most", "c2")], "ib")})]),
    "scan": ({"x": ("f", 4, 3), "h": ("f", 3)}, {}, [
        ("Scan", "h x", "last all", {"num_scan_inputs": 1, "body": body("a b", "c d", [
            ("Add", "a b", "s"), ("Tanh", "s", "c"), ("Mul", "c b", "d")])})]),
    "branch": (XY, {"zero": num(0.0)}, [
        ("ReduceSum", "x", "total", {"keepdims": 0}), ("Greater", "total zero", "p"),
        ("If", "p", "y", {"then_branch": body("", "t", [("Sin", "x", "t")]),
                          "else_branch": body("", "e", [("Cos", "x", "e")])}),
        ("If", "p", "z", {"then_branch": body("", "t", [("Tanh", "x", "t")]),
                          "else_branch": body("", "e", [("Abs", "x", "e")])})]),
}  # fmt: skip
_GRAPHS["opset_9"][1]["s"] = np.array([1, 1, 2, 3], np.float32)
