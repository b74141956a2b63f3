"""The gradient ops of each forward op, and the ops that update each parameter.

Both are known in every stage after ``differentiate``, whose rewrites name the gradient ops of each
forward op (the values of such a rewrite are those of the forward op). Ops of later stages are
traced back to that stage by their source ops (:class:`core_compiler.training.graph.phases.Phases`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core_compiler.ir import Module, Op, Rewrite, Value
from core_compiler.training.graph.phases import (
    BEFORE,
    OPTIMIZER,
    RECOMPUTED,
    Phases,
    members,
    pass_of,
)
from core_compiler.training.graph.roles import Roles
from core_compiler.training.passes.differentiate import Differentiate

#: Ops of the stage after ``differentiate``, and numbers of parameters.
Lineage = tuple[frozenset[Op], frozenset[int]]


@dataclass
class Derivation:
    """Traces ops back to gradients; call :meth:`advance` with each stage after ``phases`` has it.

    ``gradients`` maps an op of the forward pass, as of the stage after ``differentiate``, to the
    ops of its gradient there; ``gradient_of`` is the inverse. ``parameter_of`` maps the ops among
    them that compute the whole gradient of a parameter to its number among main's arguments.
    """

    phases: Phases
    gradients: dict[Op, tuple[Op, ...]] = field(default_factory=dict)
    gradient_of: dict[Op, Op] = field(default_factory=dict)
    parameter_of: dict[Op, int] = field(default_factory=dict)
    #: The ops of the stage after ``differentiate``.
    _roots: set[Op] = field(default_factory=set)
    #: The parameter number of each op that a pass created for one parameter.
    _updates: dict[Op, int] = field(default_factory=dict)
    _known: dict[Op, Lineage] = field(default_factory=dict)

    @property
    def has_backward(self) -> bool:
        """Return whether there is a backward pass."""
        return bool(self._roots)

    def advance(self, pass_name: str, rewrites: Sequence[Rewrite], module: Module) -> None:
        """Take the stage that a pass created."""
        self._known.clear()
        if pass_of(pass_name) == Differentiate.name():
            self._take_gradients(rewrites, module)
        elif self.has_backward and any(not rewrite.old for rewrite in rewrites):
            self._take_updates(rewrites, module)

    def _take_gradients(self, rewrites: Sequence[Rewrite], module: Module) -> None:
        self._roots = set(module.main.body.walk())
        producer = module.main.body.producers()
        for rewrite in rewrites:
            of = next((producer[v] for v in rewrite.values if v in producer), None)
            if rewrite.new and not rewrite.old and of is not None:
                made = (producer.get(op.results[0], op) for op in rewrite.new)
                self.gradients[of] = tuple(dict.fromkeys(made))
                self.gradient_of.update(dict.fromkeys(self.gradients[of], of))
        self.parameter_of = {
            producer[value]: of
            for (role, of), value in _results(module)
            if role == "gradient" and value in producer
        }

    def _take_updates(self, rewrites: Sequence[Rewrite], module: Module) -> None:
        """Find the ops created for the gradient or next value of a parameter or slot."""
        arguments = Roles.of(module.main).arguments
        owner: dict[Value, int] = {}
        for (role, of), value in _results(module):
            if role in ("gradient", "next") and arguments[of][0] in ("parameter", "slot"):
                owner.setdefault(value, arguments[of][2] if arguments[of][0] == "slot" else of)
        for rewrite in rewrites:
            if not rewrite.old:
                made = {v for op in rewrite.new for v in op.results}
                found = {owner[v] for v in made if v in owner}
                if len(found) == 1:
                    self._updates.update(dict.fromkeys(rewrite.new, *found))

    # -- reading ---------------------------------------------------------------------------------

    def roots(self, op: Op, stage: int | None = None) -> frozenset[Op]:
        """Return the ops of the stage after ``differentiate`` whose work ``op`` does in ``stage``.

        The default stage is the last; the members of a group or launch are included. Copies of the
        forward pass in a kernel of the backward pass do not count, nor does a gradient that the
        forward pass computes too because it equals one of its values.
        """
        return frozenset(
            root
            for member in members(op)
            if self.phases.computes(member)
            for root in self._lineage_at(member, stage)[0]
            if self._same_side(root, member)
        )

    def updates(self, op: Op, stage: int | None = None) -> tuple[int, ...]:
        """Return the parameters to whose next value or gradient ``op`` contributes.

        They are positions among main's arguments; gradients are those that the optimiser receives.
        """
        own = (m for m in members(op) if self.phases.base_phase(m) == OPTIMIZER)
        return tuple(sorted({p for m in own for p in self._lineage_at(m, stage)[1]}))

    def _same_side(self, root: Op, op: Op) -> bool:
        base_phase = self.phases.base_phase
        return (base_phase(root) in BEFORE) == (
            base_phase(op) in BEFORE or base_phase(op) == RECOMPUTED
        )

    def _lineage_at(self, op: Op, stage: int | None) -> Lineage:
        """Return the roots and parameters of an op in ``stage``, without later merges."""
        merged = self.phases.merged.get(op)
        if stage is None or merged is None or all(at <= stage for at, _ in merged):
            return self._trace(op)
        sources = [*self._sources(op), *(dup for at, dup in merged if at <= stage)]
        for other in sources:
            self._trace(other)
        return self._combine(op, sources)

    def _sources(self, op: Op) -> tuple[Op, ...]:
        return () if op in self._roots else self.phases.parents.get(op, ())

    def _trace(self, op: Op) -> Lineage:
        """Return the roots and parameters of one op, from its sources and from merged ops.

        A second copy may be merged into its original, so each op is visited once.
        """
        work, visited = [op], {op}
        while work:
            at = work[-1]
            sources = [*self._sources(at), *(dup for _, dup in self.phases.merged.get(at, ()))]
            waiting = [p for p in sources if p not in self._known and p not in visited]
            if waiting and at not in self._known:
                work += waiting
                visited.update(waiting)
            else:
                self._known.setdefault(at, self._combine(at, sources))
                work.pop()
        return self._known[op]

    def _combine(self, op: Op, sources: Iterable[Op]) -> Lineage:
        roots = {op} if op in self._roots else set()
        parameters = {self._updates[op]} if op in self._updates else set()
        for other in sources:
            more = self._known.get(other)
            if more is not None:
                roots |= more[0]
                parameters |= more[1]
        return frozenset(roots), frozenset(parameters)


def _results(module: Module) -> Iterable[tuple[tuple[str, int], Value]]:
    return zip(Roles.of(module.main).results, module.main.outputs, strict=True)


def carriers(
    derivation: Derivation, ops: Iterable[Op], stage: int | None = None
) -> Mapping[Op, tuple[Op, ...]]:
    """Return, for each op after ``differentiate``, which of ``ops`` (of one stage) do its work.

    Recomputed ops do the work a second time and are not included.
    """
    found: dict[Op, list[Op]] = {}
    for op in ops:
        if derivation.phases.base_phase(op) != RECOMPUTED:
            for root in derivation.roots(op, stage):
                found.setdefault(root, []).append(op)
    return {root: tuple(dict.fromkeys(some)) for root, some in found.items()}
