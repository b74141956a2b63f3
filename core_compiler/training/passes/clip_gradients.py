"""Clip gradients: scale all of them by one factor if their norm is too large."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Module
from core_compiler.ir.claims import Formula
from core_compiler.ops.builder import Builder
from core_compiler.ops.composite import as_dtype, widened
from core_compiler.ops.gradients.table import Term, rounded
from core_compiler.passes.base import Pass, PassContext
from core_compiler.training.graph.roles import Roles


@dataclass(frozen=True)
class ClipGradients(Pass):
    """Scale the gradients so that their norm over all parameters is at most ``norm``.

    As in ``torch.nn.utils.clip_grad_norm_``, every gradient is multiplied by min(1, norm / (total +
    1e-6)), where the total is the norm of the parameters' norms.
    """

    exact = False
    changes_semantics = True
    tolerance = "values change where the configuration asks for clipped gradients"
    requires = frozenset({"gradients"})
    norm: float = 1.0

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        main = module.main
        roles = Roles.of(main)
        gradient_indices = roles.gradients()
        rw = context.rewriter(main.body)
        b = Builder(module.weights)
        norms = []
        for index in gradient_indices.values():
            g = widened(b, main.outputs[index])
            square = b.reduce_sum(b.mul(g, g), axes=tuple(range(g.type.rank)))
            norms.append(b.reshape(b.sqrt(square), shape=(1,)))
        wide = max((n.type.dtype for n in norms), key=lambda dtype: dtype.bits)
        joined = b.concat(*(as_dtype(b, n, wide) for n in norms), axis=0)
        total = Term(b, b.sqrt(b.reduce_sum(b.mul(joined, joined), axes=(0,))))
        factor = (self.norm / (total + 1e-6)).call("min", 1.0)
        given = {str(i): main.outputs[index] for i, index in gradient_indices.items()}
        made = {"total": total.value, "factor": factor.value}
        claim = Formula("the norm of the gradients", given, made, {"norm": self.norm})
        rw.insert(
            b.ops, rule="the gradients' norm", reason="the configuration clips it", claim=claim
        )
        outputs = list(main.outputs)
        for index in gradient_indices.values():
            b = Builder(module.weights)
            g = outputs[index]
            wide = widened(b, g)
            scale = b.expand(as_dtype(b, factor.value, wide.type.dtype), wide.type.shape)
            outputs[index] = rounded(b, b.mul(wide, scale), g)
            claim = Formula(
                "a gradient times a factor",
                {"x": g, "factor": factor.value},
                {"made": outputs[index]},
            )
            rw.insert(b.ops, rule="clip a gradient", reason="scaled with all others", claim=claim)
        body = rw.commit()
        results = [*zip(roles.results, outputs, strict=True), (("metric", -1), total.value)]
        return context.with_function(
            module, roles.applied(main.with_(body=body), results), rule="roles of results"
        )
