"""The compile: import, run the pipeline stage by stage, check, record, return an executable.

This is the session interface that the command line, notebooks and the page's worker share:
*compile, step, change the pipeline, rerun from a pass, execute, profile*.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from core_compiler import targets
from core_compiler.debug import declared, elementary, random_numbers, translations
from core_compiler.debug.deadline import Expired, deadline
from core_compiler.debug.divisions import certain
from core_compiler.driver.bound_call import BoundCall
from core_compiler.driver.families import Bound
from core_compiler.driver.legality import levels
from core_compiler.driver.other_sizes import OtherSizes
from core_compiler.driver.stage import Stage, module_figures
from core_compiler.driver.stage_checks import StageChecks
from core_compiler.hardware.prediction import Prediction
from core_compiler.ir import Module, Op, Rewrite
from core_compiler.ir.core import structure_key
from core_compiler.ir.events import (
    CheckRecord,
    Diagnostic,
    Log,
    Observer,
    Observers,
)
from core_compiler.ir.rewriter import Budget
from core_compiler.ir.verifier import verify
from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.numerics.contract import made_with
from core_compiler.numerics.jit import assert_no_flush_to_zero
from core_compiler.ops.positions import Positions
from core_compiler.passes.base import EXAMPLES, IMPORTED, PassContext, is_builtin, run_pass
from core_compiler.passes.quantize.insert_quantization import QUANTISED
from core_compiler.pipelines.edit_data import edit_facts
from core_compiler.pipelines.pipeline import (
    INITIAL_FACTS,
    LEVEL,
    LEVEL_FACTS,
    PipelineEdit,
    Step,
    build,
    check,
)
from core_compiler.runtime import heap
from core_compiler.runtime.budget import SECONDS, TimeBudget
from core_compiler.support.arrays import write_back
from core_compiler.support.errors import CANNOT_HERE, PassRaised, PassTimeout, UserError, raised_at
from core_compiler.training.config import Training

if TYPE_CHECKING:
    from core_compiler.debug.bisect import Finding
    from core_compiler.exporters.memory_map import MemoryMap
    from core_compiler.exporters.notebook import KernelText
    from core_compiler.frontends.base import Imported


#: The fact with what quantisation lost: an ``events.QuantisationRecord``.
LOSSES = "losses"


@dataclass(frozen=True)
class Options:
    """The options of a compile.

    ``check``    check every rewrite on real tensors (needs ``inputs``).
    ``verify``   run the verifier after every pass.
    ``threads``  number of threads to execute with; it changes no bit.
    ``target``   further options of the target, by name (tile sizes, vector width).
    ``pass_timeout``  time limit of a pass in seconds (None: no limit); a pass that exceeds it is
                 stopped with :class:`~core_compiler.support.errors.PassTimeout`.
    ``training`` for a training step: its loss, optimiser and so on.
    """

    check: bool = False
    verify: bool = True
    threads: int = 0
    edit: PipelineEdit = PipelineEdit()
    target: Mapping[str, Any] = field(default_factory=dict)
    pass_timeout: float | None = None
    training: Training | None = None


class Cancelled(Exception):
    """The user stopped a running compile."""


@dataclass(repr=False, eq=False)
class Compilation:
    """A compile in progress or done: stages, checks, and finally the executable.

    ``step()`` runs one pass; ``finish()`` runs the rest.  ``rerun(stage, edit)`` starts another
    compilation from a stage of this one with a changed pipeline; this one is not modified.
    """

    target: Any
    options: Options
    stages: list[Stage]
    steps: list[Step]
    inputs: Sequence[np.ndarray] | None = None
    observer: Observer = field(default_factory=Observer)
    checks: dict[int, list[CheckRecord]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    identity: str = ""
    accumulated: dict[int, float] = field(default_factory=dict)
    #: The first fault that checking found, with the responsible rewrite or kernel.
    finding: Finding | None = None
    cancelled: Callable[[], bool] = lambda: False
    #: The model's names of its inputs and outputs.
    names: tuple[Sequence[str], Sequence[str]] = ((), ())
    #: Maps the results of main to the model's own (those of data-dependent size are cut).
    trim: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]] = tuple
    #: Maps a caller's inputs to main's arguments (the trees of a JAX function are flattened).
    leaves: Callable[[Sequence], Sequence[np.ndarray]] = tuple
    #: The arguments whose next values are the last of the model's own results.
    written: tuple[int, ...] = ()
    #: Checks of main's arguments before a call.
    positions: Positions | None = None
    #: The description of this compile in recordings, and everything reported since.
    about: dict[str, Any] = field(default_factory=dict)
    log: Log = field(default_factory=Log)
    #: The model's state after the last call; see :meth:`keep`.
    state: list[np.ndarray] = field(default_factory=list)
    #: The programs for inputs of other sizes; None: they are refused.
    other_sizes: OtherSizes | None = None
    _own_bound: Bound | None = None
    _checks: StageChecks | None = None
    _position: int = 0
    #: A linked program and the predictions of its launches.
    _predicted: tuple[Any, Mapping[Op, Prediction]] | None = None

    def __post_init__(self) -> None:
        self.observer = Observers(self.log, self.observer)

    # -- stepping --------------------------------------------------------------------------------

    @property
    def module(self) -> Module:
        """The module of the last stage."""
        return self.stages[-1].module

    @property
    def level(self) -> str:
        """The level of the initial module."""
        return self.stages[0].module.main.level

    @property
    def next(self) -> Step | None:
        """The pass that the next step runs, or None if all are done."""
        return self.steps[self._position] if self._position < len(self.steps) else None

    def step(self) -> Stage:
        """Run the next pass, verify and check its result, and notify the observer."""
        step = self.next
        if step is None:
            raise UserError("every pass has run", "step", "rerun from an earlier stage")
        assert_no_flush_to_zero()  # passes fold constants, and check, with the reference
        self._stop_if_cancelled()
        if step.half == "implementation" and not self.identity:
            self._end_meaning()
        stage = self._run(step)
        self._position += 1
        self.stages.append(stage)
        self.observer.stage(stage.record())
        if self.options.check:
            self._check()
        return stage

    def finish(self) -> Compilation:
        """Run all remaining passes."""
        total = len(self.steps)
        while self.next is not None:
            self.observer.progress(self.next.label, self._position, total)
            self.step()
        if not self.identity:
            self._end_meaning()
        self.observer.progress("done", total, total)
        return self

    def rerun(self, stage: int, edit: PipelineEdit = PipelineEdit(), observer=None) -> Compilation:
        """Return a new compilation after stage ``stage`` with the rest of an edited pipeline.

        Finished stages do not change: an edit affects the passes that are still to run, and passes
        inserted before the last kept one do not run.
        """
        kept = self.stages[: stage + 1]
        steps = self._edited(stage, edit)
        fresh = Compilation(
            self.target,
            replace(self.options, edit=edit),
            list(kept),
            steps,
            self.inputs,
            observer or Observer(),
            facts=dict(kept[-1].facts),
            cancelled=self.cancelled,
        )
        fresh._position = stage
        if any(s.half == "implementation" for s in self.steps[:stage]):
            fresh.identity = self.identity
        fresh.checks = {i: r for i, r in self.checks.items() if i <= stage}
        fresh.accumulated = {i: e for i, e in self.accumulated.items() if i <= stage}
        fresh.take_over(self)
        fresh._announce()
        return fresh

    def take_over(self, old: Compilation) -> None:
        """Take over the model of ``old``: its names, inputs, outputs, and state."""
        self.names, self.about, self.positions = old.names, old.about, old.positions
        self.written = old.written
        self.leaves = old.leaves
        self.trim = old.trim if self.level == "tensor" else self._trim_results
        self._own_bound = None
        if old.other_sizes is not None:
            self.other_sizes = old.other_sizes.of(self)
        if old.state:
            self.keep(old.state)

    def _trim_results(self, results: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Return the results of a graph; data-dependent sizes are known once it is imported."""
        return self.facts[IMPORTED].trimmed(results)

    def change(self, edit: PipelineEdit) -> None:
        """Continue with the rest of an edited pipeline; finished stages do not change.

        Raises UserError and changes nothing if the edit is invalid.
        """
        steps = self._edited(self._position, edit)
        self.options, self.steps = replace(self.options, edit=edit), steps

    def _edited(self, stage: int, edit: PipelineEdit) -> list[Step]:
        """Return the steps up to ``stage`` and those of the edited pipeline after it, checked."""
        steps = [*self.steps[:stage], *self._remaining(stage, edit)]
        begins = LEVEL_FACTS.get(self.level, INITIAL_FACTS)
        check(steps, self.options.target.get(LEVEL, "everywhere"), begins)
        return steps

    def _remaining(self, stage: int, edit: PipelineEdit) -> list[Step]:
        """Return the passes of the edited pipeline that have not run by ``stage``, in order."""
        steps = build(self.target, self.options.target, edit, self.level, self.options.training)
        done = {s.label for s in self.steps[:stage]}
        planned = {s.label for s in self.steps}
        start = 1 + max((i for i, s in enumerate(steps) if s.label in done), default=-1)
        moved = [s for s in steps[:start] if s.label in planned - done]
        return [*moved, *steps[start:]]

    # -- results -----------------------------------------------------------------------------------

    def edited(self) -> dict[str, Any]:
        """Return the changes to the pipeline, as plain data."""
        return edit_facts(self.options.edit)

    @property
    def executable(self):
        """The program bound to the target's device; UserError if this machine cannot execute it."""
        if "executable" not in self.facts:
            if (missing := self.not_executed) is not None:
                raise self._cannot_execute(missing)
            self.facts["executable"] = self.load()
        return self.facts["executable"]

    @property
    def not_executed(self) -> str | None:
        """The reason that the program cannot be executed alone on this machine, or None."""
        training = self.options.training
        if training is not None and training.shards > 1:
            return "the shards of a training step run together"
        return self.target.available()

    def load(self):
        """Bind the program again, with its own memory; UserError if this machine cannot execute."""
        self.finish()
        missing = self.target.available()
        if missing:
            raise self._cannot_execute(missing)
        return self.target.load(self.module, self.facts, threads=self.options.threads)

    def _cannot_execute(self, missing: str) -> UserError:
        fix = "choose -t cpu" if self.target.available() else "train it: step(*batch)"
        return UserError(missing, f"target {self.target.name}", fix, CANNOT_HERE)

    def __call__(self, *arrays):
        """Execute the program and return the model's own results as a tuple of NumPy arrays.

        The inputs are NumPy arrays (for a JAX function, its own arguments).  Inputs of other sizes
        than the example's are computed by a program for those, if the model can be imported for
        them (see :attr:`other_sizes`).  An input that the model writes is updated in place if the
        caller's array can be.  Raises UserError for a position out of range if the model's
        framework rejects it.
        """
        self.module.weights.check()
        given = self._with_state(arrays)
        bound = self._bound_to(arrays, given)
        if bound.positions is not None:
            bound.positions.check(given)
        return self._own_results(arrays, bound.trim(bound.executable(*given, *bound.sizes)))

    def bind(self, *arrays) -> BoundCall:
        """Return a call with these inputs, checked once: a callable without arguments.

        It reads the inputs in place, so write the next contents into them, and returns the same
        arrays each time, overwritten; see :class:`~core_compiler.driver.bound_call.BoundCall`.
        """
        return BoundCall(self, arrays)

    def _own_results(self, arrays: Sequence, results: Sequence[np.ndarray]) -> tuple:
        """Return the model's own results; keep its next state, update the inputs it writes."""
        results = tuple(results)
        if self.state:
            own = len(results) - len(self.state)
            self.state = [np.array(array) for array in results[own:]]
            results = results[:own]
        own = len(results) - len(self.written)
        for argument, array in zip(self.written, results[own:], strict=True):
            write_back(arrays[argument], array)
        return results[:own]

    def _with_state(self, arrays: Sequence) -> tuple[np.ndarray, ...]:
        """Return main's arguments: a caller's inputs, then the model's state."""
        given = tuple(self.leaves(arrays))
        if not self.state or len(given) == len(self.stages[0].module.main.arguments):
            return given
        return (*given, *self.state)

    def _bound_to(self, arrays: Sequence, given: Sequence[np.ndarray]) -> Bound:
        """Return the program for the sizes of the inputs."""
        own = self._own_bound
        if own is None or own.executable is not self.facts.get("executable"):
            graph = self.facts.get(IMPORTED)
            checks = self.positions if graph is None else graph.positions
            own = self._own_bound = Bound(self.executable, self.trim, checks)
        inputs = own.executable.program.inputs
        if self.other_sizes is not None and len(given) == len(inputs):
            for argument, array in zip(inputs, given, strict=True):
                shape = array.shape if hasattr(array, "shape") else np.shape(array)
                if argument.shape != shape:
                    return self.other_sizes.bind(arrays, given)
        return own

    def bind_import(self, imported: Imported) -> None:
        """Take over the names, state and results of ``imported`` (before a pass runs)."""
        self.set_names(imported.inputs, imported.outputs)
        if self.level == "tensor":
            self.trim, self.positions = imported.trimmed, imported.positions
            self.written = tuple(imported.facts.get("written", ()))
        if imported.state:
            self.keep(imported.state)
        self.check_import(imported)

    def check_import(self, imported: Imported) -> None:
        """Report the faults of the translations of ``imported``, if this compile checks.

        ``imported`` is its initial module or the source of that (before a pass runs).
        """
        found = translations.checks(imported.facts, self.module) if self.options.check else ()
        if found:
            self.checks[0] = found
            self.observer.check(0, found)

    def set_names(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Set the model's names of its inputs and outputs (before a pass runs)."""
        self.names = inputs, outputs
        self.stages[0] = replace(self.stages[0], names=self._named(self.stages[0].module))

    def keep(self, state: Sequence[np.ndarray]) -> None:
        """Keep the model's state between calls.

        Its first values are ``state``, the last arguments of main; a call takes and returns the
        model's own inputs and outputs, and stores the next state.
        """
        self.state = [np.array(array) for array in state]

    def profile(self, *arrays, repeats: int = 10, seconds: float = SECONDS):
        """Execute on ``arrays`` (default: the example inputs) and time every launch.

        Repeats ``repeats`` times, fewer if that takes more than ``seconds``.  Returns a
        :class:`~core_compiler.runtime.profiler.Profile`; both are reported to the observer.
        """
        from core_compiler.driver.kernel_records import timing_records
        from core_compiler.numerics.reference.digest import digest
        from core_compiler.runtime import profiler

        given = self._with_state(arrays) if arrays else self.inputs
        if given is None:
            raise UserError("missing inputs", "profile", "pass the inputs")
        self.observer.progress("execute", 0, 0)
        first = [np.array(each) for each in given] if self.written else given
        made = digest(self(*first))
        self.observer.figures({"digest": made, "not_executed": ""})
        on_repeat = partial(self.observer.progress, "time the kernels")
        budget = TimeBudget(seconds, on_repeat)
        found = profiler.profile(self.executable, given, repeats=repeats, budget=budget)
        records, figures = timing_records(found, self.facts["program"][2])
        self.observer.timings(
            records, {**figures, "seconds": seconds, "digest": made, "machine": self._machine()}
        )
        return found

    def _machine(self) -> str:
        """Return the name of the target's machine, or "" if it has no description."""
        with suppress(NotImplementedError):
            return str(self.target.machine.name)
        return ""

    @property
    def predicted(self) -> Mapping[Op, Prediction]:
        """Return the predicted time of each launch op; {} before linking or without a model."""
        program = self.facts.get("program")
        if program is None:
            return {}
        if self._predicted is None or self._predicted[0] is not program:
            made = self.target.predict(self.module, self.facts, self.options.target)
            self._predicted = program, made
        return self._predicted[1]

    def record(self, path: str | Path, weights: bool = False) -> Path:
        """Write everything so far to the recording ``path`` (a ``.run``).

        With ``weights`` also the model's weights, into the folder ``path``.weights: whoever has
        both can execute it without the model.
        """
        from core_compiler.record import weight_files
        from core_compiler.record.recorder import Recorder

        with Recorder(path) as recorder:
            self.report(recorder)
        if weights:
            weight_files.write(path, self.stages[0].module)
        return Path(path)

    def report(self, observer: Observer, **more: Any) -> None:
        """Report everything so far to ``observer``.

        ``more`` is added to the recording's description of the compile.
        """
        from core_compiler.driver.kernel_records import report

        self._begin(observer, more)
        report(self, observer)

    def finish_and_report(self, observer: Observer, **more: Any) -> None:
        """Finish and report everything to ``observer``: finished stages first, then the rest live.

        ``more`` as for :meth:`report`.
        """
        from core_compiler.driver.kernel_records import report

        self._begin(observer, more)
        before, self.observer = self.observer, Observers(self.observer, observer)
        try:
            self.finish()
        finally:
            self.observer = before
        report(self, observer)

    def _begin(self, observer: Observer, more: Mapping[str, Any]) -> None:
        self.module.weights.check()
        how = self.options
        observer.begin(
            {
                **made_with(),
                **self.about,
                "edit": edit_facts(how.edit),
                "target_options": dict(how.target),
                "target_defaults": dict(self.target.defaults),
                "pass_timeout": how.pass_timeout,
                **more,
            }
        )
        self.log.replay(observer)

    # -- in a notebook -----------------------------------------------------------------------------

    def show(self, view: str | None = None, *, other: Any = None) -> Any:
        """Return live widgets: the whole workbench, or one ``view``.

        ``other`` is a compilation or recording to show beside it; see
        `core_compiler.driver.show.show`.
        """
        from core_compiler.driver.show import show

        return show(self, view, other=other)

    @property
    def kernels(self) -> dict[str, KernelText]:
        """Return the text of the compiled kernels by name; {} before code generation."""
        from core_compiler.driver.kernel_records import kernel_records
        from core_compiler.exporters.notebook import KernelText

        found = kernel_records(self.module, self.facts) if "compiled" in self.facts else ()
        return {
            k.name: KernelText(k.name, k.source, k.intermediate, k.assembly, k.facts) for k in found
        }

    @property
    def memory(self) -> MemoryMap | None:
        """Return the planned arena, drawn in a notebook; None before planning."""
        from core_compiler.driver.kernel_records import memory_map

        return memory_map(self.facts) if "plan" in self.facts else None

    @override
    def __repr__(self) -> str:
        return self._stage_table()[0]

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, str]:
        from core_compiler.ir.markup import bundle

        return bundle(*self._stage_table())

    def _stage_table(self) -> tuple[str, str]:
        """Return the stages as a table, in text and HTML."""
        from core_compiler.exporters.notebook import table

        rows = []
        for stage in self.stages:
            verdicts = [r.verdict for r in self.checks.get(stage.index, ())]
            check_summary = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
            ops = int(stage.figures.get("ops", 0))
            spent = f"{1e3 * stage.seconds:.1f}"
            rows.append((stage.index, stage.name, ops, len(stage.rewrites), spent, check_summary))
        remaining = len(self.steps) - self._position
        title = f"compiled for {self.target.name}" if not remaining else f"{remaining} passes to go"
        if self.identity:
            title += f", identity {self.identity[:16]}"
        headers = ("stage", "pass", "ops", "rewrites", "ms", "checks")
        return table(headers, rows, title, (0, 2, 3, 4))

    # -- details -----------------------------------------------------------------------------------

    def _announce(self) -> None:
        for callback in _WATCHING:
            callback(self)
        for stage in self.stages:
            self.observer.stage(stage.record())
            if stage.index in self.checks:
                self.observer.check(stage.index, self.checks[stage.index])
        for at, error in self.accumulated.items():
            self.observer.figures({f"accumulated_error/{at}": error})
        if self.identity:
            self.observer.figures({"identity": self.identity})
            self._announce_losses()

    def peek(self) -> Sequence[Rewrite]:
        """Return the rewrites that the next pass is going to make, without side effects.

        If the pass raises, these are the rewrites before the exception.
        """
        if self.next is None:
            return ()
        context = self._context(self.next, dict(self.facts))
        context.progress = lambda *_: self._stop_if_cancelled()
        with suppress(Exception):  # it is raised when the pass is run
            self._run_pass(self.next, self.module, context)
        return context.rewrites

    def _context(self, step: Step, facts: dict[str, Any]) -> PassContext:
        return PassContext(
            target=self.target,
            budget=Budget(step.limit),
            facts=facts,
            options=self.options.target,
            progress=lambda what, done, total: self._report_progress(what, done, total),
        )

    def _run(self, step: Step) -> Stage:
        context = self._context(step, self.facts)
        before = self.module
        started = time.perf_counter()
        module = self._run_pass(step, before, context)
        seconds = time.perf_counter() - started
        if not isinstance(module, Module):
            raise UserError(
                f"pass {step.label} returned {type(module).__name__}, expected a module",
                step.label,
                "return the module (the same object if nothing changed)",
            )
        found = list(context.notes)
        if self.options.verify and module is not before:
            found += verify(module, levels(self.target))
        errors = [d for d in found if d.severity == "error"]
        figures = {} if errors else module_figures(module)  # an invalid module has no figures
        figures["changed"] = float(module is not before)
        names = ((), ()) if errors else self._named(module)
        stage = Stage(
            len(self.stages),
            step.label,
            module,
            step,
            tuple(context.rewrites),
            seconds,
            tuple(found),
            figures,
            before,
            names,
            dict(self.facts),
        )
        if errors:
            self.observer.stage(stage.record())
            raise InvalidModule(step.label, errors)
        return stage

    def _named(self, module: Module) -> tuple[Sequence[str], Sequence[str]]:
        """Return the model's names if they fit the module's arguments and results."""
        inputs, outputs = self.names
        main = module.main
        return (
            inputs if len(inputs) == len(main.arguments) else (),
            outputs if len(outputs) == len(main.outputs) else (),
        )

    def _run_pass(self, step: Step, before: Module, context: PassContext) -> Module:
        """Return the result of the pass.

        Raises PassRaised if a pass that is not ours raises, PassTimeout if it exceeds its time
        limit. Exceptions of our own passes are our bugs and are not wrapped.
        """
        try:
            with deadline(self.options.pass_timeout):
                return run_pass(step.pass_, before, context)
        except Expired as stopped:
            seconds = self.options.pass_timeout or 0.0
            raise PassTimeout(step.label, seconds, stopped) from None
        except (UserError, Cancelled, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            if self.options.check and isinstance(error, Exception):
                raise self._check_failure(step, error) from error
            if is_builtin(step.pass_):
                error.add_note(f"(raised in pass {step.label})")
                raise
            raise PassRaised(step.label, error) from error

    def _check_failure(self, step: Step, error: Exception) -> CheckFailed:
        """Return the error for a pass that raised, after which checking ends."""
        from core_compiler.debug.bisect import raised_by

        if self.finding is None:
            raised = error if is_builtin(step.pass_) else PassRaised(step.label, error)
            self.finding = raised_by(self, step, raised)
        return CheckFailed(self.finding, step.label, error)

    def _report_progress(self, what: str, done: int, total: int) -> None:
        self.observer.progress(what, done, total)
        self._stop_if_cancelled()

    def _stop_if_cancelled(self) -> None:
        if self.cancelled():
            raise Cancelled

    def _end_meaning(self) -> None:
        """Report what the passes so far determine: the identity, what quantisation lost."""
        self._set_identity()
        if QUANTISED in self.facts:
            from core_compiler.driver.quantization_report import measured

            self.facts[LOSSES] = measured(self)
        self._announce_losses()

    def _announce_losses(self) -> None:
        if self.facts.get(LOSSES) is not None:
            self.observer.quantisation(self.facts[LOSSES])
            self.observer.tensors(self.facts[LOSSES].statistics)

    def _set_identity(self) -> None:
        digest = hashlib.sha256(f"contract {CONTRACT_VERSION}:".encode())
        digest.update(structure_key(self.module).encode())
        self.identity = digest.hexdigest()
        self.observer.figures({"identity": self.identity})

    def _check(self) -> None:
        """Check the newest stage."""
        if self.inputs is None:
            raise UserError("missing example inputs", "check", "pass example inputs")
        if self._checks is None:
            self._checks = StageChecks(self, self.inputs)
        at = self.stages[-1].index
        self.checks[at], error = self._checks.newest()
        self.observer.check(at, self.checks[at])
        if error is not None:
            self.accumulated[at] = error
            self.observer.figures({f"accumulated_error/{at}": error})
        if self.next is None:
            self._check_contract()
            # Nothing is left to check, and the values of stages can be gigabytes.
            self._checks = None
            heap.trim()

    def _check_contract(self) -> None:
        """Check what no stage can show: code that kernels and rules share with the reference."""
        imported = self.stages[0].module
        found = [
            *elementary.checks(self.module, imported),
            *random_numbers.checks(imported, self.options.training is not None),
            *declared.checks(imported, [self.module]),
        ]
        if found:
            self.checks[0] = [*self.checks.get(0, ()), *found]
            self.observer.check(0, found)


class CheckFailed(UserError):
    """A pass of a checked compile raised, by its own fault or that of the pass in ``finding``."""

    def __init__(self, finding: Finding, label: str, error: Exception):
        self.finding = finding
        if finding.pass_label == label:
            what = f"the pass raised {raised_at(error)}"
        else:
            what = f"{finding.note}; pass {label} then raised {raised_at(error)}"
        super().__init__(
            what,
            f"pass {finding.pass_label}",
            "the stages before it are kept; run `workbench "
            "reduce` for a small program that reproduces it",
            1,
        )

    @override
    def __reduce__(self):
        return UserError, (self.what, self.where, self.fix, self.exit_code)


class InvalidModule(UserError):
    """A pass returned a module that the verifier rejects."""

    def __init__(self, label: str, errors: Sequence[Diagnostic]):
        self.errors = tuple(errors)
        shown = "; ".join(str(e) for e in errors[:3])
        more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
        super().__init__(
            f"the module after {label} is invalid: {shown}{more}",
            f"pass {label}",
            "the stages before it are kept; skip the pass or fix it",
        )

    @override
    def __reduce__(self):
        return UserError, (self.what, self.where, self.fix, self.exit_code)


#: Callbacks for compilations that begin.
_WATCHING: list[Callable[[Compilation], None]] = []


@contextmanager
def watched(callback: Callable[[Compilation], None]) -> Iterator[None]:
    """Call ``callback`` in this context with every compilation of this process that begins.

    It is called before the first pass, for :func:`start` and ``rerun``.
    """
    _WATCHING.append(callback)
    try:
        yield
    finally:
        _WATCHING.remove(callback)


def start(
    module: Module,
    target: str | Any = "cpu",
    options: Options = Options(),
    inputs: Sequence[np.ndarray] | None = None,
    observer: Observer | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Compilation:
    """Return a compilation at stage 0, ready to step; the module is verified first.

    Also raises UserError on a thread that flushes subnormal numbers to zero.
    """
    assert_no_flush_to_zero()
    chosen = targets.target(target) if isinstance(target, str) else target
    errors = [d for d in verify(module, levels()) if d.severity == "error"]
    if errors:
        raise InvalidModule("import", errors)
    facts = {} if inputs is None else {EXAMPLES: tuple(inputs)}
    stage = Stage(
        0,
        "import",
        module,
        diagnostics=certain(module),
        figures=module_figures(module),
        facts=facts,
    )
    steps = build(chosen, options.target, options.edit, module.main.level, options.training)
    made = Compilation(
        chosen,
        options,
        [stage],
        steps,
        inputs,
        observer or Observer(),
        facts=dict(facts),
        cancelled=cancelled,
    )
    if made.level != "tensor":
        made.trim = made._trim_results
    made._announce()
    return made
