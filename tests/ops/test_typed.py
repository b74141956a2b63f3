"""Typed views of ops: what an op's declaration says, by name and with a type."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import core_compiler
from core_compiler.ops import REGISTRY, typed
from core_compiler.ops.views import class_name
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
        assert getattr(typed, class_name(declared.kind)).kind == declared.kind
    stub = Path(typed.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert stub == typed.stub(), "run `python -m core_compiler.ops.typed`"
    with pytest.raises(AttributeError, match="Convolute"):
        _ = typed.Convolute


#: Names that an op has where rules read it. Ops below tensors have attributes of their own, which
#: the checks in `debug` read too.
_NAMES = {"op", "op_", "o", "maker", "norm", "conv", "loss", "soft", "product", "outer", "inner"}
_BELOW = {"codegen", "debug", "kernel_ir", "onnx_level", "runtime", "scheduling", "targets"}


def test_declared_attributes_are_read_through_views():
    """``op["axis"]`` of another op, or with another name, would only be found at run time."""
    declared = {name for one in REGISTRY.values() for name in one.attributes}
    # Of launches and groups, which are not declared ops.
    declared -= {"kernel"}
    root, found = Path(core_compiler.__file__).parent, []
    for path in root.rglob("*.py"):
        if path.relative_to(root).parts[0] in _BELOW:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Name)
                and node.value.id in _NAMES
                and isinstance(node.slice, ast.Constant)
                and node.slice.value in declared
            ):
                found.append(f"{path.relative_to(root)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []
