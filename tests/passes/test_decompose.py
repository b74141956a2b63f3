"""Decompose: composites by their declared decompositions."""

from __future__ import annotations

from core_compiler.ops import REGISTRY
from core_compiler.passes.decompose import Decompose
from tests.passes import specs
from tests.passes.programs import program


def test_a_linear_layer_becomes_a_product_and_a_sum():
    before = program(lambda b, x, w, v: b.linear(x, w, v), "2x3xf32", "3x4xf32", "4xf32")
    after, rewrites = specs.apply(Decompose(), before)
    assert specs.rules_fired(rewrites) == ["decompose core.linear"]
    assert [op.kind for op in after.main.body.ops] == ["core.matmul", "core.broadcast", "core.add"]
    specs.assert_same_results(before, after)


def test_kinds_is_an_option_and_other_composites_stay():
    before = program(lambda b, x: b.gelu(b.softmax(x, axis=0), approximate="none"), "4xf32")
    assert specs.apply(Decompose(), before)[0] is before
    after, rewrites = specs.apply(Decompose(kinds="softmax"), before)
    assert specs.rules_fired(rewrites) == ["decompose core.softmax"]
    assert "core.gelu" in [op.kind for op in after.main.body.ops]


def test_decompositions_of_the_default_list_exist():
    for kind in Decompose().kinds.split(","):
        assert f"core.{kind}" not in REGISTRY or REGISTRY[f"core.{kind}"].decompose is not None
