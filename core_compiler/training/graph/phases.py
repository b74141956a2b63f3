"""The phase of the training step that an op belongs to, in every stage up to the launches.

Names are never used. An op of the import belongs to the forward pass, or to the loss if the joint
module added it. An op that a training pass creates has that pass's phase. Every other op inherits
the phase of its source ops, which the rewrites name. Members of groups and launches keep their own
phases, so a kernel that computes parts of two phases belongs to both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core_compiler.ir import Module, Op, Rewrite, Value
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.passes.bufferize import INPUT, OUTPUT
from core_compiler.training.graph.joint import RULE
from core_compiler.training.passes.apply_optimizer import ApplyOptimizer
from core_compiler.training.passes.clip_gradients import ClipGradients
from core_compiler.training.passes.differentiate import Differentiate
from core_compiler.training.passes.guard_update import GuardUpdate
from core_compiler.training.passes.recompute import Recompute
from core_compiler.training.passes.recompute_widened import RecomputeWidened
from core_compiler.training.passes.scale_loss import ScaleLoss
from core_compiler.training.passes.unscale_gradients import UnscaleGradients

#: In the order of a step. ``recomputed`` is forward work that is repeated for the backward pass;
#: ``exchange`` is communication between shards, at any time; ``optimizer`` is everything from the
#: gradients to the next state (unscaling and clipping them, the update, its guard).
PHASES = FORWARD, LOSS, RECOMPUTED, BACKWARD, EXCHANGE, OPTIMIZER = (
    "forward",
    "loss",
    "recomputed",
    "backward",
    "exchange",
    "optimizer",
)
#: The phases up to and including the loss (except exchanges).
BEFORE = frozenset({FORWARD, LOSS})

#: The phase of the ops that a pass creates.
_MADE_BY = {
    ScaleLoss.name(): LOSS,
    Differentiate.name(): BACKWARD,
    UnscaleGradients.name(): OPTIMIZER,
    ClipGradients.name(): OPTIMIZER,
    ApplyOptimizer.name(): OPTIMIZER,
    GuardUpdate.name(): OPTIMIZER,
}
#: Passes whose rewrites add second copies of forward ops to a backward op.
_AGAIN = frozenset({Recompute.name(), RecomputeWidened.name()})
_EXCHANGES = frozenset({"core.all_reduce"})
#: Ops that have others as members, and ops that compute nothing.
_HOLDERS = frozenset({"core.group", "target.launch"})
_QUIET = CONSTANTS | {"target.alloc"}
#: The caller's arguments and results, which belong to no phase.
_INTERFACE = frozenset({INPUT, OUTPUT})
_ORDER = {phase: place for place, phase in enumerate(("", *PHASES))}


def pass_of(name: str) -> str:
    """Return the pass of a stage name (``fold_constants#2`` is its second run)."""
    return name.partition("#")[0]


def members(op: Op) -> tuple[Op, ...]:
    """Return the members of a group or launch, else the op itself."""
    return op.regions[0].ops if op.kind in _HOLDERS and op.regions else (op,)


@dataclass
class Phases:
    """The phases of all ops: call :meth:`begin` with the import, then :meth:`advance` per stage.

    ``parents`` maps every op of any stage to its source ops, one step back; () if a pass created
    it. ``merged`` has equal ops that were merged into a remaining op, each with the stage that
    merged them. ``stage`` is the last stage taken.
    """

    parents: dict[Op, tuple[Op, ...]] = field(default_factory=dict)
    merged: dict[Op, list[tuple[int, Op]]] = field(default_factory=dict)
    stage: int = 0
    _when: dict[Op, str] = field(default_factory=dict)
    _maker: dict[Value, Op] = field(default_factory=dict)
    _standing: dict[Op, None] = field(default_factory=dict)
    #: The first remaining op of each origin and kind, computed on demand.
    _likes: dict[tuple[int, str], Op] | None = None

    def begin(self, module: Module) -> None:
        """Take the import."""
        for op in _walk(module):
            made = op.origin
            lost = made is not None and made.node is None and made.rule == RULE
            self._enter(op, (), LOSS if lost else FORWARD)
            self._standing[op] = None

    def advance(self, pass_name: str, rewrites: Sequence[Rewrite], module: Module) -> None:
        """Take the stage that a pass created."""
        name = pass_of(pass_name)
        self.stage += 1
        for rewrite in rewrites:
            for op in rewrite.old:
                self._settle(op)
            if not rewrite.new:
                self._merge(rewrite)
            for op in rewrite.new:
                if op not in self.parents:
                    self._made(op, rewrite, name)
        ops = dict.fromkeys(_walk(module))
        for op in ops:
            self._settle(op)
        self._by_readers(ops)
        self._standing, self._likes = ops, None

    # -- reading ---------------------------------------------------------------------------------

    def phase(self, op: Op) -> str:
        """Return the phase of an op: for groups the last of the members', "" for inputs."""
        found = self.mix(op)
        return max(found, key=_ORDER.__getitem__) if found else self.when(op)

    def mix(self, op: Op) -> Mapping[str, int]:
        """Return the number of ops of each phase in a group or launch, without constants.

        For any other op this is its own phase.
        """
        found: Counter[str] = Counter()
        for member in members(op):
            phase = EXCHANGE if member.kind in _EXCHANGES else self.when(member)
            if phase and (member is op or member.kind not in _QUIET):
                found[phase] += 1
        return found

    def begins(self, op: Op) -> str:
        """Return the phase in which an op is executed: for groups the first member's."""
        own = [self.when(m) for m in members(op) if m is op or m.kind not in _QUIET]
        return min(filter(None, own), key=_ORDER.__getitem__, default=self.when(op))

    def when(self, op: Op) -> str:
        """Return the phase of one op, without distinguishing exchanges."""
        return self._when.get(op, "")

    def computes(self, op: Op) -> bool:
        """Return whether an op computes something.

        Constants and broadcast constants do not, and equal ones of the whole step are merged.
        """
        while op.kind == "core.broadcast":
            maker = self._maker.get(op.operands[0])
            if maker is None:
                return True
            op = maker
        return op.kind not in _QUIET

    # -- following -------------------------------------------------------------------------------

    def _enter(self, op: Op, parents: tuple[Op, ...], when: str) -> None:
        self.parents[op], self._when[op] = parents, when
        for value in op.results:
            self._maker[value] = op

    def _by_readers(self, ops: Iterable[Op]) -> None:
        """Give ops that a pass created from nothing the first phase that reads them.

        This is the case for the op that hands a parameter to all shards.
        """
        left = [op for op in ops if not self._when[op] and op.kind not in _INTERFACE]
        if not left:
            return
        readers: dict[Value, list[Op]] = {}
        for op in ops:
            for value in op.operands:
                readers.setdefault(value, []).append(op)
        for op in reversed(left):
            found = {self.when(reader) for v in op.results for reader in readers.get(v, ())}
            self._when[op] = min(found - {""}, key=_ORDER.__getitem__, default="")

    def _settle(self, op: Op) -> None:
        """Find the phase of an op that no rewrite created.

        An op rebuilt with other operands defines the same values. An op without results takes the
        phase of the old op of the same origin.
        """
        if op in self.parents:
            return
        was = self._maker.get(op.results[0]) if op.results else self._like(op, [op.origin])
        self._enter(op, () if was is None else (was,), "" if was is None else self.when(was))
        self._members(op, () if was is None else (was,))

    def _made(self, op: Op, rewrite: Rewrite, name: str) -> None:
        replaced = {v for old in rewrite.old for v in old.results}
        again = name in _AGAIN and rewrite.old and replaced.isdisjoint(op.results)
        if again and op.results:
            origin = op.origin
            was = self._like(op, [origin, *(origin.parents if origin is not None else ())])
            parents: tuple[Op, ...] = () if was is None else (was,)
            self._enter(op, parents, RECOMPUTED)
            self._members(op, parents, RECOMPUTED)
        elif rewrite.old:
            parents = _relatives(op, rewrite)
            self._enter(op, parents, self._inherited(op, parents, rewrite))
            self._members(op, rewrite.old)
        else:
            when = _MADE_BY.get(name) or self._last(
                self._maker[v] for v in op.uses() if v in self._maker
            )
            self._enter(op, (), "" if op.kind in _INTERFACE else when)
            self._members(op, ())

    def _merge(self, rewrite: Rewrite) -> None:
        for old in rewrite.old:
            went = (self._maker.get(rewrite.values[v]) for v in old.results if v in rewrite.values)
            for keeper in dict.fromkeys(op for op in went if op is not None and op is not old):
                if keeper.kind == old.kind:
                    self.merged.setdefault(keeper, []).append((self.stage, old))

    def _inherited(self, op: Op, parents: Sequence[Op], rewrite: Rewrite) -> str:
        """Return the phase of the op whose value ``op`` now defines.

        An intermediate op has the phase of its last source op.
        """
        taken = [
            old
            for old in parents
            if any(rewrite.values.get(v, v) in op.results for v in old.results)
        ]
        if taken:
            return min((self.when(old) for old in taken), key=_ORDER.__getitem__)
        return self._last(parents)

    def _last(self, ops: Iterable[Op]) -> str:
        return max((self.when(op) for op in ops), key=_ORDER.__getitem__, default="")

    def _like(self, op: Op, origins: Sequence[object]) -> Op | None:
        """Return the op of the previous stage with one of these origins and the kind of ``op``."""
        if self._likes is None:
            self._likes = {}
            for other in self._standing:
                self._likes.setdefault((id(other.origin), other.kind), other)
        found = (self._likes.get((id(origin), op.kind)) for origin in origins if origin is not None)
        return next((other for other in found if other is not None), None)

    def _members(self, holder: Op, old: Sequence[Op], when: str = "") -> None:
        """Find the phases of the new members of a group or launch (of any op with regions).

        Groups keep the order of their source ops, preceded by copies of constants and broadcasts
        (``passes.grouping.make_group``), so members are paired from the end. A copy belongs to the
        op that defines the value its reader read, and has its reader's phase.
        """
        if not holder.regions:
            return
        inner = [op for block in holder.regions for op in block.ops]
        if all(op in self.parents for op in inner):
            return
        was = [op for one in old for op in members(one)] if holder.kind in _HOLDERS else []
        copies = len(inner) - len(was)
        if not was or copies < 0:
            copies, was = len(inner), []
        outside = {
            inside: value
            for one in old
            if one.kind in _HOLDERS and one.regions
            for inside, value in zip(one.regions[0].arguments, one.operands, strict=False)
        }
        # The pattern and the reader of each copy's value.
        of: dict[Value, tuple[Op | None, str]] = {}
        for place in range(len(inner) - 1, -1, -1):
            op = inner[place]
            if place >= copies:
                source: Op | None = was[place - copies]
                phase = when or self.when(source)  # type: ignore[arg-type]  # paired: there is one
            else:
                read = next((of[v] for v in op.results if v in of), None)
                source, phase = read or (None, when or self.when(holder))
            if op not in self.parents:
                parents = () if source is None or source is op else (source,)
                self._enter(op, parents, phase)
                self._members(op, parents, when)
            if source is not None:
                for v, w in zip(source.operands, op.operands, strict=False):
                    of[w] = (self._maker.get(outside.get(v, v)), phase)
        self._when[holder] = self._last(op for op in inner if op.kind not in _QUIET)


def _relatives(op: Op, rewrite: Rewrite) -> tuple[Op, ...]:
    """Return the source ops of ``op``.

    These are all old ops if the rewrite creates or replaces a single one, else the ops whose values
    it defines, else the ops of its kind.
    """
    if len(rewrite.old) == 1 or len(rewrite.new) == 1:
        return rewrite.old
    made = [
        o for o in rewrite.old if any(rewrite.values.get(v, v) in op.results for v in o.results)
    ]
    return tuple(made or [o for o in rewrite.old if o.kind == op.kind]) or rewrite.old


def _walk(module: Module) -> Iterator[Op]:
    """Yield the ops of all functions except kernels."""
    for function in module.functions.values():
        if function.level != "kernel":
            yield from function.body.walk()
