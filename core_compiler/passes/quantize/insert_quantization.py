"""Insert quantisation: values become integers and floats again, where integers shall compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Value, dtype
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import evaluate
from core_compiler.ops.traits import has_trait
from core_compiler.passes.base import Pass
from core_compiler.passes.quantize.observe import OBSERVED, Observed
from core_compiler.passes.quantize.parameters import Affine, Range, affine
from core_compiler.support.errors import UserError

#: The fact with the values that are quantised.
QUANTISED = "quantised"
I8, F32 = dtype("i8"), dtype("f32")


@dataclass(frozen=True)
class Quantised:
    """The quantised values: ``values`` maps each, dequantised, to the value in floats before."""

    values: Mapping[Value, Value]


@dataclass(frozen=True)
class InsertQuantization(Pass):
    """Quantise the operands and results of products, additions, poolings and simple functions.

    Activations have one scale, weights one for each channel of the result. What only moves or
    selects elements (views, concatenations, maxima of windows) shares the parameters of its
    operands. A bias and an activation function stay with their product: the values between are not
    quantised. What the model quantises itself stays as it is. ``symmetric``: activations have the
    zero point 0. ``keep``: names of ops, separated by commas, that stay in floats (as much of a
    result's name as is given).
    """

    exact = False
    tolerance = "values are rounded to integers of 8 bits: half a step of their range"
    changes_semantics = True
    symmetric: bool = False
    keep: str = ""

    @override
    def run(self, module: Module, context):
        observed: Observed | None = context.facts.get(OBSERVED)
        if observed is None:
            raise UserError(
                "no ranges were observed", "insert_quantization", "run observe before it"
            )
        names = tuple(n.strip() for n in self.keep.split(",") if n.strip())
        rewriter = context.rewriter(module.main.body)
        plan = _Plan(rewriter, module, observed, self.symmetric, names)
        plan.run()
        context.facts[QUANTISED] = Quantised(plan.quantised)
        return module.with_main(rewriter.commit())


@dataclass
class _Plan:
    rewriter: Rewriter
    module: Module
    observed: Observed
    symmetric: bool
    keep: Sequence[str]
    #: Each value that is quantised, with the first of those whose parameters it shares.
    group: dict[Value, Value] = field(default_factory=dict)
    parameters: dict[Value, Affine] = field(default_factory=dict)
    #: Each dequantised value, and the value in floats before.
    quantised: dict[Value, Value] = field(default_factory=dict)

    def run(self) -> None:
        anchors = [op for op in self.rewriter.ops if not self._is_kept(op)]
        parts = {part for op in anchors for part in parts_of(op, self.rewriter)}
        weighted = []
        for op in anchors:
            kind = None if op in parts else role(op, self.rewriter)
            activations = [v for v in dict.fromkeys(op.operands) if self._is_activation(v)]
            if kind is None or not activations:
                continue
            result = (op, *parts_of(op, self.rewriter))[-1].result
            values = [v for v in (*activations, result) if not self._is_quantised(v)]
            for value in values:
                self.group.setdefault(value, value)
            if kind == "moves":
                for value in values[1:]:
                    self._share(values[0], value)
            if kind == "product":
                weighted.append(op)
        self._choose()
        for op in weighted:
            self._quantise_weights(op)
        for value, chosen in self.parameters.items():
            self._insert(value, chosen)

    def _is_kept(self, op: Op) -> bool:
        return any((v.name or "").startswith(n) for v in op.results for n in self.keep)

    def _is_activation(self, value: Value) -> bool:
        return value in self.observed.ranges and not is_constant(value, self.rewriter)

    def _is_quantised(self, value: Value) -> bool:
        """Return whether the model itself quantises a value: what it reads or writes."""
        users = self.rewriter.users(value)
        if typed.Dequantize.match(self.rewriter.producer(value)) is not None:
            return True
        stored = all(typed.Quantize.match(user) is not None for user in users)
        return bool(users) and stored and not self.rewriter.is_output(value)

    def _root(self, value: Value) -> Value:
        while self.group[value] is not value:
            value = self.group[value]
        return value

    def _share(self, one: Value, other: Value) -> None:
        a, b = self._root(one), self._root(other)
        if a is not b:
            self.group[b] = a

    def _choose(self) -> None:
        joined: dict[Value, Range] = {}
        for value in self.group:
            root, seen = self._root(value), self.observed.ranges[value]
            joined[root] = joined[root].joined(seen) if root in joined else seen
        self.parameters = {
            value: affine(joined[self._root(value)], I8, self.symmetric) for value in self.group
        }

    def _insert(self, value: Value, chosen: Affine) -> None:
        """Let all readers of ``value`` read it quantised and back."""
        original = value
        seen = self.observed.examples.get(value, self.observed.ranges[value])
        if self.rewriter.producer(value) is None:
            value = self._copied(value, self.rewriter.users(value))
        b = Builder(self.module.weights)
        fresh = Value(value.type, value.name)
        _stored(b, fresh, chosen)
        made = self._made_by(value, b.ops, chosen.step_error(seen), fresh)
        self.quantised[made] = original

    def _quantise_weights(self, op: Op) -> None:
        """Quantise constant weights, symmetrically, with a scale for each channel of the result."""
        index, axis = weights_of(op)
        if index is None or not is_constant(op.operands[index], self.rewriter):
            return
        value = op.operands[index]
        if typed.Dequantize.match(self.rewriter.producer(value)) is not None:
            return
        array = np.asarray(constant_of(value, self.rewriter, self.module), np.float32)
        rest = tuple(a for a in range(array.ndim) if a != axis)
        lows, highs = array.min(axis=rest), array.max(axis=rest)
        chosen = [
            affine(Range(float(low), float(high)), I8, symmetric=True)
            for low, high in zip(lows, highs, strict=True)
        ]
        scales = np.array([c.scale for c in chosen], np.float32)
        steps = scales.reshape([-1 if a == axis else 1 for a in range(array.ndim)])
        whole = np.rint(array / steps).clip(-127, 127).astype(np.int8)
        largest = float(np.abs(array).max())
        error = float(np.abs(whole * steps - array).max()) / largest if largest else 0.0
        b = Builder(self.module.weights)
        b.dequantize(b.constant(whole), b.constant(scales), axis=axis)
        self._made_by(self._copied(value, [op]), b.ops, 1.001 * error)

    def _copied(self, value: Value, users: Sequence[Op]) -> Value:
        """Let ``users`` read a value of their own in place of ``value``."""
        b = Builder(self.module.weights)
        own = b.reshape(value, shape=value.type.shape)
        for number, op in enumerate(users):
            new = [*(b.ops if number == 0 else ()), op.substitute({value: own})]
            self.rewriter.replace(op, new, rule="a value of its own to quantise")
        return own

    def _made_by(
        self, value: Value, ops: Sequence[Op], tolerance: float, fresh: Value | None = None
    ) -> Value:
        """Replace ``value`` by the last result of ``ops``; ``fresh``: what its maker makes now."""
        maker = self.rewriter.producer(value)
        assert maker is not None
        before = []
        if fresh is not None:
            results = tuple(fresh if v is value else v for v in maker.results)
            before = [maker.with_(results=results)]
        made = ops[-1].result
        self.rewriter.replace(
            maker,
            [*before, *ops],
            {value: made},
            rule="quantise a value" if fresh is not None else "quantise weights",
            tolerance=tolerance,
            in_f64=tolerance,
        )
        return made


def _stored(b: Builder, value: Value, chosen: Affine) -> Value:
    scale = b.constant(np.float32(chosen.scale))
    zero = b.constant(np.asarray(chosen.zero, chosen.dtype.numpy))
    limits = {} if chosen.low == -chosen.high - 1 else {"low": chosen.low, "high": chosen.high}
    q = b.quantize(value, scale, zero, dtype=chosen.dtype, **limits)
    return b.dequantize(q, scale, zero)


# -- what is quantised -----------------------------------------------------------------------------


def role(op: Op, rewriter: Rewriter) -> str | None:
    """Return how an op of f32 is quantised, or None if it is left in floats.

    ``product``, ``sum`` (of several values), ``mean``, ``moves`` (elements keep their values) or
    ``function`` (of one value, elementwise).
    """
    if len(op.results) != 1 or any(v.type.dtype is not F32 for v in (*op.operands, op.result)):
        return None
    if is_product(op):
        return "product"
    if op.kind == "core.mean":
        return "mean"
    if moves_elements(op):
        return "moves"
    if not has_trait(op, "elementwise") or has_trait(op, "random"):
        return None
    varied = [v for v in dict.fromkeys(op.operands) if not is_constant(v, rewriter)]
    if len(varied) == 2 and any(t.match(op) for t in (typed.Add, typed.Sub, typed.Mul)):
        return "sum"
    return "function" if len(varied) == 1 else None


def parts_of(op: Op, rewriter: Rewriter) -> tuple[Op, ...]:
    """Return the ops that belong to a product or sum: its bias, and what limits its result."""
    kind = role(op, rewriter)
    if kind not in ("product", "sum"):
        return ()
    parts: tuple[Op, ...] = ()
    bias = _only_user(op.result, rewriter)
    if kind == "product" and bias is not None and adds_constant(bias, op.result, rewriter):
        parts = (bias,)
    limit = _only_user((op, *parts)[-1].result, rewriter)
    return (*parts, limit) if limit is not None and is_limit(limit) else parts


def is_product(op: Op) -> bool:
    """Return whether an op multiplies by weights, and adds."""
    return any(t.match(op) for t in (typed.Conv, typed.Matmul))


def moves_elements(op: Op) -> bool:
    """Return whether the elements of the result are elements of the operands."""
    selects = any(t.match(op) for t in (typed.Concat, typed.MaxPool, typed.Slice))
    return selects or has_trait(op, "view")


def is_limit(op: Op) -> bool:
    """Return whether an op is a limit of the integers."""
    return any(t.match(op) for t in (typed.Relu, typed.Clamp))


def _only_user(value: Value, rewriter: Rewriter) -> Op | None:
    users = rewriter.users(value)
    return users[0] if len(users) == 1 and not rewriter.is_output(value) else None


def adds_constant(op: Op, value: Value, rewriter: Rewriter) -> bool:
    """Return whether ``op`` adds a constant to ``value``."""
    if op.kind != "core.add":
        return False
    others = [v for v in op.operands if v is not value]
    return len(others) == 1 and is_constant(others[0], rewriter)


def weights_of(op: Op) -> tuple[int | None, int]:
    """Return the number of the operand that is weights, and its axis of the result's channels."""
    if op.kind == "core.conv":
        return 1, 0
    w = typed.Matmul.of(op).b
    return (1, w.type.rank - 1) if w.type.rank == 2 else (None, 0)


def is_constant(value: Value, rewriter: Rewriter) -> bool:
    """Return whether a value is a constant, or constants moved or broadcast."""
    maker = rewriter.producer(value)
    if maker is None:
        return False
    if maker.kind == "core.constant":
        return True
    spread = any(t.match(maker) for t in (typed.Broadcast, typed.Dequantize))
    moved = spread or has_trait(maker, "view")
    return moved and all(is_constant(v, rewriter) for v in maker.operands)


def constant_of(value: Value, rewriter: Rewriter, module: Module) -> np.ndarray:
    """Return the array of a value for which :func:`is_constant` holds."""
    maker = rewriter.producer(value)
    assert maker is not None
    arrays = [constant_of(v, rewriter, module) for v in maker.operands]
    return evaluate(maker, arrays, module.weights)[0]
