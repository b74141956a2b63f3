"""What ops cost on a machine: units, what a broadcast's reader reads, what cannot be told."""

from __future__ import annotations

import pytest

from core_compiler.hardware.costs import DEFAULT_BALANCE, CostModel
from core_compiler.hardware.machine import shipped
from core_compiler.targets.cpu import CPU
from tests.passes.programs import program

F = "8x16xf32"
SIZE = 8 * 16 * 4
FREE = CostModel(1e9)  # arithmetic costs nothing


def price(build, *types, model=FREE, read=None):
    """Of the last op that ``build`` makes."""
    op = program(build, *types).main.body.ops[-1]
    return model.price(op) if read is None else model.price(op, read)


def test_the_balance_is_operations_in_the_time_of_a_byte():
    h200 = shipped("h200")
    flops = 132 * 1.98e9 * 4 * 32 * 2  # processors, clock, warps an instruction, lanes, an fma
    assert CostModel.of(h200).balance == pytest.approx(flops / 4.8e12)
    assert CostModel.of(shipped("cpu")).balance == DEFAULT_BALANCE  # it says no clock


def test_a_target_has_costs():
    assert isinstance(CPU().costs, CostModel)


def test_arithmetic_is_added_to_bytes():
    built = lambda b, x, y: b.matmul(x, y)  # noqa: E731
    free = price(built, F, "16x4xf32")
    assert free == 1 + SIZE + 16 * 4 * 4 + 8 * 4 * 4
    flops = 2 * 8 * 4 * 16
    assert price(built, F, "16x4xf32", model=CostModel(4.0)) == free + flops // 4


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda b, x: b.exp(x), 1),  # fused with what it reads
        (lambda b, x: b.add(x, b.neg(x)), 1 + SIZE),  # one operand comes in registers
        (lambda b, x: b.mul(x, x), 1),
        (lambda b, x: b.reshape(x, shape=(128,)), 1),
        (lambda b, x: b.broadcast(x, shape=(3, 8, 16), dims=(1, 2)), 1),
        (lambda b, x: b.transpose(x, permutation=(1, 0)), 1 + SIZE // 16),
        (lambda b, x: b.reduce_sum(x, axes=(1,)), 1 + SIZE + 8 * 4),
        (lambda b, x: b.constant(1.0, "f32"), 0),
        (lambda b, x: b.take(x, b.constant([1, 3], "i32"), axis=0), 1 + 8 + 2 * (2 * 16 * 4)),
    ],
)
def test_bytes(build, wanted):
    assert price(build, F) == wanted


def test_an_operand_that_is_repeated_is_read_where_it_lies():
    built = lambda b, x, y: b.add(x, y)  # noqa: E731
    assert price(built, F, F) == 1 + SIZE
    sizes = iter([SIZE, 64])
    assert price(built, F, F, read=lambda v: next(sizes)) == 1 + 64
