"""The named pipelines, which are straight lists of passes, and the user's edits of them.

There are two halves.  The *meaning* half is one list for all targets; values may change there, and
its result is the numerics identity.  The *implementation* half belongs to the target and keeps
bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core_compiler.passes.base import Pass, with_options
from core_compiler.passes.canonicalise import Canonicalise
from core_compiler.passes.decompose import Decompose
from core_compiler.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.fold_batch_norm import FoldBatchNorm
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.quantize.correct_bias import CorrectBias
from core_compiler.passes.quantize.equalise_layers import EqualiseLayers
from core_compiler.passes.quantize.hide_scores import HideScores
from core_compiler.passes.quantize.insert_quantization import InsertQuantization
from core_compiler.passes.quantize.integerize import Integerize
from core_compiler.passes.quantize.measure_sensitivity import MeasureSensitivity
from core_compiler.passes.quantize.observe import Observe
from core_compiler.passes.quantize.smooth_activations import SmoothActivations
from core_compiler.passes.quantize.widen_floats import WidenFloats
from core_compiler.passes.recompose import Recompose
from core_compiler.passes.rematerialise import Rematerialise
from core_compiler.passes.round_correctly import RoundCorrectly
from core_compiler.passes.saturation import Saturate
from core_compiler.passes.simplify_loops import SimplifyLoops
from core_compiler.passes.simplify_shapes import SimplifyShapes
from core_compiler.passes.widen_sums import WidenSums
from core_compiler.support.errors import UserError, nearest
from core_compiler.training.config import Training
from core_compiler.training.passes import lowered
from core_compiler.training.passes import pipeline as training_passes
from core_compiler.training.passes.recompute import Recompute


def meaning(training: Training | None = None) -> tuple[Pass, ...]:
    """Return the meaning half, which is the same for every target.

    For a training step it includes the training passes, placed after the composites are known whose
    gradients are shorter than those of their parts.
    """
    return (
        EliminateDeadCode(),
        Canonicalise(),
        FoldConstants(),
        SimplifyShapes(),
        EliminateCommonSubexpressions(),
        SimplifyLoops(),
        *((Decompose(), Recompose()) if training is None else _before_gradients()),
        *(() if training is None else training_passes(training)),
        FoldBatchNorm(),
        FoldConstants(),
        SimplifyShapes(),
        Canonicalise(),
        EliminateCommonSubexpressions(),
        EliminateDeadCode(),
    )


def _before_gradients() -> tuple[Pass, ...]:
    """Return the passes before differentiation.

    They keep composites whose own gradient is finite where that of their parts is not, and change
    no subgradient.
    """
    return Decompose(kinds="linear,logsumexp,softmin"), Recompose(kinks=False)


#: Our passes that the user can insert, by name: they are in no default pipeline, except
#: ``recompute``, which is in that of a training step if requested.
OPTIONAL: Mapping[str, Pass] = {
    pass_.name(): pass_
    for pass_ in (
        Saturate(),
        RoundCorrectly(),
        WidenSums(),
        WidenFloats(),
        HideScores(),
        EqualiseLayers(),
        SmoothActivations(),
        Observe(),
        MeasureSensitivity(),
        InsertQuantization(),
        CorrectBias(),
        Integerize(),
        Rematerialise(),
        Recompute(),
    )
}


@dataclass(frozen=True)
class PipelineEdit:
    """The user's changes to a pipeline.

    ``fold_constants`` names every pass of that name, ``fold_constants#1`` the first of them,
    ``fold_constants#2`` the second; in ``order`` and in positions, which name one pass, it is the
    first.

    ``skip``    names of passes left out.
    ``options`` pass name -> {option: text}.
    ``limits``  pass name -> number of rewrites after which the pass stops.
    ``insert``  (place, pass) pairs; a pass is an object, so a notebook cell's own class will do.  A
                place is ``after:LABEL`` or ``before:LABEL``, or a position in the edited list.
    ``order``   passes that exchange their positions so that they come in this order; all others
                stay where they are, and each pass stays in its half.
    ``repeat``  names of passes run twice in a row (the second time as ``LABEL+``).
    ``cuts``    pass name -> numbers of rewrites: it runs in parts, one of so many rewrites for
                each, then the rest (``LABEL``, ``LABEL+``, ``LABEL+2``...).
    """

    skip: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    insert: tuple[tuple[int | str, Pass], ...] = ()
    order: tuple[str, ...] = ()
    repeat: tuple[str, ...] = ()
    cuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def labels(passes: Sequence[Pass]) -> list[str]:
    """Return unique names: a pass's name, with ``#2``, ``#3`` for its later occurrences."""
    out: list[str] = []
    for pass_ in passes:
        out.append(_label(pass_, out))
    return out


def _label(pass_: Pass, taken: Sequence[str]) -> str:
    name = pass_.name()
    count = 1 + sum(t.partition("#")[0] == name for t in taken)
    return name if count == 1 else f"{name}#{count}"


def label_of_run(label: str, times: int) -> str:
    """Return the label of a pass that has already run ``times`` times."""
    return label + (_MORE if times else "") + (str(times) if times > 1 else "")


def split_label(label: str) -> tuple[str, int]:
    """Return the label of a pass's first run, and the number of runs before ``label``."""
    first, more, times = label.partition(_MORE)
    return first, int(times or 1) if more else 0


@dataclass(frozen=True)
class Step:
    """A pass in a pipeline, with its unique ``label`` and an optional limit of rewrites.

    ``half``: its position (exact passes of the meaning half are also useful after it).
    ``skipped``: it has a position and does not run; ``own``: the user inserted it.
    """

    label: str
    pass_: Pass
    limit: int | None = None
    half: str = ""
    skipped: bool = False
    own: bool = False

    def __post_init__(self):
        if not self.half:
            object.__setattr__(self, "half", self.pass_.half)


#: Precedes the number in the label of a pass that has run before (a part or a repetition).
_MORE = "+"
#: Maximum number of parts of a pass.
MAX_PARTS = 10_000
#: The option that every target has: the level of reproducibility (``docs/numerics.md``).
LEVEL = "level"
LEVELS = ("everywhere", "run_to_run", "not_guaranteed")
#: The halves in order; the first exists only for a model in its frontend's own ops.
HALVES = ("source", "meaning", "implementation")
#: The facts that hold for the initial module of a pipeline; see ``Pass.requires``.
INITIAL_FACTS = ("tensor_ops", "values")
#: The facts that hold for a module in its frontend's own ops, by level.
LEVEL_FACTS = {"onnx": ("onnx_nodes", "values")}


#: Frontends that return a model in its own ops -> its level.
LEVELS_OF = {"onnx-passes": "onnx"}


def level_of(frontend: str | None) -> str:
    """Return the level of the modules that a frontend returns, by its name."""
    return LEVELS_OF.get(frontend or "", "tensor")


def source(level: str) -> tuple[Pass, ...]:
    """Return the passes from a frontend's own level to tensor ops; () for other levels."""
    if level == "onnx":
        from core_compiler.onnx_level.passes import pipeline  # onnx is imported on first use

        return pipeline()
    return ()


def build(
    target: Any,
    options: Mapping[str, Any],
    edit: PipelineEdit = PipelineEdit(),
    level: str = "tensor",
    training: Training | None = None,
) -> list[Step]:
    """Return the pipeline from ``level`` for ``target`` after ``edit``.

    Raises UserError with the error of the edit.
    """
    steps = [s for s in arrange(target, options, edit, level, training) if not s.skipped]
    check(steps, options.get(LEVEL, "everywhere"), LEVEL_FACTS.get(level, INITIAL_FACTS))
    return steps


def arrange(
    target: Any,
    options: Mapping[str, Any],
    edit: PipelineEdit = PipelineEdit(),
    level: str = "tensor",
    training: Training | None = None,
) -> list[Step]:
    """Return the edited pipeline with its skipped passes in position, not checked as a whole.

    Raises UserError for errors that do not depend on other passes: unknown names, places, options.
    """
    allowed = [LEVEL, *target.options]
    for name in options:
        if name not in allowed:
            fix = nearest(name, allowed, f"choose one of {', '.join(allowed)}")
            raise UserError(f"unknown option {name!r} for target {target.name}", "options", fix)
    if options.get(LEVEL, LEVELS[0]) not in LEVELS:
        fix = f"choose one of {', '.join(LEVELS)}"
        raise UserError(f"unknown level {str(options[LEVEL])!r}", f"option {LEVEL}", fix)
    passes_of = tuple(target.pipeline(options))
    implementation = passes_of if training is None else lowered(passes_of, training)
    parts = (source(level), meaning(training), implementation)
    halves = [half for half, part in zip(HALVES, parts, strict=True) for _ in part]
    passes = [pass_ for part in parts for pass_ in part]
    steps = [
        Step(label, pass_, half=half)
        for label, pass_, half in zip(labels(passes), passes, halves, strict=True)
    ]
    known = [step.label for step in steps]
    own = []
    for _, pass_ in edit.insert:
        own.append(Step(_label(pass_, known), pass_, own=True))
        known.append(own[-1].label)
    _check_names(edit, steps, own)
    steps = [made for step in _ordered(steps, edit.order) for made in _edited(step, edit)]
    for (place, _), step in zip(edit.insert, own, strict=True):
        at = _insertion_index(place, steps)
        halves_there = {s.half for s in steps[max(0, at - 1) : at + 1]}
        half = halves_there.pop() if len(halves_there) == 1 else step.half
        steps[at:at] = _edited(replace(step, half=half), edit)
    return steps


def _check_names(edit: PipelineEdit, steps: Sequence[Step], own: Sequence[Step]) -> None:
    names = {name for step in (*steps, *own) for name in _names(step)}
    for name in (*edit.skip, *edit.options, *edit.limits, *edit.repeat, *edit.cuts):
        if name not in names:
            raise _unknown(name, (*steps, *own), "pipeline")
    for name, limit in edit.limits.items():
        if limit < 0:
            raise UserError(
                f"expected 0 or more rewrites, got {limit}", f"limit of {name}", "pass 0 or more"
            )
    for name, cuts in edit.cuts.items():
        if not all(count > 0 for count in cuts):
            wrong = next(count for count in cuts if count <= 0)
            raise UserError(
                f"expected 1 or more rewrites, got {wrong}", f"a cut of {name}", "pass 1 or more"
            )


def _names(step: Step) -> tuple[str, str]:
    """Return the names of ``step``: the one that others may share, and its unique one."""
    name = step.pass_.name()
    return name, f"{name}#1" if step.label == name else step.label


def _unknown(name: str, steps: Sequence[Step], where: str) -> UserError:
    known = [step.label for step in steps]
    fix = nearest(name, known, f"choose one of {', '.join(known)}")
    return UserError(f"unknown pass {name!r}", where, fix)


def _find(name: str, steps: Sequence[Step], where: str) -> int:
    """Return the index in ``steps`` of the one pass that ``name`` refers to."""
    label = name.removesuffix("#1")
    found = next((i for i, step in enumerate(steps) if step.label == label), None)
    if found is None:
        raise _unknown(name, steps, where)
    return found


def _ordered(steps: list[Step], order: Sequence[str]) -> list[Step]:
    """Return ``steps`` with those named in ``order`` permuted among their positions."""
    wanted = [steps[_find(name, steps, "order")] for name in order]
    for name, step in zip(order, wanted, strict=True):
        if wanted.count(step) > 1:
            raise UserError(f"{name} is listed twice", "order", "list each pass once")
    queues = {half: iter([s for s in wanted if s.half == half]) for half in HALVES}
    return [next(queues[s.half]) if s in wanted else s for s in steps]


def entry_of(step: Step, rows: Mapping[str, Any]) -> Any:
    """Return the entry of ``step`` in a part of an edit, by its unique or shared name, or None."""
    return next((rows[name] for name in reversed(_names(step)) if name in rows), None)


def _edited(step: Step, edit: PipelineEdit) -> list[Step]:
    """Return ``step`` with its options and limit, skipped, in parts or repeated, per ``edit``."""
    both = _names(step)
    pass_ = step.pass_
    for name in both:
        if name in edit.options:
            pass_ = with_options(pass_, edit.options[name])
    limit: int | None = entry_of(step, edit.limits)
    cuts: tuple[int, ...] = entry_of(step, edit.cuts) or ()
    parts = _parts(limit, cuts)
    if parts[0] is not None and pass_.mandatory:
        raise UserError(
            f"mandatory pass {step.label} cannot stop after {parts[0]} rewrites",
            "pipeline",
            "run all of it",
        )
    skipped = any(name in edit.skip for name in both)
    if skipped and pass_.mandatory:
        raise UserError(f"mandatory pass {step.label} cannot be skipped", "pipeline", "keep it")
    if any(name in edit.repeat for name in both):
        parts.append(limit)
    return [
        replace(step, label=label_of_run(step.label, i), pass_=pass_, limit=part, skipped=skipped)
        for i, part in enumerate(parts)
    ]


def _parts(limit: int | None, cuts: Sequence[int]) -> list[int | None]:
    """Return the limits of the parts of a pass that makes up to ``limit`` rewrites in total."""
    made: list[int | None] = []
    for size in cuts:
        if limit == 0:
            break
        part = size if limit is None else min(size, limit)
        made.append(part)
        limit = None if limit is None else limit - part
    return made if made and limit == 0 else [*made, limit]


def split_step(edit: PipelineEdit, step: Step, count: int) -> PipelineEdit:
    """Return ``edit`` with ``step`` limited to ``count`` rewrites and the rest in a part after it.

    Raises UserError if it is the repetition of a pass or has too many parts.
    """
    name, cuts, part = _part(edit, step)
    if len(cuts) >= MAX_PARTS:
        raise UserError(
            f"{step.label} already has the maximum of {len(cuts):,} parts",
            "pipeline",
            "run the rest of it",
        )
    left = cuts[part] - count if part < len(cuts) else 0
    made = (*cuts[:part], count, *((left,) if left > 0 else ()), *cuts[part + 1 :])
    return replace(edit, cuts={**edit.cuts, name: made})


def without_step(edit: PipelineEdit, step: Step) -> PipelineEdit:
    """Return ``edit`` without ``step``; for a pass in parts, without the parts from there on.

    Raises UserError if it is the repetition of a pass.
    """
    name, cuts, part = _part(edit, step)
    if not part:
        return replace(edit, skip=(*edit.skip, name))
    done = cuts[:part]
    return replace(edit, cuts={**edit.cuts, name: done}, limits={**edit.limits, name: sum(done)})


def _part(edit: PipelineEdit, step: Step) -> tuple[str, tuple[int, ...], int]:
    """Return the unique name of the pass that ``step`` is a part of, its cuts, and the part."""
    label, part = split_label(step.label)
    first = replace(step, label=label)
    cuts: tuple[int, ...] = entry_of(first, edit.cuts) or ()
    if part > len(cuts):
        raise UserError(
            f"{step.label} repeats {label} and cannot run in parts", "pipeline", "run it as a whole"
        )
    return _names(first)[1], cuts, part


def _insertion_index(place: int | str, steps: Sequence[Step]) -> int:
    """Return the index in ``steps`` for an inserted pass; passes at one place keep their order."""
    if isinstance(place, int):
        live = [i for i, step in enumerate(steps) if not step.skipped]
        within = range(*slice(place, None).indices(len(live)))
        return live[within.start] if within else len(steps)
    side, _, label = place.partition(":")
    if side not in ("after", "before"):
        fix = "use after:PASS, before:PASS or an index"
        raise UserError(f"invalid position {place!r}", "insert", fix)
    at = _find(label, steps, "insert")
    if side == "before":
        return at
    first = steps[at].label
    at += 1
    while at < len(steps) and (steps[at].own or split_label(steps[at].label)[0] == first):
        at += 1
    return at


def check(
    steps: Sequence[Step], level: str = "everywhere", holds: Sequence[str] = INITIAL_FACTS
) -> None:
    """Raise UserError if a pipeline violates the rules of the halves or a pass's requirements.

    ``holds``: the facts that hold at its beginning.
    """
    facts: dict[str, str] = dict.fromkeys(holds, "")
    ended: dict[str, str] = {}
    first: Step | None = None
    for step in steps:
        pass_ = step.pass_
        if pass_.half == "implementation":
            first = first or step
            if not pass_.exact and level == "everywhere":
                raise UserError(
                    f"{step.label} may change bits but is in the implementation half",
                    "pipeline",
                    "move it to the meaning half, or choose the level run_to_run",
                )
        elif first is not None and not pass_.exact and first.half == "meaning":
            raise UserError(
                f"implementation pass {first.label} comes before {step.label} in the meaning half",
                "pipeline",
                "move it after the meaning half",
            )
        elif first is not None and not pass_.exact:
            raise UserError(
                f"{step.label} may change bits but comes after the meaning half",
                "pipeline",
                "move it before the target's passes",
            )
        missing = sorted(pass_.requires - facts.keys())
        gone = next((name for name in missing if name in ended), None)
        if gone is not None:
            raise UserError(
                f"{step.label} requires {gone}, which {ended[gone]} invalidates",
                "pipeline",
                f"move it before {ended[gone]}",
            )
        if missing:
            raise UserError(
                f"{step.label} requires {', '.join(missing)}, which no earlier pass ensures",
                "pipeline",
                "restore the pass that was skipped or moved",
            )
        for name in sorted(pass_.invalidates):
            facts.pop(name, None)
            ended[name] = step.label
        facts |= dict.fromkeys(sorted(pass_.ensures), step.label)
