"""Elementary functions that a compile uses, held to the errors that the contract states."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from core_compiler.debug import declared, elementary, random_numbers
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ir import Block, Function, Module, Value, WeightStore, tensor
from core_compiler.numerics.functions import FUNCTIONS
from core_compiler.numerics.reference import elementwise
from core_compiler.ops.base import REGISTRY, TypeRuleError
from core_compiler.ops.builder import Builder
from core_compiler.targets.cpu import CPU
from tests.ops.philox import philox
from tests.passes.programs import program
from tests.slow import slow_but
from workbench.model import failures


@pytest.fixture
def afresh(monkeypatch, tmp_path):
    """Nothing is remembered of functions that were tried."""
    monkeypatch.setenv("COMPILER_WORKBENCH_CACHE", str(tmp_path))
    elementary.wrong.cache_clear()
    yield
    elementary.wrong.cache_clear()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", slow_but(("exp", "rsqrt", "tanh"), sorted(FUNCTIONS)))
def test_every_function_keeps_what_it_states(afresh, name, dtype):
    assert elementary.wrong(name, dtype) is None


@pytest.mark.parametrize(
    ("name", "dtype", "wrong"),
    [
        ("tanh", "f32", lambda x, y: np.where(np.abs(x) < 0.5, y * np.float32(1 + 2.0**-22), y)),
        ("exp", "f64", lambda x, y: y * (1 + 2.0**-50)),
        ("sin", "f32", lambda x, y: np.where(np.isinf(x), np.float32(0), y)),
        ("erf", "f64", lambda x, y: np.where(x == 0, 0.0, y)),
        ("log", "f32", lambda x, y: np.where(x == 1, np.float32(1e-7), y)),
        ("fmod", "f32", lambda x, y: np.abs(y)),
    ],
)
def test_errors_beyond_what_is_stated_are_found(afresh, monkeypatch, name, dtype, wrong):
    """Two ulps for small arguments, four, an infinity, a zero's sign, one place, a sign."""
    right = elementwise.apply
    monkeypatch.setattr(elementary, "apply", lambda f, x, *more: wrong(x, right(f, x, *more)))
    fault = elementary.wrong(name, dtype)
    assert fault is not None and fault.ulps > FUNCTIONS[name].bounds[dtype]


def test_a_function_that_errs_more_than_it_states_fails_the_check_of_the_import(
    afresh, monkeypatch
):
    known = FUNCTIONS["acos"]
    stated = replace(known, bounds={**known.bounds, "f32": 0.4})
    monkeypatch.setitem(FUNCTIONS, "acos", stated)
    b, x = Builder(WeightStore()), Value(tensor((4, 5), "f32"), "x")
    y = b.acos(b.tanh(x))
    module = Module({"main": Function("main", Block((x,), tuple(b.ops), (y,)))}, b.weights)
    inputs = [np.linspace(-2, 2, 20, dtype=np.float32).reshape(4, 5)]
    made = compilation.start(module, CPU(), compilation.Options(check=True), inputs).finish()
    (row,) = failures.rows(made)
    assert (row["pass"], row["rule"]) == ("import", "function")
    assert '"core.acos"' in row["op"] and "the contract states 0.4" in row["note"]
    assert row["want"] != row["got"] and 0 < row["error"] < 1e-6


def test_the_f64_that_stages_are_judged_by_is_held_too(afresh, monkeypatch):
    right = elementwise.apply

    def wrong(name, *arguments):
        made = right(name, *arguments)
        return made * (1 + 2.0**-48) if made.dtype == np.float64 else made

    monkeypatch.setattr(elementary, "apply", wrong)
    module = program(lambda b, x: b.exp(x), "4x5xf32")
    inputs = [np.linspace(-2, 2, 20, dtype=np.float32).reshape(4, 5)]
    made = compilation.start(module, CPU(), compilation.Options(check=True), inputs).finish()
    (row,) = failures.rows(made)
    assert (row["pass"], row["rule"]) == ("import", "function") and " in f64 is off" in row["note"]


# -- random numbers --------------------------------------------------------------------------------


def test_the_generator_keeps_the_known_answers():
    random_numbers.wrong.cache_clear()
    assert random_numbers.wrong() is None
    for counter, key, words in random_numbers.KNOWN_ANSWERS:
        assert philox(counter, key) == words


@pytest.mark.parametrize(
    ("function", "fault", "note"),
    [
        ("random_bits", lambda made: made ^ np.uint32(1), "its known answer is 0x6627e8d5"),
        ("uniform", lambda made: made + np.float32(2.0**-24), "its formula gives"),
        ("normal", lambda made: made * np.float32(1.0001), "its formula gives"),
    ],
)
def test_a_generator_that_is_not_the_published_one_fails_the_import(
    monkeypatch, function, fault, note
):
    right = getattr(random_numbers, function)
    monkeypatch.setattr(random_numbers, function, lambda *a, **k: fault(right(*a, **k)))
    random_numbers.wrong.cache_clear()
    module = program(
        lambda b, x: b.add(x, b.random_uniform(b.constant(3, "i64"), shape=(4, 5), stream=0)),
        "4x5xf32",
    )
    inputs = [np.zeros((4, 5), np.float32)]
    made = compilation.start(module, CPU(), compilation.Options(check=True), inputs).finish()
    random_numbers.wrong.cache_clear()
    (row,) = failures.rows(made)
    assert (row["pass"], row["rule"]) == ("import", "function") and note in row["note"]
    assert '"core.random_uniform"' in row["op"]


def test_the_order_of_examples_is_drawn_by_the_generator_too(monkeypatch):
    """A training step without an op that draws is held to it as well, an inference is not."""
    module = program(lambda b, x: b.exp(x), "4x5xf32")
    monkeypatch.setattr(random_numbers, "wrong", lambda: ("not Philox", 1.0, 2.0))
    assert random_numbers.checks(module) == []
    (found,) = random_numbers.checks(module, training=True)
    assert (found.verdict, found.note, found.value) == ("failed", "not Philox", None)


# -- what ops declare ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [k for k, d in REGISTRY.items() if "commutative" in d.traits])
def test_ops_that_are_declared_commutative_are(kind):
    tried = 0
    for name in ("f32", "f64", "bf16", "f16", "i8", "ui8", "i32", "i64", "ui64", "i1"):
        try:
            assert declared.exchanged(kind, name) is None
            tried += 1
        except TypeRuleError:  # not of this dtype
            continue
    assert tried


def test_a_wrong_declaration_is_a_fault_of_the_tables(monkeypatch):
    """Not of the rules that believe it."""
    division = REGISTRY["core.div"]
    wrong = replace(division, traits=division.traits | {"commutative"})
    monkeypatch.setitem(REGISTRY, "core.div", wrong)
    declared.exchanged.cache_clear()
    module = program(lambda b, x: b.div(b.scalar_like(1.0, x), b.exp(x)), "4x5xf32")
    given = [np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)]
    made = compilation.start(module, "cpu", Options(check=True), given).finish()
    (record,) = [r for r in made.checks[0] if r.verdict == "failed"]
    assert record.kind == "function"
    assert re.match(r"core\.div is declared commutative, but returns .* for \(", record.note)
    declared.exchanged.cache_clear()
