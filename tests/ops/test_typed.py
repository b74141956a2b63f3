"""Typed views of ops: what an op's declaration says, by name and with a type."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_compiler.ops import REGISTRY, typed
from core_compiler.support.errors import InternalError
from tests.passes.programs import program


def test_operands_and_attributes_by_name():
    module = program(
        lambda b, x, w: b.conv(
            x, w, strides=(2, 1), low=(0, 0), high=(1, 0), dilations=(1, 1), groups=1
        ),
        "1x2x8x8xf32",
        "3x2x2x2xf32",
    )
    (op,) = module.main.body.ops
    conv = typed.Conv.of(op)
    assert (conv.x, conv.w, conv.result) == (*op.operands, op.result)
    assert (conv.strides, conv.high, conv.groups, conv.accumulate) == ((2, 1), (1, 0), 1, None)
    assert conv.op is op


def test_what_is_left_out_is_the_default():
    def build(b, x):
        return b.layer_norm(x, axis=1), b.topk(x, axis=1, k=2)[0], b.concat(x, x, axis=0)

    norm, top, joined = program(build, "3x4xf32").main.body.ops
    assert typed.LayerNorm.of(norm).scale is None and typed.LayerNorm.of(norm).epsilon == 1e-5
    assert typed.Topk.of(top).largest is True
    assert typed.Concat.of(joined).xs == joined.operands


def test_an_op_of_another_kind_is_refused():
    (op,) = program(lambda b, x: b.neg(x), "3xf32").main.body.ops
    with pytest.raises(InternalError, match=r"expected core\.abs, got core\.neg"):
        typed.Abs.of(op)
    assert typed.Abs.match(op) is None and typed.Abs.match(None) is None
    assert typed.Neg.match(op).x is op.operands[0]


def test_every_op_has_a_view_and_the_stub_says_so():
    for declared in REGISTRY.values():
        assert getattr(typed, typed.class_name(declared)).kind == declared.kind
    stub = Path(typed.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert stub == typed.stub(), "run `python -m core_compiler.ops.typed`"
    with pytest.raises(AttributeError, match="Convolute"):
        _ = typed.Convolute
