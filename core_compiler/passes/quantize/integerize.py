"""Integerize: ops between dequantised and quantised values compute with integers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
from typing_extensions import override

from core_compiler.ir import DType, Module, Op, Rewriter, TensorType, Value, dtype
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.kernel_ir.scalars import integer_range
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.costs import cost
from core_compiler.ops.evaluation import constant_array, evaluate
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass
from core_compiler.passes.quantize.insert_quantization import (
    QUANTISED,
    Quantised,
    constant_of,
    is_constant,
    is_limit,
    is_product,
    moves_elements,
)
from core_compiler.passes.quantize.parameters import fixed_point

I8, I32 = dtype("i8"), dtype("i32")
#: Bits below the point of the operands of a sum, which have the larger of both scales.
SUM_BITS = 20
#: The largest magnitude of a byte less its zero point.
CENTRED = 255
#: Steps of the result by which rounding in integers may differ from rounding in floats.
STEPS = {"product": 1, "sum": 2, "mean": 1, "function": 1, "moves": 1}


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


@dataclass(frozen=True)
class Stored:
    """A quantised value: integers of one scale and zero point."""

    q: Value
    scale: float
    zero: int

    def centred(self, b: Builder) -> Value:
        """Return the integers less their zero point, in i32."""
        wide = b.cast(self.q, dtype=I32)
        return b.sub(wide, b.scalar_like(self.zero, wide)) if self.zero else wide


def stored_of(value: Value, rewriter: Rewriter, module: Module) -> Stored | Refusal:
    """Return the integers that a float value was dequantised from."""
    op = rewriter.producer(value)
    found = typed.Dequantize.match(op)
    if op is None or found is None:
        if op is None:
            return refuse("quantised operands", "an operand is an input that is not quantised")
        return refuse("quantised operands", "{0:value} is not dequantised", op)
    if found.axis is not None:
        return refuse("one scale", "{0:value} has a scale for each channel", op)
    return _stored(found.q, op.operands[1:], rewriter, module, op)


def stored_by(op: Op, rewriter: Rewriter, module: Module) -> Stored | Refusal:
    """Return the result of a ``quantize`` with its scale and zero point."""
    found = typed.Quantize.of(op)
    if found.axis is not None:
        return refuse("one scale", "{0} has a scale for each channel", op)
    return _stored(op.result, op.operands[1:], rewriter, module, op)


def _stored(q, parameters, rewriter, module, op) -> Stored | Refusal:
    arrays = []
    for value in parameters:
        maker = rewriter.producer(value)
        if maker is None or maker.kind != "core.constant":
            return refuse("constant parameters", "the parameters of {0} are computed", op)
        arrays.append(constant_array(maker, module.weights))
    if q.type.dtype.bits != 8:
        return refuse("bytes", "{0} is of {1}, not of bytes", op, q.type.dtype)
    if not float(arrays[0]) > 0:
        return refuse("a positive scale", "the scale of {0} is {1}", op, float(arrays[0]))
    zero = int(arrays[1]) if len(arrays) > 1 else 0
    return Stored(q, float(arrays[0]), zero)


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
    form = _Form(op, result, rewriter, module, b)
    made = form.made()
    return made if isinstance(made, Refusal) else (*made, form.replaced())


@dataclass
class _Form:
    """The float ops before a ``quantize``: an op, perhaps its bias, perhaps limits."""

    op: Op
    result: Stored
    rewriter: Rewriter
    module: Module
    b: Builder
    #: The float ops of the form, from the last.
    ops: list[Op] = field(default_factory=list)

    def replaced(self) -> list[Op]:
        """Return the float ops of the form, in order, as far as it alone reads them."""
        found: list[Op] = []
        for op in self.ops:
            if not self.rewriter.has_one_use(op.result):
                break
            found.insert(0, op)
        return found

    def made(self) -> tuple[str, Value] | Refusal:
        value = self.op.operands[0]
        maker = self.rewriter.producer(value)
        if maker is None:
            return refuse("ops in integers", "{0} quantises an input", self.op)
        table = self._table(value)
        if table is not None:
            return "function", table
        low, high = self._limits()
        if is_limit(maker):
            low, high = self._limited(maker)
            self.ops.append(maker)
            maker = self.rewriter.producer(maker.operands[0])
            if maker is None:
                return refuse("ops in integers", "{0} limits an input", self.op)
        made = self._anchor(maker)
        if isinstance(made, Refusal):
            return made
        kind, q = made
        if (low, high) != self._limits():
            q = self.b.clamp(q, low=low, high=high)
        return kind, q

    def _anchor(self, maker: Op) -> tuple[str, Value] | Refusal:
        bias = None
        if maker.kind == "core.add":
            constants = [v for v in maker.operands if is_constant(v, self.rewriter)]
            others = [v for v in maker.operands if v not in constants]
            before = self.rewriter.producer(others[0]) if len(others) == 1 else None
            if len(constants) == 1 and before is not None and is_product(before):
                bias = constant_of(constants[0], self.rewriter, self.module)
                self.ops.append(maker)
                maker = before
        self.ops.append(maker)
        if is_product(maker):
            return self._named("product", self._product(maker, bias))
        if typed.Add.match(maker) or typed.Sub.match(maker):
            return self._named("sum", self._sum(maker))
        if maker.kind == "core.mul":
            return self._named("product", self._pair(maker))
        if maker.kind == "core.mean":
            return self._named("mean", self._mean(maker))
        if moves_elements(maker):
            return self._named("moves", self._moved(maker))
        return refuse("ops in integers", "{1} has no form in integers", self.op, maker)

    def _named(self, kind: str, made: Value | Refusal) -> tuple[str, Value] | Refusal:
        return made if isinstance(made, Refusal) else (kind, made)

    # -- products ------------------------------------------------------------------------------

    def _product(self, maker: Op, bias: np.ndarray | None) -> Value | Refusal:
        b, (left, right) = self.b, maker.operands
        x = stored_of(left, self.rewriter, self.module)
        if isinstance(x, Refusal):
            return x
        weights = self._weights(maker, right)
        if isinstance(weights, Refusal):
            return weights
        wide, scales, axis = weights
        room = self._room(
            cost(maker).flops // max(1, 2 * maker.result.type.elements), CENTRED**2, maker
        )
        if isinstance(room, Refusal):
            return room
        total = maker.with_(
            operands=(x.centred(b), wide),
            results=(Value(maker.result.type.with_(dtype=I32)),),
            origin=None,
        )
        b.ops.append(total)
        made = total.result
        if bias is not None:
            added = self._bias(bias, x.scale * scales, made, axis, room)
            if isinstance(added, Refusal):
                return added
            made = b.add(made, added)
        return self._rescaled(made, x.scale * scales / self.result.scale, axis, maker)

    def _room(self, terms: int, largest: int, maker: Op) -> int | Refusal:
        """Return what i32 leaves beside a sum of so many terms, of at most ``largest`` each."""
        room = integer_range(I32)[1] - terms * largest
        if room >= 0:
            return room
        return refuse("sums of 32 bits", "{0} adds {1} terms", maker, terms)

    def _weights(self, maker: Op, value: Value) -> tuple[Value, np.ndarray, int | None] | Refusal:
        """Return the second operand in i32, its scales, and the axis of the result they lie on."""
        op = self.rewriter.producer(value)
        found = typed.Dequantize.match(op)
        if op is None or found is None:
            return refuse("quantised operands", "{0} is not quantised", op or maker)
        if found.q.type.dtype.bits != 8:
            return refuse("bytes", "the weights of {0} are of {1}", maker, found.q.type.dtype)
        if found.axis is None:
            stored = stored_of(value, self.rewriter, self.module)
            if isinstance(stored, Refusal):
                return stored
            return stored.centred(self.b), np.array(stored.scale), None
        expected, axis = (0, 1) if maker.kind == "core.conv" else (1, maker.result.type.rank - 1)
        if len(op.operands) > 2:
            zero = self.rewriter.producer(op.operands[2])
            if (
                zero is None
                or zero.kind != "core.constant"
                or constant_array(zero, self.module.weights).any()
            ):
                return refuse("symmetric weights", "the weights of {0} have zero points", maker)
        scale = self.rewriter.producer(op.operands[1])
        if found.axis != expected or scale is None or scale.kind != "core.constant":
            return refuse(
                "a scale a channel", "the scales of {0} are not those of its channels", maker
            )
        scales = constant_array(scale, self.module.weights).astype(np.float64)
        return self.b.cast(found.q, dtype=I32), scales, axis

    def _bias(
        self, bias: np.ndarray, scale: np.ndarray, like: Value, axis: int | None, room: int
    ) -> Value | Refusal:
        """Return the bias in steps of the sum."""
        full = np.broadcast_to(bias, like.type.shape).astype(np.float64)
        lead = tuple(
            slice(None) if a == (like.type.rank - 1 if axis is None else axis) else slice(0, 1)
            for a in range(full.ndim)
        )
        part = full[lead]
        if not np.array_equal(np.broadcast_to(part, full.shape), full):
            part = full
        shape = [1] * full.ndim
        if axis is not None:
            shape[axis] = -1
        steps = np.rint(part / (scale.reshape(shape) if axis is not None else scale))
        if not (np.abs(steps) <= room).all():
            return refuse(
                "a bias of 32 bits", "the bias of {0} is larger than its sum can be", self.op
            )
        held = self.b.constant(steps.astype(np.int32))
        return self.b.expand(held, like.type.shape)

    def _pair(self, maker: Op) -> Value | Refusal:
        pair = self._both(maker)
        if isinstance(pair, Refusal):
            return pair
        x, y = pair
        made = self.b.mul(x.centred(self.b), y.centred(self.b))
        return self._rescaled(made, np.array(x.scale * y.scale / self.result.scale), None, maker)

    def _both(self, maker: Op) -> tuple[Stored, Stored] | Refusal:
        """Return the integers of both operands."""
        left, right = (stored_of(v, self.rewriter, self.module) for v in maker.operands)
        if isinstance(left, Refusal):
            return left
        return right if isinstance(right, Refusal) else (left, right)

    # -- sums ----------------------------------------------------------------------------------

    def _sum(self, maker: Op) -> Value | Refusal:
        """Add or subtract two values, both first in steps of the larger scale, divided by 2**20."""
        pair = self._both(maker)
        if isinstance(pair, Refusal):
            return pair
        x, y = pair
        unit = 2 * max(x.scale, y.scale) / (1 << SUM_BITS)
        terms = []
        for each in (x, y):
            made = self._scaled(each.q, np.array(each.scale / unit), None, I32, each.zero, 0)
            if isinstance(made, Refusal):
                return made
            terms.append(made)
        total = self.b.add(*terms) if maker.kind == "core.add" else self.b.sub(*terms)
        return self._rescaled(total, np.array(unit / self.result.scale), None, maker)

    def _mean(self, maker: Op) -> Value | Refusal:
        x = stored_of(maker.operands[0], self.rewriter, self.module)
        if isinstance(x, Refusal):
            return x
        axes = typed.Mean.of(maker).axes
        count = prod(maker.operands[0].type.shape[a] for a in axes)
        room = self._room(count, CENTRED, maker)
        if isinstance(room, Refusal):
            return room
        total = self.b.reduce_sum(x.centred(self.b), axes=axes)
        if total.type.shape != self.result.q.type.shape:
            total = self.b.reshape(total, shape=self.result.q.type.shape)
        return self._rescaled(total, np.array(x.scale / (count * self.result.scale)), None, maker)

    # -- everything else -----------------------------------------------------------------------

    def _moved(self, maker: Op) -> Value | Refusal:
        stored = [stored_of(v, self.rewriter, self.module) for v in maker.operands]
        for found in stored:
            if isinstance(found, Refusal):
                return found
            if (found.scale, found.zero) != (self.result.scale, self.result.zero):
                return refuse("shared parameters", "{1} changes the scale", self.op, maker)
        operands = tuple(s.q for s in stored if isinstance(s, Stored))
        kind = self.op.result.type.dtype
        moved = maker.with_(
            operands=operands,
            results=(Value(maker.result.type.with_(dtype=kind)),),
            origin=None,
        )
        self.b.ops.append(moved)
        return moved.result

    def _table(self, value: Value) -> Value | None:
        """Return a table of the function of one quantised value, or None if it is none."""
        chain: list[Op] = []
        leaf = value
        while True:
            op = self.rewriter.producer(leaf)
            if op is None or op.kind == "core.dequantize":
                break
            if not has_trait(op, "elementwise") or has_trait(op, "random") or len(op.results) != 1:
                return None
            varied = [v for v in op.operands if not is_constant(v, self.rewriter)]
            if len(varied) != 1 or not self._has_scalars(op):
                return None
            chain.insert(0, op)
            (leaf,) = varied
        x = stored_of(leaf, self.rewriter, self.module)
        if not chain or isinstance(x, Refusal) or x.q.type.dtype.bits != 8:
            return None
        low, high = integer_range(x.q.type.dtype)
        every = np.arange(low, high + 1)
        numbers = ((every - x.zero) * np.float32(x.scale)).astype(np.float32)
        known = {leaf: numbers}
        for op in chain:
            arrays = [known[v] if v in known else self._scalar(v) for v in op.operands]
            row = TensorType((len(every),), op.result.type.dtype)
            small = op.with_(
                operands=tuple(Value(TensorType(row.shape, v.type.dtype)) for v in op.operands),
                results=(Value(row),),
                origin=None,
            )
            known[op.result] = evaluate(small, arrays, self.module.weights)[0]
        least, most = self._limits()
        scaled = np.rint(known[value] / np.float32(self.result.scale)) + self.result.zero
        entries = np.nan_to_num(scaled, nan=0.0).clip(least, most)
        self.ops += reversed(chain)
        table = self.b.constant(entries.astype(self.op.result.type.dtype.numpy))
        return self.b.table(x.q, table)

    def _has_scalars(self, op: Op) -> bool:
        constants = [v for v in op.operands if is_constant(v, self.rewriter)]
        return all(self._scalar_or_none(v) is not None for v in constants)

    def _scalar_or_none(self, value: Value) -> np.ndarray | None:
        array = constant_of(value, self.rewriter, self.module)
        return array if array.size and (array == array.flat[0]).all() else None

    def _scalar(self, value: Value) -> np.ndarray:
        array = self._scalar_or_none(value)
        assert array is not None
        return np.full(256, array.flat[0], array.dtype)

    # -- results -------------------------------------------------------------------------------

    def _limits(self) -> tuple[int, int]:
        found = typed.Quantize.of(self.op)
        least, most = integer_range(self.op.result.type.dtype)
        low = least if found.low is None else found.low
        return low, most if found.high is None else found.high

    def _limited(self, limit: Op) -> tuple[int, int]:
        """Return the integers of the limits of a relu or clamp."""
        low, high = self._limits()
        bounds: tuple[float | None, float | None] = (0.0, None)
        if limit.kind == "core.clamp":
            clamp = typed.Clamp.of(limit)
            bounds = (clamp.low, clamp.high)

        def step(number: float) -> int:
            return round(number / self.result.scale) + self.result.zero

        if bounds[0] is not None:
            low = min(max(low, step(bounds[0])), high)
        if bounds[1] is not None:
            high = max(min(high, step(bounds[1])), low)
        return low, high

    def _rescaled(
        self, total: Value, factors: np.ndarray, axis: int | None, maker: Op
    ) -> Value | Refusal:
        kind = self.op.result.type.dtype
        made = self._scaled(total, factors, axis, kind, 0, self.result.zero)
        if isinstance(made, Refusal):
            return made
        low, high = self._limits()
        return (
            made if (low, high) == integer_range(kind) else self.b.clamp(made, low=low, high=high)
        )

    def _scaled(
        self,
        x: Value,
        factors: np.ndarray,
        axis: int | None,
        kind: DType,
        input_zero: int,
        output_zero: int,
    ) -> Value | Refusal:
        points = [fixed_point(float(f)) for f in np.atleast_1d(factors)]
        if None in points:
            return refuse(
                "factors of 31 bits", "the scales of {0} are too far apart to rescale", self.op
            )
        multipliers = np.array([p[0] for p in points if p], np.int32)
        shifts = np.array([p[1] for p in points if p], np.int8)
        if axis is None:
            multipliers, shifts = multipliers.reshape(()), shifts.reshape(())
        return self.b.rescale(
            x,
            self.b.constant(multipliers),
            self.b.constant(shifts),
            dtype=kind,
            axis=axis,
            input_zero=input_zero,
            output_zero=output_zero,
        )
