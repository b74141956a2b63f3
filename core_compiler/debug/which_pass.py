"""Search for the pass that changed the bits of two runs whose pipelines differ.

Both runs have the same model and configuration.  The difference of the pipelines is a list of
changes.  Pipelines with the first n changes as in one run and the rest as in the other are
compiled, and run the iteration in which the runs diverge.  Bisection finds the change that flips
the result, and the rewrite in its pass, by stopping the pass after its first n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core_compiler.ir import Module, Op, Rewrite
from core_compiler.numerics.reference.difference import first_element
from core_compiler.passes.base import Pass
from core_compiler.pipelines.pipeline import PipelineEdit, Step, arrange, entry_of, split_label
from core_compiler.support.errors import CANNOT_HERE, UserError
from core_compiler.training.audit.diverge import Difference, diverge, part
from core_compiler.training.audit.probes import source
from core_compiler.training.audit.receipts import Receipt, Recorder
from core_compiler.training.audit.replay import Run, mismatch
from core_compiler.training.run.data import for_step
from core_compiler.training.run.step import TrainingStep


@dataclass(frozen=True)
class Change:
    """The change that made the bits of two runs diverge.

    ``pass_label``: the pass, or "" if passes are in another order; ``how``: its settings in the
    runs (``runs``, ``skipped``, ``stops after 3 rewrites``...).  ``number``: the rewrite in it from
    1 on, of ``total`` (0: the whole pass), with its rule and source position.  ``op``: the op that
    it replaces, ``origin``: its source in the model.  ``value``: the first part of the state (or
    gradient, or the loss) that differs after the iteration; for the state also ``element``, the
    first that differs, with its values in the runs.
    """

    iteration: int
    pass_label: str
    how: tuple[str, str]
    number: int = 0
    total: int = 0
    rule: str = ""
    source: str = ""
    op: str = ""
    origin: str = ""
    value: str = ""
    element: tuple[int, ...] = ()
    numbers: tuple[float, float] = (0.0, 0.0)
    ulps: int = 0
    count: int = 0

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["pass"] = values.pop("pass_label")
        return {**values, "element": list(self.element), "how": list(self.how)}


@dataclass(frozen=True)
class _Unit:
    """A difference of two pipelines: part ``kind`` of an edit, of pass ``label``.

    With its setting in each run (None: absent).
    """

    kind: str
    label: str
    settings: tuple[Any, Any]

    def describe(self, side: int) -> str:
        setting = self.settings[side]
        if self.kind == "skip":
            return "skipped" if setting else "runs"
        if self.kind == "limits":
            noun = "rewrite" if setting == 1 else "rewrites"
            return "runs" if setting is None else f"stops after {setting} {noun}"
        if self.kind == "cuts":
            parts = ", ".join(map(str, setting or ()))
            return (
                f"split into steps of {parts} rewrites and the rest" if setting else "in one step"
            )
        if self.kind == "options":
            return ", ".join(f"{k}={v}" for k, v in (setting or {}).items()) or "defaults"
        if self.kind == "insert":
            where = str(setting[0]).replace(":", " ") if setting else ""
            where = where if " " in where else f"at {where}"
            return f"inserted {where}" if setting else "is absent"
        if self.kind == "repeat":
            return "runs twice" if setting else "runs once"
        return ", ".join(setting) or "the usual order"


def which_pass(a: Run, b: Run, report: Callable[[str], None] = lambda text: None) -> Change | None:
    """Return the pipeline change that separates two runs, or None if all common receipts agree.

    Raises UserError if something else than the pipeline differs.
    """
    other = [name for name in a.what if name in b.what and a.what[name] != b.what[name]]
    if other:
        differences = ", ".join(f"{n} {a.what[n]} and {b.what[n]}" for n in other)
        raise UserError(
            f"the runs have different configurations: {differences}",
            "diverge",
            "compare runs of the same model and configuration",
        )
    found = part(a.book, b.book)
    return None if found is None else _Search(a, b, found.iteration, report).run()


def find(
    a: Run, b: Run, report: Callable[[str], None] = lambda text: None
) -> Difference | Change | None:
    """Return the first difference of two training runs.

    It is the op, or for two pipelines the pass; for pipelines that this machine cannot run again,
    the difference of the receipts.
    """
    if a.book.identity == b.book.identity:
        return diverge(a, b, report)
    try:
        for run in (a, b):
            if run.unavailable is not None:
                raise run.unavailable
        return which_pass(a, b, report)
    except UserError as error:
        found = part(a.book, b.book)
        if error.exit_code != CANNOT_HERE or found is None:
            raise
        missing = [run.unavailable.what if run.unavailable else "" for run in (a, b)]
        x, y = missing if any(missing) else (error.what, error.what)
        return Difference(found.iteration, found.lasting, value=found.leaf, missing=(x, y))


def _differ(a: Receipt, b: Receipt) -> str | None:
    return mismatch(replace(a, ops={}), replace(b, ops={}))


@dataclass(eq=False)
class _Search:
    a: Run
    b: Run
    iteration: int
    report: Callable[[str], None]

    def run(self) -> Change:
        compilation = self.a.step.compilation
        options = compilation.options
        pipelines = [
            {
                s.label: s
                for s in arrange(
                    compilation.target,
                    options.target,
                    replace(edit, cuts={}),
                    training=options.training,
                )
            }
            for edit in map(_edit, (self.a, self.b))
        ]
        self.edits = [
            _with_unique_names(_edit(run), steps)
            for run, steps in zip((self.a, self.b), pipelines, strict=True)
        ]
        units = self.units(*pipelines)
        if not units:
            raise UserError(
                "the runs compute different programs with the same pipeline (numerics identities "
                f"{self.a.book.identity[:12]} and {self.b.book.identity[:12]})",
                "diverge",
                "use the same version of the model and the compiler",
            )
        self.report(
            f"the runs diverge in iteration {self.iteration}; {len(units)} "
            f"change{'s' if len(units) > 1 else ''} of the pipeline tried"
        )
        self.a.restore_before(self.iteration)
        self.first = self.a.step.whole_state()
        edits = {0: self.edits[1], len(units): self.edits[0]}
        made = {n: self.outcome(edit) for n, edit in edits.items()}
        low, high = 0, len(units)
        if _differ(made[low][1], made[high][1]) is None:
            raise UserError(
                f"iteration {self.iteration} run again is the same with both pipelines",
                "diverge",
                "compare each run with another of its own pipeline",
            )
        wanted = made[high][1]
        while high - low > 1:
            middle = (low + high) // 2
            edits[middle] = self.mixed(units, middle)
            made[middle] = self.outcome(edits[middle])
            if _differ(made[middle][1], wanted) is None:
                high = middle
            else:
                low = middle
        unit = units[high - 1]
        ends = made[high], made[low]
        found = Change(self.iteration, unit.label, (unit.describe(0), unit.describe(1)))
        found = self.value(found, ends)
        return self.narrow(found, unit, (edits[high], edits[low]), ends)

    def outcome(self, edit: PipelineEdit) -> tuple[TrainingStep, Receipt]:
        """Return the step with an edited pipeline after the iteration, and its receipt."""
        if edit is self.edits[0]:
            step, data = self.a.step, self.a.data
        else:
            step, given = self.b.build(edit)
            data = for_step(step, given)
        step.load_state_dict(self.first)
        plan = self.a.plan
        batch = data.batch(self.iteration - 1, plan.batch, plan.seed, plan.drop_last)
        recorder = Recorder(step.bound(batch).probes, "gradients")
        step.watch = recorder.watch(self.iteration)
        try:
            loss = step(*batch)
        finally:
            step.watch = None
        return step, recorder.receipt(self.iteration, loss, step)

    def value(self, found: Change, ends: tuple[tuple[TrainingStep, Receipt], ...]) -> Change:
        """Return the first value that differs at the end of the iteration."""
        (one, receipt), (other, other_receipt) = ends
        states = one.named_state(), other.named_state()
        name = next((n for n in receipt.state if receipt.state[n] != other_receipt.state[n]), None)
        if name is None:
            return replace(found, value=_differ(receipt, other_receipt) or "")
        index, pair, ulps, count = first_element(*(state[name] for state in states))
        return replace(found, value=name, element=index, numbers=pair, ulps=ulps, count=count)

    # -- the changes -----------------------------------------------------------------------------

    def units(self, one: Mapping[str, Step], other: Mapping[str, Step]) -> list[_Unit]:
        """Return the differences of the pipelines: inserted passes, then the others in order."""
        found = []
        inserted = [
            {_key(position, pass_): (position, pass_) for position, pass_ in edit.insert}
            for edit in self.edits
        ]
        for key in dict.fromkeys([*inserted[0], *inserted[1]]):
            if (key in inserted[0]) != (key in inserted[1]):
                settings = inserted[0].get(key), inserted[1].get(key)
                side = 0 if settings[0] is not None else 1
                row = inserted[side][key]
                label = _label_of(row, self.edits[side], (one, other)[side])
                found.append(_Unit("insert", label, settings))
        for label in dict.fromkeys([*one, *other]):
            if label not in one or label not in other or split_label(label)[1]:
                continue
            pair = one[label], other[label]
            for kind, setting, other_setting in (
                ("skip", *(s.skipped or None for s in pair)),
                ("limits", *(s.limit for s in pair)),
                ("options", *map(_options, pair)),
            ):
                if setting != other_setting:
                    found.append(_Unit(str(kind), label, (setting, other_setting)))
            cuts = tuple(entry_of(s, e.cuts) for s, e in zip(pair, self.edits, strict=True))
            if cuts[0] != cuts[1]:
                found.append(_Unit("cuts", label, (cuts[0], cuts[1])))
        both = self.edits
        for name in sorted(set(both[0].repeat) ^ set(both[1].repeat)):
            found.append(_Unit("repeat", name, (name in both[0].repeat, name in both[1].repeat)))
        if both[0].order != both[1].order:
            found.append(_Unit("order", "", (both[0].order, both[1].order)))
        return found

    def mixed(self, units: Sequence[_Unit], count: int) -> PipelineEdit:
        """Return the second run's pipeline with the first ``count`` changes of the first run."""
        made = self.edits[1]
        for unit in units[:count]:
            made = _with(made, unit, unit.settings[0], self.edits[0])
        return made

    # -- the rewrite -----------------------------------------------------------------------------

    def narrow(
        self,
        found: Change,
        unit: _Unit,
        edits: tuple[PipelineEdit, PipelineEdit],
        ends: tuple[tuple[TrainingStep, Receipt], ...],
    ) -> Change:
        """Return which rewrite of the pass it is, if the change is the number of its rewrites."""
        if unit.kind not in ("skip", "limits", "insert"):
            return found
        counts = [_rewrites(step, unit.label) for step, _ in ends]
        more = 0 if counts[0] > counts[1] else 1
        stage = _stage(ends[more][0], unit.label)
        if stage is None or stage.step.pass_.mandatory:
            return found
        low, high = counts[1 - more], counts[more]
        edit, least = edits[more], ends[1 - more][1]
        total = high

        def same(count: int) -> bool:
            limited = replace(edit, limits={**edit.limits, _exact(unit.label): count})
            return _differ(self.outcome(limited)[1], least) is None

        if not same(low):  # it does more than its rewrites
            return found
        while high - low > 1:
            middle = (low + high) // 2
            self.report(f"{unit.label} with {middle} of {total} rewrites")
            if same(middle):
                low = middle
            else:
                high = middle
        rewrite = stage.rewrites[high - 1]
        op = _replaced(rewrite)
        return replace(
            found,
            number=high,
            total=len(stage.rewrites),
            rule=rewrite.rule,
            source=rewrite.source,
            op=_named(op, stage.before or stage.module),
            origin=source(op.origin) if op is not None else "",
        )


def _with(edit: PipelineEdit, unit: _Unit, setting: Any, source: PipelineEdit) -> PipelineEdit:
    """Return ``edit`` with one setting replaced by ``setting``.

    An inserted pass comes from ``source`` with all its settings there, and is removed with them.
    """
    name = _exact(unit.label)
    if unit.kind == "skip":
        skip = tuple(n for n in edit.skip if n != name)
        return replace(edit, skip=(*skip, name) if setting else skip)
    if unit.kind in ("limits", "options", "cuts"):
        rows = {n: v for n, v in getattr(edit, unit.kind).items() if n != name}
        changed: dict[str, Any] = {unit.kind: rows if setting is None else {**rows, name: setting}}
        return replace(edit, **changed)
    if unit.kind == "insert":
        key = _key(*(setting or unit.settings[1]))
        insert = tuple(row for row in edit.insert if _key(*row) != key)
        of = source if setting else PipelineEdit()
        return replace(
            edit,
            insert=(*insert, setting) if setting else insert,
            skip=_moved(edit.skip, of.skip, name),
            repeat=_moved(edit.repeat, of.repeat, name),
            limits=_moved_rows(edit.limits, of.limits, name),
            cuts=_moved_rows(edit.cuts, of.cuts, name),
            options=_moved_rows(edit.options, of.options, name),
        )
    if unit.kind == "repeat":
        repeat = tuple(n for n in edit.repeat if n != unit.label)
        return replace(edit, repeat=(*repeat, unit.label) if setting else repeat)
    return replace(edit, order=setting)


def _edit(run: Run) -> PipelineEdit:
    return run.edit or PipelineEdit()


def _moved(names: tuple[str, ...], of: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return ``names`` without ``name``, or with it if it is in ``of``."""
    return (*(n for n in names if n != name), *(n for n in of if n == name))


def _moved_rows(rows: Mapping[str, Any], of: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {n: v for n, v in rows.items() if n != name} | {n: of[n] for n in of if n == name}


def _with_unique_names(edit: PipelineEdit, steps: Mapping[str, Step]) -> PipelineEdit:
    """Return ``edit`` with a unique name for every pass."""
    options: dict[str, Mapping[str, str]] = {}
    once = [step for step in steps.values() if not split_label(step.label)[1]]
    for step in once:
        for name in (step.pass_.name(), _exact(step.label)):
            if name in edit.options:
                key = _exact(step.label)
                options[key] = {**options.get(key, {}), **edit.options[name]}
    return replace(
        edit,
        options=options,
        skip=tuple(_exact(s.label) for s in once if s.skipped),
        limits={_exact(s.label): s.limit for s in once if s.limit is not None},
        cuts={_exact(s.label): entry_of(s, edit.cuts) for s in once if entry_of(s, edit.cuts)},
    )


def _exact(label: str) -> str:
    """Return the name in an edit of this one pass."""
    return label if "#" in label else f"{label}#1"


def _options(step: Step) -> Mapping[str, str]:
    return {name: str(value) for name, value in step.pass_.options().items()}


def _key(position: int | str, pass_: Pass) -> tuple:
    """Return the identity of an inserted pass: position, class (for a text: its hash), options."""
    kind = type(pass_)
    options = tuple(sorted((n, str(v)) for n, v in pass_.options().items()))
    return position, kind.__module__, kind.__qualname__, options


def _label_of(row: tuple[int | str, Pass], edit: PipelineEdit, steps: Mapping[str, Step]) -> str:
    """Return the label of a pass that a pipeline inserts.

    Passes of one name are numbered in the edit's order.
    """
    same_name = [each for each in edit.insert if each[1].name() == row[1].name()]
    position = next(i for i, each in enumerate(same_name) if each[1] is row[1])
    own = [s for s in steps.values() if s.own and not split_label(s.label)[1]]
    labels = [s.label for s in own if s.pass_.name() == row[1].name()]
    return sorted(labels, key=lambda label: int(label.partition("#")[2] or 1))[position]


def _stage(step: TrainingStep, label: str) -> Any:
    """Return the stage that a pass made, or None if it did not run."""
    stages = step.compilation.stages
    return next((s for s in stages if s.step is not None and s.step.label == label), None)


def _rewrites(step: TrainingStep, label: str) -> int:
    stage = _stage(step, label)
    return 0 if stage is None else len(stage.rewrites)


def _replaced(rewrite: Rewrite) -> Op | None:
    """Return the op whose results a rewrite replaces, the last of its old ops."""
    made = [op for op in rewrite.old if any(v in rewrite.values for v in op.results)]
    return next(iter([*made[::-1], *rewrite.old, *rewrite.new]), None)


def _named(op: Op | None, before: Module) -> str:
    """Return ``core.conv#2``: the op's kind and its index among those of its kind before the pass.

    An op that the pass itself made has no number.
    """
    if op is None:
        return ""
    of_kind = [o for o in before.main.body.ops if o.kind == op.kind]
    return f"{op.kind}#{of_kind.index(op) + 1}" if op in of_kind else op.kind
