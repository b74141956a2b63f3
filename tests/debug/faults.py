"""Compilers that are wrong on purpose: passes, rules and targets with one planted fault each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

import core_compiler.ops  # noqa: F401  (declares the ops)
from core_compiler.ir import Block, Function, Module, Op, Value, WeightStore, as_array, tensor
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass
from core_compiler.passes.grouping import GROUP
from core_compiler.passes.rules import Rule, apply_rules, op
from core_compiler.scheduling.schedules.steps import Step
from core_compiler.targets.cpu import CPU


def network() -> tuple[Module, list[np.ndarray]]:
    """Convolution, bias, relu, mean, product, softmax: every pass finds work.

    Two results, two equal subexpressions, constants to fold.
    """
    random = np.random.default_rng(0)
    store = WeightStore()
    b = Builder(store)
    x = Value(tensor((2, 3, 8, 8), "f32"), "x")

    def weight(*shape):
        return b.constant(random.standard_normal(shape).astype(np.float32))

    c = b.conv(
        x, weight(4, 3, 3, 3), strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1), groups=1
    )
    c = b.add(c, b.broadcast(b.mul(weight(4), weight(4)), shape=c.type.shape, dims=(1,)))
    c = b.relu(c)
    rows, columns = b.reduce_sum(c, axes=(2,)), b.reduce_sum(c, axes=(3,))
    mean = b.div(
        b.reduce_sum(b.add(rows, columns), axes=(2,)),
        b.scalar_like(16.0, Value(tensor((2, 4), "f32"))),
    )
    y = b.matmul(mean, weight(4, 6))
    y = b.add(y, b.expand(weight(6), (2, 6)))
    y = b.sub(b.mul(y, b.exp(b.neg(y))), b.exp(b.neg(y)))
    s = b.softmax(b.transpose(y, permutation=(1, 0)), axis=1)
    module = Module({"main": Function("main", Block((x,), tuple(b.ops), (s, y)))}, store)
    return module, [random.standard_normal((2, 3, 8, 8)).astype(np.float32)]


def rows(shape=(40, 200)) -> tuple[Module, list[np.ndarray]]:
    """One kernel that compiles fast: sums of rows whose terms cancel, so that their order shows."""
    random = np.random.default_rng(1)
    b = Builder(WeightStore())
    x = Value(tensor(shape, "f32"), "x")
    cubes = b.mul(b.mul(x, x), x)
    total = b.reduce_sum(cubes, axes=(1,))
    mean = b.div(total, b.add(b.mul(total, total), b.scalar_like(3.0, total)))
    module = Module({"main": Function("main", Block((x,), tuple(b.ops), (mean,)))}, b.weights)
    return module, [random.standard_normal(shape).astype(np.float32)]


# -- passes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rules(Pass):
    """Applies given rules."""

    given: tuple[Rule, ...] = ()

    def run(self, module, context):
        return context.rewrite(module, lambda rw: apply_rules(rw, self.given, module.weights))


@dataclass(frozen=True)
class InexactRules(Rules):
    """Applies given rules that may change bits."""

    exact = False
    tolerance = "as the rules say"


@dataclass(frozen=True)
class EachOp(Pass):
    """Calls ``edit(rewriter, op)`` for every op of main that is still there."""

    edit: Callable | None = None

    def run(self, module, context):
        def walk(rw):
            for each in rw.ops:
                if each in rw:
                    self.edit(rw, each)

        return context.rewrite(module, walk)


@dataclass(frozen=True)
class ImplementationEachOp(EachOp):
    """The same among the target's passes."""

    half = "implementation"


@dataclass(frozen=True)
class Silently(Pass):
    """Edits the module without a word in the log."""

    edit: Callable | None = None

    def run(self, module, context):
        return self.edit(module)


def folds_wrongly(rw, each: Op) -> None:
    """A constant fold whose second element is off by one in the last place."""
    if each.kind != "core.mul" or each.result.type.shape != (4,):
        return
    arrays = [as_array(rw.producer(v)["value"], None) for v in each.operands]
    wrong = arrays[0] * arrays[1]
    wrong[1] = np.nextafter(wrong[1], np.float32(np.inf))
    b = Builder()
    made = b.constant(wrong)
    rw.replace(each, b.ops, {each.result: made}, rule="fold core.mul")


def merges_without_attributes(rw, each: Op) -> None:
    """CSE that forgets attributes: sums over different axes of one operand become one."""
    if each.kind != "core.reduce_sum":
        return
    for other in rw.ops:
        alike = other.kind == each.kind and other.operands == each.operands
        if alike and other is not each and other.result.type is each.result.type:
            rw.replace(
                (other, each),
                other.with_(origin=None),
                {each.result: other.result},
                rule="merge equal core.reduce_sum",
                at=other,
            )
            return


def removes_a_used_op(rw, each: Op) -> None:
    """Dead-code elimination that takes a clamp for dead and lets its operand through."""
    if each.kind == "core.relu":
        rw.replace(each, (), {each.result: each.operands[0]}, rule="unused core.relu")


def permutes_wrongly(rw, each: Op) -> None:
    """A layout change with rows and columns exchanged."""
    if each.kind != "core.conv":
        return
    inner = Value(each.result.type)
    turned = Op("core.transpose", (inner,), each.results, {"permutation": (0, 1, 3, 2)})
    rw.replace(each, [each.with_(results=(inner,), origin=None), turned], rule="rows last")


def fuses_without_an_op(rw, each: Op) -> None:
    """Fusion that loses the last op of a group whose type allows it."""
    if each.kind != GROUP:
        return
    block = each.regions[0]
    last = block.ops[-1]
    source = next((v for v in last.operands if v.type is last.result.type), None)
    if block.outputs != last.results or source is None or source in block.arguments:
        return
    lost = block.with_(ops=block.ops[:-1], outputs=(source,))
    rw.replace(each, each.with_(regions=(lost,), origin=None), rule="one loop nest")


def swaps_results(module: Module) -> Module:
    """Exchanges operands of a subtraction and says nothing."""
    body = module.main.body
    ops = tuple(o.with_(operands=o.operands[::-1]) if o.kind == "core.sub" else o for o in body.ops)
    return module.with_main(body.with_(ops=ops))


def breaks_a_type(rw, each: Op) -> None:
    """Makes an op whose result has another shape than its type rule says."""
    if each.kind == "core.exp":
        wrong = Value(tensor((2, 5), "f32"))
        rw.replace(
            each, Op("core.exp", each.operands, (wrong,)), {each.result: wrong}, rule="shrink"
        )


def raises_at_the_third(rw, each: Op) -> None:
    """Marks ops one by one and fails at the third."""
    if each.kind in ("core.add", "core.mul"):
        if sum(e.rule == "mark" for e in rw.events) == 2:
            raise ZeroDivisionError("integer division or modulo by zero")
        rw.replace(each, each.with_(origin=None), rule="mark")


def _scaled(factor: float):
    return lambda b, m: b.mul(m["x"], b.scalar_like(factor, m["x"]))


NEGATED_TWICE = Rule("exp(-x) => exp(x)", op("exp", op("neg", "x")), lambda b, m: b.exp(m["x"]))
TOO_TIGHT = Rule(
    "relu(x) => relu(x) * 1.0001",
    op("relu", "x"),
    lambda b, m: b.mul(r := b.max(m["x"], b.scalar_like(0.0, m["x"])), b.scalar_like(1.0001, r)),
    tolerance=1e-5,
)
SOFTMAX_WITHOUT_MAX = Rule(
    "softmax(x) => exp(x) / sum(exp(x))",
    op("softmax", "x"),
    lambda b, m: b.div(
        e := b.exp(m["x"]), b.broadcast(b.reduce_sum(e, axes=(1,)), shape=e.type.shape, dims=(0,))
    ),
)
#: Fires on each subtraction's first operand; within its own generous bound each time.
GENEROUS = Rule(
    "x - y => 1.01 x - y",
    op("sub", "x", "y"),
    lambda b, m: b.add(b.mul(m["x"], b.scalar_like(1.01, m["x"])), b.neg(m["y"])),
    tolerance=0.5,
)


# -- targets ---------------------------------------------------------------------------------


def edited(function: Function, change: Callable[[Op], list[Op] | None], count: int = 1):
    """``function`` with the first ``count`` ops that ``change`` answers for replaced."""
    left = [count]

    def block(b: Block) -> Block:
        ops: list[Op] = []
        for each in b.ops:
            new = change(each) if left[0] else None
            if new is not None:
                left[0] -= 1
                ops += new
            elif each.regions:
                ops.append(each.with_(regions=tuple(map(block, each.regions))))
            else:
                ops.append(each)
        return b.with_(ops=tuple(ops))

    made = function.with_(body=block(function.body))
    assert left[0] == 0, f"{function.name}: nothing to break"
    return made


def backwards(each: Op) -> list[Op] | None:
    """A sequential loop that carries a sum, run from its last iteration to its first."""
    if each.kind != "kernel.for" or each["loop"] != "sequential" or not each.results:
        return None
    lower, upper, step = each.operands[:3]
    body = each.regions[0]
    iv = body.arguments[0]
    index = iv.type
    mirrored, ends, last = (Value(index) for _ in range(3))
    fresh = Value(index, iv.name)
    head = [
        Op("kernel.sub", (upper, step), (last,)),
        Op("kernel.add", (last, lower), (ends,)),
        Op("kernel.sub", (ends, fresh), (mirrored,)),
    ]
    ops = tuple(o.substitute({iv: mirrored}) for o in body.ops)
    made = body.with_(arguments=(fresh, *body.arguments[1:]), ops=(*head, *ops))
    return [each.with_(regions=(made,))]


def by_reciprocal(each: Op) -> list[Op] | None:
    """x / y as x * (1 / y): one more rounding."""
    if each.kind != "kernel.div" or "index" in str(each.result.type):
        return None
    one, inverse = Value(each.result.type), Value(each.result.type)
    constant = Op("kernel.constant", (), (one,), {"value": 1.0})
    return [
        constant,
        Op("kernel.div", (one, each.operands[1]), (inverse,)),
        Op("kernel.mul", (each.operands[0], inverse), each.results),
    ]


class Broken(CPU):
    """The CPU target with a fault in how it schedules or compiles the kernel called ``victim``."""

    def __init__(self, victim: str = "", step=None, code=None):
        self.victim, self.step, self.code = victim, step, code

    def schedule(self, kernel, options, launches=()):
        made = super().schedule(kernel, options, launches)
        if self.step is None or self.victim not in kernel.name:
            return made
        wrong = edited(made.function, self.step)
        steps = (
            *made.steps,
            Step("unroll(k)", kernel.name, wrong),
            Step("lift()", kernel.name, wrong),
        )
        return replace(made, function=wrong, steps=steps)

    def compile(self, kernels: Mapping[str, Function], options, progress):
        if self.code is not None:
            kernels = {
                n: edited(f, self.code) if self.victim in n else f for n, f in kernels.items()
            }
        return super().compile(kernels, options, progress)


class MixesUpSizes(CPU):
    """The CPU target whose linker gives the last launch of the first program a wrong stride."""

    def link(self, module, facts, options):
        program, arrays, ops = super().link(module, facts, options)
        if "program" not in facts:
            *others, last = program.launches
            wrong = replace(last, indices=(*last.indices[:-1], last.indices[-1] - 1))
            program = replace(program, launches=(*others, wrong))
        return program, arrays, ops
