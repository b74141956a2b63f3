"""Recompose: each spelling is raised to the op it is, with the attributes it has; near misses are
refused, and say why.

The spellings are those of spellings.py; test_recompose_properties.py draws them at random and
test_recompose_forms.py takes them from the frameworks.
"""
# ruff: noqa: E501  (tables of programs)

from __future__ import annotations

import itertools

import numpy as np
import pytest

from core_compiler.frontends.stablehlo import import_program
from core_compiler.passes import patterns
from core_compiler.passes.recompose import RULES, Recompose
from core_compiler.passes.rules import explain
from tests.passes import specs
from tests.passes import spellings as s
from tests.passes.programs import program
from tests.passes.spellings import like

X = "2x3x8xf32"
EPS = float(np.float32(1e-5))


def raised(kind: str, **attributes):
    return lambda b, *values: b.op(f"core.{kind}", values, **attributes)


def pairs(*options):
    return itertools.product(*options)


NORM = {"axis": 2, "epsilon": EPS}
SCALE = "8xf32"

#: (program, what it becomes, types): each spelling of spellings.py at least once.
ACTIVATIONS = [
    *((s.gelu(form, way), raised("gelu"), (X,)) for form, way in pairs(s.ERF_GATES, range(3))),
    *((s.gelu_tanh(bend, way), raised("gelu", approximate="tanh"), (X,))
      for bend, way in pairs(s.BENDS, range(3))),
    (s.sigmoid, raised("sigmoid"), (X,)),
    (lambda b, x: b.mul(x, b.sigmoid(x)), raised("silu"), (X,)),
    (lambda b, x: b.mul(s.sigmoid(b, x), x), raised("silu"), (X,)),
    (lambda b, x: b.div(x, b.add(b.exp(b.neg(x)), like(b, 1, x))), raised("silu"), (X,)),
    (lambda b, x: b.max(x, like(b, 0, x)), raised("relu"), (X,)),
    *((s.bounded(form, -1.0, 2.0), raised("clamp", low=-1.0, high=2.0), (X,))
      for form in ("min(max)", "max(min)", "clamps", "select")),
    *((s.bounded(form, 0.0, 6.0), raised("clamp", low=0.0, high=6.0), (X,))
      for form in ("min(max)", "max(min)")),
    (s.bounded("min(max)", 0, 9), raised("clamp", low=0, high=9), ("5xi64",)),
    (s.hard_sigmoid("line"), raised("hard_sigmoid", alpha=float(np.float32(0.2))), (X,)),
    *((s.hard_sigmoid(form), raised("hard_sigmoid"), (X,)) for form in ("x / 6", "x * 1 / 6")),
    *((s.hard_swish(form), raised("hard_swish"), (X,))
      for form in ("sigmoid", "x / 6", "x * 1 / 6")),
    *((s.leaky_relu(test, 0.25), raised("leaky_relu", slope=0.25), (X,)) for test in s.TESTS),
    (lambda b, x: b.max(x, b.mul(x, like(b, 0.25, x))), raised("leaky_relu", slope=0.25), (X,)),
    *((s.elu(test, growth, alpha), raised("elu", alpha=alpha), (X,))
      for test, growth, alpha in pairs(s.TESTS, s.GROWTHS, (1.0, 0.5))),
    *((s.selu(test, growth, where), raised("selu"), (X,))
      for test, growth, where in pairs(s.TESTS, s.GROWTHS, s.SELU_FORMS)),
    *((s.softplus(form), raised("softplus"), (X,)) for form in ("stable", "guarded", "threshold")),
    *((s.softplus(form, 2.0), raised("softplus", beta=2.0), (X,))
      for form in ("over beta", "times 1 / beta")),
    (lambda b, x: b.mul(x, b.tanh(s.softplus("stable")(b, x))), raised("mish"), (X,)),
    (lambda b, x: b.div(x, b.add(like(b, 1, x), b.abs(x))), raised("softsign"), (X,)),
]  # fmt: skip

ROWS = [
    *((lambda b, x, y, known=known: b.select(b.scalar_like(known, b.gt(x, y)), x, y),
       lambda b, x, y, known=known: x if known else y, (X, X)) for known in (True, False)),
    *((lambda b, x, k=keep, h=how: s.back(b, s.mean(b, x, (1,), h), x, (1,), k),
       lambda b, x, k=keep: s.back(b, b.mean(x, axes=(1,)), x, (1,), k), (X,))
      for keep, how in pairs(s.KEEPS, ("div", "mul"))),
    *((s.softmax(((axis,), (axis,)), keeps), raised("softmax", axis=axis), (X,))
      for axis, keeps in pairs((0, 2), pairs(s.KEEPS, s.KEEPS))),
    *((s.softmax(((2,), (2,)), keeps, log=True), raised("log_softmax", axis=2), (X,))
      for keeps in pairs(s.KEEPS, s.KEEPS)),
    (s.softmax_moved,
     lambda b, x: b.softmax(b.transpose(x, permutation=(1, 0, 2)), axis=2), (X,)),
    (lambda b, x: b.select(b.is_nan(v := b.softmax(x, axis=2)), like(b, 0, v), v),
     raised("softmax", axis=2, empty_rows="zero"), (X,)),
]  # fmt: skip


def _empty_rows(largest: bool):
    def build(b, x):
        low, soft = like(b, -np.inf, x), b.softmax(x, axis=2)
        if largest:
            top = b.reduce_max(x, axes=(2,))
            hidden = b.eq(top, like(b, -np.inf, top))
        else:
            hidden = b.not_(b.reduce_or(b.not_(b.eq(x, low)), axes=(2,)))
        return b.select(s.back(b, hidden, x, (2,)), like(b, 0, soft), soft)

    return build


def _empty_rows_of_mask(b, x, mask):
    soft = b.softmax(b.add(x, b.broadcast(mask, shape=x.type.shape, dims=(1, 2))), axis=2)
    top = b.reduce_max(mask, axes=(1,))
    hidden = b.broadcast(b.eq(top, like(b, -np.inf, top)), shape=x.type.shape, dims=(1,))
    return b.select(hidden, like(b, 0, soft), soft)


ROWS += [
    *((_empty_rows(how), raised("softmax", axis=2, empty_rows="zero"), (X,)) for how in (0, 1)),
    (
        _empty_rows_of_mask,
        lambda b, x, mask: b.softmax(
            b.add(x, b.broadcast(mask, shape=x.type.shape, dims=(1, 2))), axis=2, empty_rows="zero"
        ),
        (X, "3x8xf32"),
    ),
]


def group_form(channel: int, *parameters: str):
    """The group norm that ``grouped`` is, with its parameters."""
    return lambda b, x, *rest: b.group_norm(x, *rest, groups=2, axis=channel, epsilon=EPS)


N, N_LAST = "2x6x4x5xf32", "2x4x5x6xf32"
C = "6xf32"

NORMS = [
    *((s.normalised(form, variance, (2,), keep, how), raised("layer_norm", **NORM), (X,))
      for form, variance, keep, how in pairs(
          (*s.FORMS[:4], "apart"), s.VARIANCES, s.KEEPS[1:], ("mean", "div"))),
    (s.normalised("/ sqrt", "deviations", (1, 2)), raised("layer_norm", axis=1, epsilon=EPS), (X,)),
    *((s.normalised("* (rsqrt * scale)", variance, (2,), along=(2,)),
       raised("layer_norm", **NORM), (X, SCALE)) for variance in s.VARIANCES),
    (s.normalised("apart", "deviations", (2,), along=(2,)), raised("layer_norm", **NORM),
     (X, SCALE, SCALE)),
    *((s.normalised(form, "variance", (2,)), raised("layer_norm", **NORM), (X,))
      for form in s.FORMS[:2]),
    (s.normalised("/ sqrt", "variance", (1, 2)), raised("layer_norm", axis=1, epsilon=EPS), (X,)),
    (s.normalised("* rsqrt", "variance", (1, 2)),
     raised("instance_norm", axis=3, epsilon=EPS), (N_LAST,)),
    *((s.affine(raised("layer_norm", **NORM), (2,), bias), raised("layer_norm", **NORM),
       (X, SCALE, SCALE)[: 2 + bias]) for bias in (False, True)),
    *((s.normalised(form, "deviations", (2,), centred=False), raised("rms_norm", **NORM), (X,))
      for form in s.FORMS[:4]),
    (s.normalised("* (rsqrt * scale)", "deviations", (2,), along=(2,), centred=False),
     raised("rms_norm", **NORM), (X, SCALE)),
    (s.affine(raised("rms_norm", **NORM), (2,), False), raised("rms_norm", **NORM), (X, SCALE)),
    # channels: instance and group norm, channels last and first
    *((s.normalised(form, variance, (1, 2)),
       raised("instance_norm", axis=3, epsilon=EPS), (N_LAST,))
      for form, variance in pairs(s.FORMS[:2], s.VARIANCES[:2])),
    *((s.normalised(form, variance, (1, 2), along=(3,)),
       raised("instance_norm", axis=3, epsilon=EPS), (N_LAST, C, C)[: 2 + (form == "apart")])
      for form, variance in pairs(s.FORMS[4:], s.VARIANCES[:2])),
    *((s.affine(raised("layer_norm", **NORM), (1,), bias),
       raised("instance_norm", axis=1, epsilon=EPS), (X, "3xf32", "3xf32")[: 2 + bias])
      for bias in (False, True)),
    *((s.grouped(2, form, variance, 3), group_form(3), (N_LAST,))
      for form, variance in pairs(s.FORMS[:2], s.VARIANCES[:2])),
    (s.affine(s.grouped(2, "/ sqrt", "deviations", 3), (3,), True), group_form(3), (N_LAST, C, C)),
    (s.grouped(2, "/ sqrt", "deviations", 1), group_form(1), (N,)),
    (s.affine(s.grouped(2, "* rsqrt", "squares", 1), (1,), True), group_form(1), (N, C, C)),
    *((s.affine(raised("instance_norm", axis=axis, epsilon=EPS), (axis,), bias),
       raised("instance_norm", axis=axis, epsilon=EPS), (X, f"{size}xf32", f"{size}xf32")[:2 + bias])
      for (axis, size), bias in pairs(((1, 3), (2, 8)), (False, True))),
    *((s.batch_norm(form, channel), raised("batch_norm", axis=channel, epsilon=EPS),
       (x, C, C, C, C))
      for form, (x, channel) in pairs(("/ sqrt", "* rsqrt", "* (rsqrt * scale)"),
                                      ((N, 1), (N_LAST, 3)))),
]  # fmt: skip


def _instance_groups(b, x):
    groups = b.reshape(x, shape=(2, 2, 60))
    ones, zeros = (b.constant(np.full(2, v, np.float32)) for v in (1, 0))
    made = b.instance_norm(groups, ones, zeros, epsilon=EPS)
    return b.reshape(made, shape=x.type.shape)


def _split_affine(b, x, scale, bias):
    """As Keras writes it: scale and bias before the groups are put together again."""
    split = b.reshape(x, shape=(2, 4, 5, 2, 3))
    pair = [b.reshape(v, shape=(2, 3)) for v in (scale, bias)]
    norm = s.normalised("apart", "deviations", (1, 2, 4), "ones", along=(3, 4))
    return b.reshape(norm(b, split, *pair), shape=x.type.shape)


NORMS += [
    (_instance_groups, group_form(1), (N,)),
    (_split_affine, group_form(3), (N_LAST, C, C)),
]

QKV = ("2x4x3x8xf32", "2x4x5x8xf32", "2x4x5x6xf32")
BQHD = ("2x3x4x8xf32", "2x5x4x8xf32", "2x5x4x6xf32")
MASKS = {
    "none": (),
    "bias": ("2x4x3x5xf32",),
    "keys": ("2x5xf32",),
    "heads": ("4x3x5xf32",),
    "seen": ("2x3x5xi1",),
    "hidden": ("2x3x5xi1",),
    "causal": (),
    "causal and bias": ("2x4x3x5xf32",),
}


#: (program, types, mask, score of the hidden)
ATTENTION = [
    *(
        (s.attention(layout, scale, "none"), BQHD if layout == "bqhd" else QKV, "none", -np.inf)
        for layout, scale in pairs(s.LAYOUTS, s.SCALES)
        if (layout, scale) != ("bqhd", "late")
    ),
    *(
        (
            s.attention(layout, "mul", mask, low=low),
            (*(BQHD if layout == "bqhd" else QKV), *MASKS[mask]),
            mask,
            low,
        )
        for layout, mask, low in pairs(s.LAYOUTS, s.MASKS, (-np.inf, -1e9))
    ),
]
I64 = "4xi64"
LOSSES = [
    *((s.one_hot(7, dtype), raised("one_hot", classes=7, dtype=dtype), (I64,))
      for dtype in ("f32", "i64")),
    *((s.picked(-100, reduction), raised("nll_loss", reduction=reduction), ("4x7xf32", I64))
      for reduction in ("none", "sum", "mean")),
    *((s.picked(3, reduction, log=True), raised("cross_entropy", reduction=reduction, ignore_index=3),
       ("4x7xf32", I64)) for reduction in ("none", "sum", "mean")),
    *((s.picked(-100, reduction, log, weighted=True),
       raised("cross_entropy" if log else "nll_loss", reduction=reduction),
       ("4x7xf32", I64, "7xf32"))
      for reduction, log in pairs(("none", "sum", "mean"), (False, True))),
    *((s.picked(None, reduction, wrap=False), raised("nll_loss", reduction=reduction,
                                                     ignore_index=-(2**63)),
       ("4x7xf32", "4xi32")) for reduction in ("none", "mean")),
    (s.smoothed(0.2), raised("cross_entropy", label_smoothing=1 - float(np.float32(0.8))),
     ("4x7xf32", I64)),
    *((s.squared_error("mean", how), raised("mse_loss"), (X, X)) for how in ("mean", "div", "mul")),
    (s.squared_error("sum"), raised("mse_loss", reduction="sum"), (X, X)),
]  # fmt: skip


def _by_halves(b, x, cos, sin):
    cos, sin = (b.concat(v, v, axis=v.type.rank - 1) for v in (cos, sin))
    return b.rotary_embedding(x, cos, sin)


def _by_neighbours(b, x, cos, sin):
    shape, pairs = x.type.shape, (*cos.type.shape, 2)
    dims = tuple(range(cos.type.rank))
    cos, sin = (b.reshape(b.broadcast(v, shape=pairs, dims=dims), shape=shape) for v in (cos, sin))
    return b.rotary_embedding(x, cos, sin, interleaved=True)


_ANGLES = ("2x3x8xf32", "2x3x4xf32", "2x3x4xf32")
ROTARY = [
    (s.turned_whole, raised("rotary_embedding"), ("2x3x8xf16",) * 3),
    *((s.turned_pairs("halves", swapped), _by_halves, _ANGLES) for swapped in (False, True)),
    *(
        (s.turned_pairs(apart, swapped), _by_neighbours, _ANGLES)
        for apart in ("strides", "pairs")
        for swapped in (False, True)
    ),
]

FIRES = [*ACTIVATIONS, *ROWS, *NORMS, *LOSSES, *ROTARY]


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("before", "after", "types"), FIRES)
def test_a_spelling_becomes_the_op_within_the_tolerance_stated(before, after, types):
    module = program(before, *types)
    made, rewrites = specs.apply(Recompose(), module)
    specs.assert_same_program(specs.simplified(made), specs.simplified(program(after, *types)))
    specs.check(module, made, rewrites, exact=False)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("before", "types", "mask", "low"), ATTENTION)
def test_attention_is_raised_from_any_layout_scale_and_mask(before, types, mask, low):
    module = program(before, *types)
    made, rewrites = specs.apply(Recompose(), module)
    (op,) = ops_of(made, "attention")
    assert not ops_of(made, "matmul", "contract", "softmax")
    assert op["causal"] == ("causal" in mask) and len(op.operands) == 3 + len(MASKS[mask])
    chosen = mask in ("seen", "hidden") or "causal" in mask
    assert op["hidden"] == (float(np.float32(low)) if chosen else -np.inf)
    specs.check(module, made, rewrites, exact=False)


def ops_of(module, *kinds: str):
    """The live ops of these kinds."""
    return [o for o in specs.live(module).main.body.ops if o.kind[5:] in kinds]


@pytest.mark.parametrize("layout", s.LAYOUTS[:2])
@pytest.mark.parametrize("mask", ["none", "keys", "heads", "causal"])
def test_keys_that_heads_share_are_not_repeated_in_memory(layout, mask):
    """Groups of heads are more queries, or an axis of the batch along which keys are broadcast."""
    q, k = ((2, 4, 3, 8), (2, 2, 5, 8)) if layout == "bhqd" else ((2, 3, 4, 8), (2, 5, 2, 8))
    types = ["x".join(map(str, t)) + "xf32" for t in (q, k, k)]
    module = program(s.attention(layout, "mul", mask, groups=2), *types, *MASKS[mask])
    made, rewrites = specs.apply(Recompose(), module)
    (op,) = ops_of(made, "attention")
    batch = op.operands[0].type.shape[:-2]
    assert batch == ((2, 2) if mask in ("none", "keys") else (2, 2, 2))
    makers = made.main.body.producers()
    for value in op.operands[1:3]:  # a reshape of a broadcast would be a copy
        maker = makers.get(value)
        assert maker is None or maker.kind != "core.reshape"
    specs.check(module, made, rewrites, exact=False)


#: How far the function is from what StableHLO makes of it, on numbers where it is not 0 or 1.
SPECIAL = {"erf": 3e-7, "erfc": 3e-7}


def legalised(name: str):
    """``jax.scipy.special.<name>`` as a serialised program has it: a polynomial."""
    jax = pytest.importorskip("jax", reason="jax is not installed")
    exported = jax.export.export(jax.jit(getattr(jax.scipy.special, name)))
    text = exported(jax.ShapeDtypeStruct((4, 60), np.float32)).mlir_module()
    return import_program(text).module


@pytest.mark.parametrize("name", SPECIAL)
def test_a_polynomial_is_the_function_again(name):
    module = legalised(name)
    made, rewrites = specs.apply(Recompose(), module)
    assert [op.kind for op in specs.live(made).main.body.ops] == [f"core.{name}"]
    specs.check(module, made, rewrites, exact=False)
    x = np.linspace(-6, 6, 240, dtype=np.float32).reshape(4, 60)
    old, new = (specs.outputs(m, [x])[0] for m in (module, made))
    np.testing.assert_allclose(new, old, rtol=0, atol=SPECIAL[name])


def test_every_rule_fires_somewhere_here():
    fired = set()
    for name in SPECIAL:
        fired |= {r.rule for r in specs.apply(Recompose(), legalised(name))[1]}
    for before, *_, types in [*FIRES, *((p, t) for p, t, *_ in ATTENTION)]:
        _, rewrites = specs.apply(Recompose(), program(before, *types))
        fired |= {r.rule for r in rewrites}
    assert {rule.name for rule in RULES} - fired == set()


# -- near misses -----------------------------------------------------------------------------------

H = "2x3x8xf16"
_STANDARD = [
    (f"{form} => {kind}", build, reason, types)
    for variance, said in (("deviations", "variance"), ("squares", "mean(x*x) - mean**2"))
    for form, way in (
        (f"(x - mean) / sqrt({said} + eps)", "/ sqrt"),
        (f"(x - mean) * rsqrt({said} + eps)", "* rsqrt"),
        (f"(x - mean) * (rsqrt({said} + eps) * scale)", "* (rsqrt * scale)"),
        (f"x * a - mean * a, a = rsqrt({said} + eps)", "apart"),
    )
    for kind, build, reason, types in (
        (
            "layer_norm(x)",
            s.normalised(way, variance, (0,), along=(0,)),
            "the mean is not over the last axes",
            ("3x8xf32", "3xf32", "3xf32"),
        ),
        (
            "layer_norm(x)",
            s.normalised(way, variance, (2,), along=(2,), other=(1,)),
            "",
            ("2x8x8xf32", SCALE, SCALE),
        ),
        (
            "instance or group norm of x",
            s.normalised(way, variance, (0, 1), along=(2,)),
            "the mean is not over all axes except the batch and the channels",
            (X, SCALE, SCALE),
        ),
    )
]
_LN, _RMS = raised("layer_norm", **NORM), raised("rms_norm", **NORM)
_GN = raised("group_norm", groups=3, epsilon=EPS)
_IN = raised("instance_norm", epsilon=EPS)


def _epsilon_of_channels(b, x):
    d = b.sub(x, s.back(b, b.mean(x, axes=(2,)), x, (2,)))
    spread = b.mean(b.mul(d, d), axes=(2,))
    spread = b.add(spread, b.constant(np.linspace(1e-5, 1e-3, 6, dtype=np.float32).reshape(2, 3)))
    return b.div(d, s.back(b, b.sqrt(spread), x, (2,)))


#: (rule, program that it refuses at its last op, the reason, types).
REFUSES = (
    ("select(true, x, y) => x", lambda b, x, y: b.select(b.gt(x, y), x, y),
     "operand c is not a constant", (X, X)),
    ("select(false, y, x) => x", lambda b, x, y: b.select(b.gt(x, y), x, y),
     "operand c is not a constant", (X, X)),
    ("x A(x**2) / B(x**2) => erf(x)", lambda b, x: b.clamp(b.erf(x), low=-1.0, high=1.0),
     "found core.erf where the rule expects core.div", (X,)),
    ("1 - x N(x**2), exp(-x**2) M(1 / x**2) / x => erfc(x)",
     lambda b, x: b.select(b.lt(b.abs(x), like(b, 1, x)), x, x),
     "an operand is an input of the block, not core.sub", (X,)),
    ("x * (1 + erf(x / sqrt 2)) / 2 => gelu(x)", s.gelu("erf(x / c) + 1", 0, root=1.5),
     "the constant root is not 1.41421", (X,)),
    ("x * (1 + erf(x / sqrt 2)) / 2 => gelu(x)", s.gelu("erfc(-x c)", 1, root=1.5),
     "the constant root is not 0.707107", (X,)),
    ("x * (1 + tanh(k (x + c x**3))) / 2 => gelu(x, tanh)", s.gelu_tanh("mul", 1, 0.05),
     "the constant c is not 0.044715", (X,)),
    ("1 / (1 + exp(-x)) => sigmoid(x)",
     lambda b, x: b.div(like(b, 1, x), b.add(like(b, 1, x), b.exp(x))),
     "an operand is an input of the block, not core.neg", (X,)),
    ("x * sigmoid(x) => silu(x)", lambda b, x: b.mul(x, b.sigmoid(b.mul(like(b, 1.702, x), x))),
     "x would have to be two different values", (X,)),
    ("x * sigmoid(x) => silu(x)", lambda b, x: b.mul(x, b.sigmoid(x)),
     "f16 is rounded after each of these ops", (H,)),
    ("x / (1 + exp(-x)) => silu(x)",
     lambda b, x, y: b.div(y, b.add(like(b, 1, x), b.exp(b.neg(x)))),
     "x would have to be two different values", (X, X)),
    ("max(x, 0) => relu(x)", lambda b, x: b.max(x, like(b, -0.0, x)), "is not +0", (X,)),
    ("max(x, 0) => relu(x)", lambda b, x: b.max(x, like(b, 0, x)), "is not +0", ("5xi64",)),
    ("min(max(x, low), high) => clamp(x)",
     lambda b, x, y: b.min(b.max(x, y), like(b, 1, x)), "operand low is not a constant", (X, X)),
    ("min(relu(x), high) => clamp(x)", lambda b, x, y: b.min(b.relu(x), y),
     "operand high is not a constant", (X, X)),
    ("max(min(x, high), low) => clamp(x)", s.bounded("max(min)", 2.0, 1.0),
     "the lower bound is above the upper bound", (X,)),
    ("relu(min(x, high)) => clamp(x)", lambda b, x: b.relu(b.min(x, like(b, -1, x))),
     "the upper bound is below 0", (X,)),
    ("max(min(x, high), low) => clamp(x)", s.bounded("max(min)", 0.0, -0.0),
     "the lower bound is above the upper bound", (X,)),
    ("relu(min(x, high)) => clamp(x)", lambda b, x: b.relu(b.min(x, like(b, -0.0, x))),
     "the upper bound is below 0, or -0", (X,)),
    ("clamp(clamp(x, low), high) => clamp(x)",
     lambda b, x: b.clamp(b.clamp(x, low=0.0, high=1.0), high=2.0), "do not fit", (X,)),
    ("x > high ? high : x < low ? low : x => clamp(x)", s.bounded("select", 2.0, 1.0),
     "the lower bound is above the upper bound", (X,)),
    ("clamp(alpha x + beta, 0, 1) => hard_sigmoid(x)",
     lambda b, x: b.clamp(b.add(b.mul(x, like(b, 2, x)), like(b, 1, x)), low=0.0, high=2.0),
     "do not fit", (X,)),
    ("clamp(x + 3, 0, 6) / 6 => hard_sigmoid(x)",
     lambda b, x: b.div(b.clamp(b.add(x, like(b, 2, x)), low=0.0, high=6.0), like(b, 6, x)),
     "the constant three is not 3", (X,)),
    ("x * hard_sigmoid(x) => hard_swish(x)",
     lambda b, x: b.mul(x, b.hard_sigmoid(x, alpha=0.2, beta=0.5)), "do not fit", (X,)),
    ("x * clamp(x + 3, 0, 6) / 6 => hard_swish(x)",
     lambda b, x, y: b.div(b.mul(y, b.clamp(b.add(x, like(b, 3, x)), low=0.0, high=6.0)),
                           like(b, 6, x)), "x would have to be two different values", (X, X)),
    ("x > 0 ? x : slope x => leaky_relu(x)",
     lambda b, x, slope: b.select(b.gt(x, like(b, 0, x)), x,
                                  b.mul(x, b.broadcast(slope, shape=(2, 3, 8), dims=(1,)))),
     "operand slope is not a constant", (X, "3xf32")),
    ("max(x, slope x) => leaky_relu(x)", lambda b, x: b.max(x, b.mul(x, like(b, 2, x))),
     "the slope is not between 0 and 1", (X,)),
    ("x > 0 ? x : alpha expm1(x) => elu(x)",
     lambda b, x: b.select(b.gt(x, like(b, 1, x)), x, b.expm1(x)), "is not zero", (X,)),
    ("x > 0 ? s x : s a expm1(x) => selu(x)", s.selu("gt", "plain", "inside", scale=1.1),
     "the constant scale is not 1.0507", (X,)),
    ("elu(x, a) * s => selu(x)", lambda b, x: b.mul(b.elu(x, alpha=s.SELU[1]), like(b, 1.1, x)),
     "the constant scale is not 1.0507", (X,)),
    ("max(x, 0) + log1p(exp(-abs(x))) => softplus(x)",
     lambda b, x: b.add(b.relu(x), b.log1p(b.exp(b.abs(x)))),
     "found core.abs where the rule expects core.neg", (X,)),
    ("x is NaN ? x : softplus(x) => softplus(x)",
     lambda b, x: b.select(b.is_inf(x), x, b.softplus(x)), "found core.is_inf", (X,)),
    ("x > threshold ? x : log1p(exp(x)) => softplus(x)", s.softplus("threshold", threshold=5.0),
     "the constant threshold is not one number of at least 15", (X,)),
    ("beta x > threshold ? x : log1p(exp(beta x)) / beta => softplus(x, beta)",
     lambda b, x: b.select(b.gt(y := b.mul(x, like(b, 2, x)), like(b, 20, x)), x,
                           b.mul(b.log1p(b.exp(y)), like(b, 0.25, x))),
     "it is multiplied by 2, then by 0.25", (X,)),
    ("x * tanh(softplus(x)) => mish(x)",
     lambda b, x: b.mul(x, b.tanh(b.softplus(x, beta=2.0))), "do not fit", (X,)),
    ("x / (1 + abs(x)) => softsign(x)",
     lambda b, x: b.div(x, b.add(b.abs(x), like(b, 2, x))), "the constant one is not 1", (X,)),
    ("sum(x) / n => mean(x)", lambda b, x: b.div(t := b.reduce_sum(x, axes=(2,)), like(b, 7, t)),
     "7 does not average 8 elements", (X,)),
    ("sum(x) * (1 / n) => mean(x)",
     lambda b, x: b.mul(t := b.reduce_sum(x, axes=(2,), orders=("sequence",)), like(b, 1 / 8, t)),
     "the sum has an explicit accumulation order", (X,)),
    ("exp(x - max) / sum => softmax(x)", s.softmax(((1,), (2,))),
     "the reductions are over different axes", ("2x8x8xf32",)),
    ("exp(x - max) / sum => softmax(x)", s.softmax(((1, 2), (1, 2))),
     "the reduction is not over exactly one axis", (X,)),
    ("exp(x - max) / sum => softmax(x)", s.softmax(((2,), (2,)), of=lambda b, x: b.abs(x)),
     "the subtracted value is not the maximum of the value it is subtracted from", (X,)),
    ("x - max - log(sum(exp(x - max))) => log_softmax(x)",
     s.softmax(((2,), (1,)), log=True), "the reductions are over different axes", ("2x8x8xf32",)),
    ("select(is_nan(softmax(x)), 0, softmax(x)) => softmax(x) with empty rows 0",
     lambda b, x: b.select(b.is_nan(v := b.softmax(x, axis=2, empty_rows="zero")),
                           like(b, 0, v), v), "it already gives zeros", (X,)),
    ("select(no x > -inf, 0, softmax(x)) => softmax(x) with empty rows 0",
     lambda b, x: b.select(s.back(b, b.not_(b.reduce_or(b.not_(b.eq(x, like(b, -np.inf, x))),
                                                         axes=(1,))), x, (1,)),
                           like(b, 0, x), b.softmax(x, axis=2)),
     "the rows are not those of the softmax", (X,)),
    ("select(max == -inf, 0, softmax(x)) => softmax(x) with empty rows 0",
     lambda b, x: b.select(s.back(b, b.eq(t := b.reduce_max(x, axes=(1,)), like(b, -np.inf, t)),
                                  x, (1,)), like(b, 0, x), b.softmax(x, axis=2)),
     "the rows are not those of the softmax", (X,)),
    ("select(max of mask == -inf, 0, softmax(x + mask)) => softmax with empty rows 0",
     lambda b, x, m: b.select(s.back(b, b.eq(t := b.reduce_max(m, axes=(1,)), like(b, -np.inf, t)),
                                     x, (1,)), like(b, 0, x), b.softmax(b.add(x, m), axis=2)),
     "the rows are not those of the softmax", (X, X)),
    *_STANDARD,
    ("(x - mean) / sqrt(variance + eps) => layer_norm(x)", _epsilon_of_channels,
     "the constant eps is not one number", (X,)),
    ("(x - mean) / sqrt(variance + eps) => instance or group norm of x",
     s.normalised("/ sqrt", "deviations", (2,)), "it is a layer norm", (X,)),
    ("x / sqrt(mean(x*x) + eps) => rms_norm(x)",
     s.normalised("/ sqrt", "deviations", (1,), centred=False),
     "the mean is not over the last axes", (X,)),
    ("x * rsqrt(mean(x*x) + eps) => rms_norm(x)",
     lambda b, x: b.mul(x, s.back(b, b.rsqrt(b.mean(b.mul(x, x), axes=(2,))), x, (2,))),
     "found core.mean where the rule expects core.add", (X,)),
    ("x * (rsqrt(mean(x*x) + eps) * scale) => rms_norm(x)",
     s.normalised("* (rsqrt * scale)", "deviations", (2,), along=(1,), centred=False),
     "its scale or bias varies along axes that are not normalised", (X, "3xf32")),
    *((f"{kind}(x) * scale => {kind}(x, scale)", s.affine(norm, along, False),
       f"the scale is not one number per {each}", (X, f"{(2, 3, 8)[along[0]]}xf32"))
      for kind, norm, along, each in (
          ("layer_norm", _LN, (1,), "normalised element"),
          ("rms_norm", _RMS, (0,), "normalised element"),
          ("group_norm", _GN, (2,), "channel"), ("instance_norm", _IN, (2,), "channel"))),
    *((f"{kind}(x, scale) + bias => {kind}(x, scale, bias)",
       lambda b, x, scale, bias, norm=norm: b.add(norm(b, x, scale), b.broadcast(
           bias, shape=x.type.shape, dims=(0,))),
       f"the bias is not one number per {each}", (X, scale, "2xf32"))
      for kind, norm, scale, each in (
          ("layer_norm", _LN, SCALE, "normalised element"),
          ("group_norm", _GN, "3xf32", "channel"), ("instance_norm", _IN, "3xf32", "channel"))),
    ("layer_norm(x) * scale of channels => instance_norm(x, scale)", s.affine(_LN, (2,), False),
     "the scale is not one number per channel", (X, SCALE)),
    ("reshape(layer_norm(groups of x)) => group_norm(x)",
     lambda b, x: b.reshape(b.layer_norm(b.reshape(x, shape=(6, 8)), axis=1), shape=(2, 3, 8)),
     "the elements normalised together are not a group of channels", (X,)),
    ("reshape(instance_norm(groups of x)) => group_norm(x)",
     lambda b, x, scale, bias: b.reshape(
         b.instance_norm(b.reshape(x, shape=(2, 2, 60)), scale, bias), shape=(2, 6, 4, 5)),
     "the groups already have a scale and a bias", (N, "2xf32", "2xf32")),
    ("(x - mean) * rsqrt(variance + eps) * scale + bias => batch_norm(x)",
     lambda b, x, scale, bias, mean, variance: b.add(
         s.batch_norm("* rsqrt", 1)(b, x, scale, scale, mean, variance),
         b.broadcast(bias, shape=x.type.shape, dims=(3,))),
     "", (N, C, "5xf32", C, C)),
    ("softmax(q k^T scale + mask) v => attention", s.attention("bhqd", "mul", "none", last=2),
     "the softmax is not over the summed axis, the keys", ("2x4x5x8xf32",) * 3),
    ("softmax(q k^T scale + mask) v => attention",
     s.attention("bhqd", "mul", "none", between=lambda b, x: b.tanh(x)),
     "core.tanh is between the product and its softmax", QKV),
    ("softmax(q k^T scale + mask) v => attention",
     lambda b, q, k, v, m, n: s.attention("bhqd", "mul", "bias",
                                          between=lambda b, x: b.add(x, n))(b, q, k, v, m),
     "the scores have two masks", (*QKV, *MASKS["bias"] * 2)),
    ("softmax(q k^T scale + mask) v => attention",
     s.attention("bhqd", "none", "none", between=lambda b, x: b.mul(
         x, b.constant(np.linspace(1, 2, 5, dtype=np.float32).reshape(1, 1, 1, 5)
                       * np.ones((2, 4, 3, 1), np.float32)))),
     "the scores are scaled by more than one number", QKV),
    ("softmax(q k^T scale + mask) v => attention",
     lambda b, q, k, v: (lambda shares: (b.matmul(shares, v), shares))(
         b.softmax(b.matmul(q, b.transpose(k, permutation=(0, 1, 3, 2))), axis=3)),
     "the result of this core.softmax has other uses", QKV),
    ("cast(index == 0, 1, 2..) => one_hot(index)", s.one_hot(4, first=1),
     "neither side is 0, 1, 2, ... along the last axis", (I64,)),
    ("-x[target], 0 where it is ignored => nll_loss(x, target)",
     lambda b, x, t: b.select(b.ne(t, like(b, -100, t)), b.neg(b.reshape(b.take_along(
         x, b.reshape(b.select(b.ne(t, like(b, -1, t)), t, like(b, 0, t)), shape=(4, 1)), axis=1),
         shape=(4,))), b.scalar_like(0, b.reduce_sum(x, axes=(1,)))),
     "two different", ("4x7xf32", I64)),
    ("-x[target] => nll_loss(x, target)", s.picked(None, "none", wrap=False),
     "", ("4x7xf32", I64)),
    ("total loss / counted => mean loss",
     lambda b, x, t: b.div(b.nll_loss(x, t, reduction="sum"), b.cast(b.reduce_sum(
         b.cast(b.ne(t, like(b, 3, t)), dtype="i64"), axes=(0,)), dtype="f32")),
     "the count ignores another target value than the loss", ("4x7xf32", I64)),
    ("total loss / counted => mean loss",
     lambda b, x, t, w: b.div(b.nll_loss(x, t, w, reduction="sum"), b.cast(b.reduce_sum(
         b.cast(b.ne(t, like(b, -100, t)), dtype="i64"), axes=(0,)), dtype="f32")),
     "the loss is weighted: its mean divides by the weights", ("4x7xf32", I64, "7xf32")),
    ("total loss / counted weights => mean loss",
     lambda b, x, t, w: b.div(b.nll_loss(x, t, w, reduction="sum"), b.reduce_sum(w, axes=(0,))),
     "an operand is an input of the block, not core.select", ("4x7xf32", I64, "7xf32")),
    ("nll_loss(x * w, t) => nll_loss(x, t, w)",
     lambda b, x, t, w: b.nll_loss(b.mul(x, w), t, reduction="sum"),
     "the weight is not one number per class", ("4x7xf32", I64, "4x7xf32")),
    ("mean(losses) => mean loss",
     lambda b, x, t: b.mean(b.nll_loss(x, t, reduction="none"), axes=(0,)),
     "the loss ignores targets of -100", ("4x7xf32", I64)),
    ("sum(losses) => total loss",
     lambda b, x, t: b.reduce_sum(b.nll_loss(x, t, reduction="none"), axes=(1,)),
     "the sum is not over all positions", ("4x7x3xf32", "4x3xi64")),
    ("nll_loss(log_softmax(x)) => cross_entropy(x)",
     lambda b, x, t: b.nll_loss(b.log_softmax(x, axis=0), t),
     "the softmax is not over the classes", ("7x7xf32", "7xi64")),
    ("(1 - s) * nll_loss(x, t) + s * mean over classes => cross_entropy(x, t) smoothed",
     s.smoothed(0.2, left=0.9),
     "the shares do not sum to 1", ("4x7xf32", I64)),
    ("mean((x - y)**2) => mse_loss(x, y)",
     lambda b, x: b.mean(b.mul(d := b.sub(x, s.back(b, b.mean(x, axes=(0,)), x, (0,))), d),
                         axes=(0,)), "this computes a variance", ("8xf32",)),
    ("sum((x - y)**2) => mse_loss(x, y)",
     lambda b, x, y: b.reduce_sum(b.mul(d := b.sub(x, y), d), axes=(2,)),
     "it is not over all elements", (X, X)),
    ("x * cos + (-v, u) * sin => rotary_embedding",
     lambda b, x, c, d: b.add(b.mul(x, c), b.mul(d, b.concat(
         s.cut(b, x, 0, 4), b.neg(s.cut(b, x, 4, 8)), axis=2))),
     "found core.slice where the rule expects core.neg", ("2x3x8xf32",) * 3),
    ("(u cos - v sin, u sin + v cos) of halves => rotary_embedding",
     lambda b, x, c, d: b.concat(
         b.sub(b.mul(s.cut(b, x, 0, 4), c), b.mul(s.cut(b, x, 4, 8), d)),
         b.add(b.mul(s.cut(b, x, 0, 4), c), b.mul(s.cut(b, x, 4, 8), d)), axis=2),
     "would have to be two different values", _ANGLES),
    ("(u cos - v sin, u sin + v cos) of neighbours => rotary_embedding",
     lambda b, x, c, d: b.concat(*(b.reshape(v, shape=(2, 3, 4, 1)) for v in (
         b.sub(b.mul(s.cut(b, x, 0, 8, 2), c), b.mul(s.cut(b, x, 1, 8, 2), d)),
         b.add(b.mul(s.cut(b, x, 0, 8, 2), c), b.mul(s.cut(b, x, 1, 8, 2), d)))), axis=3),
     "would have to be two different values", _ANGLES),
    ("total squares / n => mean loss",
     lambda b, x, y: b.div(t := b.mse_loss(x, y, reduction="sum"), like(b, 8, t)),
     "8 does not average 48 elements", (X, X)),
)  # fmt: skip


def test_every_rule_refuses_somewhere_here():
    assert {r[0] for r in REFUSES} == {rule.name for rule in RULES}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("rule", "before", "reason", "types"), REFUSES, ids=[r[0] for r in REFUSES]
)
def test_a_near_miss_is_refused_with_its_reason(rule, before, reason, types):
    count = before.__code__.co_argcount - 1
    module = program(before, *(types if before.__code__.co_flags & 4 else types[:count]))
    after, rewrites = specs.apply(Recompose(), module)
    asked = (module, after)  # what it was refused at may be made by other rules
    answers = [
        a for m in asked for name, a, _ in explain(RULES, m, specs.root_of(m)) if name == rule
    ]
    root = specs.root_of(module).result
    assert rule not in [r.rule for r in rewrites if root in r.values]
    assert any(reason in a for a in answers), answers


# -- what it costs ---------------------------------------------------------------------------------


def _block(b, x):
    """A transformer's block in primitives, without its products with weights."""
    norm = s.normalised("/ sqrt", "deviations", (2,))(b, x)
    heads = b.transpose(b.reshape(norm, shape=(2, 3, 2, 4)), permutation=(0, 2, 1, 3))
    made = s.attention("bhqd", "mul", "causal")(b, heads, heads, heads)
    made = b.reshape(b.transpose(made, permutation=(0, 2, 1, 3)), shape=(2, 3, 8))
    return s.gelu_tanh("mul", 0)(b, b.add(x, made))


def _stack(blocks: int):
    def build(b, x):
        for _ in range(blocks):
            x = _block(b, x)
        return x

    return build


def test_matching_is_linear_in_the_size_of_the_module(monkeypatch):
    visits, met = [], patterns._match_node

    def counted(*given):
        visits.append(1)
        return met(*given)

    monkeypatch.setattr(patterns, "_match_node", counted)
    totals = []
    for blocks in (4, 8, 16):
        visits.clear()
        _, rewrites = specs.apply(Recompose(), program(_stack(blocks), X))
        assert len(rewrites) == 3 * blocks
        totals.append(len(visits))
    assert totals[2] - totals[1] == 2 * (totals[1] - totals[0])
