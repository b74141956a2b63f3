"""Pack weights: integers of few bits take as few in memory, and have the same values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.ir import dtype
from core_compiler.passes.pack_weights import PackWeights
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import program
from tests.passes.quantised_weights import integers, linear

KINDS = {"i4": 4, "ui4": 4, "i2": 2, "ui2": 2}


def _constants(module) -> dict[str, int]:
    """The bytes of main's constants, by dtype."""
    found: dict[str, int] = {}
    for op in module.main.body.ops:
        if op.kind == "core.constant":
            kind = op.result.type
            found[kind.dtype.name] = found.get(kind.dtype.name, 0) + kind.bytes
    return found


@given(st.sampled_from(sorted(KINDS)), st.sampled_from([(64, 32), (4, 16, 33), (36, 60), (2048,)]))
@settings(max_examples=examples(12), deadline=None)
def test_all_values_come_back(kind, shape):
    def table(b, x):
        return b.add(x, b.cast(b.constant(integers(kind, shape), dtype(kind)), dtype="f32"))

    module = program(table, f"{'x'.join(map(str, shape))}xf32")
    after, rewrites = specs.apply(PackWeights(), module)
    assert specs.rules_fired(rewrites)[0] == "integers of few bits as bytes"
    count = int(np.prod(shape)) * KINDS[kind] // 8
    assert _constants(after) == {"ui8": count + 8 // KINDS[kind]}
    specs.check(module, after, rewrites, exact=True)
    specs.assert_same_results(module, after)


def test_ops_of_several_results_are_no_constants():
    def parts(b, x):
        low, places = b.topk(x, k=2, axis=1)
        return b.add(low, b.cast(places, dtype="f32"))

    module = program(parts, "4x8xf32")
    after, _ = specs.apply(PackWeights(), module)
    assert after is module


def test_each_reader_unpacks_for_itself():
    def twice(b, x):
        held = b.constant(integers("i4", (32, 64)), dtype("i4"))
        number = b.cast(held, dtype="f32")
        return b.add(x, number), b.cast(held, dtype="i32")

    module = program(twice, "32x64xf32")
    after, rewrites = specs.apply(PackWeights(), module)
    assert len(rewrites) == 3  # two readers, and the constant that nobody reads
    specs.assert_same_results(module, after)


@pytest.mark.parametrize(("values", "bytes_"), [("i4", 4096), ("ui2", 2048), ("i8", 8192)])
def test_bytes_of_which_a_matrix_is_computed(values, bytes_):
    """torchao holds integers of 4 and 2 bits in bytes."""
    module = program(linear(values, 128, stored="i8", zeros=False), "1x64xf32")
    after, _ = specs.apply(PackWeights(), module)
    name = "i8" if values == "i8" else "ui8"
    assert abs(_constants(after)[name] - bytes_) <= 4
    specs.assert_same_results(module, after)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda b, x: (x, b.constant(integers("i4", (64, 64)), dtype("i4"))), "read as it is"),
        (
            lambda b, x: b.add(
                x, b.cast(b.constant(integers("i4", (33, 33)), dtype("i4")), dtype="f32")
            ),
            "no axis",
        ),
        (
            lambda b, x: b.add(
                x, b.cast(b.constant(integers("i4", (8, 8)), dtype("i4")), dtype="f32")
            ),
            "64",
        ),
        (
            lambda b, x: b.add(
                x, b.cast(b.constant(integers("i4", (64, 64), stored="i8")), dtype="f32")
            ),
            "i8",
        ),
    ],
    ids=["a result", "an odd size", "a few", "bytes that a sum reads"],
)
def test_what_stays(build, reason):
    shape = {"no axis": "33x33", "64": "8x8"}.get(reason, "64x64")
    module = program(build, f"{shape}xf32")
    after, rewrites = specs.apply(PackWeights(), module)
    assert after is module and not rewrites
