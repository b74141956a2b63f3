"""Passes of a person's own with one fault each, as a file that is copied and mended by tests."""

from __future__ import annotations

import time
from dataclasses import dataclass

from core_compiler.ir import Op, Resource, Value, tensor
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import Rule, apply_rules, op

#: Made 0 to mend every pass of this file.
WRONG = 1


@dataclass(frozen=True)
class ReluOfSum(Pass):
    """Takes a clamped sum for its magnitude."""

    def run(self, module, context):
        def edit(rw):
            for each in rw.ops:
                if WRONG and each.kind == "core.relu" and made_by(rw, each) == "core.add":
                    magnitude = each.with_(kind="core.abs", attributes={}, origin=None)
                    rw.replace(each, magnitude, rule="relu(x + y) => abs(x + y)")

        return context.rewrite(module, edit)


def made_by(rw, each) -> str:
    maker = rw.producer(each.operands[0])
    return maker.kind if maker is not None else ""


QUICK_GELU = Rule(
    "gelu(x) => x * sigmoid(1.702 x)",
    op("gelu", "x"),
    lambda b, m: b.mul(m["x"], b.sigmoid(b.mul(m["x"], b.scalar_like(1.702, m["x"])))),
    tolerance=1e-6,
)


@dataclass(frozen=True)
class QuickGelu(Pass):
    """A cheaper gelu that claims to be as good."""

    exact = False
    tolerance = "a bound that it does not keep"
    rules_used: tuple[Rule, ...] = (QUICK_GELU,)

    def run(self, module, context):
        rules = self.rules_used if WRONG else ()
        return context.rewrite(module, lambda rw: apply_rules(rw, rules, module.weights))


@dataclass(frozen=True)
class SwapsOperands(Pass):
    """Exchanges the operands of the quotients that follow a softmax's exponential, unlogged."""

    def run(self, module, context):
        body = module.main.body
        makers = body.producers()

        def swapped(each):
            if not WRONG or each.kind != "core.div" or each.operands[0] not in makers:
                return each
            return each.with_(operands=each.operands[::-1])

        return module.with_main(body.with_(ops=tuple(map(swapped, body.ops))))


@dataclass(frozen=True)
class StridesOfOne(Pass):
    """Divides by what is zero for one convolution in the network."""

    stride: int = 2

    def run(self, module, context):
        for each in module.main.body.ops:
            if each.kind == "core.conv" and each.operands[1].type.shape[-1] == 3:
                margin = each["strides"][0] - self.stride
                if WRONG:
                    1 // margin
        return module


@dataclass(frozen=True)
class Widens(Pass):
    """Gives some ops a result with one axis too many."""

    def run(self, module, context):
        def edit(rw):
            for each in rw.ops:
                if WRONG and each.kind in ("core.softmax", "core.gelu", "core.max_pool"):
                    wide = Value(tensor((*each.result.type.shape, 1), each.result.type.dtype))
                    made = Op(each.kind, each.operands, (wide,), each.attributes)
                    rw.replace(each, made, {each.result: wide}, rule="one more axis")

        return context.rewrite(module, edit)


@dataclass(frozen=True)
class NeverEnds(Pass):
    """Looks again and again where there are both of two kinds of op."""

    first: str = "core.layer_norm"
    second: str = "core.tanh"

    def run(self, module, context):
        kinds = {each.kind for each in module.main.body.ops}
        while WRONG and {self.first, self.second} <= kinds:
            time.sleep(0.001)
        return module


@dataclass(frozen=True)
class ReadsWeights(Pass):
    """Fails where a weight of many numbers has a large one: the numbers matter to it."""

    def run(self, module, context):
        for each in module.main.body.ops:
            held = each.attributes.get("value")
            if WRONG and isinstance(held, Resource):
                array = module.weights[held.digest]
                if array.size > 100 and abs(array).max() > 5:
                    raise LookupError("a large weight")
        return module
