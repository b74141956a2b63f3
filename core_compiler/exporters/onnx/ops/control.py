"""Conditionals and loops: If and Loop, whose graphs can access the outer tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_compiler.exporters.onnx.graph import Tensor
from core_compiler.exporters.onnx.table import BOOL, I64, core
from core_compiler.ops import typed

if TYPE_CHECKING:
    from core_compiler.exporters.onnx.exporter import Exporter


@core("if")
def if_(g: Exporter, op: typed.If, condition: Tensor, *captures: Tensor) -> list[Tensor]:
    graphs = []
    for region in op.regions:
        with g.region() as graph:
            for argument, value in zip(region.arguments, op.operands[1:], strict=True):
                g.env[argument] = g.env[value]
                g.ranges.alias(argument, value)
            g.block(region)
            graph.outputs = g.results(region)
        graphs.append(graph)
    made = [Tensor(v.type.dtype) for v in op.results]
    g.node("If", (condition,), made, then_branch=graphs[0], else_branch=graphs[1])
    return made


@core("while")
def while_(g: Exporter, op: typed.While, *carried: Tensor) -> list[Tensor]:
    """Emit a Loop.

    ONNX evaluates the next condition at the end of the body, so the condition is computed there,
    and once before the loop.
    """
    condition, body = op.regions
    for argument, value in zip(condition.arguments, op.operands, strict=True):
        g.env[argument] = g.env[value]
    g.block(condition)
    go = g.operand(condition.outputs[0])
    step, before = Tensor(I64, ()), Tensor(BOOL, ())
    with g.region([step, before]) as graph:
        graph.inputs = [step, before, *(g.argument(v) for v in body.arguments)]
        g.block(body)
        made = g.results(body)
        for argument, tensor in zip(condition.arguments, made, strict=True):
            g.env[argument] = tensor
        g.block(condition)
        graph.outputs = [*g.results(condition), *made]
    results = [Tensor(v.type.dtype) for v in op.results]
    g.node("Loop", (None, go, *carried), results, body=graph)
    return results
