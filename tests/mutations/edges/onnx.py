"""ONNX graphs for branches that ordinary graphs do not reach; the form is that of
``onnx_models``."""

from __future__ import annotations

import numpy as np

from tests.mutations.onnx_models import body


def _f(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def _i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _u(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(3, 250, shape, np.uint8)


def _scales(*shape: int) -> np.ndarray:
    return np.linspace(0.01, 0.03, int(np.prod(shape)), dtype=np.float32).reshape(shape)


#: Name -> (inputs, constants, nodes[, opset]).
GRAPHS: dict[str, tuple] = {
    # Factors of 0 and 2 in products, a variance as small as what is added to it, a bias inside.
    "factors": ({"x": ("f", 4, 6), "w": ("f", 6, 5), "c": ("f", 4, 5),
                 "v": ("f", 2, 3, 5), "y": ("f", 3, 2, 4)}, {
        "k": _scales(1, 9, 4), "r": _scales(1, 9, 3), "h": _scales(1, 18),
        "small": _f(0.003), "s": _f(1, 2, 3), "t": _f(0, 1, 2)}, [
        ("Gemm", "x w c", "a", {"alpha": 2.0}), ("Gemm", "x w c", "b", {"alpha": 0.0}),
        ("Gemm", "x w c", "d", {"beta": 2.0}), ("Gemm", "x w c", "e", {"beta": 0.0}),
        ("Mul", "v small", "u"), ("InstanceNormalization", "u s t", "f"),
        ("GRU", "y k r h", "g", {"hidden_size": 3})]),
    # Groups of channels that are normalised as channels of a longer axis.
    "groups_as_channels": ({"x": ("f", 2, 6, 3, 4)}, {
        "merged": _i(2, 3, -1), "apart": _i(2, 6, 3, 4), "ones": _f(1, 1, 1),
        "zeros": _f(0, 0, 0), "s": _scales(6, 1, 1), "t": _scales(6, 1, 1)}, [
        ("Reshape", "x merged", "g"), ("InstanceNormalization", "g ones zeros", "n"),
        ("Reshape", "n apart", "r"), ("Mul", "r s", "u"), ("Add", "u t", "a")]),
    # Slopes of other numbers than 1; keys that are not filled, behind which no mask hides them.
    "swishes": ({"x": ("f", 3, 4), "q": ("f", 2, 2, 3, 4), "k": ("f", 2, 2, 5, 4),
                 "v": ("f", 2, 2, 5, 7)}, {"filled": _i(3, 4)}, [
        ("Swish", "x", "a", {"alpha": 0.7}), ("Swish", "x", "b", {"alpha": 2.0}),
        ("Swish", "x", "d", {"alpha": 0.0}), ("Attention", "q k v _ _ _ filled", "e")], 24),
    # Means and logarithms of integers are truncated.
    "integers_reduced": ({"x": ("j", 3, 4, 5)}, {"one": _i(1), "three": np.int32(3)}, [
        ("ReduceMean", "x one", "a"), ("ReduceL2", "x one", "b"), ("Abs", "x", "y"),
        ("Add", "y three", "z"), ("ReduceLogSum", "z one", "c"),
        ("Pow", "x three", "d")]),
    # Windows that hang over the padding, which has other widths at both ends.
    # Places in a plane that is made longer.
    "pools_rounded_up": ({"x": ("f", 2, 3, 5, 8), "y": ("f", 1, 1, 4, 6)}, {
        "more": _i(1, 1, 7, 6)}, [
        ("AveragePool", "x", "a", {"kernel_shape": [2, 3], "strides": [3, 2], "pads": [1, 0, 0, 2],
                                   "ceil_mode": 1}),
        ("AveragePool", "x", "b", {"kernel_shape": [3, 5], "strides": [2, 3], "pads": [0, 1, 2, 0],
                                   "ceil_mode": 1}),
        ("AveragePool", "x", "c", {"kernel_shape": [2, 2], "strides": [2, 3], "dilations": [2, 3],
                                   "pads": [1, 0, 0, 1], "ceil_mode": 1}),
        ("MaxPool", "y", "d i", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("MaxUnpool", "d i more", "e", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ], 19),
    # A scale of one element for a row, blocks of which the last is cut, scales and zero points of
    # each column, channel, and column of each matrix.
    "quantised_along": ({"x": ("f", 5), "y": ("f", 6, 5), "i": ("u", 3, 4), "j": ("u", 2, 3, 4),
                         "k": ("u", 2, 3, 5, 6), "l": ("u", 4)}, {
        "s": _f(0.02), "z": np.uint8([7]), "sb": _scales(6, 3), "zb": _u(6, 3), "w": _u(4, 5),
        "zw": _u(5), "v": _u(4, 2), "zv": _u(2), "w3": _u(2, 4, 5), "s3": _scales(2, 1, 5),
        "z3": _u(2, 1, 5), "w1": _u(2, 4, 1), "s1": _scales(2, 1, 1),
        "z1": _u(2, 1, 1), "only": _f(0.04), "one": np.float32(0.03), "nine": np.uint8(9),
        "five": np.uint8(5),
        "c": _u(4, 3, 3, 3).astype(np.int8), "sc": _scales(4), "zc": np.zeros(4, np.int8)}, [
        ("QuantizeLinear", "x s z", "a"), ("DequantizeLinear", "a s z", "b"),
        ("QuantizeLinear", "y sb zb", "c0", {"axis": 1, "block_size": 2}),
        ("DequantizeLinear", "c0 sb zb", "d", {"axis": 1, "block_size": 2}),
        ("MatMulInteger", "i w five zw", "e"), ("MatMulInteger", "i v five zv", "f"),
        ("QLinearMatMul", "j one five w3 s3 z3 one nine", "g"),
        ("QLinearMatMul", "j one five w1 s1 z1 one nine", "h"),
        ("QLinearMatMul", "l only z w s zw only nine", "m"),
        ("QLinearMatMul", "l only z l only z only nine", "n"),
        ("QLinearConv", "k one five c sc zc one nine", "o")]),
    # Axes that keep their size and not their elements, regions that reach out, whole axes that
    # are rounded up.
    "resized_in_place": ({"x": ("f", 1, 2, 4, 5)}, {
        "wide": _f(0, 0, -0.3, 0.1, 1, 1, 0.9, 1.4),
        "less": _i(1, 2, 7, 3), "more": _i(1, 2, 7, 5), "scales": _f(1, 1, 1.2, 1.5)}, [
        ("Resize", "x wide _ less", "a", {
            "mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": 0.7}),
        ("Resize", "x _ scales", "b", {"mode": "linear"}),
        ("Resize", "x _ _ more", "c", {
            "nearest_mode": "ceil", "coordinate_transformation_mode": "tf_half_pixel_for_nn"})],
        13),
    # Loops that end where a known condition says, or a known number of steps; branches of one
    # number that is known, or lies along an axis.
    "known_ends": ({"x": ("f", 3, 4)}, {
        "five": np.int64(5), "two": np.int64(2), "go": np.array(True), "half": _f(0.3),
        "most": np.float32(99), "six": _i(6),
        "no": np.array(False), "last": _i(-1), "flat": _i(2, 6),
        "tall": _i(6, 2), "zero": _f(0.0),
        "held": _f(0, 0, 1, 0, 0, 0, 5), "first": _i(0), "sizes": _i(4, 5, 3),
        "few": np.array([True, False, True])}, [
        ("Loop", "five go x", "a b", {"body": body("i c v", "d w s", [
            ("Less", "i two", "d"), ("Mul", "v half", "h"), ("Add", "h x", "w"),
            ("Sin", "w", "s")], "ib")}),
        ("Mul", "x half", "p"),
        ("Loop", "six go p", "q", {"body": body("i c v", "d w", [
            ("Mul", "i i", "z"), ("Cast", "z", "f", {"to": 1}), ("Add", "v f", "u"),
            ("Add", "u half", "w"), ("ReduceMax", "w", "e"),
            ("Squeeze", "e last", "g"), ("Less", "g most", "d")], "ib")}),
        ("Loop", "_ no p", "n", {"body": body("i c v", "d w", [
            ("Exp", "v", "w"), ("Less", "i two", "d")], "ib")}),
        ("If", "go", "shape", {"then_branch": body("", "t", [("Identity", "flat", "t")]),
                               "else_branch": body("", "e", [("Identity", "tall", "e")])}),
        ("Reshape", "x shape", "r"), ("NonZero", "held", "j"), ("Squeeze", "j first", "l"),
        ("Reshape", "x l", "m"), ("Compress", "sizes few", "o"), ("Reshape", "x o", "y"),
        ("ReduceSum", "x", "all", {"keepdims": 0}), ("Greater", "all zero", "up"),
        ("If", "up", "k", {"then_branch": body("", "t", [("Sin", "x", "t")]),
                           "else_branch": body("", "e", [("Cos", "x", "e")])})]),
    # A Dropout that drops nothing; what is quantised has only zeros.
    "dropped": ({"x": ("f", 3, 4)}, {"o": np.float32(0)}, [
        ("Dropout", "x", "y"), ("Sin", "y", "z"), ("Mul", "x o", "n"), ("Abs", "n", "m"),
        ("DynamicQuantizeLinear", "m", "q s p")]),
    # Taps outside, of two images; elements of either side have other weights.
    "cubic_far_outside": ({"x": ("f", 2, 3, 4, 5)}, {
        "g": np.linspace(-3, 2.6, 48, dtype=np.float32).reshape(2, 2, 6, 2)}, [
        ("GridSample", "x g", "a", {"mode": "cubic", "padding_mode": "border"}),
        ("GridSample", "x g", "b", {"mode": "cubic", "padding_mode": "reflection"}),
        ("GridSample", "x g", "c", {"mode": "cubic", "padding_mode": "reflection",
                                    "align_corners": 1}),
        ("GridSample", "x g", "d", {"mode": "cubic"}), ("GridSample", "x g", "e"),
        ("GridSample", "x g", "f", {"mode": "nearest"})]),
    # Axes of one without their names, indices from the end of each axis, some known at run time.
    "positions": ({"x": ("f", 3, 4), "y": ("f", 3, 1, 4, 1), "t": ("i", 5, 2), "v": ("f", 1)}, {
        "m": _i(-2, 0), "n": np.array([[0, -1], [-2, -3]], np.int64), "three": np.int64(3),
        "amounts": _i(1, 0, 0, 2), "fill": _f(0.7), "one": _i(1),
        "half": np.float32(0.5)}, [
        ("Squeeze", "y", "a"), ("Gather", "x m", "b", {"axis": 1}), ("GatherND", "x n", "c"),
        ("Mod", "t three", "o"), ("Sub", "o one", "p"), ("GatherND", "x p", "d"),
        ("GatherElements", "x n", "e", {"axis": 1}),
        ("ReduceMax", "x one", "q", {"keepdims": 0}), ("Greater", "q half", "r"),
        ("Compress", "x r", "s", {"axis": 0}), ("Pad", "x amounts", "f"),
        ("Pad", "x amounts fill", "g"),
        ("Relu", "x", "z"), ("NonZero", "z", "h"), ("Unsqueeze", "h one", "i"),
        ("NonZero", "v", "j"), ("Unsqueeze", "j one", "k")]),
}  # fmt: skip
