"""Recompute: keep fewer values for the backward pass, which computes some of them again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.hardware.costs import DEFAULT_BALANCE, kernel_cost
from core_compiler.ir import Function, Module, Op, Origin, Rewriter, Value
from core_compiler.ir.core import clone_block
from core_compiler.ir.rewriter import RewriteLimit
from core_compiler.ir.target import LAUNCH
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.outline_kernels import is_exchange
from core_compiler.placement.recompute import Choice, Problem, Step, choose
from core_compiler.support.errors import UserError
from core_compiler.training.graph.roles import Roles
from core_compiler.training.passes.order_launches import memory_roots

#: The function attribute in which the pass stores its choice, for the memory view.
FACT = "recompute"


@dataclass(frozen=True)
class Recompute(Pass):
    """Launch kernels of the forward pass again just before the backward pass needs their results.

    The results then need not be kept until the backward pass. ``budget`` is the fraction of the
    saved bytes that may be kept. The recomputed values are chosen by cost
    (``core_compiler.placement.recompute``); the bits are the same, because the kernels are.
    """

    half = "implementation"
    requires = frozenset({"kernels", "values", "backward_pass"})
    budget: float = 1.0

    @override
    def run(self, module: Module, context: PassContext) -> Module:
        if not 0 < self.budget <= 1:
            raise UserError(
                f"invalid budget {self.budget}",
                f"pass {self.name()}",
                "pass the fraction of the saved bytes to keep, above 0 and up to 1",
            )
        launches, problem = recompute_problem(module.main)
        choice = choose(problem, self.budget)
        context.facts[FACT] = choice
        rewriter = context.rewriter(module.main.body)
        again = _Recomputation(rewriter, {launches[i] for i in choice.plan.again}, problem.forward)
        with suppress(RewriteLimit):
            again.run()
        context.note("note" if choice.fits else "warning", _describe(choice, again.delayed))
        return module.with_main(rewriter.commit())


def _describe(choice: Choice, delayed: int) -> str:
    """Describe a choice in words; ``delayed``: launches of which only the second is left."""
    plan, baseline = choice.plan, choice.baseline
    part = plan.held / baseline.held if baseline.held else 0.0
    text = (
        f"{plan.held:,} bytes are held for the backward pass, {part:.0%} of {baseline.held:,}; "
        f"{_launches(len(plan.again) - delayed)} repeated"
    )
    if delayed:
        text += f", {_launches(delayed)} delayed"
    return text if choice.fits else f"no plan within {choice.limit:,} bytes: {text}"


def _launches(count: int) -> str:
    return "1 launch is" if count == 1 else f"{count} launches are"


def recompute_problem(main: Function) -> tuple[list[Op], Problem]:
    """Return the launches of a training step's ``main`` and the recomputation problem they pose."""
    body = main.body
    roots = memory_roots(body)
    launches = [op for op in body.ops if op.kind == LAUNCH or op.regions]
    numbers = {v: i for i, v in enumerate(v for op in launches for v in op.results)}
    results = {roots.get(v, v) for v in body.outputs}
    steps = []
    for op in launches:
        reads = dict.fromkeys(roots.get(v, v) for v in op.uses())
        steps.append(
            Step(
                tuple(numbers[v] for v in reads if v in numbers),
                tuple(numbers[v] for v in op.results),
                _cost(op) if op.kind == LAUNCH else 0,
                op.kind == LAUNCH and not is_exchange(op),
            )
        )
    loss = body.outputs[Roles.of(main).results.index(("loss", -1))]
    loss_index = next(
        (i for i, op in enumerate(launches) if roots.get(loss, loss) in op.results), 0
    )
    sizes = tuple(0 if v in results else v.type.bytes for v in numbers)
    return launches, Problem(tuple(steps), loss_index, sizes, tuple(v.type.bytes for v in numbers))


def _cost(op: Op) -> int:
    """Return the cost of a launch in bytes of memory traffic (``hardware.costs``)."""
    flops, moved = kernel_cost(op.regions[0], op.operands, op.results)
    return int(moved + flops / DEFAULT_BALANCE)


class _Recomputation:
    """Insert second launches of ``chosen`` where they are first needed after the loss.

    ``forward`` launches precede the launch that computes the loss. Views of recomputed values are
    created again too.
    """

    def __init__(self, rewriter: Rewriter, chosen: set[Op], forward: int):
        self.rewriter, self.chosen, self.forward = rewriter, chosen, forward
        self.block = rewriter.block
        self.producers: Mapping[Value, Op] = self.block.producers()
        self.roots = memory_roots(self.block)
        #: Value of the forward pass -> the recomputed value.
        self.made: dict[Value, Value] = {}
        #: Launches that nothing reads before the second one, and that are therefore erased.
        self.delayed = 0

    def run(self) -> None:
        seen = 0
        for op in self.block.ops:
            launch = op.kind == LAUNCH or bool(op.regions)
            if launch and seen > self.forward:
                self._redirect(op)
            seen += launch
        self._erase_unread()

    def _erase_unread(self) -> None:
        """Erase the launches (and their views) that are read only where they are repeated.

        Where shards add up the loss, launches of the backward pass may precede it.
        """
        for op in reversed(self.block.ops):
            maker = self._producer(op.results[0]) if op.results else None
            if maker in self.chosen and not any(
                self.rewriter.users(v) or self.rewriter.is_output(v) for v in op.results
            ):
                self.rewriter.erase(self.rewriter.now(op) or op, rule="only read later")
                self.delayed += op is maker

    def _redirect(self, op: Op) -> None:
        """Let a launch of the backward pass read recomputed values."""
        fresh: list[Op] = []
        change = {v: w for v in dict.fromkeys(op.uses()) if (w := self._again(v, fresh)) is not v}
        if change:
            count = f"{len(fresh)} op{'s' if len(fresh) != 1 else ''}"
            note = count if fresh else "values already recomputed"
            self.rewriter.replace(
                op, [*fresh, op.substitute(change)], rule="compute again", note=note
            )

    def _again(self, value: Value, fresh: list[Op]) -> Value:
        """Return ``value`` for the backward pass; ops that compute it are added to ``fresh``."""
        if self._producer(value) not in self.chosen:
            return value
        work = [value]
        while work:
            op = self.producers[work[-1]]
            if op.results[0] in self.made:
                work.pop()
                continue
            needed = [
                v for v in op.uses() if self._producer(v) in self.chosen and v not in self.made
            ]
            if needed:
                work.append(needed[-1])
                continue
            fresh.append(self._copy(op))
        return self.made[value]

    def _producer(self, value: Value) -> Op | None:
        """Return the launch that writes the memory of ``value``."""
        return self.producers.get(self.roots.get(value, value))

    def _copy(self, op: Op) -> Op:
        for value in op.results:
            self.made[value] = Value(value.type, value.name)
        parents = [] if op.origin is None else [op.origin]
        return op.with_(
            operands=tuple(self.made.get(v, v) for v in op.operands),
            results=tuple(self.made[v] for v in op.results),
            regions=tuple(clone_block(block) for block in op.regions),
            origin=Origin.derived("computed again", parents),
        )
