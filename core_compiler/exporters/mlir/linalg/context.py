"""The writer of linalg: generic ops with scalar bodies, fills, and scalars of arith and math."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from core_compiler.exporters.expansion import Composition
from core_compiler.exporters.mlir.context import (
    Context,
    Handler,
    Lacks,
    Shared,
    make_registrar,
)
from core_compiler.exporters.mlir.literals import scalar_text, type_text
from core_compiler.exporters.mlir.text import Ref
from core_compiler.ir import DType, TensorType, dtype, tensor
from core_compiler.ir.types import INDEX

I1, I32, I64, F32, F64 = map(dtype, ("i1", "i32", "i64", "f32", "f64"))

#: The results of an indexing map, one for each axis of an operand: an expression over the loops
#: ``d0, d1, ...``.
Map = Sequence[str]
#: The body of a generic op: maps scalars of the inputs, then of the results, to those it yields.
Body = Callable[..., Any]

PARALLEL, REDUCTION = "parallel", "reduction"


class Linalg(Context):
    """The translation of a function to linalg on tensors.

    Scalars are refs whose type is a dtype, including unsigned ones: the dtype selects the op of
    arith, while the text shows the signless type.
    """

    NAME = "linalg"
    TABLE: ClassVar[dict[str, Handler]] = {}
    LACKS: ClassVar[dict[str, Lacks]] = {}
    COMPOSED: ClassVar[dict[str, Composition]] = {}

    def __init__(self, shared: Shared):
        super().__init__(shared)
        #: Constants with the same value everywhere, by the number of their ref.
        self.numbers: dict[int, np.ndarray] = {}
        #: The operand of each broadcast and the map that reads it, by the number of the result's
        #: ref.
        self.spread: dict[int, tuple[Ref, Map]] = {}

    # -- scalars ---------------------------------------------------------------------------------

    def scalar(self, number: Any, kind: DType) -> Ref:
        """Return a scalar constant of a dtype."""
        return self.writer.constant(f"arith.constant {scalar_text(number, kind)}", kind)

    def place(self, number: int) -> Ref:
        """Return a constant of type index."""
        return self.writer.constant(f"arith.constant {number} : index", INDEX)

    def same(self, name: str, *operands: Ref, kind: DType | None = None) -> Ref:
        """Emit a scalar op whose result has the operands' type (``kind``: read as another)."""
        first = operands[0].type
        text = f"{name} {', '.join(f'{v}' for v in operands)} : {type_text(first)}"
        return self.writer.line(text, kind or first)

    def compared(self, predicate: str, a: Ref, b: Ref) -> Ref:
        """Emit a scalar comparison (``eq ne lt le gt ge``); false for NaN, except ``ne``."""
        if a.type is not INDEX and a.type.is_float:
            predicate, name = ("une" if predicate == "ne" else f"o{predicate}"), "cmpf"
        else:
            signed = a.type is INDEX or a.type.kind == "int"
            sign = "" if predicate in ("eq", "ne") else "s" if signed else "u"
            predicate, name = f"{sign}{predicate}", "cmpi"
        return self.writer.line(f"arith.{name} {predicate}, {a}, {b} : {type_text(a.type)}", I1)

    def chosen(self, condition: Ref, a: Ref, b: Ref) -> Ref:
        return self.writer.line(f"arith.select {condition}, {a}, {b} : {type_text(a.type)}", a.type)

    def converted(self, name: str, x: Ref, kind: Any) -> Ref:
        """Emit a conversion, ``name x : from to kind``."""
        return self.writer.line(f"{name} {x} : {type_text(x.type)} to {type_text(kind)}", kind)

    def element(self, x: Ref, *places: Ref) -> Ref:
        """Return the scalar of a tensor at positions of type index."""
        at = ", ".join(f"{p}" for p in places)
        return self.writer.line(f"tensor.extract {x}[{at}] : {type_text(x.type)}", x.type.dtype)

    def loop_index(self, loop: int) -> Ref:
        """Return the index of a loop of the generic op, inside its body."""
        return self.writer.line(f"linalg.index {loop} : index", INDEX)

    def number(self, x: Ref) -> Ref:
        """Return the scalar in a tensor of rank 0."""
        known = self.numbers.get(x.number)
        return self.element(x) if known is None else self.scalar(known, x.type.dtype)

    def clamped(self, position: Ref, last: int) -> Ref:
        """Return an integer scalar as an index in ``0..last``.

        It is compared as i64: an index may be narrower than the position and would wrap.
        """
        kind = position.type
        wide = position
        if kind.bits < 64:
            wide = self.converted(
                "arith.extui" if kind.kind == "uint" else "arith.extsi", position, I64
            )
        elif kind.kind == "uint":
            wide = self.same("arith.minui", position, self.scalar(last, kind), kind=I64)
        low = self.same("arith.maxsi", wide, self.scalar(0, I64))
        return self.converted(
            "arith.index_cast", self.same("arith.minsi", low, self.scalar(last, I64)), INDEX
        )

    # -- tensors ---------------------------------------------------------------------------------

    def empty(self, type_: TensorType) -> Ref:
        return self.writer.line(f"tensor.empty() : {type_text(type_)}", type_)

    def filled(self, value: Ref, type_: TensorType) -> Ref:
        """Return a tensor filled with one scalar."""
        text = type_text(type_)
        return self.writer.line(
            f"linalg.fill ins({value} : {type_text(value.type)}) outs({self.empty(type_)} : {text})"
            f" -> {text}",
            type_,
        )

    def affine(self, loops: int, places: Map) -> str:
        """Return the alias of a map."""
        return self.shared.map(
            f"affine_map<({', '.join(identity(loops))}) -> ({', '.join(places)})>"
        )

    def generic(
        self,
        inputs: Sequence[tuple[Ref, Map]],
        results: Sequence[tuple[Ref, Map]],
        iterators: Sequence[str],
        body: Body,
    ) -> tuple[Ref, ...]:
        """Emit a ``linalg.generic`` of ``inputs`` into ``results``, each with its map.

        ``results`` are tensors that hold the start values.  ``body`` gets a scalar of each input
        and of each result and returns those to yield.
        """
        maps = [self.affine(len(iterators), m) for _, m in (*inputs, *results)]
        types = [v.type.dtype for v, _ in (*inputs, *results)]
        names = ["in"] * len(inputs) + ["out"] * len(results)
        with self.writer.region(types, names) as region:
            made = body(*region.arguments)
            made = made if isinstance(made, (tuple, list)) else (made,)
            kinds = ", ".join(type_text(v.type) for v in made)
            self.writer.end(f"linalg.yield {', '.join(f'{v}' for v in made)} : {kinds}")
        kinds = ", ".join(f'"{kind}"' for kind in iterators)
        outs = ", ".join(type_text(v.type) for v, _ in results)
        text = (
            f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}}"
            f"{_listed(' ins', inputs)}{_listed(' outs', results)} {region} -> "
            f"{f'({outs})' if len(results) > 1 else outs}"
        )
        return self.writer.lines(text, [v.type for v, _ in results], regions=(region,))

    def each(self, body: Body, *inputs: Ref, dtype: DType) -> Ref:
        """Emit a generic op that computes every element from the ``inputs`` at the same position.

        The operand of a broadcast is read directly, and a constant is written in the body itself.
        """
        made = tensor(inputs[0].type.shape, dtype)
        same = identity(made.rank)
        numbers = [self.numbers.get(v.number) for v in inputs]
        read = [
            self.spread.get(v.number, (v, same))
            for v, number in zip(inputs, numbers, strict=True)
            if number is None
        ]

        def whole(*given: Ref) -> Any:
            elements = iter(given)
            return body(
                *(
                    next(elements) if number is None else self.scalar(number, v.type.dtype)
                    for v, number in zip(inputs, numbers, strict=True)
                )
            )

        results = [(self.empty(made), same)]
        return self.generic(read, results, [PARALLEL] * made.rank, whole)[0]


def identity(rank: int) -> tuple[str, ...]:
    """Return the map of an operand whose axes are the first loops."""
    return tuple(f"d{i}" for i in range(rank))


def _listed(word: str, values: Sequence[tuple[Ref, Map]]) -> str:
    """Return ``ins(%a, %b : type, type)``, or "" without values."""
    if not values:
        return ""
    names = ", ".join(f"{v}" for v, _ in values)
    return f"{word}({names} : {', '.join(type_text(v.type) for v, _ in values)})"


op = make_registrar(Linalg.TABLE, Linalg.LACKS)
