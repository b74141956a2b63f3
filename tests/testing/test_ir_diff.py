"""Golden IR: names and numbers of values are no difference, everything else is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.ir.parser import parse
from core_compiler.ir.text import print_module
from tests.examples import examples
from tests.passes.programs import program, programs
from workbench.testing.file_check import text_of
from workbench.testing.ir_diff import ir_diff


def renamed(text: str, prefix: str) -> str:
    return re.sub(r"%([\w$.\-]+)", rf"%{prefix}\1", text)


@settings(max_examples=examples(30))
@given(programs(), st.sampled_from(["v", "0x", "x"]))
def test_names_are_no_difference(module, prefix):
    text = print_module(module)
    other = parse(renamed(text, prefix))
    assert print_module(other) != text
    assert ir_diff(text, other) == []
    assert ir_diff(print_module(other), module) == []


def chain(*kinds: str):
    def build(b, x):
        for kind in kinds:
            x = getattr(b, kind)(x)
        return x

    return program(build, "4xf32")


def changed(rows: list[str]) -> list[str]:
    return [row for row in rows if row[0] in "+-" and row[:3] not in ("---", "+++")]


def test_an_op_more_is_one_line_more():
    """Though every value after it has another number."""
    wanted = print_module(chain("exp", "tanh", "abs", "floor"))
    rows = changed(ir_diff(wanted, chain("exp", "neg", "tanh", "abs", "floor")))
    assert [re.findall(r'^[+-]|"core.\w+"\(%\d\'?\)', row) for row in rows] == [
        ["-", '"core.tanh"(%0)'],
        ["+", '"core.neg"(%0)'],
        ["+", '"core.tanh"(%1\')'],
    ]


def test_another_operand_of_the_same_type_is_a_difference():
    one = program(lambda b, x, y: b.sub(b.exp(x), y), "4xf32", "4xf32")
    other = program(lambda b, x, y: b.sub(b.exp(y), x), "4xf32", "4xf32")
    assert changed(ir_diff(print_module(one), other))


@pytest.mark.parametrize(
    "kinds", [("exp",), ("exp", "tanh", "neg"), ("tanh", "exp"), ("abs", "exp")]
)
def test_other_programs_are_different(kinds):
    assert changed(ir_diff(print_module(chain("exp", "tanh")), chain(*kinds)))


def test_other_functions_are_different():
    module = chain("exp")
    body = module.main.body
    more = module.with_function(module.main.__class__("also", body))
    assert all(row[0] == "+" for row in changed(ir_diff(print_module(module), more)))
    assert all(row[0] == "-" for row in changed(ir_diff(print_module(more), module)))


def test_a_file_that_is_no_ir_is_shown_as_text():
    text = print_module(chain("exp"))
    rows = ir_diff(f"<<<<<<< HEAD\n{text}", chain("exp"))
    assert changed(rows) == ["-<<<<<<< HEAD"]


def test_text_of_what_has_none():
    assert text_of(chain("exp")) == print_module(chain("exp"))
    with pytest.raises(Exception, match="list has no IR text; pass a text, a module, a stage"):
        text_of([])
