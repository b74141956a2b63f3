"""Insert quantisation: values become integers and floats again, where integers shall compute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from core_compiler.ir import Module, Op, Rewriter, Rounding, Value, dtype
from core_compiler.ops import typed
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass
from core_compiler.passes.quantize.evaluation import by_op
from core_compiler.passes.quantize.observe import OBSERVED, Observed
from core_compiler.passes.quantize.parameters import Affine, Range, affine, need_choice
from core_compiler.passes.quantize.roles import (
    constant_of,
    hidden_by,
    is_constant,
    parts_of,
    role,
    weights_of,
)
from core_compiler.passes.quantize.weights import (
    ROUNDINGS,
    SCALES,
    IntegerWeights,
    gram_matrices,
    quantised_weights,
)
from core_compiler.support.errors import UserError

#: The fact with the values that are quantised.
QUANTISED = "quantised"
#: The fact with the results that stay in floats, each with the reason.
KEPT = "kept"
I8, I16 = dtype("i8"), dtype("i16")
#: Sums and differences are in integers if the larger operand is at most so many times the other.
MOST_APART = 1 << 16


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
    result's name as is given). ``weights``: the scale of a channel is that of its largest weight,
    or that of the least squared error. ``rounding``: of weights, to the nearest integer, or
    ``gptq``: with the least error of the layer's output on the calibration data.
    """

    exact = False
    tolerance = "values are rounded to integers of 8 bits: half a step of their range"
    changes_semantics = True
    symmetric: bool = False
    keep: str = ""
    weights: str = field(default="max", metadata={"choices": SCALES})
    rounding: str = field(default="nearest", metadata={"choices": ROUNDINGS})

    @override
    def run(self, module: Module, context):
        need_choice("weights", self.weights, SCALES)
        need_choice("rounding", self.rounding, ROUNDINGS)
        observed: Observed | None = context.facts.get(OBSERVED)
        if observed is None:
            raise UserError(
                "no ranges were observed", "insert_quantization", "run observe before it"
            )
        names = tuple(n.strip() for n in self.keep.split(",") if n.strip())
        rewriter = context.rewriter(module.main.body)
        plan = _Plan(rewriter, module, observed, self.symmetric, names, self.weights, self.rounding)
        plan.kept |= context.facts.get(KEPT, {})
        plan.run()
        context.facts[KEPT] = plan.kept
        context.facts[QUANTISED] = Quantised(plan.quantised)
        return module.with_main(rewriter.commit())


@dataclass
class _Plan:
    rewriter: Rewriter
    module: Module
    observed: Observed
    symmetric: bool
    keep: Sequence[str]
    #: How weights are scaled and rounded.
    scale: str = "max"
    rounding: str = "nearest"
    kept: dict[Value, str] = field(default_factory=dict)
    #: Each value that is quantised, with the first of those whose parameters it shares.
    group: dict[Value, Value] = field(default_factory=dict)
    parameters: dict[Value, Affine] = field(default_factory=dict)
    #: Each dequantised value, and the value in floats before.
    quantised: dict[Value, Value] = field(default_factory=dict)
    #: Ranges of constants that share the parameters of a value.
    also: list[tuple[Value, Range]] = field(default_factory=list)
    #: Values that only a softmax reads, and the results of products. What is both has 16 bits: of
    #: scores, differences are taken, and sums in i32 are exact enough.
    scores: set[Value] = field(default_factory=set)
    sums: set[Value] = field(default_factory=set)

    def run(self) -> None:
        for op in filter(self._is_named, self.rewriter.ops):
            kept = (op, *parts_of(op, self.rewriter))
            self.kept |= {v: "kept by its name" for each in kept for v in each.results}
        anchors = [op for op in self.rewriter.ops if self.kept.keys().isdisjoint(op.results)]
        parts = {part for op in anchors for part in parts_of(op, self.rewriter)}
        products = []
        for op in anchors:
            kind = None if op in parts else role(op, self.rewriter)
            if kind is None or is_constant(op.result, self.rewriter):
                continue
            if self._quantise_around(op, kind) and kind == "product":
                products.append(op)
        self._choose()
        for op, index, found in self._integer_weights(products):
            self._quantise_constant(op, index, found)
        for value, chosen in self.parameters.items():
            self._insert(value, chosen)

    def _quantise_around(self, op: Op, kind: str) -> bool:
        """Note the values around ``op`` as quantised; return False if they cannot be."""
        read, hides = hidden_by(op, self.rewriter) if kind == "softmax" else (None, None)
        operands = op.operands if read is None else (read,)
        activations = [v for v in dict.fromkeys(operands) if self._is_activation(v)]
        result = (op, *parts_of(op, self.rewriter))[-1].result
        if result not in self.observed.ranges:
            return False  # it has infinities, which a scale cannot cover
        constants = self._constants(op) if kind == "moves" else {}
        if not all(np.isfinite([r.low, r.high]).all() for r in constants.values()):
            return False
        joined = [*(self.observed.ranges[v] for v in activations), *constants.values()]
        if kind in ("sum", "moves") and _are_apart(joined):
            return False
        if not activations and any(r.largest > MOST_APART for r in constants.values()):
            return False  # a mask
        values = [v for v in (*activations, result) if not self._is_quantised(v)]
        for value in values:
            self.group.setdefault(value, value)
        if kind == "moves":
            self.also += [(v, seen) for v in values[:1] for seen in constants.values()]
            for value in values[1:]:
                self._share(values[0], value)
        readers = (op,) if hides is None else (hides,)
        if read in values and all(u in readers for u in self.rewriter.users(read)):
            self.scores.add(read)
        if kind == "product":
            self.sums.add(result)
        return bool(activations)

    def _constants(self, op: Op) -> dict[Value, Range]:
        """Return the ranges of the constants among what an op moves."""
        found = {}
        for value in op.operands:
            if value.type.dtype.is_float and is_constant(value, self.rewriter):
                array = constant_of(value, self.rewriter, self.module)
                if array.size:
                    found[value] = Range(float(array.min()), float(array.max()))
        return found

    def _is_named(self, op: Op) -> bool:
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
        for value, seen in self.also:
            root = self._root(value)
            joined[root] = joined[root].joined(seen)
        roots = [self._root(value) for value in self.group]
        for value in self.group:
            is_wide = value in self.scores & self.sums and roots.count(self._root(value)) == 1
            kind = I16 if is_wide else I8
            symmetric = self.symmetric or kind is I16
            self.parameters[value] = affine(joined[self._root(value)], kind, symmetric)

    def _insert(self, value: Value, chosen: Affine) -> None:
        """Let all readers of ``value`` read it quantised and back."""
        original = value
        if self.rewriter.producer(value) is None:
            value = self._copied(value, self.rewriter.users(value))
        b = Builder(self.module.weights)
        fresh = Value(value.type, value.name)
        if original in self.kept:
            self.kept[fresh] = self.kept[original]
        _stored(b, fresh, chosen)
        made = self._made_by(value, b.ops, 1.0, fresh, chosen.rounding())
        self.quantised[made] = original

    def _integer_weights(self, ops: Sequence[Op]) -> Iterator[tuple[Op, int, IntegerWeights]]:
        """Yield the constant operands of products in floats, by number, and their integers.

        Weights have a scale for each channel of the result, and are rounded together if asked for.
        """
        inputs = {}
        if self.rounding != "nearest":
            pairs = by_op(self.observed.module, self.observed.samples)
            inputs = {
                op: gram_matrices(op, [a[0] for a in arrays])
                for op, arrays, _ in pairs
                if op in ops and self._is_rounded_together(op)
            }
        for op in ops:
            for index, value in enumerate(op.operands):
                given = typed.Dequantize.match(self.rewriter.producer(value)) is not None
                if is_constant(value, self.rewriter) and not given:
                    array = np.asarray(constant_of(value, self.rewriter, self.module), np.float32)
                    grams = inputs.get(op) if index == 1 else None
                    axis = self._axis_of(op, index)
                    yield op, index, quantised_weights(array, axis, self.scale, grams)

    def _is_rounded_together(self, op: Op) -> bool:
        """Return whether the terms of a product's sums are those of its weights, in order."""
        is_plain = typed.Conv.match(op) or typed.Matmul.match(op)
        return bool(is_plain) and self._axis_of(op, 1) is not None

    @staticmethod
    def _axis_of(op: Op, index: int) -> int | None:
        """Return the axis of an operand along which it has scales; None: it has one scale."""
        second, axis, _ = weights_of(op)
        return axis if index == second else None

    def _quantise_constant(self, op: Op, index: int, found: IntegerWeights) -> None:
        """Let a product read an operand as integers."""
        value, axis = op.operands[index], self._axis_of(op, index)
        array = constant_of(value, self.rewriter, self.module)
        steps = found.scales.reshape([-1 if a == axis else 1 for a in range(array.ndim)])
        largest = float(np.abs(array).max())
        error = float(np.abs(found.integers * steps - array).max()) / largest if largest else 0.0
        b = Builder(self.module.weights)
        scales = found.scales if axis is not None else found.scales[0]
        name = value.name or _name_in_its_module(op)
        integers, scale = (
            b.constant(a, name=name and f"{name}_{what}")
            for what, a in (("quantized", found.integers), ("scale", scales))
        )
        b.dequantize(integers, scale, axis=axis)
        self._made_by(self._copied(value, [op]), b.ops, 1.001 * error)

    def _copied(self, value: Value, users: Sequence[Op]) -> Value:
        """Let ``users`` read a value of their own in place of ``value``."""
        b = Builder(self.module.weights)
        own = b.reshape(value, shape=value.type.shape)
        order = {op: place for place, op in enumerate(self.rewriter.ops)} if users[1:] else {}
        for number, op in enumerate(sorted(users, key=lambda op: order.get(op, 0))):
            new = [*(b.ops if number == 0 else ()), op.substitute({value: own})]
            self.rewriter.replace(op, new, rule="a value of its own to quantise")
        return own

    def _made_by(
        self,
        value: Value,
        ops: Sequence[Op],
        tolerance: float,
        fresh: Value | None = None,
        rounding: Rounding | None = None,
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
            rounding=rounding,
        )
        return made


def _name_in_its_module(op: Op) -> str | None:
    """Return a name for the weights of a product: folding took that of the model."""
    scope = "" if op.origin is None else op.origin.scope
    return f"{scope.replace('/', '.')}.weight" if scope else None


def _are_apart(ranges: Sequence[Range]) -> bool:
    """Return whether one of several values is too large for the others to matter: a mask is."""
    sizes = [r.largest for r in ranges if r.largest]
    return bool(sizes) and max(sizes) > MOST_APART * min(sizes)


def _stored(b: Builder, value: Value, chosen: Affine) -> Value:
    scale = b.constant(np.float32(chosen.scale))
    zero = b.constant(np.asarray(chosen.zero, chosen.dtype.numpy))
    limits = {} if chosen.low == -chosen.high - 1 else {"low": chosen.low, "high": chosen.high}
    q = b.quantize(value, scale, zero, dtype=chosen.dtype, **limits)
    return b.dequantize(q, scale, zero)
