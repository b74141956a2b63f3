"""Nodes that do nothing are removed and adjacent ones merged, rule by rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from string import Template

import numpy as np
import pytest

from core_compiler.onnx_level.passes.rewrite_nodes import RULES, RewriteNodes
from core_compiler.passes.rules import explain
from tests.onnx_level.passes import specs
from tests.onnx_level.suite import run

#: What the table abbreviates: inputs and outputs of a graph, and constants.
SHORT = {
    "F": "(float[2, 3] x) => (float[2, 3] y)",
    "IMAGE": "(float[1, 1, 4, 4] x) => (float[1, 2, 5, 6] y)",
    "PADDED": "(float[1, 1, 4, 4] x, int64[8] q) => (float[k, 2, n, m] y)",
    "MATRICES": "(float[2, 3] x, float[3, 4] w) => (float[2, 4] y)",
    "W": "float[2, 1, 2, 2] w = {1, 2, 3, 4, 0.5, -1, 2, -3}",
    "NORM": "float[2] s = {4, 2}, float[2] b = {10, 20}, float[2] m = {0.5, 1}, "
    "float[2] v = {3, 15}",
}
#: A rule, a graph it fires in, what that becomes; graphs that it refuses, and why. Constants that
#: are read no more stay for another pass.
TABLE = """
Identity(x) => x
  fires    $F <float[2, 3] h> { h = Identity(x)  y = Abs(h) }
  becomes  $F { y = Abs(x) }
  refused  $F <float[n, 3] h> { h = Identity(x)  y = Abs(h) }
  because  its type is tensor<?x3xf32, {dims = ["n", 3]}>, the type of its input is tensor<2x3xf32>

Cast(x) to its own type => x
  fires    $F <float[2, 3] h> { h = Cast<to = 1>(x)  y = Abs(h) }
  becomes  $F { y = Abs(x) }
  refused  $F <int64[2, 3] h> { h = Cast<to = 7>(x)  y = Cast<to = 1>(h) }
  because  its type is tensor<2x3xi64>, the type of its input is tensor<2x3xf32>
  refused  $F { h = Neg(x)  k = Cast<to = 7>(h)  y = Cast<to = 1>(k) }
  because  its type is unknown

Dropout(x) => x
  fires    $F <float[2, 3] h, float r = {0.5}, bool t = {0}> { h, k = Dropout(x, r, t)  y = Abs(h) }
  becomes  $F <float r = {0.5}, bool t = {0}> { y = Abs(x) }
  refused  $F <float[2, 3] h, bool[2, 3] k, float[2, 3] i>
           { h, k = Dropout(x)  i = Cast<to = 1>(k)  y = Mul(h, i) }
  because  its second result is used
  refused  $F <float[2, 3] h, float r = {0.5}, bool t = {1}> { h = Dropout(x, r, t)  y = Abs(h) }
  because  it may be in training mode
  refused  $F <float[n, 3] h> { h = Dropout(x)  y = Abs(h) }
  because  its type is tensor<?x3xf32, {dims = ["n", 3]}>, the type of its input is tensor<2x3xf32>

Transpose in order => x
  fires    $F <float[2, 3] h> { h = Transpose<perm = [0, 1]>(x)  y = Abs(h) }
  becomes  $F { y = Abs(x) }
  refused  (float[3, 3] x) => (float[3, 3] y) <float[3, 3] h>
           { h = Transpose<perm = [1, 0]>(x)  y = Abs(h) }
  because  the attributes or types of this onnx.Transpose do not fit: onnx.since = 13 : i64,
           perm = [1, 0]
  refused  (float[3, 3] x) => (float[3, 3] y) <float[3, 3] h> { h = Transpose(x)  y = Abs(h) }
  because  the attributes or types of this onnx.Transpose do not fit: onnx.since = 13 : i64

Transpose in order => x
  fires    (float[4] x) => (float[4] y) <float[4] h> { h = Transpose(x)  y = Abs(h) }
  becomes  (float[4] x) => (float[4] y) { y = Abs(x) }

Transpose(Transpose(x)) => one
  fires    (float[2, 3, 4] x) => (float[3, 2, 4] y) <float[3, 4, 2] h>
           { h = Transpose<perm = [1, 2, 0]>(x)  y = Transpose<perm = [0, 2, 1]>(h) }
  becomes  (float[2, 3, 4] x) => (float[3, 2, 4] y) { y = Transpose<perm = [1, 0, 2]>(x) }
  refused  (float[2, 3, 4] x) => (float[3, 2, 4] y)
           { o = Abs(x)  h = Transpose(o)  y = Transpose<perm = [1, 2, 0]>(h) }
  because  the rank of its input is unknown

Transpose(Transpose(x)) => one
  fires    (float[2, 3, 4] x) => (float[2, 3, 4] y) <float[3, 4, 2] h, float[2, 3, 4] k>
           { h = Transpose<perm = [1, 2, 0]>(x)  k = Transpose<perm = [2, 0, 1]>(h)  y = Abs(k) }
  becomes  (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Abs(x) }

Reshape(Reshape(x)) => Reshape(x)
  fires    (float[2, 3] x) => (float[6] y) <float[3, 2] h, int64[2] s = {3, 2}, int64[1] t = {-1}>
           { h = Reshape(x, s)  y = Reshape(h, t) }
  becomes  (float[2, 3] x) => (float[6] y) <int64[2] s = {3, 2}, int64[1] t = {-1}>
           { y = Reshape(x, t) }
  refused  (float[2, 3] x) => (float[3, 1, 2] y)
           <float[3, 2] h, int64[2] s = {3, 2}, int64[3] t = {0, 1, 2}>
           { h = Reshape(x, s)  y = Reshape(h, t) }
  because  its shape copies a size of the input
  refused  (float[2, 3] x) => (float[6] y, float[3, 2] z)
           <float[3, 2] h, int64[2] s = {3, 2}, int64[1] t = {6}>
           { h = Reshape(x, s)  y = Reshape(h, t)  z = Abs(h) }
  because  the result of this onnx.Reshape has other uses: %h is also read by %z (onnx.Abs)

Reshape(Reshape(x)) => Reshape(x)
  fires    (float[0, 3] x) => (float[7, 0] y) <float[0] h, int64[1] s = {0}, int64[2] t = {7, 0}>
           { h = Reshape<allowzero = 1>(x, s)  y = Reshape<allowzero = 1>(h, t) }
  becomes  (float[0, 3] x) => (float[7, 0] y) <int64[1] s = {0}, int64[2] t = {7, 0}>
           { y = Reshape<allowzero = 1>(x, t) }

Reshape to its own shape => x
  fires    $F <float[2, 3] h, int64[2] s = {2, -1}> { h = Reshape(x, s)  y = Abs(h) }
  becomes  $F <int64[2] s = {2, -1}> { y = Abs(x) }
  refused  (float[n, 3] x) => (float[n, 3] y) <float[n, 3] h, int64[2] s = {-1, 3}>
           { h = Reshape(x, s)  y = Abs(h) }
  because  may differ from

Expand to its own shape => x
  fires    $F <float[2, 3] h, int64[2] s = {1, 3}> { h = Expand(x, s)  y = Abs(h) }
  becomes  $F <int64[2] s = {1, 3}> { y = Abs(x) }
  refused  (float[2, 3] x) => (float[4, 2, 3] y) <float[4, 2, 3] h, int64[3] s = {4, 1, 1}>
           { h = Expand(x, s)  y = Abs(h) }
  because  tensor<2x3xf32> may differ from tensor<4x2x3xf32>

Flatten to its own shape => x
  fires    $F <float[2, 3] h> { h = Flatten(x)  y = Abs(h) }
  becomes  $F { y = Abs(x) }
  refused  (float[2, 3] x) => (float[1, 6] y) <float[1, 6] h>
           { h = Flatten<axis = 0>(x)  y = Abs(h) }
  because  tensor<2x3xf32> may differ from tensor<1x6xf32>

Concat of one => x
  fires    $F <float[2, 3] h> { h = Concat<axis = 1>(x)  y = Abs(h) }
  becomes  $F { y = Abs(x) }
  refused  (float[2, 3] x) => (float[2, 6] y) { y = Concat<axis = 1>(x, x) }
  because  onnx.Concat has 2 operands, not 1

Sum of one => x
  fires    $F <float[2, 3] h> { h = Sum(x)  y = Abs(h) }
  becomes  $F { y = Abs(x) }
  refused  $F { y = Sum(x, x) }
  because  onnx.Sum has 2 operands, not 1

Max of one => x
  fires    $F <float[2, 3] h> { h = Max(x)  y = Abs(h) }
  becomes  $F { y = Abs(x) }
  refused  $F { y = Max(x, x) }
  because  onnx.Max has 2 operands, not 1

Min of one => x
  fires    $F <float[2, 3] h> { h = Min(x)  y = Abs(h) }
  becomes  $F { y = Abs(x) }
  refused  $F { y = Min(x, x) }
  because  onnx.Min has 2 operands, not 1

x * 1 => x
  fires    $F <float[2, 3] h, float[1, 3] c = {1, 1, 1}> { h = Mul(c, x)  y = Abs(h) }
  becomes  $F <float[1, 3] c = {1, 1, 1}> { y = Abs(x) }
  refused  $F <float[2, 3] h, float[3] c = {1, 1, -1}> { h = Mul(x, c)  y = Abs(h) }
  because  the constant c is not all ones
  refused  (float[2, 3] x) => (float[1, 2, 3] y) <float[1, 1, 1] c = {1}> { y = Mul(x, c) }
  because  its type is tensor<1x2x3xf32>, the type of its input is tensor<2x3xf32>
  refused  (float[2, 3] x, float c = {1}) => (float[2, 3] y) { y = Mul(x, c) }
  because  operand c is not a constant
  refused  (float[3] x) => (float[2, 3] y) <float[2, 3] o = {1, 1, 1, 1, 1, 1}>
           { h = Neg(x)  k = Mul(h, o)  y = Neg(k) }
  because  its type is unknown
  refused  (float[n, 3] x) => (float[n, 3] y) <float[2, 3] o = {1, 1, 1, 1, 1, 1}> { y = Mul(x, o) }
  because  its constant of shape [2, 3] may repeat the input

x / 1 => x
  fires    $F <float[2, 3] h, float c = {1}> { h = Div(x, c)  y = Abs(h) }
  becomes  $F <float c = {1}> { y = Abs(x) }
  refused  $F <float[2, 3] h, float c = {1}> { h = Div(c, x)  y = Abs(h) }
  because  operand c is not a constant
  refused  (float[3] x) => (float[2, 3] y) <float[2, 3] o = {1, 1, 1, 1, 1, 1}>
           { h = Neg(x)  k = Div(h, o)  y = Neg(k) }
  because  its type is unknown
  refused  (float[n, 3] x) => (float[n, 3] y) <float[2, 3] o = {1, 1, 1, 1, 1, 1}> { y = Div(x, o) }
  because  its constant of shape [2, 3] may repeat the input

x + 0 => x
  fires    (int64[3] x) => (int64[3] y) <int64[3] h, int64 c = {0}> { h = Add(c, x)  y = Abs(h) }
  becomes  (int64[3] x) => (int64[3] y) <int64 c = {0}> { y = Abs(x) }
  refused  $F <float[2, 3] h, float c = {0}> { h = Add(x, c)  y = Abs(h) }
  because  -0 + 0 is +0
  refused  (int64[3] x) => (int64[3] y) <int64[3] h, int64 c = {2}> { h = Add(x, c)  y = Abs(h) }
  because  the constant c is not all zeros

x - 0 => x
  fires    $F <float[2, 3] h, float c = {0}> { h = Sub(x, c)  y = Abs(h) }
  becomes  $F <float c = {0}> { y = Abs(x) }
  refused  $F <float[2, 3] h, float[3] c = {0, 0, -0.0}> { h = Sub(x, c)  y = Abs(h) }
  because  the constant c is not all +0
  refused  $F <float[2, 3] h, float c = {0}> { h = Sub(c, x)  y = Abs(h) }
  because  operand c is not a constant
  refused  (float[3] x) => (float[2, 3] y) <float[2, 3] o = {0, 0, 0, 0, 0, 0}>
           { h = Neg(x)  k = Sub(h, o)  y = Neg(k) }
  because  its type is unknown
  refused  (float[n, 3] x) => (float[n, 3] y) <float[2, 3] o = {0, 0, 0, 0, 0, 0}> { y = Sub(x, o) }
  because  its constant of shape [2, 3] may repeat the input

Not(Not(x)) => x
  fires    (bool[4] x) => (bool[4] y) <bool[4] h, bool[4] k>
           { h = Not(x)  k = Not(h)  y = And(k, x) }
  becomes  (bool[4] x) => (bool[4] y) { y = And(x, x) }
  refused  (bool[4] x) => (bool[4] y) <bool[4] h> { h = And(x, x)  y = Not(h) }
  because  found onnx.And where the rule expects onnx.Not

Neg(Neg(x)) => x
  fires    $F <float[2, 3] h, float[2, 3] k> { h = Neg(x)  k = Neg(h)  y = Abs(k) }
  becomes  $F { y = Abs(x) }
  refused  $F <float[2, 3] h> { h = Abs(x)  y = Neg(h) }
  because  found onnx.Abs where the rule expects onnx.Neg

Relu(Relu(x)) => Relu(x)
  fires    $F <float[2, 3] h, float[2, 3] k> { h = Relu(x)  k = Relu(h)  y = Neg(k) }
  becomes  $F <float[2, 3] h> { h = Relu(x)  y = Neg(h) }
  refused  $F <float[2, 3] h> { h = Abs(x)  y = Relu(h) }
  because  found onnx.Abs where the rule expects onnx.Relu

BatchNormalization(Conv(x)) => Conv(x)
  fires    $IMAGE <float[1, 2, 5, 6] h, $W, float[2] k = {1, -1}, $NORM>
           { h = Conv<pads = [1, 1, 1, 2]>(x, w, k)
             y = BatchNormalization<epsilon = 1.0>(h, s, b, m, v) }
  becomes  $IMAGE
           <$W, float[2] k = {1, -1}, $NORM, float[2, 1, 2, 2] weight = {2, 4, 6, 8, 0.25, -0.5, 1,
           -1.5}, float[2] weight_2 = {11, 19}>
           { y = Conv<pads = [1, 1, 1, 2]>(x, weight, weight_2) }
  refused  (float[1, 1, 4, 4] x, float[2, 1, 2, 2] w) => (float[1, 2, 5, 6] y)
           <float[1, 2, 5, 6] h, $NORM>
           { h = Conv<pads = [1, 1, 1, 2]>(x, w)  y = BatchNormalization(h, s, b, m, v) }
  because  the weights of the convolution are computed
  refused  (float[1, 1, 4, 4] x) => (float[1, 2, 5, 6] y, float[1, 2, 5, 6] z)
           <float[1, 2, 5, 6] h, $W, $NORM>
           { h = Conv<pads = [1, 1, 1, 2]>(x, w)  y = BatchNormalization(h, s, b, m, v)
             z = Abs(h) }
  because  the result of this onnx.Conv has other uses: %h is also read by %z (onnx.Abs)
  refused  (float[1, 2, 3] x) => (float[1, 2, 3] y) <$NORM>
           { y = BatchNormalization(x, s, b, m, v) }
  because  an operand is an input of the block
  refused  $IMAGE <float[1, 2, 5, 6] h, $W, $NORM>
           { h = Conv<pads = [1, 1, 1, 2]>(x, w)
             y, o, q = BatchNormalization<training_mode = 1>(h, s, b, m, v) }
  because  the attributes or types of this onnx.BatchNormalization do not fit

BatchNormalization(Conv(x)) => Conv(x)
  fires    $IMAGE <float[1, 2, 5, 6] h, $W, $NORM>
           { h = Conv<pads = [1, 1, 1, 2]>(x, w)
             y = BatchNormalization<epsilon = 1.0>(h, s, b, m, v) }
  becomes  $IMAGE
           <$W, $NORM, float[2, 1, 2, 2] weight = {2, 4, 6, 8, 0.25, -0.5, 1, -1.5},
           float[2] weight_2 = {9, 19.5}>
           { y = Conv<pads = [1, 1, 1, 2]>(x, weight, weight_2) }

Conv(Pad(x)) => Conv(x)
  fires    $IMAGE <float[1, 1, 5, 6] h, $W, int64[8] p = {0, 0, 1, 0, 0, 0, 0, 2}>
           { h = Pad(x, p)  y = Conv<pads = [1, 0, 0, 1]>(h, w) }
  becomes  $IMAGE <float[1, 1, 5, 6] h, $W, int64[8] p = {0, 0, 1, 0, 0, 0, 0, 2}>
           { h = Pad(x, p)  y = Conv<pads = [2, 0, 0, 3]>(x, w) }
  refused  $PADDED <float[1, 1, 4, 4] h, $W> { h = Abs(x)  y = Conv(h, w) }
  because  its input is not the result of Pad
  refused  $PADDED <int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}, $W>
           { h = Pad<mode = "edge">(x, p)  y = Conv(h, w) }
  because  its padding mode is edge
  refused  $PADDED <int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}, $W>
           { h = Pad(x, p)  y = Conv<auto_pad = "SAME_UPPER">(h, w) }
  because  the convolution uses auto_pad
  refused  $PADDED <float[1, 1, k, l] h, $W> { h = Pad(x, q)  y = Conv(h, w) }
  because  its padding is computed, or given for some axes only
  refused  $PADDED <int64[2] p = {1, 1}, int64[1] a = {2}, $W>
           { h = Pad(x, p, , a)  y = Conv(h, w) }
  because  its padding is computed, or given for some axes only
  refused  $PADDED <int64[8] p = {1, 0, 0, 0, 0, 0, 0, 0}, $W> { h = Pad(x, p)  y = Conv(h, w) }
  because  it pads the batch or the channels, or crops
  refused  $PADDED <int64[8] p = {0, 0, 0, 0, 1, 0, 0, 0}, $W> { h = Pad(x, p)  y = Conv(h, w) }
  because  it pads the batch or the channels, or crops
  refused  $PADDED <int64[8] p = {0, 0, 0, 0, 0, 0, -1, 0}, $W> { h = Pad(x, p)  y = Conv(h, w) }
  because  it pads the batch or the channels, or crops
  refused  $PADDED <int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}, $W, float one = {1}>
           { h = Pad(x, p, one)  y = Conv(h, w) }
  because  it does not pad with zeros

Conv(Pad(x)) => Conv(x)
  opset    10
  fires    (float[1, 1, 4, 4] x) => (float[1, 2, 3, 6] y) <$W>
           { h = Pad<pads = [0, 0, 1, 1, 0, 0, 1, 2]>(x)  y = Conv<strides = [2, 1]>(h, w) }
  becomes  (float[1, 1, 4, 4] x) => (float[1, 2, 3, 6] y) <$W>
           { h = Pad<pads = [0, 0, 1, 1, 0, 0, 1, 2]>(x)
             y = Conv<pads = [1, 1, 1, 2], strides = [2, 1]>(x, w) }
  refused  $IMAGE <$W> { h = Pad<pads = [0, 0, 1, 1, 0, 0, 1, 2], value = 1.0>(x)  y = Conv(h, w) }
  because  it does not pad with zeros

MatMul(x, w) + c => Gemm(x, w, c)
  fires    $MATRICES <float[2, 4] h, float[4] c = {1, -2, 3, -4}>
           { h = MatMul(x, w)  y = Add(c, h) }
  becomes  $MATRICES <float[4] c = {1, -2, 3, -4}> { y = Gemm(x, w, c) }
  refused  (float[5, 2, 3] x, float[3, 4] w) => (float[5, 2, 4] y) <float[4] c = {1, 2, 3, 4}>
           { h = MatMul(x, w)  y = Add(h, c) }
  because  it is not a product of two matrices
  refused  (int32[2, 3] x, int32[3, 4] w) => (int32[2, 4] y) <int32[4] c = {1, 2, 3, 4}>
           { h = MatMul(x, w)  y = Add(h, c) }
  because  Gemm takes floats
  refused  (float[2, 3] x, float[3, 2] w) => (float[2, 2] y) <float[2, 2] c = {1, 2, 3, 4}>
           { h = MatMul(x, w)  y = Add(h, c) }
  because  the addend is not a bias of the columns
  refused  $MATRICES <float[1] c = {1}> { h = MatMul(x, w)  y = Add(h, c) }
  because  the addend is not a bias of the columns
  refused  $MATRICES <float[4] c = {1, 2, 3, 4}> { o = Abs(x)  h = MatMul(o, w)  y = Add(h, c) }
  because  its types are unknown
  refused  (float[2, 3] x, float[3, 4] w) => (float[2, 4] y, float[2, 4] z)
           <float[4] c = {1, 2, 3, 4}> { h = MatMul(x, w)  y = Add(h, c)  z = Abs(h) }
  because  the result of this onnx.MatMul has other uses: %h is also read by %z (onnx.Abs)
  refused  (float[2, 3] x, float[3, 4] w, float[4] c) => (float[2, 4] y)
           { h = MatMul(x, w)  y = Add(h, c) }
  because  operand c is not a constant
"""


@dataclass(frozen=True)
class Case:
    """A block of the table."""

    rule: str
    opset: int
    before: str
    after: str
    refused: tuple[tuple[str, str], ...]


def _cases() -> Iterator[Case]:
    for block in Template(TABLE.strip()).substitute(SHORT).split("\n\n"):
        rule, *lines = block.splitlines()
        said: dict[str, list[str]] = defaultdict(list)
        word = ""
        for line in lines:
            first, text = line[:11].strip(), line[11:]
            if first:
                word = first
                said[word].append(text)
            else:
                said[word][-1] += f" {text.strip()}"
        (before,), (after,) = said["fires"], said["becomes"]
        refused = tuple(zip(said["refused"], said["because"], strict=True))
        yield Case(rule, int(said["opset"][0]) if said["opset"] else 18, before, after, refused)


CASES = tuple(_cases())
REFUSED = [(case, *refused) for case in CASES for refused in case.refused]


def test_every_rule_is_stated_here_with_a_graph_that_it_refuses() -> None:
    names = {rule.name for rule in RULES}
    assert {case.rule for case in CASES} == {case.rule for case, *_ in REFUSED} == names


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_the_rule_fires_and_gives_the_graph(case: Case) -> None:
    """Every bit is kept, or what changes is within the rule's own bound."""
    before, after = (specs.module_of(f"g {g}", case.opset) for g in (case.before, case.after))
    (rule,) = [rule for rule in RULES if rule.name == case.rule]
    if rule.tolerance is None:
        specs.becomes(RewriteNodes(), before, after, [case.rule])
        return
    made, fired = specs.apply(RewriteNodes(), before)
    assert fired == [case.rule]
    specs.assert_same_model(made, after)
    arrays = specs.arrays_for(before, special=False)
    for runner in (run, specs.onnxruntimes):
        (old,), (new,) = runner(before, arrays), runner(made, arrays)
        assert np.abs(new - old).max() <= rule.tolerance * np.abs(old).max()


@pytest.mark.parametrize(
    ("case", "graph", "reason"), REFUSED, ids=[f"{case.rule}: {why}" for case, _, why in REFUSED]
)
def test_the_rule_refuses_with_its_reason(case: Case, graph: str, reason: str) -> None:
    module = specs.module_of(f"g {graph}", case.opset)
    rules = [rule for rule in RULES if rule.name == case.rule]
    roots = [op for op in module.main.body.ops if op.kind == rules[0].pattern.kind]
    answers = [answer for op in roots for _, answer, _ in explain(rules, module, op)]
    assert any(reason in answer for answer in answers), answers
    specs.stays(RewriteNodes(), module)


def test_rules_go_on_until_none_fires_in_subgraphs_too() -> None:
    """What one leaves is what the next one needs; the other branch has nothing to do."""
    specs.becomes(
        RewriteNodes(),
        """g (float[2, 3] x, bool c) => (float[2, 3] y) <float one = {1}> {
          y = If(c) <
            then_branch = t () => (float[2, 3] p) <float[2, 3] h, float[2, 3] i, float[2, 3] j> {
              h = Neg(x)  i = Identity(h)  j = Neg(i)  p = Abs(j) },
            else_branch = e () => (float[2, 3] q) { q = Neg(x) }> }""",
        """g (float[2, 3] x, bool c) => (float[2, 3] y) <float one = {1}> {
          y = If(c) <then_branch = t () => (float[2, 3] p) { p = Abs(x) },
                     else_branch = e () => (float[2, 3] q) { q = Neg(x) }> }""",
        ["Identity(x) => x", "Neg(Neg(x)) => x"],
    )
