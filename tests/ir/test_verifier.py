"""The verifier finds each kind of breakage, and says op, function and model line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from core_compiler.ir import (
    Block,
    Dense,
    FrontendNode,
    Function,
    Module,
    Op,
    Origin,
    TensorType,
    Value,
    tensor,
)
from core_compiler.ir.types import INDEX
from core_compiler.ir.verifier import LevelRules, verify
from tests.examples import examples
from tests.ir.modules import F32, modules, small_module

ANY = {level: LevelRules() for level in ("tensor", "kernel", "target")}


def equal_types(op: Op) -> str | None:
    """A type rule for these tests: elementwise."""
    if op.kind == "core.exp" and op.operands[0].type is not op.result.type:
        return f"core.exp keeps its type, {op.operands[0].type}"
    return None


RULES = {
    "tensor": LevelRules(frozenset({"core.exp", "core.while"}), (TensorType,), equal_types),
    "kernel": LevelRules(),
}


def at(line: int) -> Origin:
    return Origin.root(FrontendNode("n", "aten.exp", "model.py", line))


def exp(x: Value, y: Value, line: int = 1, **attributes) -> Op:
    return Op("core.exp", (x,), (y,), attributes, (), at(line))


def main(arguments, ops, outputs, attributes=None, level="tensor", name="main") -> Module:
    function = Function(
        "main", Block(tuple(arguments), tuple(ops), tuple(outputs)), level, attributes or {}
    )
    return Module({name: function})


def broken() -> dict[str, tuple[Module, str, str]]:
    """Kind of breakage -> (module, part of the message, model line)."""
    x, y, z = Value(F32, "x"), Value(F32, "y"), Value(F32, "z")
    small, index = Value(tensor((2,), "f32"), "s"), Value(INDEX, "i")
    inner = Block((), (exp(x, z, 4),), (z,))
    loop = Op("core.while", (x,), (y,), None, (inner,), at(3))
    odd = exp(x, y, 5, value=Dense(F32, b"\0"))
    bad = exp(x, y, 6)
    object.__setattr__(bad, "attributes", {"axes": [1, 2]})
    return {
        "use before definition": (
            main([x], [exp(y, z, 2), exp(x, y)], [z]),
            "%y is used before it is defined",
            "model.py:2",
        ),
        "undefined": (main([], [exp(x, y, 7)], [y]), "%x is used before", "model.py:7"),
        "own result": (main([x], [exp(y, y, 8)], [y]), "%y is used before", "model.py:8"),
        "defined twice": (
            main([x], [exp(x, y), exp(x, y, 9)], [y]),
            "%y is defined twice",
            "model.py:9",
        ),
        "argument twice": (main([x, x], [], [x]), "%x is defined twice", ""),
        "out of its region": (
            main([x], [loop, exp(z, small, 11)], [y]),
            "%z is used outside the region",
            "model.py:11",
        ),
        "region redefines": (main([x], [exp(x, z), loop], [y]), "%z is defined tw", "model.py:4"),
        "undefined output": (main([x], [], [y]), "%y is returned before", ""),
        "illegal kind": (
            main([x], [Op("core.softmax", (x,), (y,), None, (), at(12))], [y]),
            "core.softmax is not legal at level tensor",
            "model.py:12",
        ),
        "illegal type": (main([index], [], []), "type index is not legal at level tensor", ""),
        "type rule": (main([x], [exp(x, small, 13)], [small]), "keeps its type", "model.py:13"),
        "constant's bytes": (main([x], [odd], [y]), "1 bytes for tensor<2x3xf32>", "model.py:5"),
        "attribute's kind": (main([x], [bad], [y]), "not an attribute: [1, 2]", "model.py:6"),
        "unknown level": (main([], [], [], level="assembly"), "no rules for level 'assembly'", ""),
        "wrong name": (main([], [], [], name="other"), "is registered as @other", ""),
        "alias range": (main([x], [], [x], {"aliases": ((1, 0),)}), "result 1 of 1", ""),
        "alias types": (main([x, small], [], [x], {"aliases": ((0, 1),)}), "aliased argument", ""),
        "alias twice": (main([x], [], [x, x], {"aliases": ((0, 0), (1, 0))}), "aliased twice", ""),
        "alias shape": (main([x], [], [x], {"aliases": (0, 0)}), "pairs", ""),
    }


@pytest.mark.parametrize("kind", broken())
def test_breakage_is_found_and_named(kind):
    module, message, where = broken()[kind]
    found = verify(module, RULES)
    match = [d for d in found if message in d.message]
    assert match, [str(d) for d in found]
    assert match[0].severity == "error"
    assert match[0].function == "main"
    assert match[0].where == where
    if where:
        assert match[0].op.kind in match[0].message


def test_one_breakage_gives_one_message():
    module, _, _ = broken()["illegal kind"]
    assert len(verify(module, RULES)) == 1


def test_a_fine_module_has_no_findings():
    assert verify(small_module(), ANY) == []


@settings(max_examples=examples(30))
@given(modules())
def test_random_modules_are_well_formed_ssa(module):
    messages = [d.message for d in verify(module, ANY)]
    assert [m for m in messages if "defined" in m or "region" in m] == []
