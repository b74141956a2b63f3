"""Update in place: the next state is written where the old one lies, if none reads that later."""

from __future__ import annotations

import re

import numpy as np
import pytest

from core_compiler.ir import Module
from core_compiler.ir.target import ALLOC, COPY, INPUT, LAUNCH, OUTPUT, TAKES
from core_compiler.kernel_ir.interpreter import interpret
from core_compiler.passes.base import PassContext
from core_compiler.passes.bufferize import Bufferize
from core_compiler.training.passes.update_in_place import UpdateInPlace
from tests.passes import specs
from tests.passes.programs import inputs
from tests.training.passes.steps import noted, outlined

ARGUMENTS = ("parameter w: 4x4xf32", "parameter v: 4x4xf32", "batch x: 4x4xf32")
RESULTS = ("loss", "next w", "next v")


def total(b, x):
    return b.reduce_sum(x, axes=(0, 1))


def updated(b, w, v, x):
    loss = total(b, b.mul(x, w))
    return loss, b.sub(w, x), b.neg(x)


def read_again(b, w, v, x):
    loss, next_w = total(b, x), b.sub(w, x)
    return loss, next_w, b.mul(v, w)


def of_other_elements(b, w, v, x):
    return total(b, x), b.matmul(w, x), b.mul(v, x)


def before_the_loss(b, w, v, x):
    next_w = b.sub(w, x)
    return total(b, v), next_w, b.mul(v, x)


def before_an_exchange(b, w, v, x):
    loss, next_w = total(b, x), b.sub(w, x)
    return loss, next_w, b.sub(v, b.all_reduce(x, shards=2))


def written_twice(b, w, v, x):
    """The second launch writes over a part of what the first has written."""
    loss, place = total(b, x), b.constant(1, "i64")
    part = b.slice(x, starts=(0, 0), limits=(2, 2), strides=(1, 1))
    return loss, b.dynamic_update_slice(b.mul(w, x), part, place, place), b.mul(v, x)


def exchanged(b, w, v, x):
    """Each is the next value of the other; v is read for the last time as w is written."""
    return total(b, x), v, w


def buffered(build) -> Module:
    return Bufferize().run(outlined(build, ARGUMENTS, RESULTS), PassContext())


def taken(module: Module) -> dict[int, int]:
    """Result -> the argument whose memory it takes."""
    outputs = [op for op in module.main.body.ops if op.kind == OUTPUT and TAKES in op.attributes]
    return {op["index"]: op[TAKES] for op in outputs}


def ran(module: Module, arrays, takes: dict[int, int]) -> list[bytes]:
    """Main's results by its kernels, some of them in the memory of arguments."""
    given = [a.copy() for a in arrays]
    ops = module.main.body.ops
    held = {op["index"]: op.operands[0] for op in ops if op.kind == OUTPUT}
    memory = {held[result]: given[argument] for result, argument in takes.items()}
    for op in ops:
        if op.kind == INPUT:
            memory[op.result] = given[op["index"]]
        elif op.kind == ALLOC:
            memory.setdefault(op.result, np.full(op.result.type.shape, np.nan, np.float32))
        elif op.kind == COPY:
            memory[op.operands[1]][...] = memory[op.operands[0]]
        elif op.kind == LAUNCH:
            first = {"operand": 0, "result": op["reads"]}
            rows = op["arguments"]
            sizes = [number for kind, number in rows if kind == "size"]
            values = [op.operands[first[kind] + i] for kind, i in rows if kind in first]
            interpret(module.functions[op["kernel"]], [memory[v] for v in values], sizes)
    return [memory[value].tobytes() for _, value in sorted(held.items())]


def test_what_is_written_last_and_element_by_element_takes_the_old_memory():
    before = buffered(updated)
    after, rewrites = specs.apply(UpdateInPlace(), before)
    assert taken(before) == {} and taken(after) == {1: 0, 2: 1}
    assert [(r.rule, r.note) for r in rewrites] == [("update in place", "64 bytes")] * 2
    told = [("note", "2 of 2 parts of the state are updated in place")]
    assert noted(UpdateInPlace(), before) == told
    lines = [re.sub(r", takes = \d : i64", "", line) for line in specs.body_text(after)]
    assert lines == specs.body_text(before)


@pytest.mark.parametrize(
    "build",
    [read_again, of_other_elements, before_the_loss, before_an_exchange, written_twice, exchanged],
)
def test_w_has_two_arrays_if_its_old_value_is_needed_longer(build):
    before = buffered(build)
    after, _ = specs.apply(UpdateInPlace(), before)
    assert taken(after) == {2: 1}
    told = [("note", "1 of 2 parts of the state are updated in place")]
    assert noted(UpdateInPlace(), before) == told


def test_memory_that_is_written_through_a_view_is_taken_as_well():
    def viewed(b, w, v, x):
        loss, *flat = total(b, x), *(b.reshape(value, shape=(16,)) for value in (w, x))
        return loss, b.reshape(b.sub(*flat), shape=(4, 4)), b.mul(v, x)

    after, _ = specs.apply(UpdateInPlace(), buffered(viewed))
    assert taken(after) == {1: 0, 2: 1}


def test_a_step_that_cannot_update_in_place_stays_the_same_module():
    def crossed(b, w, v, x):
        return total(b, x), b.matmul(w, v), b.matmul(v, w)

    before = buffered(crossed)
    after, rewrites = specs.apply(UpdateInPlace(), before)
    assert after is before and not rewrites


@pytest.mark.parametrize("build", [updated, read_again, of_other_elements, exchanged])
def test_the_kernels_write_the_same_bits_in_place(build):
    after, _ = specs.apply(UpdateInPlace(), buffered(build))
    arrays = inputs(outlined(build, ARGUMENTS, RESULTS))
    assert ran(after, arrays, taken(after)) == ran(after, arrays, {})


@pytest.mark.parametrize("build", [read_again, of_other_elements, exchanged])
def test_they_would_not_if_w_were_updated_in_place_too(build):
    """What the refusals prevent; and the test before this one would see it."""
    before = buffered(build)
    arrays = inputs(outlined(build, ARGUMENTS, RESULTS))
    assert ran(before, arrays, {1: 0}) != ran(before, arrays, {})


def test_it_stops_after_some_rewrites():
    after, rewrites = specs.apply(UpdateInPlace(), buffered(updated), limit=1)
    assert taken(after) == {1: 0} and len(rewrites) == 1
