"""The corners that the numerics contract fixes, compared bit for bit."""

from __future__ import annotations

import ml_dtypes
import numba
import numpy as np
import pytest

from core_compiler.ir import Op, Value, dtype, tensor
from core_compiler.ir.origin import FrontendNode, Origin
from core_compiler.numerics.jit import jit, reads, writes
from core_compiler.ops import Builder, decomposed, evaluate
from core_compiler.support.errors import raised_at

INF, NAN = np.inf, np.nan
F32, I8, I32, U8 = np.float32, np.int8, np.int32, np.uint8


def run(kind, *operands, **attributes):
    """The only result of ``core.<kind>`` on arrays."""
    builder = Builder()
    builder.op(f"core.{kind}", [Value(tensor(a.shape, a.dtype)) for a in operands], **attributes)
    return evaluate(builder.ops[-1], operands)[0]


def array(values, kind=F32):
    return np.array(values, kind)


#: kind, operands, attributes, result
CASES = [
    ("max", [array([-0.0, 0.0]), array([0.0, -0.0])], {}, array([0.0, 0.0])),
    ("min", [array([-0.0, 0.0]), array([0.0, -0.0])], {}, array([-0.0, -0.0])),
    ("max", [array([NAN, 1, -INF]), array([1, NAN, -INF])], {}, array([NAN, NAN, -INF])),
    ("reduce_max", [array([[-0.0, 0.0], [NAN, INF]])], {"axes": (1,)}, array([0.0, NAN])),
    ("reduce_min", [array([[-0.0, 0.0], [NAN, -INF]])], {"axes": (1,)}, array([-0.0, NAN])),
    ("reduce_sum", [array(np.zeros((2, 0)))], {"axes": (1,)}, array([0.0, 0.0])),
    ("reduce_sum", [array([[-0.0, -0.0]])], {"axes": (1,)}, array([0.0])),
    ("reduce_sum", [array([[-0.0]])], {"axes": (1,)}, array([0.0])),
    ("reduce_sum", [array([[-0.0]])], {"axes": ()}, array([[-0.0]])),
    ("mean", [array([[-0.0]])], {"axes": (1,)}, array([0.0])),
    ("cumsum", [array([-0.0, -0.0])], {"axis": 0}, array([-0.0, -0.0])),
    ("round", [array([0.5, 1.5, -0.5, 2.5, -0.2])], {}, array([0.0, 2, -0.0, 2, -0.0])),
    ("rem", [array([-5, 5, 5.5]), array([3, -3, INF])], {}, array([-2, 2, 5.5])),
    ("mod", [array([-5, 5, 5]), array([3, -3, 3])], {}, array([1, -1, 2])),
    ("rem", [array([-7, 7, 7], I32), array([3, -3, 0], I32)], {}, array([-1, 1, 0], I32)),
    ("mod", [array([-7, 7, 7], I32), array([3, -3, 0], I32)], {}, array([2, -2, 0], I32)),
    ("div", [array([-7, 7, -128], I8), array([2, 0, -1], I8)], {}, array([-3, 0, -128], I8)),
    ("pow", [array([-2, 2, -1, 0], I32), array([31, -1, -3, 0], I32)], {},
     array([-(2**31), 0, -1, 1], I32)),
    ("shl", [array([1, 1, 1], I8), array([7, 8, -1], I8)], {}, array([-128, 0, 0], I8)),
    ("shr", [array([-128, 64, -1, -128], I8), array([7, 8, 8, -1], I8)], {},
     array([-1, 0, -1, -1], I8)),
    ("shr", [array([128, 128], U8), array([7, 8], U8)], {}, array([1, 0], U8)),
    ("sign", [array([-0.0, NAN, -INF])], {}, array([-0.0, NAN, -1])),
    ("select", [array([True, False], bool), array([1, NAN]), array([NAN, 2])], {}, array([1, 2])),
    ("is_finite", [array([INF, NAN, -0.0])], {}, array([False, False, True], bool)),
    ("eq", [array([NAN, 0.0]), array([NAN, -0.0])], {}, array([False, True], bool)),
    ("ne", [array([NAN, 0.0]), array([NAN, -0.0])], {}, array([True, False], bool)),
    ("cast", [array([NAN, INF, -1e9, -1.9, 127.9])], {"dtype": "i8"},
     array([0, 127, -128, -1, 127], I8)),
    ("cast", [array([-1.0, 300.0])], {"dtype": "ui8"}, array([0, 255], U8)),
    ("cast", [array([300, -129], I32)], {"dtype": "i8"}, array([44, 127], I8)),
    ("cast", [array([NAN, 0.0, -0.0, 1e-40])], {"dtype": "i1"},
     array([True, False, False, True], bool)),
    ("cast", [array([16777217, -16777217], I32)], {"dtype": "f32"},
     array([16777216, -16777216])),
    ("cast", [array([1e5, -INF])], {"dtype": "f16"}, array([INF, -INF], np.float16)),
    ("cast", [array([1e5, -INF])], {"dtype": "f8E5M2"},
     array([57344, -57344], ml_dtypes.float8_e5m2)),
    ("cast", [array([1e5, -INF])], {"dtype": "f8E5M2", "saturate": False},
     array([INF, -INF], ml_dtypes.float8_e5m2)),
    ("argmax", [array([[1, NAN, NAN], [2, 2, 1], [-0.0, 0.0, 0.0]])], {"axis": 1},
     array([1, 0, 0], np.int64)),
    ("argmin", [array([[1, NAN, NAN], [2, 1, 1], [0.0, -0.0, -0.0]])], {"axis": 1},
     array([1, 1, 0], np.int64)),
    ("argsort", [array([NAN, 0.0, -0.0, -INF, INF])], {"axis": 0},
     array([3, 1, 2, 4, 0], np.int64)),
    ("argsort", [array([NAN, 0.0, -0.0, -INF, INF])], {"axis": 0, "descending": True},
     array([0, 4, 1, 2, 3], np.int64)),
    ("take", [array([10, 11, 12]), array([-1, 3], I32)], {"axis": 0}, array([10, 12])),
    ("scatter_nd", [array([1, 2, 3]), array([[-1], [3], [1], [1]], I32), array([9, 9, 7, 8])],
     {"mode": "set"}, array([1, 8, 3])),
    ("scatter_along", [array([1, 2, 3]), array([0, 5, 0], I32), array([10, 20, 30])],
     {"axis": 0, "mode": "add"}, array([41, 2, 3])),
    ("max_pool", [array([[[NAN, 1, -0.0]]])],
     {"window": (2,), "strides": (1,), "low": (0,), "high": (2,), "dilations": (1,)},
     array([[[NAN, 1, -0.0, -INF]]])),
    ("conv", [array([[[5.0]]]), array([[[1.0]]])],
     {"strides": (1,), "low": (3,), "high": (-2,), "dilations": (1,)}, array([[[0.0, 0.0]]])),
    ("softmax", [array([[-INF, -INF]])], {"axis": 1}, array([[NAN, NAN]])),
    ("softmax", [array([[-INF, -INF]])], {"axis": 1, "empty_rows": "zero"}, array([[0.0, 0.0]])),
    ("relu", [array([NAN, -0.0, -1])], {}, array([NAN, 0.0, 0.0])),
    ("clamp", [array([NAN, 0.5])], {"low": 2, "high": 1}, array([NAN, 1])),
    ("matmul", [array([[-0.0]]), array([[1.0]])], {}, array([[0.0]])),
    ("matmul", [array([[2**31 - 1]], I32), array([[2]], I32)], {}, array([[-2]], I32)),
    ("mean", [array(np.zeros((2, 0)))], {"axes": (1,)}, array([NAN, NAN])),
    ("variance", [array([[3.0]])], {"axes": (1,), "correction": 1}, array([NAN])),
]  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("kind", "operands", "attributes", "wanted"),
    CASES,
    ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)],
)
def test_corner(kind, operands, attributes, wanted):
    found = run(kind, *operands, **attributes)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    nan = found != found
    np.testing.assert_array_equal(nan, wanted != wanted)
    np.testing.assert_array_equal(bits(found)[~nan], bits(wanted)[~nan])


@pytest.mark.parametrize("kind", ["max", "min"])
def test_maxima_give_the_canonical_nan(kind):
    odd = np.array([0xFFC00001], np.uint32).view(F32)
    for operands in ((odd, array([1])), (array([1]), odd)):
        assert bits(run(kind, *operands))[0] == 0x7FC00000
    assert bits(run(f"reduce_{kind}", odd, axes=(0,))) == 0x7FC00000


def bits(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}").reshape(a.shape)


def test_layer_norm_is_its_formula_step_by_step():
    """Each step one f32 operation in NumPy; the sums (16 terms) by the 32 lanes' tree in f32."""
    x = np.random.default_rng(1).standard_normal((3, 16)).astype(F32)
    scale, bias = x[0] + 1, x[1]

    def total(v):
        lanes = np.zeros((len(v), 32), F32)
        lanes[:, :16] = v
        for width in (16, 8, 4, 2, 1):
            lanes[:, :width] += lanes[:, width : 2 * width]
        return lanes[:, 0]

    mean = total(x) / F32(16)
    d = x - mean[:, None]
    variance = total(d * d) / F32(16)
    wanted = d / np.sqrt(variance + F32(1e-5))[:, None] * scale + bias
    np.testing.assert_array_equal(run("layer_norm", x, scale, bias, axis=1), wanted)


def test_an_order_carried_through_a_transpose_keeps_the_bits():
    x = np.random.default_rng(2).standard_normal((6, 700)).astype(F32)
    straight = run("reduce_sum", x, axes=(1,))
    turned = run("reduce_sum", np.ascontiguousarray(x.T), axes=(0,), orders=("lanes",))
    np.testing.assert_array_equal(straight, turned)
    assert (straight != run("reduce_sum", np.ascontiguousarray(x.T), axes=(0,))).any()


def test_sixteen_bits_are_widened_once_and_rounded_once():
    x = np.random.default_rng(3).standard_normal((4, 50)).astype(ml_dtypes.bfloat16)
    wide = run("softmax", x.astype(F32), axis=1)
    np.testing.assert_array_equal(run("softmax", x, axis=1), wide.astype(ml_dtypes.bfloat16))


def test_decompositions_fill_in_defaults():
    """An op read from text may leave defaults out."""
    x, y = (Value(tensor((2, 3), "f32")) for _ in range(2))
    op = Op("core.layer_norm", (x,), (y,), {"axis": 1})
    assert decomposed(op).outputs[0].type is y.type
    assert [p.kind for p in decomposed(Op("core.relu", (x,), (y,))).ops][-1] == "core.max"


#: op, operand shapes whose first axis is the batch (None: not batched), attributes
ROWS = [
    ("softmax", [(40,)], {"axis": 1}),
    ("layer_norm", [(40,)], {"axis": 1}),
    ("group_norm", [(4, 9)], {"groups": 2}),
    ("gelu", [(17,)], {}),
    ("reduce_sum", [(300,)], {"axes": (1,)}),
    ("cumsum", [(300,)], {"axis": 1}),
    ("matmul", [(3, 300), (300, 5)], {}),
    ("attention", [(3, 8), (5, 8), (5, 8)], {"causal": True}),
    (
        "conv",
        [(3, 9, 9), None],
        {"strides": (2, 2), "low": (1, 1), "high": (1, 1), "dilations": (1, 1)},
    ),
    ("linear", [(300,), None], {}),
]
FIXED = {"conv": (4, 3, 3, 3), "linear": (300, 7)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "shapes", "attributes"), ROWS, ids=[r[0] for r in ROWS])
@pytest.mark.parametrize("name", ["f32", "bf16"])
def test_a_row_of_a_batch_is_the_batch_of_one(kind, shapes, attributes, name):
    random = np.random.default_rng(4)
    operands = [
        random.standard_normal(FIXED[kind] if s is None else (6, *s)).astype(dtype(name).numpy)
        for s in shapes
    ]
    together = run(kind, *operands, **attributes)
    for row in range(6):
        one = [a if s is None else a[row : row + 1] for a, s in zip(operands, shapes, strict=True)]
        np.testing.assert_array_equal(bits(run(kind, *one, **attributes))[0], bits(together)[row])


def test_what_a_reference_raises_is_noted_with_its_op_and_line():
    builder = Builder()
    builder.op("core.add", [Value(tensor((2,), "f32")), Value(tensor((2,), "f32"))])
    node = FrontendNode("add", "add", "model.py", 12)
    op = builder.ops[-1].with_(origin=Origin.root(node))
    with pytest.raises(ValueError, match="broadcast") as told:
        evaluate(op, [array([1, 2]), array([1, 2, 3])])
    assert raised_at(told.value).endswith(", in the reference of core.add of model.py:12")


def test_an_index_outside_an_array_raises_where_loops_are_compiled_with_bounds():
    def loop(x, out):
        for i in range(x.shape[0]):
            out[i + 1] = x[i]

    element = numba.types.float32
    compiled = jit(loop, reads(element, 1), writes(element, 1), bounds=True)
    with pytest.raises(IndexError):
        compiled(array([1, 2]), array([0, 0]))
