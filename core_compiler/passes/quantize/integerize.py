"""Integerize: ops between dequantised and quantised values compute with integers."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass
from core_compiler.passes.quantize.forms.base import Form, stored_by
from core_compiler.passes.quantize.forms.products import pair, product
from core_compiler.passes.quantize.forms.rows import normalization, softmax
from core_compiler.passes.quantize.forms.sums import mean, mean_of_windows, total, with_constant
from core_compiler.passes.quantize.forms.tables import moved, table
from core_compiler.passes.quantize.insert_quantization import QUANTISED, Quantised
from core_compiler.passes.quantize.roles import (
    adds_constant,
    constant_of,
    is_limit,
    is_product,
    role,
    scales,
)

#: Steps of the result by which rounding in integers may differ from rounding in floats.
STEPS = {
    "product": 1,
    "sum": 2,
    "constant": 2,
    "mean": 1,
    "function": 1,
    "moves": 1,
    "softmax": 1,
    "normalization": 2,
}


@dataclass(frozen=True)
class Integerize(Pass):
    """Replace each quantised result by integer arithmetic on quantised operands.

    Products and sums in i32, then a rescale with a fixed-point factor; functions of one value
    become tables; views, concatenations and maxima of windows move the integers. A result is at
    most one step from that in floats, a sum at most two.
    """

    exact = False
    tolerance = "rounding in integers in place of floats: a step of the result, two of a sum"
    changes_semantics = True
    refusal_arity = 1

    @override
    def run(self, module: Module, context):
        rewriter = context.rewriter(module.main.body)
        known: Quantised | None = context.facts.get(QUANTISED)
        values = {} if known is None else dict(known.values)
        for op in rewriter.ops:
            if op.kind != "core.quantize" or (op := rewriter.now(op)) is None:
                continue
            b = Builder(module.weights)
            made = integers(op, rewriter, module, b)
            if isinstance(made, Refusal):
                continue
            kind, value, before = made
            read = [u for u in rewriter.users(op.result) if u.kind == "core.dequantize"]
            again = [
                u.substitute({op.result: value}).with_(results=(Value(u.result.type),))
                for u in read
            ]
            changed = {old.result: new.result for old, new in zip(read, again, strict=True)}
            rewriter.replace(
                (*before, op, *read),
                [*b.ops, *again],
                {op.result: value, **changed},
                rule=f"a {kind} in integers",
                tolerance=float(STEPS[kind]),
                steps=STEPS[kind],
            )
            values = {changed.get(v, v): before for v, before in values.items()}
        context.facts[QUANTISED] = Quantised(values)
        return module.with_main(rewriter.commit())

    @override
    def refusal(self, ops, context):
        found = integers(ops[0], context.rewriter, context.module, Builder(context.module.weights))
        return found if isinstance(found, Refusal) else None


def integers(
    op: Op, rewriter: Rewriter, module: Module, b: Builder
) -> tuple[str, Value, list[Op]] | Refusal:
    """Emit the integer form of what a ``quantize`` rounds.

    Return the kind of op, the result, and the float ops that nothing else reads; or why there is
    no such form.
    """
    if op.kind != "core.quantize":
        return refuse("quantised results", "{0} is not quantised", op)
    result = stored_by(op, rewriter, module)
    if isinstance(result, Refusal):
        return result
    form = Form(op, result, rewriter, module, b)
    made = _made(form)
    if isinstance(made, Refusal):
        return made
    kind, value = made
    return kind, value, form.replaced()


def _made(form: Form) -> tuple[str, Value] | Refusal:
    rewriter, value = form.rewriter, form.op.operands[0]
    maker = rewriter.producer(value)
    if maker is None:
        return refuse("ops in integers", "{0} quantises an input", form.op)
    if (function := table(form, value)) is not None:
        return "function", function
    low, high = form.limits()
    if is_limit(maker):
        low, high = _limited(form, maker)
        form.ops.append(maker)
        maker = rewriter.producer(maker.operands[0])
        if maker is None:
            return refuse("ops in integers", "{0} limits an input", form.op)
    kind, made = _anchor(form, maker)
    if isinstance(made, Refusal):
        return made
    if (low, high) != form.limits():
        made = form.b.clamp(made, low=low, high=high)
    return kind, made


def _anchor(form: Form, maker: Op) -> tuple[str, Value | Refusal]:
    """Return the kind of an op, and its form."""
    found = _product(form, maker)
    if found is not None:
        return "product", found
    form.ops.append(maker)
    match role(maker, form.rewriter):
        case "sum" if typed.Mul.match(maker):
            return "product", pair(form, maker)
        case "sum":
            return "sum", total(form, maker)
        case "constant":
            return "constant", with_constant(form, maker)
        case "mean":
            make = mean if typed.Mean.match(maker) else mean_of_windows
            return "mean", make(form, maker)
        case "moves":
            return "moves", moved(form, maker)
        case "softmax":
            return "softmax", softmax(form, maker)
        case "normalization":
            return "normalization", normalization(form, maker)
    return "", refuse("ops in integers", "{1} has no form in integers", form.op, maker)


def _product(form: Form, maker: Op) -> Value | Refusal | None:
    """Return the form of a product with its factor and bias; None if there is no product."""
    rewriter, module = form.rewriter, form.module
    bias, factor = None, 1.0
    ops = [maker]
    held = _constant_operand(ops[-1], adds_constant, rewriter)
    if held is not None:
        bias = constant_of(held, rewriter, module)
        ops += _before(ops[-1], held, rewriter)
    held = _constant_operand(ops[-1], scales, rewriter)
    if held is not None:
        number = float(constant_of(held, rewriter, module).flat[0])
        factor = 1 / number if typed.Div.match(ops[-1]) and number else number
        ops += _before(ops[-1], held, rewriter)
    if not is_product(ops[-1]):
        return None
    form.ops += ops
    return product(form, ops[-1], factor, bias)


def _constant_operand(op: Op, belongs, rewriter: Rewriter) -> Value | None:
    """Return the constant operand of a bias or factor, or None if ``op`` is none."""
    for value in op.operands:
        if belongs(op, value, rewriter):
            return next(v for v in op.operands if v is not value)
    return None


def _before(op: Op, constant: Value, rewriter: Rewriter) -> list[Op]:
    makers = (rewriter.producer(v) for v in op.operands if v is not constant)
    return [maker for maker in makers if maker is not None]


def _limited(form: Form, limit: Op) -> tuple[int, int]:
    """Return the integers of the limits of a relu or clamp."""
    low, high = form.limits()
    bounds: tuple[float | None, float | None] = (0.0, None)
    if limit.kind == "core.clamp":
        clamp = typed.Clamp.of(limit)
        bounds = (clamp.low, clamp.high)

    def step(number: float) -> int:
        return round(number / form.result.scale) + form.result.zero

    if bounds[0] is not None:
        low = min(max(low, step(bounds[0])), high)
    if bounds[1] is not None:
        high = max(min(high, step(bounds[1])), low)
    return low, high
