"""Reverse-mode differentiation of tensor IR: the traversal; the rules are next to the ops.

Baydin et al., "Automatic differentiation in machine learning: a survey" (JMLR 2018), section 3.2.
The forward ops are visited from the last to the first. Each op between the varied and the
differentiated values adds, by its gradient rule, to the cotangents of its operands. A value with
several uses gets the sum in the order of the visit, so the graph determines the bits. There is no
tape: a rule reads the operands and results of its op, and these values are thereby saved for the
backward pass. ``training.loops`` handles loops with a trip count (``trips``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core_compiler.ir import Block, Module, Op, Value, WeightStore
from core_compiler.ir.claims import Gradient
from core_compiler.ir.core import clone_block
from core_compiler.ops import typed
from core_compiler.ops.base import TypeRuleError, definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.gradients.table import Box, Cotangent, NoGradient
from core_compiler.support.errors import UserError
from core_compiler.training.graph.loops import differentiate_loop
from core_compiler.training.graph.program import BRANCH, KEEP_RULE, LOOP, CodeList, Program, active

#: The reason why a loop without a trip count is rejected, and the fix.
UNKNOWN_TRIP_COUNT = (
    "its trip count is unknown at compile time; let it run a fixed number of times, "
    "with a body that leaves finished values unchanged"
)


class NotDifferentiable(UserError):
    """Raised for ops without a gradient; ``found`` pairs each op with its reason."""

    found: Sequence[tuple[Op, str]] = ()


def differentiate(
    program: Program,
    cotangents: Mapping[Value, Value],
    varied: Iterable[Value],
    weights: WeightStore | None = None,
    where: str = "training",
) -> dict[Value, Value]:
    """Append the ops that compute the cotangents of ``varied`` to ``program``.

    ``cotangents`` maps each differentiated value to its cotangent (of the same shape and dtype).
    The result maps each value of ``varied`` that reaches one of them to its cotangent. Raise a
    UserError that names all ops on the way without a gradient, with their source lines.
    """
    varied = tuple(varied)
    walk = _Walk(program, dict(cotangents), weights, where)
    walk.prepare(varied)
    walk.propagate()
    return {v: walk.found[v] for v in varied if v in walk.found}


@dataclass
class _Walk:
    program: Program
    found: dict[Value, Value]
    weights: WeightStore | None
    where: str
    active: set[Value] = field(default_factory=set)

    def prepare(self, varied: Sequence[Value]) -> None:
        """Expand the composites on the way that have no rule of their own, and reject other ops."""
        wanted = tuple(self.found)
        while True:
            self.active = active(self.program.ops, varied, wanted)
            inner = [
                op
                for op in self.program.ops
                if self._is_active(op)
                and definition(op).gradient is None
                and op.kind != BRANCH
                and ((loop := typed.While.match(op)) is None or loop.trips is None)
            ]
            composites = [op for op in inner if definition(op).decompose is not None]
            if not composites:
                break
            for op in composites:
                for old, new in self.program.expand(op).items():
                    if old is not new and old in self.found:
                        self.found[new] = self.found.pop(old)
            wanted = tuple(self.found)
        if inner:
            why = {LOOP: UNKNOWN_TRIP_COUNT}
            raise not_differentiable_error(
                [(op, why.get(op.kind, "it has no gradient rule")) for op in inner], self.where
            )

    def _is_active(self, op: Op) -> bool:
        return not self.active.isdisjoint(op.results) and not self.active.isdisjoint(op.uses())

    def propagate(self) -> None:
        rejected: list[tuple[Op, str]] = []
        for op in reversed(list(self.program.ops)):
            if not self._is_active(op) or not any(v in self.found for v in op.results):
                continue
            builder = Builder(self.weights)
            given = tuple((v, self.found[v]) for v in op.results if v in self.found)
            before = {v: self.found.get(v) for v in op.uses() if v in self.active}
            try:
                handlers = {BRANCH: self._branch, LOOP: self._loop}
                forward = handlers.get(op.kind, self._op)(builder, op)
            except NotDifferentiable as error:
                rejected += error.found
                continue
            except (NoGradient, TypeRuleError, UserError) as error:
                rejected.append((op, str(error)))
                continue
            sums = tuple((v, known, self.found.get(v)) for v, known in before.items())
            self.program.append(builder.ops, op, Gradient(tuple(forward), given, sums))
        if rejected:
            raise not_differentiable_error(rejected, self.where)

    def _op(self, b: Builder, op: Op) -> Sequence[Op]:
        declared = definition(op)
        given = [self.found.get(v) for v in op.results]
        needs = [v in self.active for v in op.operands]
        view = declared.view(op.with_(attributes=declared.normalise(op.attributes)))
        made = declared.gradient(b, view, given, needs)
        for operand, is_needed, cotangent in zip(op.operands, needs, made, strict=True):
            if is_needed and cotangent is not None:
                self._accumulate(b, operand, cotangent)
        return (op,)

    def _accumulate(self, b: Builder, value: Value, cotangent: Cotangent) -> None:
        known = self.found.get(value)
        if isinstance(cotangent, Box):
            made = cotangent.as_tensor(b, value) if known is None else cotangent.added(b, known)
        else:
            assert cotangent is not None
            made = cotangent if known is None else b.add(known, cotangent)
        self.found[value] = made

    # -- control flow -----------------------------------------------------------------------------

    def _loop(self, b: Builder, op: Op) -> Sequence[Op]:
        """Let the loop keep the values that the backward loop reads in reverse order."""
        made = differentiate_loop(
            op, self.program.ops, self.found, self.active, self.weights, self.where, differentiate
        )
        if made.replacement:
            self.program.replace(op, made.replacement, KEEP_RULE, made.note)
        b.ops += made.backward
        for value, cotangent in made.cotangents:
            self._accumulate(b, value, cotangent)
        return made.replacement or (op,)

    def _branch(self, b: Builder, op: Op) -> Sequence[Op]:
        """Add a branch on the same condition whose regions recompute and differentiate theirs."""
        condition, *captures = op.operands
        free = dict.fromkeys(v for region in op.regions for v in region.free_values())
        active_free = [v for v in free if v in self.active]
        given = [(i, self.found[v]) for i, v in enumerate(op.results) if v in self.found]
        active_captures = [i for i, v in enumerate(captures) if v in self.active]
        wanted = [*(captures[i] for i in active_captures), *active_free]
        regions = [
            _gradient_block(
                region,
                [i for i, _ in given],
                active_captures,
                active_free,
                self.weights,
                self.where,
            )
            for region in op.regions
        ]
        made = b.op(BRANCH, (condition, *captures, *(v for _, v in given)), regions=regions)
        made = made if isinstance(made, tuple) else (made,)
        for value, cotangent in zip(wanted, made, strict=True):
            self._accumulate(b, value, cotangent)
        return (op,)


def _gradient_block(
    block: Block,
    output_indices: Sequence[int],
    argument_indices: Sequence[int],
    outer: Sequence[Value],
    weights: WeightStore | None,
    where: str,
) -> Block:
    """Return the gradient of a block as a block.

    Its arguments are those of ``block`` and the cotangents of the outputs ``output_indices``. Its
    outputs are the cotangents of the arguments ``argument_indices`` and of the outer values
    ``outer``.
    """
    block = clone_block(block)
    incoming = tuple(Value(block.outputs[i].type) for i in output_indices)
    code = CodeList(list(block.ops), weights)
    varied = (*(block.arguments[i] for i in argument_indices), *outer)
    cotangents: dict[Value, Value] = {}
    b = Builder(weights)
    for i, value in zip(output_indices, incoming, strict=True):
        out = block.outputs[i]  # one value may occur twice
        cotangents[out] = b.add(cotangents[out], value) if out in cotangents else value
    code.made += b.ops
    found = differentiate(code, cotangents, varied, weights, where)
    b = Builder(weights)
    outputs = tuple(found[v] if v in found else b.scalar_like(0, v) for v in varied)
    ops = (*code.ops, *code.made, *b.ops)
    return Block((*block.arguments, *incoming), ops, outputs)


def pullback(module: Module, where: str = "training") -> Module:
    """Return the vector-Jacobian product of a module's main function.

    Its arguments are main's arguments and a cotangent for each float result, in order. Its results
    are the cotangents of the float arguments, in order; zeros for an argument that no result
    depends on.
    """
    body = module.main.body
    varied = [v for v in body.arguments if v.type.dtype.is_float]
    given = [Value(v.type, f"d_{v.name}") for v in body.outputs if v.type.dtype.is_float]
    floats = [i for i, v in enumerate(body.outputs) if v.type.dtype.is_float]
    blocks = _gradient_block(
        body, floats, [body.arguments.index(v) for v in varied], (), module.weights, where
    )
    names = dict(zip(blocks.arguments[len(body.arguments) :], given, strict=True))
    arguments = tuple(names.get(v, v) for v in blocks.arguments)
    made = blocks.substitute(names).with_(arguments=arguments)
    return module.with_function(module.main.with_(body=made, attributes={}))


def source_location(op: Op) -> str:
    """Return the position of an op in the model: ``file:line``, else the framework's node name."""
    nodes = op.origin.nodes() if op.origin is not None else ()
    location = next((f"{n.file}:{n.line}" for n in nodes if n.file), "")
    return location or next((n.name for n in nodes), "made by a pass")


def not_differentiable_error(found: Sequence[tuple[Op, str]], where: str) -> NotDifferentiable:
    """Return one error that names all ops without a gradient, with reasons and source lines."""
    parts: dict[tuple[str, str], dict[str, None]] = {}
    for op, reason in found:
        parts.setdefault((op.kind, reason), {})[source_location(op)] = None
    reasons = []
    for (kind, reason), lines in parts.items():
        shown = ", ".join(list(lines)[:3])
        more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
        reasons.append(f"{kind} ({reason}; {shown}{more})")
    count = len(parts)
    error = NotDifferentiable(
        f"{count} op{'s' if count > 1 else ''} between the parameters and the loss cannot be "
        f"differentiated: {'; '.join(reasons)}",
        where,
        "stop the gradient before it, freeze the parameters that it depends on, or replace it",
    )
    error.found = tuple(found)
    return error
