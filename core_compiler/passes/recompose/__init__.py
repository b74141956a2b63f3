"""Recompose: composites that arrive in primitives are raised to the ops they are.

Each row is one spelling that exporters emit.  The composite's own decomposition is then its
meaning, which may round differently from the primitives: every rule states its tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np

from core_compiler.passes.base import Pass
from core_compiler.passes.rules import Const, Match, Rule, apply_rules, op

_TOLERANCE = 2e-6


def _near(number: float, relative: float = 1e-6):
    """A constant equal to ``number`` up to the rounding of its dtype."""

    def test(array: np.ndarray) -> bool:
        if array.size == 0 or array.dtype.kind != "f":
            return False
        return bool(np.all(np.abs(array.astype(np.float64) - number) <= relative * abs(number)))

    return test


def _number(name: str, number: float) -> Const:
    return Const(name, _near(number), f"{number:.6g}")


# -- gelu and silu ---------------------------------------------------------------------------------

_ERF_ARGUMENTS = (
    op("div", "x", _number("root", sqrt(2))),
    op("mul", "x", _number("root", sqrt(0.5))),
)
_CUBES = (
    op("pow", "x", _number("three", 3)),
    op("mul", op("mul", "x", "x"), "x"),
)


def _gelu(approximate: str):
    return lambda b, m: b.gelu(m["x"], approximate=approximate)


def _halved(gate) -> tuple:
    """The three ways to write x * gate / 2 (commutative forms come with the matcher)."""
    half = _number("half", 0.5)
    return (op("mul", op("mul", "x", half), gate), op("mul", op("mul", "x", gate), half),
            op("mul", "x", op("mul", half, gate)))  # fmt: skip


def _gelu_rules() -> tuple[Rule, ...]:
    rules = []
    for argument in _ERF_ARGUMENTS:
        gate = op("add", op("erf", argument), _number("one", 1))
        rules += [Rule("x * (1 + erf(x / sqrt 2)) / 2 => gelu(x)", pattern, _gelu("none"),
                       tolerance=_TOLERANCE) for pattern in _halved(gate)]  # fmt: skip
    for cube in _CUBES:
        inner = op("add", "x", op("mul", cube, _number("c", 0.044715)))
        gate = op(
            "add", op("tanh", op("mul", inner, _number("k", sqrt(2 / pi)))), _number("one", 1)
        )
        rules += [
            Rule("x * (1 + tanh(k (x + c x**3))) / 2 => gelu(x, tanh)", pattern, _gelu("tanh"),
                 tolerance=_TOLERANCE)
            for pattern in _halved(gate)
        ]  # fmt: skip
    return tuple(rules)


# -- softmax and its logarithm ---------------------------------------------------------------------


def _dims(back) -> tuple[int, ...]:
    """The axes of the result along which a broadcast's operand varies (axes of size 1 aside)."""
    source = back.operands[0].type.shape
    return tuple(d for d, size in zip(back["dims"], source, strict=True)
                 if size != 1 or back["shape"][d] == 1)  # fmt: skip


def _undoes(m: Match, reduce, back) -> bool:
    rank = reduce.operands[0].type.rank
    shape = reduce.operands[0].type.shape
    kept = [a for a in range(rank) if a not in reduce["axes"] and shape[a] != 1]
    return [d for d in _dims(back) if shape[d] != 1] == kept


def _undone(*pairs):
    """Check that each (reduction, broadcast) pair undo one another along one common axis."""

    def check(m: Match) -> str | None:
        axes = {m.named[r]["axes"] for r, _ in pairs}
        if len(axes) != 1:
            return "the reductions are over different axes"
        if any(not _undoes(m, m.named[r], m.named[back]) for r, back in pairs):
            return "a broadcast does not undo its reduction"
        return None

    return check


def _one_axis(check):
    def both(m: Match) -> str | None:
        if len(m.named["sum"]["axes"]) != 1:
            return "the reduction is over more than one axis"
        return check(m)

    return both


def _kept(name: str, kind: str, x, back: str):
    """broadcast(reduce(x)), with or without the reshape that keeps the dimension."""
    direct = op("broadcast", op(kind, x, name=name), name=back)
    reshaped = op("broadcast", op("reshape", op(kind, x, name=name)), name=back)
    return direct, reshaped


def _softmax_rules() -> tuple[Rule, ...]:
    rules = []
    for largest in _kept("max", "reduce_max", "x", "max_back"):
        shifted = op("sub", "x", largest)
        weights = op("exp", shifted)
        for total in _kept("sum", "reduce_sum", weights, "sum_back"):
            rules.append(Rule(
                "exp(x - max) / sum => softmax(x)", op("div", weights, total),
                lambda b, m: b.softmax(m["x"], axis=m.named["sum"]["axes"][0]),
                check=_one_axis(_undone(("max", "max_back"), ("sum", "sum_back"))),
                tolerance=_TOLERANCE,
            ))  # fmt: skip
        total = op("broadcast", op("log", op("reduce_sum", weights, name="sum")), name="sum_back")
        rules.append(Rule(
            "x - max - log(sum(exp(x - max))) => log_softmax(x)", op("sub", shifted, total),
            lambda b, m: b.log_softmax(m["x"], axis=m.named["sum"]["axes"][0]),
            check=_one_axis(_undone(("max", "max_back"), ("sum", "sum_back"))),
            tolerance=_TOLERANCE,
        ))  # fmt: skip
    zero = Const("zero", lambda a: bool(np.all(a == 0)), "all zeros")
    soft = op("softmax", "x", name="soft")
    rules.append(Rule(
        "select(is_nan(softmax(x)), 0, softmax(x)) => softmax(x) with empty rows 0",
        op("select", op("is_nan", soft), zero, soft),
        lambda b, m: b.softmax(m["x"], axis=m.named["soft"]["axis"], empty_rows="zero"),
        check=lambda m: (
            None if m.named["soft"]["empty_rows"] == "nan" else "it gives zeros already"
        ),
        tolerance=0.0,
    ))  # fmt: skip
    return tuple(rules)


# -- normalisation ---------------------------------------------------------------------------------


def _trailing(m: Match) -> str | None:
    """The mean is over the last axes, and every broadcast undoes its mean."""
    mean = m.named["mean"]
    rank = mean.operands[0].type.rank
    axes = mean["axes"]
    if axes != tuple(range(axes[0], rank)):
        return "the mean is not over the last axes"
    pairs = [(n, b) for n, b in (("mean", "mean_back"), ("square", "square_back")) if b in m.named]
    return _undone(*pairs)(m)


def _epsilon(m: Match) -> float:
    return float(m.array("eps").reshape(-1)[0])


def _deviation_rules() -> tuple[Rule, ...]:
    rules = []
    for mean in _kept("mean", "mean", "x", "mean_back"):
        d = op("sub", "x", mean)
        for square in (op("mul", d, d), op("pow", d, _number("two", 2))):
            variance = op("add", op("mean", square, name="square"), Const("eps"))
            for root in (op("sqrt", variance),):
                for back in (op("broadcast", root, name="square_back"),
                             op("broadcast", op("reshape", root), name="square_back")):  # fmt: skip
                    rules.append(_norm_rule("(x - mean) / sqrt(variance + eps) => layer_norm(x)",
                                            op("div", d, back), "layer_norm"))  # fmt: skip
            for back in (op("broadcast", op("rsqrt", variance), name="square_back"),):
                rules.append(_norm_rule("(x - mean) * rsqrt(variance + eps) => layer_norm(x)",
                                        op("mul", d, back), "layer_norm"))  # fmt: skip
    square = op("mul", "x", "x")
    variance = op("add", op("mean", square, name="mean"), Const("eps"))
    scaled = op("mul", "x", op("broadcast", op("rsqrt", variance), name="mean_back"))
    rules.append(_norm_rule("x * rsqrt(mean(x*x) + eps) => rms_norm(x)", scaled, "rms_norm"))
    return tuple(rules)


def _norm_rule(name: str, pattern, kind: str) -> Rule:
    def rewrite(b, m):
        return b.op(f"core.{kind}", (m["x"],), axis=m.named["mean"]["axes"][0], epsilon=_epsilon(m))

    return Rule(name, pattern, rewrite, check=_trailing, tolerance=_TOLERANCE)


def _affine(m: Match) -> str | None:
    norm, back = m.named["norm"], m.named["back"]
    rank = norm.result.type.rank
    if back["dims"] != tuple(range(norm["axis"], rank)):
        return "the factor is not one number for each normalised element"
    return None


def _scaled_norm(kind: str) -> Rule:
    norm = op(kind, "x", name="norm", where=lambda o: len(o.operands) == 1, once=True)
    return Rule(
        f"{kind}(x) * scale => {kind}(x, scale)",
        op("mul", norm, op("broadcast", "scale", name="back")),
        lambda b, m: b.op(f"core.{kind}", (m["x"], m["scale"]), **m.named["norm"].attributes),
        check=_affine, tolerance=_TOLERANCE,
    )  # fmt: skip


def _biased_norm() -> Rule:
    norm = op("layer_norm", "x", "scale", name="norm", once=True)
    return Rule(
        "layer_norm(x, scale) + bias => layer_norm(x, scale, bias)",
        op("add", norm, op("broadcast", "bias", name="back")),
        lambda b, m: b.op("core.layer_norm", (m["x"], m["scale"], m["bias"]),
                          **m.named["norm"].attributes),
        check=_affine, tolerance=_TOLERANCE,
    )  # fmt: skip


# -- attention -------------------------------------------------------------------------------------


def _swaps_last(o) -> bool:
    rank = len(o["permutation"])
    return o["permutation"] == (*range(rank - 2), rank - 1, rank - 2)


def _one_number(m: Match, name: str) -> float:
    return float(m.array(name).reshape(-1)[0])


def _scores() -> tuple:
    """Spellings of the scaled scores, with what gives their scale."""
    keys = op("transpose", "k", where=_swaps_last)
    product = op("matmul", "q", keys, name="scores", once=True)
    single = Const("s", lambda a: a.size == 1, "one number")
    other = Const("t", lambda a: a.size == 1, "one number")
    both = op(
        "matmul",
        op("mul", "q", single),
        op("transpose", op("mul", "k", other), where=_swaps_last),
        name="scores",
        once=True,
    )
    late = op("matmul", op("mul", "q", single), op("mul", keys, other), name="scores", once=True)
    return (
        (op("mul", product, single), lambda m: _one_number(m, "s")),
        (op("div", product, single), lambda m: 1 / _one_number(m, "s")),
        (both, lambda m: _one_number(m, "s") * _one_number(m, "t")),
        (late, lambda m: _one_number(m, "s") * _one_number(m, "t")),
    )


def _attention_rules() -> tuple[Rule, ...]:
    rules = []
    for scores, scale in _scores():
        masked = op("add", scores, op("broadcast", "mask", name="mask_back"))
        plain = op("add", scores, "mask")
        for inner, has_mask in ((masked, True), (plain, True), (scores, False)):
            shares = op("softmax", inner, name="soft", once=True,
                        where=lambda o: o["axis"] == o.result.type.rank - 1)  # fmt: skip

            def rewrite(b, m, scale=scale, has_mask=has_mask):
                mask = (_mask(b, m),) if has_mask else ()
                return b.attention(m["q"], m["k"], m["v"], *mask, scale=scale(m),
                                   empty_rows=m.named["soft"]["empty_rows"])  # fmt: skip

            name = "softmax(q k^T scale + mask) v => attention" if has_mask else (
                "softmax(q k^T scale) v => attention")  # fmt: skip
            rules.append(Rule(name, op("matmul", shares, "v"), rewrite, check=_same_heads,
                              tolerance=1e-5))  # fmt: skip
    return tuple(rules)


def _mask(b, m: Match):
    """The mask with leading axes of 1 instead of its broadcast, where that is all it does."""
    if "mask_back" not in m.named:
        return m["mask"]
    back, mask = m.named["mask_back"], m["mask"]
    shape = [1] * len(back["shape"])
    for d, size in zip(back["dims"], mask.type.shape, strict=True):
        shape[d] = size
    return b.reshape(mask, shape=tuple(shape)) if tuple(shape) != mask.type.shape else mask


def _same_heads(m: Match) -> str | None:
    q, k, v = (m[n].type for n in "qkv")
    if q.shape[:-2] != k.shape[:-2] or q.shape[:-2] != v.shape[:-2]:
        return "queries, keys and values have different batch axes"
    if not q.dtype.is_float:
        return "the operands are not floating point"
    return None


RULES = (
    *_gelu_rules(),
    Rule("x * sigmoid(x) => silu(x)", op("mul", "x", op("sigmoid", "x")),
         lambda b, m: b.silu(m["x"]), tolerance=_TOLERANCE),
    *_softmax_rules(),
    *_deviation_rules(),
    _scaled_norm("layer_norm"),
    _scaled_norm("rms_norm"),
    _biased_norm(),
    *_attention_rules(),
)  # fmt: skip


@dataclass(frozen=True)
class Recompose(Pass):
    """Raises softmax, normalisation, gelu, silu and attention that arrive in primitives.

    The composite's own decomposition becomes the meaning; each rule states its tolerance.
    """

    exact = False
    tolerance = "the composite rounds in its own places: 2e-6 a rule, 1e-5 for attention"

    def rules(self):
        return RULES

    def run(self, module, context):
        return context.rewrite(module, lambda rw: apply_rules(rw, RULES, module.weights))
