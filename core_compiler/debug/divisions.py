"""Warnings about integer divisions by zero: certain ones by constants, and those met in a check.

The contract defines the result as 0, so that the bits of a program do not depend on the machine.
Frameworks raise (torch), return -1 (JAX) or leave it undefined (ONNX), so each is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from core_compiler.ir import Module, Op, Value, WeightStore
from core_compiler.ir.events import WARNING, Diagnostic
from core_compiler.ir.verifier import where_of
from core_compiler.ops.evaluation import constant_array
from core_compiler.ops.traits import has_trait


def divides_integers(op: Op) -> bool:
    return has_trait(op, "division") and op.results[0].type.dtype.is_integer


def certain(module: Module) -> list[Diagnostic]:
    """Return a warning for each line of the model that divides integers by constant zeros."""
    zeros: dict[Op, tuple[int, int]] = {}
    makers: dict[Value, Op] = {}
    for op in _nested(module.main.body.ops):
        makers.update(dict.fromkeys(op.results, op))
        if divides_integers(op):
            divisor = _constant(makers.get(op.operands[1]), makers, module.weights)
            if divisor is not None and not divisor.all():
                zeros[op] = divisor.size - int(np.count_nonzero(divisor)), divisor.size
    return warnings(zeros)


def warnings(zeros: Mapping[Op, tuple[int, int]], seen: str = "") -> list[Diagnostic]:
    """Return a warning for each line of the model whose divisors have zeros.

    ``zeros`` maps an op to (zeros, elements) of its divisor; ``seen`` says where they were found.
    A floored division is several ops of one line, which is reported once.
    """
    diagnostics: dict[object, Diagnostic] = {}
    for op, (count, size) in zeros.items():
        where = where_of(op)
        part = "" if size == 1 else f" at {count:,} of {size:,} elements"
        message = (
            f"integer division by zero{seen}: the divisor is 0{part}; quotient and "
            "remainder are 0 there"
        )
        diagnostics.setdefault(where or op, Diagnostic(WARNING, message, "main", op, where))
    return list(diagnostics.values())


def _nested(ops: Iterable[Op]) -> Iterator[Op]:
    for op in ops:
        yield op
        for region in op.regions:
            yield from _nested(region.ops)


def _constant(op: Op | None, makers: Mapping[Value, Op], weights: WeightStore) -> np.ndarray | None:
    """Return the elements of a constant or a rearranged constant; None for other values."""
    while op is not None and (has_trait(op, "shape_only") or op.kind == "core.reverse"):
        op = makers.get(op.operands[0])
    return constant_array(op, weights) if op is not None and op.kind == "core.constant" else None
