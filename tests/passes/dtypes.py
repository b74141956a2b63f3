"""Programs of one dtype written in others, with the casts that the ops' type rules ask for.

Rules and passes are tried on programs that somebody wrote in f32.  Frameworks hand over the same
programs with other dtypes in them: autocast around a part, statistics that stay f32, sums that are
not rounded, f64 weights in an f32 model.  ``retyped`` makes such programs of the ones that fire a
rule, so that the rule meets what it was not written for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core_compiler.ir import DType, Function, Module, Op, Value, as_array
from core_compiler.ops import Builder
from core_compiler.ops.base import TypeRuleError
from core_compiler.ops.rules import accumulator
from tests.passes.programs import block_of

#: Floats that arithmetic is defined on, and those that are only stored.
FLOATS = ("f64", "f32", "f16", "bf16")
STORED = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ", "f8E3M4", "f4E2M1FN")
INTEGERS = ("i4", "i8", "i16", "i32", "i64", "ui4", "ui8", "ui16", "ui32", "ui64")
EVERY = (*FLOATS, *STORED, *INTEGERS, "i1")

#: Which of the operands that must agree decides for all of them.
MEETINGS: Mapping[str, Callable[[Sequence[DType]], DType]] = {
    "first": lambda found: found[0],
    "last": lambda found: found[-1],
    "widest": lambda found: max(found, key=lambda d: (d.is_float, d.bits)),
}
_PRODUCTS = frozenset(
    f"core.{name}"
    for name in ("matmul", "contract", "conv", "conv_transpose", "conv_weight_gradient")
)


class DoesNotExist(Exception):
    """No casts make the program one of these dtypes."""


@dataclass
class Retyping:
    """``roots``: the dtype of each argument and constant of more than one element, by position; a
    number takes the dtype of what it meets.  ``accumulate``: products of narrow floats are not
    rounded."""

    roots: Callable[[int, DType], DType]
    meeting: str = "first"
    accumulate: bool = False
    made: dict[Value, Value] = field(default_factory=dict)
    casts: dict[tuple[Value, DType], Value] = field(default_factory=dict)
    #: What makes the values of the first ``known`` ops built.
    makers: dict[Value, Op] = field(default_factory=dict)
    known: int = 0

    def module(self, module: Module) -> Module:
        """``module`` in these dtypes; DoesNotExist where no casts allow it."""
        body, place = module.main.body, 0
        self.builder = Builder(module.weights)
        arguments = []
        for old in body.arguments:
            wanted = self.roots(place, old.type.dtype)
            arguments.append(Value(old.type.with_(dtype=wanted), old.name))
            self.made[old] = arguments[-1]
            place += 1
        for op in body.ops:
            if op.kind == "core.constant":
                wanted = op.result.type.dtype
                if op.result.type.elements > 1:
                    wanted = self.roots(place, wanted)
                    place += 1
                self.made[op.result] = self._constant(as_array(op["value"], module.weights), wanted)
            else:
                self._op(op)
        outputs = [self.made[v] for v in body.outputs]
        block = block_of(arguments, self.builder.ops, outputs)
        return Module({"main": Function("main", block)}, module.weights)

    def _constant(self, array: np.ndarray, wanted: DType) -> Value:
        with np.errstate(all="ignore"):
            return self.builder.constant(
                array.astype(np.float64).astype(wanted.numpy)
                if wanted.is_float
                else array.astype(wanted.numpy)
            )

    def _op(self, op: Op) -> None:
        operands = [self.made[v] for v in op.operands]
        attributes = dict(op.attributes)
        agreed = {
            old: MEETINGS[self.meeting](found)
            for old in {v.type.dtype for v in op.operands}
            if (found := self._found(op, operands, old))
        }
        for change in ({}, agreed, {d: d for d in agreed}):
            cast = [
                self._cast(new, change.get(old.type.dtype, new.type.dtype))
                for old, new in zip(op.operands, operands, strict=True)
            ]
            if op.kind in _PRODUCTS:
                wide = accumulator(cast[0].type.dtype)
                attributes["accumulate"] = wide if self.accumulate else None
            try:
                made = self.builder.op(op.kind, cast, regions=op.regions, **attributes)
                break
            except TypeRuleError:
                continue
        else:
            raise DoesNotExist(f"{op.kind} of {', '.join(str(v.type) for v in operands)}")
        self.made.update(zip(op.results, made if isinstance(made, tuple) else (made,), strict=True))

    def _found(self, op: Op, operands: Sequence[Value], dtype_: DType) -> list[DType]:
        """The dtypes that operands of one dtype have now, those of plain numbers last."""
        pairs = [
            (self._number(new) is not None, new.type.dtype)
            for old, new in zip(op.operands, operands, strict=True)
            if old.type.dtype is dtype_
        ]
        firm = [d for number, d in pairs if not number]
        return firm or [d for _, d in pairs]

    def _number(self, value: Value) -> Op | None:
        """The constant of one element that a value is a broadcast of."""
        for op in self.builder.ops[self.known :]:
            self.makers.update(dict.fromkeys(op.results, op))
        self.known = len(self.builder.ops)
        maker = self.makers.get(value)
        while maker is not None and maker.kind in ("core.broadcast", "core.reshape"):
            maker = self.makers.get(maker.operands[0])
        is_number = maker is not None and maker.kind == "core.constant"
        return maker if is_number and maker.result.type.elements == 1 else None

    def _cast(self, value: Value, wanted: DType) -> Value:
        if value.type.dtype is wanted:
            return value
        if (value, wanted) not in self.casts:
            number = self._number(value)
            if number is not None:
                array = as_array(number["value"], self.builder.weights).reshape(())
                made = self.builder.expand(self._constant(array, wanted), value.type.shape)
            else:
                made = self.builder.cast(value, dtype=wanted)
            self.casts[value, wanted] = made
        return self.casts[value, wanted]


def retyped(
    module: Module,
    roots: Callable[[int, DType], DType],
    meeting: str = "first",
    accumulate: bool = False,
) -> Module:
    """``module`` with other dtypes; see :class:`Retyping`."""
    return Retyping(roots, meeting, accumulate).module(module)


def roots_of(module: Module) -> list[DType]:
    """The dtypes of what :class:`Retyping` gives another one, in its order."""
    body = module.main.body
    constants = [op.result for op in body.ops if op.kind == "core.constant"]
    return [v.type.dtype for v in (*body.arguments, *(v for v in constants if v.type.elements > 1))]
