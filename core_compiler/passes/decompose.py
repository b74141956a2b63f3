"""Decompose: composite ops become the primitives of their declared decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from core_compiler.ir import Op, Rewriter
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ops.base import definition
from core_compiler.ops.builder import Builder
from core_compiler.passes.base import Pass
from core_compiler.passes.rules import reuse_results
from core_compiler.support.errors import InternalError


def expand(op: Op, rewriter: Rewriter, weights) -> None:
    """Replace a composite by its decomposition; its bits are the same by definition."""
    builder = Builder(weights)
    decompose = definition(op).decompose
    if decompose is None:
        raise InternalError(f"{op.kind} is not a composite")
    made: Any = decompose(builder, op)
    results = tuple(made) if isinstance(made, list | tuple) else (made,)
    new, values = reuse_results(op, results, builder.ops)
    rewriter.replace(op, new, values, rule=f"decompose {op.kind}")


@dataclass(frozen=True)
class Decompose(Pass):
    """Expand the composites whose parts other passes want to see (linear layers into products).

    ``kinds`` lists them, separated by commas, without the ``core.`` prefix.
    """

    refusal_arity = 1
    kinds: str = "linear,logsumexp,celu,softmin"

    @override
    def run(self, module, context):
        wanted = self._wanted()

        def edit(rw):
            for op in rw.ops:
                if refused(op, wanted) is None:
                    expand(op, rw, module.weights)

        return context.rewrite(module, edit)

    @override
    def refusal(self, ops, context):
        return refused(ops[0], self._wanted())

    def _wanted(self) -> tuple[str, ...]:
        return tuple(f"core.{k.strip()}" for k in self.kinds.split(",") if k.strip())


def refused(op: Op, wanted: tuple[str, ...]) -> Refusal | None:
    """Return why ``op`` is not decomposed, or None."""
    if op.kind not in wanted:
        listed = ", ".join(wanted)
        return refuse(
            "kinds to expand", "{0:kind} is not among the kinds to expand: {1}", op, listed
        )
    return not_composite(op)


def not_composite(op: Op) -> Refusal | None:
    """Return a refusal if an op has no decomposition."""
    if definition(op).decompose is not None:
        return None
    return refuse("composite", "{0} is not a composite: it has no decomposition", op)
