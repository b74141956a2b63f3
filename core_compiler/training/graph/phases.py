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
from core_compiler.ir.kinds import CONSTANTS, MEANING_IN_REGION
from core_compiler.ir.target import ALLOC, INPUT, OUTPUT
from core_compiler.training.graph.joint import LOSS_RULE
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
_PHASE_OF_PASS = {
    ScaleLoss.name(): LOSS,
    Differentiate.name(): BACKWARD,
    UnscaleGradients.name(): OPTIMIZER,
    ClipGradients.name(): OPTIMIZER,
    ApplyOptimizer.name(): OPTIMIZER,
    GuardUpdate.name(): OPTIMIZER,
}
#: Passes whose rewrites add second copies of forward ops to a backward op.
_RECOMPUTING = frozenset({Recompute.name(), RecomputeWidened.name()})
_EXCHANGES = frozenset({"core.all_reduce"})
#: Ops that have others as members, and ops that compute nothing.
_NON_COMPUTING = CONSTANTS | {ALLOC}
#: The caller's arguments and results, which belong to no phase.
_INTERFACE = frozenset({INPUT, OUTPUT})
_ORDER = {phase: place for place, phase in enumerate(("", *PHASES))}


def pass_of(name: str) -> str:
    """Return the pass of a stage name (``fold_constants#2`` is its second run)."""
    return name.partition("#")[0]


def members(op: Op) -> tuple[Op, ...]:
    """Return the members of a group or launch, else the op itself."""
    return op.regions[0].ops if op.kind in MEANING_IN_REGION and op.regions else (op,)


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
    _phase_of_op: dict[Op, str] = field(default_factory=dict)
    _producer: dict[Value, Op] = field(default_factory=dict)
    _live: dict[Op, None] = field(default_factory=dict)
    #: The first remaining op of each origin and kind, computed on demand.
    _by_origin: dict[tuple[int, str], Op] | None = None

    def begin(self, module: Module) -> None:
        """Take the import."""
        for op in _walk(module):
            made = op.origin
            is_loss = made is not None and made.node is None and made.rule == LOSS_RULE
            self._enter(op, (), LOSS if is_loss else FORWARD)
            self._live[op] = None

    def advance(self, pass_name: str, rewrites: Sequence[Rewrite], module: Module) -> None:
        """Take the stage that a pass created."""
        name = pass_of(pass_name)
        self.stage += 1
        for rewrite in rewrites:
            for op in rewrite.old:
                self._infer_phase(op)
            if not rewrite.new:
                self._merge(rewrite)
            for op in rewrite.new:
                if op not in self.parents:
                    self._enter_created(op, rewrite, name)
        ops = dict.fromkeys(_walk(module))
        for op in ops:
            self._infer_phase(op)
        self._assign_by_readers(ops)
        self._live, self._by_origin = ops, None

    # -- reading ---------------------------------------------------------------------------------

    def phase(self, op: Op) -> str:
        """Return the phase of an op: for groups the last of the members', "" for inputs."""
        found = self.phase_counts(op)
        return max(found, key=_ORDER.__getitem__) if found else self.base_phase(op)

    def phase_counts(self, op: Op) -> Mapping[str, int]:
        """Return the number of ops of each phase in a group or launch, without constants.

        For any other op this is its own phase.
        """
        found: Counter[str] = Counter()
        for member in members(op):
            phase = EXCHANGE if member.kind in _EXCHANGES else self.base_phase(member)
            if phase and (member is op or member.kind not in _NON_COMPUTING):
                found[phase] += 1
        return found

    def start_phase(self, op: Op) -> str:
        """Return the phase in which an op is executed: for groups the first member's."""
        own = [self.base_phase(m) for m in members(op) if m is op or m.kind not in _NON_COMPUTING]
        return min(filter(None, own), key=_ORDER.__getitem__, default=self.base_phase(op))

    def base_phase(self, op: Op) -> str:
        """Return the phase of one op, without distinguishing exchanges."""
        return self._phase_of_op.get(op, "")

    def computes(self, op: Op) -> bool:
        """Return whether an op computes something.

        Constants and broadcast constants do not, and equal ones of the whole step are merged.
        """
        while op.kind == "core.broadcast":
            maker = self._producer.get(op.operands[0])
            if maker is None:
                return True
            op = maker
        return op.kind not in _NON_COMPUTING

    # -- following -------------------------------------------------------------------------------

    def _enter(self, op: Op, parents: tuple[Op, ...], base_phase: str) -> None:
        self.parents[op], self._phase_of_op[op] = parents, base_phase
        for value in op.results:
            self._producer[value] = op

    def _assign_by_readers(self, ops: Iterable[Op]) -> None:
        """Give ops that a pass created from nothing the first phase that reads them.

        This is the case for the op that hands a parameter to all shards.
        """
        unassigned = [op for op in ops if not self._phase_of_op[op] and op.kind not in _INTERFACE]
        if not unassigned:
            return
        readers: dict[Value, list[Op]] = {}
        for op in ops:
            for value in op.operands:
                readers.setdefault(value, []).append(op)
        for op in reversed(unassigned):
            found = {self.base_phase(reader) for v in op.results for reader in readers.get(v, ())}
            self._phase_of_op[op] = min(found - {""}, key=_ORDER.__getitem__, default="")

    def _infer_phase(self, op: Op) -> None:
        """Find the phase of an op that no rewrite created.

        An op rebuilt with other operands defines the same values. An op without results takes the
        phase of the old op of the same origin.
        """
        if op in self.parents:
            return
        old_op = (
            self._producer.get(op.results[0]) if op.results else self._find_similar(op, [op.origin])
        )
        self._enter(
            op,
            () if old_op is None else (old_op,),
            "" if old_op is None else self.base_phase(old_op),
        )
        self._members(op, () if old_op is None else (old_op,))

    def _enter_created(self, op: Op, rewrite: Rewrite, name: str) -> None:
        replaced = {v for old in rewrite.old for v in old.results}
        is_recomputed = name in _RECOMPUTING and rewrite.old and replaced.isdisjoint(op.results)
        if is_recomputed and op.results:
            origin = op.origin
            original = self._find_similar(
                op, [origin, *(origin.parents if origin is not None else ())]
            )
            parents: tuple[Op, ...] = () if original is None else (original,)
            self._enter(op, parents, RECOMPUTED)
            self._members(op, parents, RECOMPUTED)
        elif rewrite.old:
            parents = _source_ops(op, rewrite)
            self._enter(op, parents, self._inherited_phase(op, parents, rewrite))
            self._members(op, rewrite.old)
        else:
            base_phase = _PHASE_OF_PASS.get(name) or self._last_phase(
                self._producer[v] for v in op.uses() if v in self._producer
            )
            self._enter(op, (), "" if op.kind in _INTERFACE else base_phase)
            self._members(op, ())

    def _merge(self, rewrite: Rewrite) -> None:
        for old in rewrite.old:
            replacements = (
                self._producer.get(rewrite.values[v]) for v in old.results if v in rewrite.values
            )
            for survivor in dict.fromkeys(
                op for op in replacements if op is not None and op is not old
            ):
                if survivor.kind == old.kind:
                    self.merged.setdefault(survivor, []).append((self.stage, old))

    def _inherited_phase(self, op: Op, parents: Sequence[Op], rewrite: Rewrite) -> str:
        """Return the phase of the op whose value ``op`` now defines.

        An intermediate op has the phase of its last source op.
        """
        replaced = [
            old
            for old in parents
            if any(rewrite.values.get(v, v) in op.results for v in old.results)
        ]
        if replaced:
            return min((self.base_phase(old) for old in replaced), key=_ORDER.__getitem__)
        return self._last_phase(parents)

    def _last_phase(self, ops: Iterable[Op]) -> str:
        return max((self.base_phase(op) for op in ops), key=_ORDER.__getitem__, default="")

    def _find_similar(self, op: Op, origins: Sequence[object]) -> Op | None:
        """Return the op of the previous stage with one of these origins and the kind of ``op``."""
        if self._by_origin is None:
            self._by_origin = {}
            for other in self._live:
                self._by_origin.setdefault((id(other.origin), other.kind), other)
        found = (
            self._by_origin.get((id(origin), op.kind)) for origin in origins if origin is not None
        )
        return next((other for other in found if other is not None), None)

    def _members(self, container: Op, old: Sequence[Op], base_phase: str = "") -> None:
        """Find the phases of the new members of a group or launch (of any op with regions).

        Groups keep the order of their source ops, preceded by copies of constants and broadcasts
        (``passes.grouping.make_group``), so members are paired from the end. A copy belongs to the
        op that defines the value its reader read, and has its reader's phase.
        """
        if not container.regions:
            return
        inner = [op for block in container.regions for op in block.ops]
        if all(op in self.parents for op in inner):
            return
        old_members = (
            [op for one in old for op in members(one)]
            if container.kind in MEANING_IN_REGION
            else []
        )
        copies = len(inner) - len(old_members)
        if not old_members or copies < 0:
            copies, old_members = len(inner), []
        outside = {
            inside: value
            for one in old
            if one.kind in MEANING_IN_REGION and one.regions
            for inside, value in zip(one.regions[0].arguments, one.operands, strict=False)
        }
        # The pattern and the reader of each copy's value.
        source_of: dict[Value, tuple[Op | None, str]] = {}
        for index in range(len(inner) - 1, -1, -1):
            op = inner[index]
            if index >= copies:
                source: Op | None = old_members[index - copies]
                phase = base_phase or self.base_phase(source)  # type: ignore[arg-type]  # paired: there is one
            else:
                read = next((source_of[v] for v in op.results if v in source_of), None)
                source, phase = read or (None, base_phase or self.base_phase(container))
            if op not in self.parents:
                parents = () if source is None or source is op else (source,)
                self._enter(op, parents, phase)
                self._members(op, parents, base_phase)
            if source is not None:
                for v, w in zip(source.operands, op.operands, strict=False):
                    source_of[w] = (self._producer.get(outside.get(v, v)), phase)
        self._phase_of_op[container] = self._last_phase(
            op for op in inner if op.kind not in _NON_COMPUTING
        )


def _source_ops(op: Op, rewrite: Rewrite) -> tuple[Op, ...]:
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
