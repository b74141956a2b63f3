"""The joint graph of a training step: phases, and links of forward, backward and update ops.

For recordings that do not train, the functions return None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core_compiler.ir import Module, Op, Value
from core_compiler.ir.kinds import CONSTANTS
from core_compiler.ir.target import ALLOC, COPY, INPUT, LAUNCH, OUTPUT, Input, Launch, Output
from core_compiler.passes.find_lifetimes import memory_owners
from core_compiler.placement.recompute import measure
from core_compiler.training.graph.derivation import Derivation
from core_compiler.training.graph.phases import (
    BACKWARD,
    BEFORE,
    FORWARD,
    LOSS,
    OPTIMIZER,
    PHASES,
    RECOMPUTED,
    Phases,
    members,
)
from core_compiler.training.graph.roles import Roles
from core_compiler.training.passes.order_launches import OrderLaunches, memory_roots
from core_compiler.training.passes.recompute import Recompute, recompute_problem
from workbench.queries.run import Run

#: The number of an op without a phase (inputs, results).
NO_PHASE = 255


class Joint:
    """The known phases and gradients of a recording; it grows from stage to stage."""

    def __init__(self, run: Run):
        self._run = run
        self._last_stage = -1
        self.phases = Phases()
        self.derivation = Derivation(self.phases)
        #: The first stage that has a backward pass.
        self.begins: int | None = None
        rows = Roles.of(run.recording.module(0).main).arguments
        #: The names and the roles of main's arguments.
        self.names = [name for _, name, _ in rows]
        self.roles = [role for role, _, _ in rows]

    def up_to(self, stage: int) -> Joint:
        """Return self after including at least the stages up to this one."""
        while self._last_stage < stage:
            number = self._last_stage + 1
            module = self._run.recording.module(number)
            if not number:
                self.phases.begin(module)
            else:
                name = self._run.stages()[number].pass_name
                rewrites = [step.rewrite for step in self._run.rewrites(number)]
                self.phases.advance(name, rewrites, module)
                self.derivation.advance(name, rewrites, module)
            self._last_stage = number
            if self.begins is None and self.derivation.has_backward:
                self.begins = number
        return self

    def linked(self, stage: int) -> bool:
        """Return whether a stage has gradients to link to."""
        return self.begins is not None and self.begins <= stage


def trains(run: Run) -> bool:
    """Return whether a recording is of a training step."""
    if not run.version.stages:
        return False
    return run.cached("trains", lambda: "results" in run.recording.attributes(0))


def joint(run: Run, stage: int) -> Joint | None:
    """Return the joint graph up to ``stage``; None if the recording does not train."""
    return run.cached("joint", lambda: Joint(run)).up_to(stage) if trains(run) else None


#: Scopes for ops that do not belong to the forward pass: names that no module of a model has.
_FIRST, _BACK, _RESULTS = "step inputs", "backward pass", "step results"
_SCOPES = {LOSS: "training loss", RECOMPUTED: _BACK, BACKWARD: _BACK, OPTIMIZER: "optimizer update"}
_RANKS = {_FIRST: 0, _SCOPES[LOSS]: 2, _BACK: 3, _SCOPES[OPTIMIZER]: 4, _RESULTS: 5}
_INPUTS = {
    "batch": "batch",
    "shard": "batch",
    "parameter": "parameters",
    "buffer": "buffers",
    "slot": "optimizer state",
    "scalar": "numbers",
}


def scope(found: Joint, stage: int, op: Op, path: str) -> str:
    """Return the scope in which the graph draws an op of main; ``path`` is its module's.

    The backward pass repeats the modules of the forward pass; the update has a scope per
    parameter.
    """
    while op.kind == ALLOC and found.phases.parents.get(op):
        op = found.phases.parents[op][0]  # an allocation belongs to the launch that fills it
    if op.kind == INPUT:
        return f"{_FIRST}/{_INPUTS[found.roles[op['index']]]}"
    start_phase = found.phases.start_phase(op)
    if op.kind == OUTPUT or (op.kind == COPY and not start_phase):
        return _RESULTS
    if start_phase in ("", FORWARD):
        return path
    phase_scope = _SCOPES[start_phase]
    if op.kind in CONSTANTS:
        return phase_scope
    if phase_scope == _BACK:
        return f"{phase_scope}/{path}" if path else phase_scope
    updated = found.derivation.updates(op, stage) if start_phase == OPTIMIZER else ()
    return f"{phase_scope}/{_parameter(found, updated[0])}" if len(updated) == 1 else phase_scope


def order(scopes: Sequence[str], inputs: Sequence[Sequence[int]]) -> list[int]:
    """Return the positions of a stage's ops, phase by phase, each phase in program order.

    Edges then lead from the forward pass through the loss to the backward pass and on: passes move
    launches of a few elements, and updates, to where they need least memory. ``inputs``: the
    positions that each op reads, which precede it in the result too.
    """
    rank: list[int] = []
    for path, read in zip(scopes, inputs, strict=True):
        own = _RANKS.get(path.partition("/")[0], 1)
        rank.append(max([own, *(rank[i] for i in read)]))
    return sorted(range(len(rank)), key=rank.__getitem__)


def _parameter(found: Joint, number: int) -> str:
    return found.names[number].replace("/", ".")


def same_phase(run: Run, stage: int, number: int) -> Callable[[Op], bool]:
    """Return a predicate of ops of ``stage``: whether they share a phase with op ``number``.

    Op ``number`` may be of any stage.
    """
    found = joint(run, run.version.stages - 1)
    if found is None:
        return lambda op: True
    phases = found.phases
    own = phases.phase_counts(run.recording.op(number)).keys()
    return lambda op: not own.isdisjoint(phases.phase_counts(op).keys())


def first_linked(run: Run) -> int:
    """Return the first stage whose ops have gradients; 0 if the recording does not train."""
    found = joint(run, run.version.stages - 1)
    return found.begins or 0 if found is not None else 0


# -- the graph's columns --------------------------------------------------------------------------


def phase_column(run: Run, stage: int, ops: Iterable[Op]) -> np.ndarray | None:
    """Return the phase of each of ``ops`` as an index into ``PHASES``.

    Returns None if the recording does not train.
    """
    found = joint(run, stage)
    if found is None:
        return None
    number = {phase: i for i, phase in enumerate(PHASES)}
    return np.array([number.get(found.phases.phase(op), NO_PHASE) for op in ops], np.uint8)


def link_columns(run: Run, stage: int, ops: Sequence[Op | None]) -> dict[str, np.ndarray]:
    """Return ``link_start`` and ``link``: the numbers of the linked ops for each of ``ops``.

    None in ``ops`` is omitted.

    Linked are the ops of its gradient, its recomputed copies, and the ops that update the
    parameter whose gradient it makes.
    """
    found = joint(run, stage)
    if found is None or not found.linked(stage):
        return {}
    derivation, phases = found.derivation, found.phases
    roots = [
        frozenset() if op is None or computes_nothing(op) else derivation.roots(op, stage)
        for op in ops
    ]
    in_forward: dict[Op, list[int]] = {}
    recomputed: dict[Op, list[int]] = {}
    updating: dict[int, list[int]] = {}
    for place, op in enumerate(ops):
        if op is not None and not computes_nothing(op):
            table = recomputed if phases.base_phase(op) == RECOMPUTED else in_forward
            for root in roots[place]:
                table.setdefault(root, []).append(place)
            updated = derivation.updates(op, stage)
            if len(updated) == 1:  # shared by all parameters (the rate): belongs to none
                updating.setdefault(updated[0], []).append(place)
    starts, links = [0], []
    for place, op in enumerate(ops):
        ends: set[int] = set()
        first = op is not None and phases.base_phase(op) != RECOMPUTED
        for root in roots[place] if first else ():
            for gradient in derivation.gradients.get(root, ()):
                ends.update(in_forward.get(gradient, ()))
            ends.update(recomputed.get(root, ()))
            ends.update(updating.get(derivation.parameter_of.get(root, -1), ()))
        links += sorted(ends - {place})
        starts.append(len(links))
    return {"link_start": np.array(starts, np.int32), "link": np.array(links, np.int32)}


# -- one stage, for the inspector -----------------------------------------------------------------


@dataclass(frozen=True)
class Saved:
    """A value of the forward pass that the backward pass reads: its bytes, and its readers."""

    value: Value
    bytes: int
    readers: tuple[Op, ...]


@dataclass
class Table:
    """The links of one stage. A *unit* is an op of main: a group or launch as a whole.

    ``carriers``  for each op after ``differentiate``: the ``(member, unit)`` that do its work now;
    ``recomputed``     the units that recompute it; ``saved``: by the unit that makes the value;
    ``readers``   for each parameter (its index among main's arguments): the values it is read by;
    ``nexts``     the unit that makes its next value.
    """

    place: dict[Op, int]
    carriers: dict[Op, list[tuple[Op, Op]]] = field(default_factory=dict)
    recomputed: dict[Op, list[Op]] = field(default_factory=dict)
    saved: dict[Op, list[Saved]] = field(default_factory=dict)
    parameters: dict[Value, int] = field(default_factory=dict)
    nexts: dict[int, Op] = field(default_factory=dict)

    def units(self, roots: Iterable[Op]) -> dict[Op, list[Op]]:
        """Return the units, and their members, that do the work of ``roots``, in program order."""
        found: dict[Op, dict[Op, None]] = {}
        for root in roots:
            for member, unit in self.carriers.get(root, ()):
                found.setdefault(unit, {})[member] = None
        return {unit: list(found[unit]) for unit in sorted(found, key=self.place.__getitem__)}


def table(run: Run, stage: int) -> Table:
    """Return the links of a stage that has a backward pass."""
    return run.cached(("joint", stage), lambda: _table(run, stage))


def _table(run: Run, stage: int) -> Table:
    found = joint(run, stage)
    assert found is not None
    module = run.recording.module(stage)
    body = module.main.body
    made = Table({op: i for i, op in enumerate(body.ops)})
    for unit in body.ops:
        for member in () if computes_nothing(unit) else members(unit):
            recomputed = found.phases.base_phase(member) == RECOMPUTED
            for root in found.derivation.roots(member, stage):
                if recomputed:
                    made.recomputed.setdefault(root, []).append(unit)
                else:
                    made.carriers.setdefault(root, []).append((member, unit))
    memory = _memory(module)
    roles, ends = Roles.of(module.main), _ends(module)
    maker = _makers(body.ops, memory)
    places = set(roles.numbers("parameter"))
    made.parameters = _parameters(module, places, memory)
    loss = -1
    for place, (role, of) in enumerate(roles.results):
        last = maker.get(memory.get(ends[place], ends[place]))
        if last is not None and role == "loss":
            loss = made.place[last]
        elif last is not None and role == "next" and of in places:
            made.nexts[of] = last
    _save(made, found.phases, body.ops, memory, loss)
    return made


def _memory(module: Module) -> Mapping[Value, Value]:
    """Return the value that owns the memory of each value that has none of its own."""
    buffers = module.main.level == "target"
    return memory_owners(module.main.body.ops) if buffers else memory_roots(module.main.body)


def written(op: Op) -> tuple[Value, ...]:
    """Return the buffers that a launch writes; () for other ops, and before buffers."""
    launch = Launch.match(op)
    return launch.written if launch is not None and launch.writes else ()


def makes(op: Op) -> tuple[Value, ...]:
    """Return the results of an op, or the buffers that a launch writes."""
    return op.results or (written(op) if op.kind == LAUNCH else ())


def reads(op: Op) -> tuple[Value, ...]:
    """Return the values or buffers that an op reads."""
    launch = Launch.match(op)
    return op.uses() if launch is None or launch.reads is None else launch.read


def _makers(ops: Sequence[Op], memory: Mapping[Value, Value]) -> dict[Value, Op]:
    """Return the op that makes each value that owns memory."""
    return {
        v: op for op in ops if not computes_nothing(op) for v in makes(op) if memory.get(v, v) is v
    }


def _save(
    made: Table, phases: Phases, ops: Sequence[Op], memory: Mapping[Value, Value], loss: int
) -> None:
    """Collect the forward values that the backward pass reads after op ``loss``."""
    before = [op for op in ops if not BEFORE.isdisjoint(phases.phase_counts(op))]
    maker = _makers(before, memory)
    readers: dict[Value, dict[Op, None]] = {}
    for op in ops[loss + 1 :]:
        phase_counts = phases.phase_counts(op)
        if BACKWARD in phase_counts or RECOMPUTED in phase_counts:
            for value in reads(op):
                root = memory.get(value, value)
                if root in maker and maker[root] is not op:
                    readers.setdefault(root, {})[op] = None
    for value, reader_ops in readers.items():
        saved = Saved(value, value.type.bytes, tuple(reader_ops))
        made.saved.setdefault(maker[value], []).append(saved)


def computes_nothing(op: Op) -> bool:
    """Return whether an op computes nothing: constants and memory declarations."""
    return op.kind in CONSTANTS or op.kind in (ALLOC, INPUT, OUTPUT)


def _ends(module: Module) -> dict[int, Value]:
    """Return the value or the buffer that holds each result."""
    main = module.main
    result_values = {o.index: o.buffer for o in map(Output.match, main.body.ops) if o is not None}
    return {**dict(enumerate(main.outputs)), **result_values}


def _parameters(
    module: Module, places: Iterable[int], memory: Mapping[Value, Value]
) -> dict[Value, int]:
    """Return the parameters, or views of them, with their index among main's arguments.

    They are values or buffers.
    """
    main = module.main
    found = {main.arguments[i]: i for i in places}
    inputs = (i for i in map(Input.match, main.body.ops) if i is not None and i.index in places)
    found |= {i.result: i.index for i in inputs}
    return found | {view: found[root] for view, root in memory.items() if root in found}


# -- the step as a whole --------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """A phase of the step: its ops common to all targets, its launches, their measured time.

    Launches of several phases count in the one with most of their ops. ``stage``: a stage that has
    ops of the phase.
    """

    phase: str
    stage: int
    ops: int
    launches: int
    us: float | None


def shares(run: Run) -> list[Share]:
    """Return the phases of the step in order, without empty ones."""
    version = run.version
    return run.cached(("shares", version.stages, version.timings), lambda: list(_shares(run)))


def _shares(run: Run) -> Iterator[Share]:
    stages = run.stages()
    last = stages[-1].index
    meaning = max((s.index for s in stages if s.half != "implementation"), default=last)
    found = joint(run, last)
    assert found is not None
    phases = found.phases
    ops: Counter[str] = Counter()
    for op in run.recording.module(meaning).main.body.ops:
        if not computes_nothing(op):
            ops.update(phases.phase_counts(op).keys())
    times = {t.op: t.median_us or 0.0 for t in run.timings()}
    launches: Counter[str] = Counter()
    us: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    for op in run.recording.module(last).main.body.ops:
        phase_counts = phases.phase_counts(op)
        if op.kind == LAUNCH and phase_counts:
            most = max(phase_counts, key=lambda phase: (phase_counts[phase], PHASES.index(phase)))
            launches[most] += 1
            us[most] += times.get(run.op_id(op), 0.0)
    for phase in PHASES:
        if ops[phase] or launches[phase]:
            stage = meaning if ops[phase] else last
            yield Share(phase, stage, ops[phase], launches[phase], us[phase] if times else None)


def saved_bytes(run: Run) -> tuple[int, int] | None:
    """Return the forward bytes kept when the backward pass begins, with and without recomputation.

    Returns None if launches are not ordered yet.
    """
    made = {s.pass_name: s.index for s in run.stages()}
    ordered = made.get(OrderLaunches.name())
    if ordered is None:
        return None

    def measured(stage: int) -> int:
        _, problem = recompute_problem(run.recording.module(stage).main)
        return measure(problem, frozenset()).saved

    without = run.cached(("saved", ordered), lambda: measured(ordered))
    recompute_stage = made.get(Recompute.name())
    return (
        without
        if recompute_stage is None
        else run.cached(("saved", recompute_stage), lambda: measured(recompute_stage)),
        without,
    )


@dataclass(frozen=True)
class StateSizes:
    """The sizes of a step's parameters and state.

    ``parameters`` tensors of ``numbers`` elements, their bytes, and the bytes of the optimizer's
    state.
    """

    parameters: int
    numbers: int
    bytes: int
    state_bytes: int


def sizes_of_state(run: Run) -> StateSizes:
    """Return the parameters that the step trains and the state that its optimizer keeps."""
    main = run.recording.module(0).main
    roles = Roles.of(main)
    trained = [main.arguments[i].type for i in roles.numbers("parameter")]
    state = [main.arguments[i].type for i in roles.numbers("slot")]
    return StateSizes(
        len(trained),
        sum(t.elements for t in trained),
        sum(t.bytes for t in trained),
        sum(t.bytes for t in state),
    )
