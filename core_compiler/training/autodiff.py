"""Reverse-mode differentiation of tensor IR: the walk; the rules lie beside the ops.

Baydin et al., "Automatic differentiation in machine learning: a survey" (JMLR 2018), section 3.2.
The forward ops are walked from the last to the first.  Each op that lies between what is varied and
what is differentiated adds, by its gradient rule, to the cotangents of its operands; a value read
several times gets their sum in the order in which they come up, so the bits are fixed by the graph.
Nothing is taken from a tape: a rule reads the operands and results of its op, and these values are
thereby saved for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core_compiler.errors import UserError
from core_compiler.ir import Block, Module, Op, Origin, Value, WeightStore
from core_compiler.ir.core import clone_block
from core_compiler.ops.base import TypeRuleError, definition
from core_compiler.ops.builder import Builder
from core_compiler.ops.gradients.table import CONSTANT, NoGradient
from core_compiler.passes.rules import adopt

#: Control flow whose regions are differentiated as a whole.
BRANCH = "core.if"


class Program(Protocol):
    """Straight code that grows: a rewriter's view of a block, or a list of ops."""

    @property
    def ops(self) -> Sequence[Op]: ...

    def expand(self, op: Op) -> Mapping[Value, Value]:
        """Put the declared decomposition in the place of a composite; its old values -> new."""

    def append(self, ops: Sequence[Op], of: Op) -> None:
        """Add the ops of the gradient of ``of`` at the end."""


def differentiate(
    program: Program, cotangents: Mapping[Value, Value], varied: Iterable[Value],
    weights: WeightStore | None = None, where: str = "training",
) -> dict[Value, Value]:  # fmt: skip
    """Append to ``program`` what gives the cotangents of ``varied`` from those of later values.

    ``cotangents``: differentiated value -> its cotangent (of its shape and dtype).  The answer maps
    each of ``varied`` that reaches one of them.  UserError names all ops on the way that have no
    gradient at once, with their source lines.
    """
    varied = tuple(varied)
    walk = _Walk(program, dict(cotangents), weights, where)
    walk.prepare(varied)
    walk.back()
    return {v: walk.found[v] for v in varied if v in walk.found}


def active(ops: Sequence[Op], varied: Iterable[Value], wanted: Iterable[Value]) -> set[Value]:
    """The values that depend on ``varied`` and that ``wanted`` depend on, through ops that pass
    gradients on: floats all."""
    reached = {v for v in varied if v.type.dtype.is_float}
    for op in ops:
        if op.kind.split(".")[-1] not in CONSTANT and not reached.isdisjoint(op.uses()):
            reached.update(v for v in op.results if v.type.dtype.is_float)
    needed = set(wanted)
    for op in reversed(ops):
        if not needed.isdisjoint(op.results):
            needed.update(op.uses())
    return reached & needed


@dataclass
class _Walk:
    program: Program
    found: dict[Value, Value]
    weights: WeightStore | None
    where: str
    active: set[Value] = field(default_factory=set)

    def prepare(self, varied: Sequence[Value]) -> None:
        """Expand the composites on the way that have no rule of their own; refuse the rest."""
        wanted = tuple(self.found)
        while True:
            self.active = active(self.program.ops, varied, wanted)
            inner = [
                op for op in self.program.ops
                if self._on_the_way(op) and definition(op).gradient is None
                and op.kind != BRANCH
            ]  # fmt: skip
            composites = [op for op in inner if definition(op).decompose is not None]
            if not composites:
                break
            for op in composites:
                for old, new in self.program.expand(op).items():
                    if old is not new and old in self.found:
                        self.found[new] = self.found.pop(old)
            wanted = tuple(self.found)
        if inner:
            raise refuse([(op, "it has no gradient rule") for op in inner], self.where)

    def _on_the_way(self, op: Op) -> bool:
        return not self.active.isdisjoint(op.results) and not self.active.isdisjoint(op.uses())

    def back(self) -> None:
        refused: list[tuple[Op, str]] = []
        for op in reversed(list(self.program.ops)):
            if not self._on_the_way(op) or not any(v in self.found for v in op.results):
                continue
            builder = Builder(self.weights)
            try:
                if op.kind == BRANCH:
                    self._branch(builder, op)
                else:
                    self._op(builder, op)
            except (NoGradient, TypeRuleError, UserError) as error:
                refused.append((op, str(error)))
                continue
            self.program.append(builder.ops, op)
        if refused:
            raise refuse(refused, self.where)

    def _op(self, b: Builder, op: Op) -> None:
        rule = definition(op).gradient
        given = [self.found.get(v) for v in op.results]
        wanted = [v in self.active for v in op.operands]
        made = rule(b, op.with_(attributes=definition(op).settle(op.attributes)), given, wanted)
        for operand, asked, cotangent in zip(op.operands, wanted, made, strict=True):
            if asked and cotangent is not None:
                self._add(b, operand, cotangent)

    def _add(self, b: Builder, value: Value, cotangent: Value) -> None:
        known = self.found.get(value)
        self.found[value] = cotangent if known is None else b.add(known, cotangent)

    # -- branches ---------------------------------------------------------------------------------

    def _branch(self, b: Builder, op: Op) -> None:
        """A branch on the same condition whose regions run theirs again, forward and back."""
        condition, *captures = op.operands
        free = dict.fromkeys(v for region in op.regions for v in region.free_values())
        outer = [v for v in free if v in self.active]
        given = [(i, self.found[v]) for i, v in enumerate(op.results) if v in self.found]
        asked = [i for i, v in enumerate(captures) if v in self.active]
        wanted = [*(captures[i] for i in asked), *outer]
        regions = [
            _gradient_block(region, [i for i, _ in given], asked, outer, self.weights, self.where)
            for region in op.regions
        ]
        made = b.op(BRANCH, (condition, *captures, *(v for _, v in given)), regions=regions)
        made = made if isinstance(made, tuple) else (made,)
        for value, cotangent in zip(wanted, made, strict=True):
            self._add(b, value, cotangent)


def _gradient_block(
    block: Block, given: Sequence[int], asked: Sequence[int], outer: Sequence[Value],
    weights: WeightStore | None, where: str,
) -> Block:  # fmt: skip
    """A block from the arguments of ``block`` and the cotangents of its outputs ``given`` to those
    of its arguments ``asked`` and of the outer values ``outer``."""
    block = clone_block(block)
    arrived = tuple(Value(block.outputs[i].type) for i in given)
    listed = Listed(list(block.ops), weights)
    varied = (*(block.arguments[i] for i in asked), *outer)
    cotangents: dict[Value, Value] = {}
    b = Builder(weights)
    for i, value in zip(given, arrived, strict=True):
        out = block.outputs[i]  # one value may be given twice
        cotangents[out] = b.add(cotangents[out], value) if out in cotangents else value
    listed.ops += b.ops
    found = differentiate(listed, cotangents, varied, weights, where)
    b = Builder(weights)
    outputs = tuple(found[v] if v in found else b.scalar_like(0, v) for v in varied)
    return Block((*block.arguments, *arrived), (*listed.ops, *b.ops), outputs)


def pullback(module: Module, where: str = "training") -> Module:
    """From main's arguments and a cotangent for each of its float results, in order, to the
    cotangents of its float arguments, in order; zeros where nothing depends on one."""
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


@dataclass
class Listed:
    """A program as a plain list of ops, without a log."""

    ops: list[Op]
    weights: WeightStore | None = None

    def expand(self, op: Op) -> Mapping[Value, Value]:
        builder = Builder(self.weights, op.origin)
        decompose: Callable | None = definition(op).decompose
        assert decompose is not None
        made, change = adopt(op, decompose(builder, op), builder.ops)
        place = self.ops.index(op)
        rest = [later.substitute(change) for later in self.ops[place + 1 :]]
        self.ops[place:] = [*made, *rest]
        return change

    def append(self, ops: Sequence[Op], of: Op) -> None:
        origin = gradient_origin(of)
        self.ops += [op if op.origin is not None else op.with_(origin=origin) for op in ops]


def gradient_rule(of: Op) -> str:
    """How the rewrite that makes the gradient of an op is called."""
    return f"gradient of {of.kind}"


def gradient_origin(of: Op) -> Origin | None:
    """Where the ops of a gradient come from: the forward op."""
    return None if of.origin is None else Origin.derived(gradient_rule(of), [of.origin])


def refuse(found: Sequence[tuple[Op, str]], where: str) -> UserError:
    """One error that names all ops without a gradient, with their reasons and source lines."""
    parts: dict[tuple[str, str], dict[str, None]] = {}
    for op, reason in found:
        nodes = op.origin.nodes() if op.origin is not None else ()
        place = next((f"{n.file}:{n.line}" for n in nodes if n.file), "")
        place = place or next((n.name for n in nodes), "made by a pass")
        parts.setdefault((op.kind, reason), {})[place] = None
    spelled = []
    for (kind, reason), places in parts.items():
        shown = ", ".join(list(places)[:3])
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        spelled.append(f"{kind} ({reason}; {shown}{more})")
    count = len(parts)
    return UserError(
        f"{count} op{'s' if count > 1 else ''} between the parameters and the loss cannot be "
        f"differentiated: {'; '.join(spelled)}",
        where,
        "stop the gradient before it, freeze the parameters that it depends on, or replace it",
    )
