"""Elementary functions: bounds in ulps, special values, one source for every target."""

from __future__ import annotations

import json
import math
import platform
import re

import mpmath
import numpy as np
import pytest

from core_compiler.numerics.functions import (
    BINARY,
    BOUNDS,
    FUNCTIONS,
    NAMESPACE,
    THROUGH_F64,
    instantiate_functions,
)
from tests.kernels import definitions
from tests.kernels.exact_scalars import Scalar
from tests.kernels.exhaustive import (
    ONE_ROUNDING,
    ORACLE_SLACK,
    UNARY,
    doubtful,
    error_f32,
    evaluate,
    examine,
    loop,
    misrounded,
    oracle,
    worst_of_all,
)
from tests.kernels.pairs import pairs
from tests.kernels.ulp import MPMATH, ORACLES, bit_patterns, specials
from tests.slow import slow_but


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", UNARY)
def test_f32_bound_on_a_sample_and_specials(name):
    sample = bit_patterns(17, 1 << 20, 4093)
    line = np.linspace(-20, 20, 1 << 16).astype(np.float32)
    x = np.concatenate([sample, specials(np.float32), line])
    error, place = error_f32(name, x)
    assert error <= BOUNDS[name][0] + ORACLE_SLACK, f"{error} ulps at {x[place]!r}"


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", UNARY)
def test_f32_bound_on_every_input(name):
    """All 2**32 bit patterns."""
    error, where = worst_of_all(name)
    assert error <= BOUNDS[name][0] + ORACLE_SLACK, f"{error} ulps at {where!r}"


ROUNDED = sorted(set(FUNCTIONS) - set(ONE_ROUNDING))
QUICK = ("atan2", "erf", "exp", "expm1", "log", "pow", "sin", "tanh")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", slow_but(QUICK, ROUNDED))
def test_f64_rounded_once_is_correctly_rounded_on_a_sample(name):
    """The figures of all inputs name the few that are not; none of them is in the sample."""
    if name in BINARY:
        args = pairs(name, 0, 1 << 17)
    else:
        line = np.linspace(-20, 20, 1 << 15).astype(np.float32)
        args = (np.concatenate([bit_patterns(29, 1 << 17, 32749), line]),)
    found = examine(name, *args)
    if name == "atan2":  # a subnormal quotient is a tie, which the angle is just not
        assert found.wrong["f64"] < 10
        assert all(abs(y / x) < 2.0**-126 for y, x in found.at)
    else:
        assert found.wrong["f64"] == 0, found.at
    if name not in THROUGH_F64:
        assert found.wrong["f32"] > 100, "the count finds what the f32 function rounds otherwise"


def test_the_oracle_of_correct_rounding_decides_ties_and_borders():
    """x**2 of 13 bits is halfway between two numbers; 2**-150 is halfway to the smallest."""
    tie = np.float32(4097.0)
    assert float(tie) ** 2 % 2 == 1 and 2**24 < float(tie) ** 2 < 2**25
    args = np.array([tie, 2, 2, 2]), np.array([2, -150, -149, 128])
    x, y = (a.astype(np.float32) for a in args)
    right = np.array([4097.0**2 - 1, 0, 2.0**-149, np.inf], np.float32)
    assert doubtful(right, oracle("pow", x, y)).size >= 2
    assert not misrounded("pow", right, oracle("pow", x, y), (x, y)).size
    for wrong in (np.nextafter(right, np.float32(-1)), np.nextafter(right, np.float32(np.inf))):
        wrong[~np.isfinite(wrong)] = right[~np.isfinite(wrong)]
        places = misrounded("pow", wrong, oracle("pow", x, y), (x, y))
        assert places.tolist() == np.flatnonzero(wrong != right).tolist()


def test_pairs_are_drawn_one_by_one_and_say_something():
    for name in BINARY:
        x, y = pairs(name, 0, 40_000)
        for whole, part in zip((x, y), pairs(name, 32_768, 100), strict=True):
            assert definitions.same_bits(whole[32_768:32_868], part)
        results = np.abs(oracle(name, x, y))
        assert np.mean((results > 2.0**-126) & (results < 2.0**128) & (results != 1)) > 0.5
    x, y = pairs("pow", 0, 40_000)
    assert np.mean((x < 0) & np.isfinite(oracle("pow", x, y))) > 0.1, "whole exponents"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BINARY)
def test_f32_bound_of_binary_functions(name):
    rng = np.random.default_rng(0)
    patterns = [bit_patterns(0, 1 << 16, 65521), bit_patterns(9, 1 << 16, 65537)]
    rng.shuffle(patterns[1])
    moderate = [np.exp2(rng.uniform(-8, 8, 1 << 16)), rng.uniform(-16, 16, 1 << 16)]
    grid = [v.ravel() for v in np.meshgrid(*[specials(np.float32)] * 2)]
    x, y = (
        np.concatenate([a, b.astype(np.float32), c])
        for a, b, c in zip(patterns, moderate, grid, strict=True)
    )
    if name == "remainder":
        check_remainder(x, y)
        return
    if name == "fmod":  # exact, so the oracle of the same dtype serves
        with np.errstate(all="ignore"):
            assert definitions.same_bits(evaluate(name, x, y), np.fmod(x, y))
        return
    error, place = error_f32(name, x, y)
    assert error <= BOUNDS[name][0] + ORACLE_SLACK, f"{error} ulps at {x[place]!r}, {y[place]!r}"


def check_remainder(x, y):
    """NumPy's rule (fmod, then + y where signs differ) in f32; infinite y follows it too."""
    with np.errstate(all="ignore"):
        r = np.fmod(x, y)
        r = np.where((r != 0) & ((r < 0) != (y < 0)), r + y, r)
        expected = np.where(r == 0, np.copysign(r, y), r)
    assert definitions.same_bits(evaluate("remainder", x, y), expected)


DOMAINS = {
    "exp": (-745, 709),
    "exp2": (-1074, 1023),
    "expm1": (-30, 709),
    "tanh": (-3, 20),
    "sigmoid": (-740, 40),
    "erf": (-6, 6),
    "erfc": (-3, 26.5),
    "sinh": (-709, 709),
    "cosh": (-709, 709),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "atanh": (-1, 1),
    "log1p": (-0.99, 3),
}
EXACT = ("floor", "ceil", "trunc", "round_even", "abs", "neg", "sign", "fmod", "remainder")


def sample_f64(name: str, count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    wide = np.exp2(rng.uniform(-60, 60, count))
    if name in ("log", "log2", "log10", "sqrt", "rsqrt"):
        extreme = np.exp2(rng.uniform(-1070, 1020, count))
        return np.concatenate([wide, rng.uniform(0.5, 2, count), extreme])
    if name == "acosh":
        return 1 + wide
    if name in ("sin", "cos", "tan"):
        return np.concatenate(
            [
                rng.uniform(-10, 10, count),
                np.exp2(rng.uniform(20, 1020, count)),
                np.arange(1, 40) * (np.pi / 2),
            ]
        )
    low, high = DOMAINS.get(name, (-4, 4))
    near = np.exp2(rng.uniform(-40, -1, count))
    x = np.concatenate([rng.uniform(low, high, count), near, -near])
    return x if name in DOMAINS else np.concatenate([x, wide, -wide])


def error_f64(got: float, exact) -> float:
    if exact == 0:
        return 0.0 if got == 0 else math.inf
    exponent = max(mpmath.frexp(abs(exact))[1] - 1, -1022)
    if exponent > 1023:
        return 0.0 if math.isinf(got) else math.inf
    return float(abs(mpmath.mpf(got) - exact) * mpmath.mpf(2) ** (52 - exponent))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - set(EXACT)))
def test_f64_bound_on_a_sample(name):
    count = 150
    with mpmath.workprec(250):
        function = MPMATH.get(name) or getattr(mpmath, name)
        if name in BINARY:
            rng = np.random.default_rng(2)
            x = np.exp2(rng.uniform(-60, 60, 3 * count))
            y = (
                rng.uniform(-1070, 1020, 3 * count) / np.log2(x)
                if name == "pow"
                else (rng.standard_normal(3 * count))
            )
            args = (x, y)
        else:
            args = (sample_f64(name, count),)
        got = evaluate(name, *args)
        for row in zip(*(a.tolist() for a in args), got.tolist(), strict=True):
            exact = function(*map(mpmath.mpf, row[:-1]))
            assert error_f64(row[-1], exact) <= BOUNDS[name][1], row


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_f64_special_values(name):
    values = specials(np.float64)
    args = [values] if name not in BINARY else [v.ravel() for v in np.meshgrid(values, values)]
    with np.errstate(all="ignore"):
        expected = ORACLES[name](*args)
    got = evaluate(name, *map(np.ascontiguousarray, args))
    if name == "remainder":
        return check_remainder(*args)
    subnormal_slack = np.where(np.abs(expected) < 1e-305, 2 * 5e-324, 0)
    with np.errstate(all="ignore"):
        close = np.abs(got - expected) <= 64 * np.spacing(np.abs(expected)) + subnormal_slack
        same = (got == expected) & (np.signbit(got) == np.signbit(expected))
    same |= np.isnan(got) & np.isnan(expected)
    regular = np.isfinite(expected) & np.isfinite(got)
    bad = ~(same | (regular & close & ((expected != 0) | (subnormal_slack > 0))))
    assert not bad.any(), [(*(a[bad][0] for a in args), got[bad][0], expected[bad][0])]


# --- one source, any target --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_same_source_over_other_primitives_gives_the_same_bits(dtype):
    """What a second target does: here plain Python with exact rationals."""
    scalar = {"f32": np.float32, "f64": np.float64}[dtype]
    names = Scalar.names()
    other = {**names, **instantiate_functions(lambda f: f, names)}
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [
            rng.uniform(0.01, 1, 4),
            -np.exp2(rng.uniform(-9, 9, 4)),
            [0.0, -0.0, np.inf, np.nan, 1e-40, 1e30],
        ]
    ).astype(scalar)
    with np.errstate(all="ignore"):
        for name in UNARY:
            got = np.array([other[f"{name}_{dtype}"](v) for v in x], scalar)
            assert definitions.same_bits(got, evaluate(name, x)), name
        for name in ("pow", "atan2", "fmod"):
            y = x[::-1].copy()
            got = np.array([other[f"{name}_{dtype}"](*v) for v in zip(x, y, strict=True)], scalar)
            assert definitions.same_bits(got, evaluate(name, x, y)), name


@pytest.mark.sampled(6)
@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="reads x86 assembly"
)
@pytest.mark.parametrize("name", sorted(set(UNARY) - set(EXACT)))
def test_loops_vectorise_without_calls(name):
    x = np.ones(4, np.float32)
    evaluate(name, x)
    run = loop(name, "f32")
    assembly = run.inspect_asm(run.signatures[0])
    assert re.search(r"\b(vfn?m(add|sub)\d+p[sd]|vsqrtp[sd]|sqrtp[sd])\b", assembly)
    assert not re.search(r"call\w*\s+\S*(exp|log|sin|cos|tan|pow|erf|fma)f?\b", assembly)


def test_the_table_is_whole():
    assert set(BOUNDS) == set(FUNCTIONS)
    for function in FUNCTIONS.values():
        assert function.dtypes == ("f32", "f64")
        assert NAMESPACE[function.symbol("f32")] is function.callables["f32"]


@pytest.fixture
def figures(repository) -> dict:
    return json.loads((repository / "tests" / "results" / "functions-f32.json").read_text())


def test_the_figures_are_of_every_function_and_within_its_bound(figures):
    rows = {r["function"]: r for r in figures["functions"]}
    assert set(rows) == set(FUNCTIONS)
    for name, found in rows.items():
        assert found["worst_ulps"] <= BOUNDS[name][0] + ORACLE_SLACK, name
        assert name in BINARY or found["inputs"] == 1 << 32, name
        assert {"commit", "date"} <= set(figures["runs"][found["run"]]), name
    assert rows["pow"]["inputs"] >= 1 << 32


def test_the_documentation_states_the_bounds_and_the_figures(repository, figures):
    text = (repository / "docs" / "numerics.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.M))
    counted = {r["function"]: r.get("misrounded", {}) for r in figures["functions"]}
    wanted = {}
    for name, bounds in BOUNDS.items():
        counts = [
            f"{counted[name][way]:,}" if way in counted[name] else "" for way in ("f32", "f64")
        ]
        wanted[name] = [*map(str, bounds), *counts]
    assert {name: [cell.strip() for cell in row.split("|")] for name, row in rows.items()} == wanted


@pytest.mark.parametrize("name", ROUNDED)
def test_inputs_that_the_figures_name_are_not_correctly_rounded(name, figures):
    (found,) = [r for r in figures["functions"] if r["function"] == name]
    named = found.get("misrounded_through_f64_at", [])
    args = tuple(np.array(a, np.float32) for a in zip(*map(np.atleast_1d, named), strict=True))
    if named:
        assert examine(name, *args).wrong["f64"] == len(named)
