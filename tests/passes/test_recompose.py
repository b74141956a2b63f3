"""Recompose: each spelling that exporters emit is raised to the op it is; near misses are not."""
# ruff: noqa: E501  (tables of programs)

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest

from core_compiler.passes.recompose import RULES, Recompose
from core_compiler.passes.rules import explain
from tests.passes import specs
from tests.passes.programs import program

X = "2x3x8xf32"
REST = (0, 1)


def like(b, number, x):
    return b.scalar_like(number, x)


# -- spellings: each answers a function (builder, *values) -> value ---------------------------------


def halved(gate):
    """Three ways to write x * gate / 2."""
    yield lambda b, x: b.mul(b.mul(x, like(b, 0.5, x)), gate(b, x))
    yield lambda b, x: b.mul(b.mul(x, gate(b, x)), like(b, 0.5, x))
    yield lambda b, x: b.mul(x, b.mul(like(b, 0.5, x), gate(b, x)))


def erf_gates():
    def gate(argument):
        return lambda b, x: b.add(b.erf(argument(b, x)), like(b, 1, x))

    yield gate(lambda b, x: b.div(x, like(b, sqrt(2), x)))
    yield gate(lambda b, x: b.mul(x, like(b, sqrt(0.5), x)))


def tanh_gates(c=0.044715):
    def gate(cube):
        def build(b, x):
            inner = b.add(x, b.mul(like(b, c, x), cube(b, x)))
            return b.add(like(b, 1, x), b.tanh(b.mul(inner, like(b, sqrt(2 / pi), x))))

        return build

    yield gate(lambda b, x: b.pow(x, like(b, 3, x)))
    yield gate(lambda b, x: b.mul(b.mul(x, x), x))


def back(b, small, x, keep: bool, axis: int = 2):
    """``small``, reduced along ``axis``, at x's shape again; ``keep`` by way of an axis of size 1."""
    if keep:
        shape = tuple(1 if a == axis else d for a, d in enumerate(x.type.shape))
        return b.broadcast(b.reshape(small, shape=shape), shape=x.type.shape, dims=(0, 1, 2))
    dims = tuple(a for a in range(3) if a != axis)
    return b.broadcast(small, shape=x.type.shape, dims=dims)


def softmax(keep_max: bool, keep_sum: bool, axes=((2,), (2,))):
    def build(b, x):
        largest = b.reduce_max(x, axes=axes[0])
        weights = b.exp(b.sub(x, back(b, largest, x, keep_max, axes[0][0])))
        total = b.reduce_sum(weights, axes=axes[1])
        return b.div(weights, back(b, total, x, keep_sum, axes[1][0]))

    return build


def log_softmax(keep: bool):
    def build(b, x):
        shifted = b.sub(x, back(b, b.reduce_max(x, axes=(2,)), x, keep))
        total = b.log(b.reduce_sum(b.exp(shifted), axes=(2,)))
        return b.sub(shifted, back(b, total, x, False))

    return build


def layer_norm(keep: bool, square: str, end: str, axis: int = 2):
    def build(b, x):
        d = b.sub(x, back(b, b.mean(x, axes=(axis,)), x, keep, axis))
        squared = b.mul(d, d) if square == "mul" else b.pow(d, like(b, 2, d))
        mean = b.mean(squared, axes=(axis,))
        variance = b.add(mean, like(b, 1e-5, mean))
        if end == "rsqrt":
            return b.mul(d, back(b, b.rsqrt(variance), x, False, axis))
        return b.div(d, back(b, b.sqrt(variance), x, end == "kept", axis))

    return build


def rms_norm(b, x):
    mean = b.mean(b.mul(x, x), axes=(2,))
    return b.mul(x, back(b, b.rsqrt(b.add(mean, like(b, 1e-6, mean))), x, False))


def affine(kind: str, dims=(2,)):
    def build(b, x, scale):
        norm = b.op(f"core.{kind}", (x,), axis=2, epsilon=1e-5)
        return b.mul(norm, b.broadcast(scale, shape=x.type.shape, dims=dims))

    return build


def biased(dims=(2,)):
    def build(b, x, scale, bias):
        norm = b.layer_norm(x, scale, axis=2, epsilon=1e-5)
        return b.add(norm, b.broadcast(bias, shape=x.type.shape, dims=dims))

    return build


SCALE = 8**-0.5


def attention(scores: str, mask: str, once: bool = True, axis: int = 2):
    def build(b, q, k, v, *masks):
        swap = {"permutation": (0, 2, 1)}
        if scores == "both":
            s = like(b, sqrt(SCALE), q)
            raw = b.matmul(b.mul(q, s), b.transpose(b.mul(k, like(b, sqrt(SCALE), k)), **swap))
        elif scores == "late":
            keys = b.transpose(k, **swap)
            raw = b.matmul(
                b.mul(q, like(b, sqrt(SCALE), q)), b.mul(keys, like(b, sqrt(SCALE), keys))
            )
        else:
            raw = b.matmul(q, b.transpose(k, **swap))
            by = like(b, SCALE if scores == "mul" else 1 / SCALE, raw)
            raw = b.mul(raw, by) if scores == "mul" else b.div(raw, by)
        if mask == "broadcast":
            raw = b.add(raw, b.broadcast(masks[0], shape=raw.type.shape, dims=(0, 2)))
        elif mask == "plain":
            raw = b.add(raw, masks[0])
        shares = b.softmax(raw, axis=axis)
        made = b.matmul(shares, v)
        return made if once else (made, shares)

    return build


def raised(kind: str, **attributes):
    return lambda b, *values: b.op(f"core.{kind}", values, **attributes)


def attended(mask: str, scale: float):
    def build(b, q, k, v, *masks):
        if mask == "broadcast":
            masks = (b.reshape(masks[0], shape=(2, 1, 5)),)
        return b.attention(q, k, v, *masks, scale=scale, empty_rows="nan")

    return build


QKV = ("2x3x8xf32", "2x5x8xf32", "2x5x4xf32")
MASKS = {"broadcast": ("2x5xf32",), "plain": ("2x3x5xf32",), "none": ()}
#: The scale as the rule reads it off the constants of the program (f32), for each spelling.
SCALES = {
    "mul": float(np.float32(SCALE)), "div": 1 / float(np.float32(1 / SCALE)),
    "both": float(np.float32(sqrt(SCALE))) ** 2, "late": float(np.float32(sqrt(SCALE))) ** 2,
}  # fmt: skip

#: (program, what it becomes, types): one row for each spelling.
FIRES = [
    *((p, raised("gelu", approximate="none"), (X,)) for g in erf_gates() for p in halved(g)),
    *((p, raised("gelu", approximate="tanh"), (X,)) for g in tanh_gates() for p in halved(g)),
    (lambda b, x: b.mul(x, b.sigmoid(x)), raised("silu"), (X,)),
    *((softmax(m, s), raised("softmax", axis=2), (X,)) for m in (0, 1) for s in (0, 1)),
    *((log_softmax(k), raised("log_softmax", axis=2), (X,)) for k in (0, 1)),
    (lambda b, x: b.select(b.is_nan(s := b.softmax(x, axis=2)), like(b, 0, s), s),
     raised("softmax", axis=2, empty_rows="zero"), (X,)),
    *((layer_norm(k, s, e), raised("layer_norm", axis=2, epsilon=float(np.float32(1e-5))), (X,))
      for k in (0, 1) for s in ("mul", "pow") for e in ("direct", "kept", "rsqrt")),
    (rms_norm, raised("rms_norm", axis=2, epsilon=float(np.float32(1e-6))), (X,)),
    *((affine(k), raised(k, axis=2, epsilon=1e-5), (X, "8xf32")) for k in ("layer_norm", "rms_norm")),
    (biased(), raised("layer_norm", axis=2, epsilon=1e-5), (X, "8xf32", "8xf32")),
    *((attention(s, m), attended(m, SCALES[s]), QKV + MASKS[m])
      for s in ("mul", "div", "both", "late") for m in ("broadcast", "plain", "none")),
]  # fmt: skip

#: (rule, program it refuses at its last op, the reason, types).
REFUSES = (
    ("x * (1 + erf(x / sqrt 2)) / 2 => gelu(x)",
     lambda b, x: b.mul(b.mul(x, b.add(b.erf(b.div(x, like(b, 1.5, x))), like(b, 1, x))), like(b, 0.5, x)),
     "the constant root is not 1.41421", (X,)),
    ("x * (1 + tanh(k (x + c x**3))) / 2 => gelu(x, tanh)",
     lambda b, x: b.mul(b.mul(x, next(tanh_gates(0.05))(b, x)), like(b, 0.5, x)),
     "the constant c is not 0.044715", (X,)),
    ("x * sigmoid(x) => silu(x)", lambda b, x: b.mul(x, b.sigmoid(b.neg(x))),
     "x would have to be two different values", (X,)),
    ("exp(x - max) / sum => softmax(x)", softmax(0, 0, ((1,), (2,))),
     "the reductions are over different axes", (X,)),
    ("x - max - log(sum(exp(x - max))) => log_softmax(x)",
     lambda b, x: b.sub(s := b.sub(x, x), back(b, b.log(b.reduce_sum(b.exp(s), axes=(2,))), x, False)),
     "an operand is an input of the block", (X,)),
    ("select(is_nan(softmax(x)), 0, softmax(x)) => softmax(x) with empty rows 0",
     lambda b, x: b.select(b.is_nan(s := b.softmax(x, axis=2, empty_rows="zero")), like(b, 0, s), s),
     "it gives zeros already", (X,)),
    ("(x - mean) / sqrt(variance + eps) => layer_norm(x)", layer_norm(0, "mul", "direct", axis=1),
     "the mean is not over the last axes", (X,)),
    ("(x - mean) * rsqrt(variance + eps) => layer_norm(x)", layer_norm(0, "mul", "rsqrt", axis=1),
     "the mean is not over the last axes", (X,)),
    ("x * rsqrt(mean(x*x) + eps) => rms_norm(x)",
     lambda b, x: b.mul(x, back(b, b.rsqrt(b.mean(b.mul(x, x), axes=(2,))), x, False)),
     "found core.mean where the rule wants core.add", (X,)),
    ("layer_norm(x) * scale => layer_norm(x, scale)", affine("layer_norm", (1,)),
     "the factor is not one number for each normalised element", (X, "3xf32")),
    ("rms_norm(x) * scale => rms_norm(x, scale)", affine("rms_norm", (1,)),
     "the factor is not one number for each normalised element", (X, "3xf32")),
    ("layer_norm(x, scale) + bias => layer_norm(x, scale, bias)", biased((1,)),
     "the factor is not one number for each normalised element", (X, "8xf32", "3xf32")),
    ("softmax(q k^T scale) v => attention", attention("mul", "none", once=False),
     "the result of this core.softmax has other uses", QKV),
    ("softmax(q k^T scale + mask) v => attention", attention("mul", "plain", axis=1),
     "the attributes or types of this core.softmax do not fit", QKV + MASKS["plain"]),
)  # fmt: skip


def test_every_spelling_of_every_rule_fires_somewhere_here():
    fired = set()
    for before, _, types in FIRES:
        module = program(before, *types)
        answers = explain(RULES, module, specs.root_of(module))
        fired |= {place for place, (_, answer, _) in enumerate(answers) if answer == "fires here"}
    silent = [RULES[i].name for i in range(len(RULES)) if i not in fired]
    assert not silent


def test_every_rule_refuses_somewhere_here():
    assert {r[0] for r in REFUSES} == {rule.name for rule in RULES}


@pytest.mark.parametrize(("before", "after", "types"), FIRES)
def test_a_spelling_becomes_the_op_within_the_tolerance_stated(before, after, types):
    module = program(before, *types)
    made, rewrites = specs.apply(Recompose(), module)
    assert len(rewrites) == 1
    specs.assert_same_program(made, program(after, *types))
    specs.check(module, made, rewrites, exact=False)


@pytest.mark.parametrize(
    ("rule", "before", "reason", "types"), REFUSES, ids=[r[0] for r in REFUSES]
)
def test_a_near_miss_is_refused_with_its_reason(rule, before, reason, types):
    module = program(before, *types)
    answers = [a for name, a, _ in explain(RULES, module, specs.root_of(module)) if name == rule]
    assert "fires here" not in answers
    assert any(reason in a for a in answers), answers


def test_attention_is_raised_from_primitives_in_one_pass():
    """Softmax first, then attention around it: both rules meet in one run."""

    def build(b, q, k, v):
        raw = b.matmul(q, b.transpose(k, permutation=(0, 2, 1)))
        scores = b.mul(raw, like(b, SCALE, raw))
        return b.matmul(softmax(True, True)(b, scores), v)

    made, rewrites = specs.apply(Recompose(), module := program(build, *QKV))
    assert specs.rules_fired(rewrites) == [
        "exp(x - max) / sum => softmax(x)", "softmax(q k^T scale) v => attention",
    ]  # fmt: skip
    assert [op.kind for op in specs.live(made).main.body.ops] == ["core.attention"]
    specs.check(module, made, rewrites, exact=False)
