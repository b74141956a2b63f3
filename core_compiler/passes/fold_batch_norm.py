"""Fold batch normalisation into the convolution or product before it."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Op
from core_compiler.ops import typed
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import Any_, Const, Match, Rule, all_of, apply_rules, op, wide

_STATISTICS = (Const("scale"), Const("bias"), Const("mean"), Const("variance"))


def _channel_is_axis_1(o: Op) -> bool:
    return typed.BatchNorm.of(o).axis == 1


def _folded(b, m: Match, shift=None):
    """Return conv(x, w * s) + (bias + (shift - mean) * s); s = scale / sqrt(variance + epsilon).

    Constants are built as ops on constants; constant folding evaluates them by the reference.
    """
    norm, conv = typed.BatchNorm.of(m.root), m.named["conv"]
    variance, weight = m["variance"], m["w"]
    epsilon = b.scalar_like(norm.epsilon, variance)
    s = b.div(m["scale"], b.sqrt(b.add(variance, epsilon)))
    scaled = b.broadcast(s, shape=weight.type.shape, dims=(0,))
    product = b.op("core.conv", (m["x"], b.mul(weight, scaled)), **conv.attributes)
    centred = b.sub(shift, m["mean"]) if shift is not None else b.neg(m["mean"])
    offset = b.add(m["bias"], b.mul(centred, s))
    return b.add(product, b.broadcast(offset, shape=product.type.shape, dims=(1,)))


def _with_shift(b, m: Match):
    return _folded(b, m, m["shift"])


def _shift_is_per_channel(m: Match) -> str | None:
    dims = typed.Broadcast.of(m.named["cast"]).dims
    return None if dims == (1,) else "the addend is not one number per channel"


_CONV = op("conv", "x", Const("w"), name="conv", one_use=True)

#: The scaled weights are smaller or larger, so sums overflow for other inputs.
_OVERFLOWS = ("infinities", "largest")

RULES = (
    Rule(
        "batch_norm(conv(x, w)) => conv(x, w * s) + b",
        op("batch_norm", _CONV, *_STATISTICS, where=_channel_is_axis_1),
        _folded,
        wide,
        tolerance=2e-5,
        except_for=_OVERFLOWS,
    ),
    Rule(
        "batch_norm(conv(x, w) + shift) => conv(x, w * s) + b",
        op(
            "batch_norm",
            op("add", _CONV, op("broadcast", Any_("shift"), name="cast"), one_use=True),
            *_STATISTICS,
            where=_channel_is_axis_1,
        ),
        _with_shift,
        check=all_of(wide, _shift_is_per_channel),
        tolerance=2e-5,
        except_for=_OVERFLOWS,
    ),
)


@dataclass(frozen=True)
class FoldBatchNorm(Pass):
    """Fold inference batch normalisation into the weights of the convolution before it.

    Weights of bf16 or f16 are not folded: scaling would round them a second time.
    """

    exact = False
    tolerance = "the weights are scaled and rounded once: 2e-5 of the largest output per layer"

    @override
    def table(self):
        return RULES

    @override
    def run(self, module, context):
        return context.rewrite(module, lambda rw: apply_rules(rw, RULES, module.weights))
