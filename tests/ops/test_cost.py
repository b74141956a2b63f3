"""Costs against published and hand-counted figures."""

from __future__ import annotations

from core_compiler.ir import Value, tensor
from core_compiler.ops import Builder, cost


def made(kind, *shapes, dtype="f32", **attributes):
    builder = Builder()
    builder.op(f"core.{kind}", [Value(tensor(s, dtype)) for s in shapes], **attributes)
    return cost(builder.ops[-1])


def test_products_count_two_a_term():
    assert made("matmul", (8, 32, 64), (8, 64, 16)).flops == 2 * 8 * 32 * 64 * 16
    assert made("matmul", (2, 3), (3, 4)).bytes == 4 * (6 + 12 + 8)
    pairs = {"batch_a": (0,), "batch_b": (0,), "contract_a": (1,), "contract_b": (2,)}
    assert made("contract", (8, 64, 32), (8, 16, 64), **pairs).flops == 2 * 8 * 32 * 64 * 16


def test_resnet50_stem():
    """7x7 convolution of 224x224x3 to 112x112x64: 118 million multiply-adds (He et al., 2015)."""
    found = made(
        "conv",
        (1, 3, 224, 224),
        (64, 3, 7, 7),
        strides=(2, 2),
        low=(3, 3),
        high=(3, 3),
        dilations=(1, 1),
    )
    assert found.flops == 2 * 118_013_952


def test_a_strided_transpose_costs_what_its_convolution_costs():
    space = {"strides": (2, 2), "low": (1, 1), "high": (1, 1), "dilations": (1, 1)}
    forward = made("conv", (1, 8, 16, 16), (4, 8, 4, 4), **space)
    back = made("conv_transpose", (1, 4, 8, 8), (4, 8, 4, 4), output_padding=(0, 0), **space)
    assert forward.flops == back.flops


def test_movement_costs_bytes_alone():
    found = made("transpose", (16, 8), permutation=(1, 0))
    assert (found.flops, found.bytes) == (0, 2 * 4 * 16 * 8)


def test_elementwise_and_reductions_count_elements():
    assert made("tanh", (7, 3)).flops == 21
    assert made("reduce_sum", (7, 3), axes=(1,)).flops == 21


def test_a_composite_costs_its_decomposition():
    """max, subtract, exp, sum, divide: five operations an element."""
    found = made("softmax", (10, 32), axis=1)
    assert (found.flops, found.bytes) == (5 * 320, 2 * 4 * 320)


def test_an_operand_used_twice_is_read_once():
    builder = Builder()
    x = Value(tensor((5,), "f32"))
    builder.add(x, x)
    assert cost(builder.ops[-1]).bytes == 2 * 5 * 4
