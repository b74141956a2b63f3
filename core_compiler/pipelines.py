"""The named pipelines: straight lists of passes, and how a person edits one.

Two halves.  The *meaning* half is one list for all targets; values may change there, and what it
ends with is the numerics identity.  The *implementation* half belongs to the target and keeps bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core_compiler.errors import UserError, nearest
from core_compiler.passes.base import Pass, with_options
from core_compiler.passes.canonicalise import Canonicalise
from core_compiler.passes.decompose import Decompose
from core_compiler.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.fold_batch_norm import FoldBatchNorm
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.recompose import Recompose
from core_compiler.passes.simplify_shapes import SimplifyShapes


def meaning() -> tuple[Pass, ...]:
    """The meaning half, the same for every target."""
    return (
        EliminateDeadCode(),
        Canonicalise(),
        FoldConstants(),
        SimplifyShapes(),
        EliminateCommonSubexpressions(),
        Decompose(),
        Recompose(),
        FoldBatchNorm(),
        FoldConstants(),
        SimplifyShapes(),
        Canonicalise(),
        EliminateCommonSubexpressions(),
        EliminateDeadCode(),
    )


@dataclass(frozen=True)
class PipelineEdit:
    """What a person changed about a pipeline.

    ``skip``    names of passes left out (``fold_constants#2`` is its second occurrence).
    ``options`` pass name -> {option: text}.
    ``limits``  pass name -> number of rewrites after which the pass stops.
    ``insert``  (position in the edited list, pass) pairs; a pass is an object, so a notebook cell's
                own class will do.
    ``order``   the passes by name in another order (each half keeps its own).
    ``repeat``  names of passes run twice in a row.
    """

    skip: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    insert: tuple[tuple[int, Pass], ...] = ()
    order: tuple[str, ...] = ()
    repeat: tuple[str, ...] = ()


def labels(passes: Sequence[Pass]) -> list[str]:
    """Unique names: a pass's name, with ``#2``, ``#3`` for its later occurrences."""
    seen: dict[str, int] = {}
    out = []
    for pass_ in passes:
        name = pass_.name()
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return out


@dataclass(frozen=True)
class Step:
    """A pass in its place: its unique ``label`` and an optional limit of rewrites."""

    label: str
    pass_: Pass
    limit: int | None = None


#: The option that every target has: how far results may be reproduced (``everywhere``, ...).
LEVEL = "level"


def build(
    target: Any, options: Mapping[str, Any], edit: PipelineEdit = PipelineEdit()
) -> list[Step]:
    """The pipeline for ``target`` after ``edit``; UserError says what of the edit is wrong."""
    allowed = [LEVEL, *target.options]
    for name in options:
        if name not in allowed:
            fix = nearest(name, allowed, f"options: {', '.join(allowed)}")
            raise UserError(f"target {target.name} has no option {name!r}", "options", fix)
    passes = [*meaning(), *target.pipeline(options)]
    known = labels(passes)
    for name in (*edit.skip, *edit.options, *edit.limits, *edit.order, *edit.repeat):
        if name not in known and name not in {p.name() for p in passes}:
            fix = nearest(name, known, f"passes: {', '.join(known)}")
            raise UserError(f"no pass is called {name!r}", "pipeline", fix)
    steps = []
    for label, pass_ in zip(known, passes, strict=True):
        both = (label, pass_.name())
        if any(name in edit.skip for name in both):
            if pass_.mandatory:
                raise UserError(f"{label} cannot be skipped", "pipeline", "the compile needs it")
            continue
        for name in dict.fromkeys(both):
            if name in edit.options:
                pass_ = with_options(pass_, edit.options[name])
        limit = next((edit.limits[n] for n in both if n in edit.limits), None)
        steps.append(Step(label, pass_, limit))
        if any(name in edit.repeat for name in both):
            steps.append(Step(f"{label}+", pass_, limit))
    if edit.order:
        rank = {name: i for i, name in enumerate(edit.order)}
        steps.sort(key=lambda s: (s.pass_.half != "meaning", rank.get(s.label, len(rank))))
    for position, pass_ in edit.insert:
        steps.insert(position, Step(pass_.name(), pass_))
    check(steps, options.get(LEVEL, "everywhere"))
    return steps


def check(steps: Sequence[Step], level: str = "everywhere") -> None:
    """Refuse a pipeline that breaks the contract's halves or a pass's requirements."""
    facts: set[str] = set()
    in_meaning = True
    for step in steps:
        pass_ = step.pass_
        if pass_.half == "implementation":
            in_meaning = False
            if not pass_.exact and level == "everywhere":
                raise UserError(
                    f"{step.label} may change bits and stands in the implementation half",
                    "pipeline",
                    "put it in the meaning half, or ask for the level run_to_run",
                )
        elif not in_meaning and not pass_.exact:
            raise UserError(
                f"{step.label} may change bits and comes after the meaning half",
                "pipeline", "move it before the target's passes",
            )  # fmt: skip
        missing = sorted(pass_.requires - facts)
        if missing:
            raise UserError(
                f"{step.label} needs {', '.join(missing)}, which no earlier pass ensures",
                "pipeline", "restore the pass that was skipped or moved",
            )  # fmt: skip
        facts |= pass_.ensures
