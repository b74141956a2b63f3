"""Gradient rules against finite differences in f64, on the samples of every op."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import finfo

from core_compiler.ir import Block, DType, Function, Module, Value, WeightStore, dtype, tensor
from core_compiler.ops import REGISTRY, Builder, evaluate_block
from core_compiler.ops.gradients.table import CONSTANT
from core_compiler.support.errors import UserError
from core_compiler.training.graph.autodiff import pullback
from tests.ops.samples import SAMPLES, Sample

F64 = dtype("f64")
#: Ops that are not held against finite differences here, and why.
STEPS = {
    "core.if": "its regions are of the sample's dtype; it has a test of its own",
    "core.bitcast": "its result is other bits",
    "core.while": "it has a test file of its own, test_loops.py",
    "core.group": "it is made by fusion, after differentiation",
    "core.householder": "it has no rule: qr and svd have, which are composed of it",
    "core.reflect": "as householder",
    "core.orthogonal_columns": "as householder",
    "core.all_reduce": "it joins several programs: see test_shards.py",
    "core.distribute": "it hands a value to several programs: see test_shards.py",
}
STEP = 1e-6
#: Ops whose rules do not apply to all shapes of matrices.
OF_SQUARES = ("core.lu", "core.qr")


def _is_complete(sample: Sample) -> bool:
    return bool(sample.attributes.get("complete"))


def _is_differentiable(sample: Sample) -> bool:
    if REGISTRY[sample.kind].gradient is CONSTANT or sample.kind in STEPS:
        return False
    if sample.kind in ("core.nll_loss", "core.cross_entropy") and len(sample.operands) > 2:
        return False  # of class weights there is no gradient, in torch as here
    rows, columns = sample.operands[0].shape[-2:] if sample.kind in OF_SQUARES else (0, 0)
    if rows < columns or (rows > columns and (sample.kind == "core.lu" or _is_complete(sample))):
        return False  # refused: see test_pytorch_linear_algebra.py
    op = sample.op()
    if not all(np.isfinite(a.astype(np.float64)).all() for a in sample.operands):
        return False
    floats = [dtype(a.dtype).is_float and a.size for a in sample.operands]
    return any(floats) and any(v.type.dtype.is_float and v.type.elements for v in op.results)


def _chosen() -> list[Sample]:
    """Of every kind a few samples, as different as they come."""
    found: dict[str, list[Sample]] = {}
    for sample in SAMPLES:
        if _is_differentiable(sample):
            found.setdefault(sample.kind, []).append(sample)
    return [s for held in found.values() for s in held[:: max(1, len(held) // 4)][:4]]


def _as_f64(sample: Sample) -> list[np.ndarray]:
    """The operands in f64, away from ties and kinks."""
    random = np.random.default_rng(1)

    def moved(a: np.ndarray) -> np.ndarray:
        wide = a.astype(np.float64)
        return wide + 1e-3 * (0.5 + random.random(a.shape)) * np.where(wide == 0, 1, np.abs(wide))

    return [moved(a) if dtype(a.dtype).is_float else a for a in sample.operands]


def _module(sample: Sample, arrays, kind: DType = F64) -> Module:
    """The op of a sample on float operands of one dtype."""
    old = sample.op()
    arguments = tuple(Value(type_of(a), f"x{i}") for i, a in enumerate(arrays))
    attributes = {
        k: kind if k in ("dtype", "accumulate") and v.is_float else v
        for k, v in old.attributes.items()
    }
    b = Builder(WeightStore())
    made = b.op(old.kind, arguments, regions=old.regions, **attributes)
    outputs = made if isinstance(made, tuple) else (made,)
    return Module({"main": Function("main", Block(arguments, tuple(b.ops), outputs))}, b.weights)


def type_of(array: np.ndarray):
    return tensor(array.shape, array.dtype)


def _is_its_own(sample: Sample) -> bool:
    """Whether a gradient is that of the op: of an estimator it is compared in test_gradients.py."""
    return REGISTRY[sample.kind].slope is None


def _within(kind: np.dtype, array: np.ndarray) -> np.ndarray:
    """Numbers of f64, 0 where a narrow dtype has infinities."""
    array = np.nan_to_num(array.astype(np.float64), posinf=0, neginf=0)
    return np.where(np.abs(array) > float(finfo(kind).max), 0, array)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("sample", [s for s in _chosen() if _is_its_own(s)], ids=str)
def test_a_rule_is_the_slope(sample: Sample):
    arrays = _as_f64(sample)
    module = _module(sample, arrays)
    body = module.main.body
    random = np.random.default_rng(0)
    way = [
        random.standard_normal(a.shape) if a.dtype == np.float64 else np.zeros_like(a)
        for a in arrays
    ]
    results = evaluate_block(body, arrays, module.weights)
    given = [random.standard_normal(r.shape) for r in results if r.dtype == np.float64]

    def there(sign: int) -> float:
        moved = [
            a + sign * STEP * w if a.dtype == np.float64 else a
            for a, w in zip(arrays, way, strict=True)
        ]
        made = evaluate_block(body, moved, module.weights)
        floats = [r for r in made if r.dtype == np.float64]
        return sum(
            float((np.nan_to_num(r, posinf=0, neginf=0) * g).sum())
            for r, g in zip(floats, given, strict=True)
        )

    slope = (there(1) - there(-1)) / (2 * STEP)
    back = pullback(module)
    found = evaluate_block(back.main.body, [*arrays, *given], back.weights)
    moves = [w for a, w in zip(arrays, way, strict=True) if a.dtype == np.float64]
    ours = sum(float((f * w).sum()) for f, w in zip(found, moves, strict=True))
    assert ours == pytest.approx(slope, rel=2e-5, abs=2e-6 * sum(map(np.size, found)) ** 0.5)


def _has_narrow_forms(sample: Sample) -> bool:
    return REGISTRY[sample.kind].family != "linear_algebra"


#: Rounding to nearest is off by this share.
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11}


@pytest.mark.sampled(24)
@pytest.mark.parametrize("kind", ROUNDING)
@pytest.mark.parametrize("sample", [s for s in _chosen() if _has_narrow_forms(s)], ids=str)
def test_a_rule_on_narrow_operands_is_the_one_in_f64_rounded(sample: Sample, kind: str):
    """Cotangents have the dtypes of what they are of; four roundings off, of the largest."""
    wide, narrow = _as_f64(sample), dtype(kind)
    low = [a.astype(narrow.numpy) if a.dtype == np.float64 else a for a in wide]
    exact = [a.astype(np.float64) if a.dtype == narrow.numpy else a for a in low]
    module, wanted = _module(sample, low, narrow), _module(sample, exact)
    random = np.random.default_rng(0)
    given = [
        random.standard_normal(v.type.shape).astype(narrow.numpy)
        for v in module.main.outputs
        if v.type.dtype is narrow
    ]
    back, forth = pullback(module), pullback(wanted)
    assert all(v.type.dtype is narrow for v in back.main.outputs)
    found = evaluate_block(back.main.body, [*low, *given], back.weights)
    there = evaluate_block(
        forth.main.body, [*exact, *(g.astype(np.float64) for g in given)], forth.weights
    )
    for ours, theirs in zip(found, there, strict=True):
        ours, theirs = (_within(narrow.numpy, array) for array in (ours, theirs))
        bound = 4 * ROUNDING[kind] * np.abs(theirs).max(initial=0)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_passes_on_what_its_regions_are_given_and_what_they_read(taken):
    """x is handed over twice and read from outside too; y is only read from outside."""
    scalar, row = tensor((), "i1"), tensor((3,), "f64")
    p, x, y = Value(scalar, "p"), Value(row, "x"), Value(row, "y")

    def region(build) -> Block:
        a, c = Value(row, "a"), Value(row, "c")
        b = Builder()
        made = build(b, a, c)
        return Block((a, c), tuple(b.ops), (made,))

    then = region(lambda b, a, c: b.mul(b.mul(a, c), b.mul(x, y)))
    other = region(lambda b, a, c: b.add(b.sin(a), y))
    b = Builder()
    made = b.op("core.if", (p, x, x), regions=(then, other))
    module = Module({"main": Function("main", Block((p, x, y), tuple(b.ops), (made,)))})
    u, v, dy = np.array([0.5, -1.0, 2.0]), np.array([1.5, 0.25, -1.0]), np.array([1.0, 2.0, 3.0])
    of_x, of_y = evaluate_block(pullback(module).main.body, [np.bool_(taken), u, v, dy])
    if taken:  # x^3 y
        np.testing.assert_allclose(of_x, dy * 3 * u**2 * v)
        np.testing.assert_allclose(of_y, dy * u**3)
    else:
        np.testing.assert_allclose(of_x, dy * np.cos(u), rtol=1e-12)
        np.testing.assert_allclose(of_y, dy)


def test_every_rule_gives_ops_that_have_a_gradient_in_turn():
    chosen = {sample.kind: sample for sample in _chosen()}
    assert len(chosen) > 90
    for sample in chosen.values():
        pullback(pullback(_module(sample, _as_f64(sample))))  # refuses what has none


def test_the_gradient_of_a_scattered_product_is_that_of_the_other_factors():
    """Also where factors are 0: one of several, two of several, one alone in its element."""
    x = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, -1.0]])
    updates = np.array([[0.0, 4.0, 5.0], [6.0, 7.0, 2.0], [0.0, 3.0, 2.0]])
    places = np.array([[0, 0, 1], [0, 0, 0], [0, 1, 1]])
    b, arguments = Builder(), (Value(type_of(x), "x"), Value(type_of(updates), "updates"))
    made = b.scatter_along(arguments[0], b.constant(places), arguments[1], axis=1, mode="mul")
    module = Module({"main": Function("main", Block(arguments, tuple(b.ops), (made,)))}, b.weights)
    dy = np.array([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]])
    back = pullback(module)
    of_x, of_updates = evaluate_block(back.main.body, [x, updates, dy], back.weights)
    np.testing.assert_array_equal(of_x, [[0, 10], [3 * 84, 5], [0, 66]])
    np.testing.assert_array_equal(of_updates, [[8, 0, 0], [0, 0, 0], [0, -22, -33]])


def test_every_op_says_what_its_gradient_is():
    """A rule, a decomposition, or that nothing passes through."""
    silent = {k for k, d in REGISTRY.items() if d.gradient is None and d.decompose is None}
    # Of the parts of a QR or singular value decomposition, only the whole has a gradient.
    parts = {"core.householder", "core.reflect", "core.orthogonal_columns"}
    assert silent == {"core.bitcast", "core.while", "core.group", "core.if"} | parts


def test_ops_without_a_gradient_are_named_at_once():
    b = Builder()
    x = Value(type_of(np.zeros(4, np.float32)), "x")
    bits = b.bitcast(b.exp(x), dtype="i32")
    y = b.mul(b.bitcast(bits, dtype="f32"), b.bitcast(b.neg(x), dtype="f32"))
    module = Module({"main": Function("main", Block((x,), tuple(b.ops), (y,)))})
    with pytest.raises(UserError, match=r"1 op .*core\.bitcast \(it has no gradient rule"):
        pullback(module)
