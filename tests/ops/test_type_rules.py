"""What type rules refuse, word for word, and what they infer for symbolic sizes and layouts."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import Value, dense, tensor
from core_compiler.ops import REGISTRY, Builder, TypeRuleError, agrees, infer
from tests.ops.samples import SAMPLES
from tests.ops.samples.effects import COUNTER, VECTOR, block


def t(*shape, kind="f32"):
    return tensor(shape, kind)


WINDOW = {"window": (3,), "strides": (1,), "low": (0,), "high": (0,), "dilations": (1,)}
CONV = {"strides": (1, 1), "low": (0, 0), "high": (0, 0), "dilations": (1, 1)}
TRANSPOSED = {**CONV, "output_padding": (0, 0)}
I64 = {"kind": "i64"}

#: kind, operand types, attributes, the message after ``core.<kind>: ``
REFUSED = [
    ("add", [t(2, 3), t(3)], {},
     "a has shape (2, 3) but b has (3) (broadcast is explicit)"),
    ("add", [t(2), t(2, kind="f64")], {}, "a is f32 but b is f64"),
    ("add", [t(2, kind="i1")] * 2, {}, "a is i1, expected a number"),
    ("exp", [t(2, kind="i32")], {}, "x is i32, expected a float of 16 bits or more"),
    ("exp", [t(2, kind="f8E5M2")], {}, "x is f8E5M2, expected a float of 16 bits or more"),
    ("neg", [t(2, kind="ui8")], {}, "x is ui8, expected a float or signed integer"),
    ("not", [t(2)], {}, "x is f32, expected i1"),
    ("and", [t(2)] * 2, {}, "a is f32, expected an integer or i1"),
    ("select", [t(2), t(2), t(2)], {}, "p is f32, expected i1"),
    ("select", [t(2, kind="i1"), t(3), t(3)], {},
     "p has shape (2) but a has (3) (broadcast is explicit)"),
    ("cast", [t(2)], {"dtype": "f33"}, "dtype = 'f33' is not a dtype"),
    ("cast", [t(2)], {"dtype": "f8E8M0FNU"},
     "f8E8M0FNU contains block scales and cannot be converted"),
    ("bitcast", [t(2)], {"dtype": "f64"}, "f32 and f64 do not have one width of whole bytes"),
    ("iota", [], {"shape": (2,), "dtype": "i32", "axis": 1}, "axis 1 is not in 0..0"),
    ("broadcast", [t(2, 3)], {"shape": (2, 4), "dims": (0, 1)},
     "axis 1 of x has size 3, which is neither 1 nor 4 (axis 1 of (2, 4))"),
    ("broadcast", [t(2)], {"shape": (2, 2), "dims": ()}, "dims () has 0 entries, expected 1"),
    ("broadcast", [t(2, 2)], {"shape": (2, 2), "dims": (1, 0)},
     "dims (1, 0) must be ascending and distinct"),
    ("reshape", [t(2, 3)], {"shape": (5,)}, "(2, 3) has 6 elements but (5) has 5"),
    ("reshape", [t(2, "n")], {"shape": ("m", 2)}, "(2, n) has 2*n elements but (m, 2) has 2*m"),
    ("transpose", [t(2, 3)], {"permutation": (0, 0)},
     "(0, 0) is not a permutation of the 2 axes of x"),
    ("slice", [t(5)], {"starts": (1,), "limits": (6,), "strides": (1,)},
     "axis 0: limit 6 exceeds the size 5"),
    ("slice", [t(5)], {"starts": (3,), "limits": (2,), "strides": (1,)},
     "axis 0: limit 2 is below start 3"),
    ("slice", [t(5)], {"starts": (0,), "limits": (5,), "strides": (-1,)},
     "axis 0: stride -1 is below 1 (reverse is its own op)"),
    ("slice", [t("n")], {"starts": (0,), "limits": ("n",), "strides": (2,)},
     "axis 0: symbolic limit 'n' with stride 2; bind it first"),
    ("reverse", [t(2)], {"axes": (1,)}, "axes: axis 1 is not in 0..0"),
    ("windows", [t(5)], {"axes": (0,), "sizes": (3,), "strides": (1,), "dilations": (3,)},
     "windows of 7 of the 5 elements of axis 0"),
    ("windows", [t(5)], {"axes": (0,), "sizes": (0,), "strides": (1,), "dilations": (1,)},
     "axis 0: windows of 0 elements, stride 1, dilation 1; each is at least 1"),
    ("pad", [t(2), t()], {"low": (-3,), "high": (0,), "interior": (0,)},
     "axis 0: size 2 cropped to -1"),
    ("pad", [t(2), t(1)], {"low": (0,), "high": (0,), "interior": (0,)},
     "value has rank 1, expected 0"),
    ("concat", [t(2, 3), t(3, 3)], {"axis": 1},
     "operand 1 has shape (3, 3), which differs from operand 0's (2, 3) outside axis 1"),
    ("concat", [], {"axis": 0}, "nothing to join"),
    ("dynamic_slice", [t(4), t(kind="i32")], {"sizes": (5,)},
     "axis 0: a slice of 5 exceeds the size 4"),
    ("dynamic_slice", [t(4)], {"sizes": (2,)}, "0 starts for 1 axes"),
    ("dynamic_update_slice", [t(4), t(2), t()], {}, "start 0 is f32, expected an integer"),
    ("take", [t(4), t(2)], {"axis": 0}, "indices is f32, expected an integer"),
    ("take_along", [t(4, 3), t(2, 4, **I64)], {"axis": 0},
     "axis 1: indices has size 4 but x has 3"),
    ("gather_nd", [t(4, 3), t(2, 3, **I64)], {}, "3 positions after 0 batch axes of rank 2"),
    ("scatter_along", [t(4), t(2, **I64), t(3)], {"axis": 0},
     "updates has shape (3), expected (2)"),
    ("scatter_nd", [t(4), t(2, 1, **I64), t(2)], {"mode": "sub"},
     "mode = 'sub' is not one of set, add, mul, max, min"),
    ("reduce_sum", [t(2, 3)], {"axes": (1, 0)}, "axes (1, 0) must be ascending and distinct"),
    ("reduce_sum", [t(2)], {"axes": (0,), "orders": ("fast",)},
     "order 'fast' is not lanes or sequence"),
    ("reduce_max", [t(0, 3)], {"axes": (0,)}, "axis 0 of x is empty: nothing to choose from"),
    ("argmax", [t(2)], {"axis": 0, "dtype": "f32"}, "dtype is f32, expected an integer"),
    ("cumsum", [t(2)], {"axis": -1}, "axis -1 is not in 0..0"),
    ("matmul", [t(2, 64), t(32, 5)], {}, "K of a is 64 but of b is 32"),
    ("matmul", [t(2, 3, 4), t(1, 4, 5)], {},
     "batch axes of a are (2) but of b (1) (broadcast is explicit)"),
    ("matmul", [t(3, 4), t(4, 5)], {"accumulate": "f64"},
     "accumulate = f64, but f32 accumulates in f32"),
    ("matmul", [t(2, 3), t(3)], {}, "ranks 2 and 1, expected at least 2"),
    ("contract", [t(2, 3), t(4, 5)], {"contract_a": (1,), "contract_b": (0,)},
     "contracted axis 1 of a is 3 but axis 0 of b is 4"),
    ("linear", [t(2, 3), t(3, 4), t(5)], {},
     "bias is tensor<5xf32>, expected tensor<4xf32>"),
    ("conv", [t(1, 3, 8, 8), t(4, 2, 3, 3)], CONV,
     "x has 3 channels but w ([O, C/groups, ...]) takes 2"),
    ("conv", [t(1, 4, 8, 8), t(3, 2, 3, 3)], {**CONV, "groups": 2},
     "3 output channels do not divide into 2 groups"),
    ("conv", [t(1, 3, 2, 8), t(4, 3, 3, 3)], CONV,
     "spatial axis 0: window of span 3 exceeds the padded size 2"),
    ("conv", [t(1, 3, "h", 8), t(4, 3, 3, 3)], {**CONV, "strides": (2, 1)},
     "spatial axis 0: symbolic size 'h' with stride 2; bind it first"),
    ("conv_transpose", [t(1, 3, 4, 4), t(3, 2, 3, 3)], {**TRANSPOSED, "output_padding": (1, 0)},
     "spatial axis 0: output_padding 1 is not below stride 1 or dilation 1"),
    ("max_pool", [t(1, 2, 5)], {**WINDOW, "low": (-1,)}, "low (-1,) contains a size below 0"),
    ("avg_pool", [t(2, 5)], WINDOW, "x has rank 2, expected [N, C, 1 to 3 spatial axes]"),
    ("topk", [t(3)], {"axis": 0, "k": 4}, "k = 4 of 3 elements"),
    ("random_bits", [t(kind="ui64")], {"shape": (2,), "stream": -1, "dtype": "ui32"},
     "stream -1 is not 32 bits"),
    ("random_uniform", [t(2, kind="ui64")], {"shape": (2,), "stream": 0},
     "seed has rank 1, expected 0"),
    ("clamp", [t(2)], {}, "neither low nor high is given"),
    ("clamp", [t(2, kind="i32")], {"low": 0.5}, "x is i32 but low and high are 0.5 and None"),
    ("gelu", [t(2)], {"approximate": "fast"}, "approximate = 'fast' is not one of none, tanh"),
    ("softmax", [t(2)], {"axis": 1}, "axis 1 is not in 0..0"),
    ("softmax", [t(2)], {"axis": 0.5}, "axis = 0.5 is not int"),
    ("layer_norm", [t(2, 3), t(2)], {"axis": 1}, "scale has shape (2), expected (3)"),
    ("batch_norm", [t(2, 3), t(3), t(3), t(3), t(2)], {},
     "variance has shape (2), expected (3)"),
    ("group_norm", [t(2, 3, 4)], {"groups": 2}, "3 channels do not divide into 2 groups"),
    ("group_norm", [t(2, 4, 3)], {"groups": 2, "axis": 2},
     "3 channels do not divide into 2 groups"),
    ("instance_norm", [t(2, 3, 4)], {"axis": 0}, "axis 0 is the batch, not the channels"),
    ("attention", [t(2, 4, 8), t(2, 5, 8), t(2, 6, 8)], {}, "k has 5 keys but v has 6"),
    ("attention", [t(2, 4, 8), t(2, 5, 8), t(2, 5, 8), t(3, 4, 5)], {},
     "mask of shape (3, 4, 5) does not broadcast to the scores (2, 4, 5)"),
    ("cross_entropy", [t(2, 3), t(3, **I64)], {}, "targets has shape (3), expected (2)"),
    ("cross_entropy", [t(2, 3), t(2, **I64)], {"label_smoothing": 2.0},
     "label_smoothing 2.0 is not in 0..1"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "types", "attributes", "message"), REFUSED, ids=lambda v: str(v))
def test_refuses_with_one_clear_message(kind, types, attributes, message):
    with pytest.raises(TypeRuleError) as caught:
        infer(f"core.{kind}", types, attributes)
    assert str(caught.value) == f"core.{kind}: {message}"


def test_refuses_unknown_and_missing_parts():
    with pytest.raises(TypeRuleError, match=r"^core.add takes \(a, b\), got 1 operands$"):
        infer("core.add", [t(2)], {})
    with pytest.raises(TypeRuleError, match=r"^core.softmax: missing attribute 'axis'$"):
        infer("core.softmax", [t(2)], {})
    with pytest.raises(TypeRuleError, match=r"^core.relu: unknown attribute 'slope'$"):
        infer("core.relu", [t(2)], {"slope": 1.0})
    with pytest.raises(TypeRuleError, match=r"takes the regions then, else, got 0$"):
        infer("core.if", [t(kind="i1")], {})


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_refuses_an_operand_too_few(kind):
    sample = next(s for s in SAMPLES if s.kind == kind)
    fixed = [n for n in REGISTRY[kind].operands if n[0] != "*" and n[-1] != "?"]
    types = [tensor(a.shape, a.dtype) for a in sample.operands][: len(fixed) - 1]
    if fixed:
        with pytest.raises(TypeRuleError, match="takes"):
            infer(kind, types, sample.attributes)


def test_regions_must_fit():
    wrong = block([VECTOR], lambda b, x: b.reshape(x, shape=(2, 2)))
    right = block([VECTOR], lambda b, x: b.neg(x))
    types = [t(kind="i1"), t(4)]
    with pytest.raises(TypeRuleError, match=r"region else returns \(tensor<4xf32>\), expected"):
        infer("core.if", types, {}, (wrong, right))
    body = block([COUNTER, VECTOR], lambda b, i, x: (x, i))
    go = block([COUNTER, VECTOR], lambda b, i, x: b.lt(i, i))
    with pytest.raises(TypeRuleError, match=r"region body returns .* expected \(tensor<i32>, "):
        infer("core.while", [t(kind="i32"), t(4)], {}, (go, body))
    outer = Value(tensor((4,), "f32"), "outer")
    with pytest.raises(TypeRuleError, match=r"core.group: the region reads %outer"):
        infer("core.group", [t(4)], {}, (block([VECTOR], lambda b, x: b.add(x, outer)),))


SYMBOLIC = [
    ("add", [t("n", 3), t("n", 3)], {}, ("n", 3)),
    ("broadcast", [t(1, 4)], {"shape": ("n", 4), "dims": (0, 1)}, ("n", 4)),
    ("reshape", [t("n", 3, "m")], {"shape": ("m*n", 3)}, ("m*n", 3)),
    ("reshape", [t("n", 6)], {"shape": ("2*n", 3)}, ("2*n", 3)),
    ("concat", [t("n", 3), t(2, 3), t("n", 3)], {"axis": 0}, ("2*n+2", 3)),
    ("pad", [t("n"), t()], {"low": (1,), "high": (2,), "interior": (1,)}, ("2*n+2",)),
    ("slice", [t("n", 4)], {"starts": (1, 0), "limits": ("n", 4), "strides": (1, 2)}, ("n-1", 2)),
    ("take", [t(9, 4), t("n", "s", **I64)], {"axis": 0}, ("n", "s", 4)),
    ("reduce_sum", [t("n", 4, "s")], {"axes": (1,)}, ("n", "s")),
    ("matmul", [t("n", "s", 4), t("n", 4, "s")], {}, ("n", "s", "s")),
    ("linear", [t("n", "s", 4), t(4, 5)], {}, ("n", "s", 5)),
    ("conv", [t("n", 3, "h", 8), t(4, 3, 3, 3)], CONV, ("n", 4, "h-2", 6)),
    (
        "conv",
        [t("n", 3, "h", 8), t(4, 3, 3, 3)],
        {**CONV, "low": (1, 1), "high": (1, 1)},
        ("n", 4, "h", 8),
    ),
    ("conv", [t("n", 3, "2*h", 8), t(4, 3, 2, 2)], {**CONV, "strides": (2, 2)}, ("n", 4, "h", 4)),
    (
        "conv_transpose",
        [t("n", 3, "h", 4), t(3, 2, 2, 2)],
        {**TRANSPOSED, "strides": (2, 2)},
        ("n", 2, "2*h", 8),
    ),
    ("softmax", [t("n", "s")], {"axis": 1}, ("n", "s")),
    ("attention", [t("n", "s", 8), t("n", "k", 8), t("n", "k", 4)], {}, ("n", "s", 4)),
    ("cross_entropy", [t("n", 5), t("n", **I64)], {"reduction": "none"}, ("n",)),
]


@pytest.mark.parametrize(("kind", "types", "attributes", "shape"), SYMBOLIC, ids=lambda v: str(v))
def test_infers_symbolic_sizes(kind, types, attributes, shape):
    assert infer(f"core.{kind}", types, attributes)[0].shape == shape


def test_elementwise_ops_keep_a_common_order():
    turned = tensor((2, 3, 4, 5), "f32", (0, 2, 3, 1))
    plain = tensor((2, 3, 4, 5), "f32")
    assert infer("core.add", [turned, turned], {})[0] is turned
    assert infer("core.gelu", [turned], {})[0] is turned
    assert infer("core.add", [turned, plain], {})[0] is plain
    assert infer("core.transpose", [turned], {"permutation": (0, 1, 2, 3)})[0] is plain
    assert agrees(plain, turned)
    assert not agrees(plain, plain.with_(dtype="f64"))


def test_integer_products_are_i32():
    pair = [t(2, 3, kind="i8"), t(3, 2, kind="i8")]
    assert infer("core.matmul", pair, {})[0] is tensor((2, 2), "i32")
    narrow = [t(2, 3, kind="bf16"), t(3, 2, kind="bf16")]
    assert infer("core.matmul", narrow, {})[0] is tensor((2, 2), "bf16")
    assert infer("core.matmul", narrow, {"accumulate": "f32"})[0] is tensor((2, 2), "f32")


def test_the_builder_settles_attributes():
    b = Builder()
    x = Value(tensor((2, 3), "f32"))
    b.reduce_sum(x, axes=[np.int64(1)])
    assert dict(b.ops[-1].attributes) == {"axes": (1,), "orders": ()}
    b.cast(x, dtype="bf16")
    assert b.ops[-1]["dtype"].name == "bf16" and b.ops[-1]["saturate"] is True
    b.leaky_relu(x, slope=1)
    assert b.ops[-1]["slope"] == 1.0 and isinstance(b.ops[-1]["slope"], float)
    b.attention(x, x, x)
    assert "scale" not in b.ops[-1].attributes
    b.op("core.constant", (), value=dense(np.arange(3)))
    assert b.ops[-1].result.type is tensor((3,), "i64")
    with pytest.raises(TypeRuleError, match="causal = 1 is not bool"):
        b.attention(x, x, x, causal=1)
