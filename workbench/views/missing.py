"""Messages for data that a recording lacks: the reason, and how to get it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from core_compiler.support.errors import UserError
from workbench.model import edits, pipeline_editor, recorded_model
from workbench.queries.run import Run
from workbench.views import Empty


def command(run: Run, *options: str) -> str:
    """Return the command that compiles the recording's model as it was, with more ``options``."""
    meta = run.meta()
    known = recorded_model.compiled_as(run) if run.version.stages else meta
    try:
        draft = pipeline_editor.recorded(meta, False)
    except UserError:  # its edit is invalid
        draft = pipeline_editor.recorded({}, False)
    words = edits.compile_arguments(known, draft["edit"], draft["target"], draft["timeout"])
    return f"{shlex.join([*words, *options])} -o FILE.run"


def stages(run: Run) -> Empty:
    """Return the message for a recording without stages, now or finally."""
    if run.live:
        return Empty("The model is being imported: the first stage follows shortly.")
    why = f"The compile ended before its first stage. {run.meta().get('message', '')}"
    return Empty(why.strip(), f"Press Compile, or: {command(run)}", "again")


def made_by(run: Run, made_by: str, waits: str, what: str) -> Empty:
    """Return the message for a missing ``what``, because its pass ``made_by`` was not reached.

    ``waits`` is the text while the compile runs.
    """
    if run.live:
        return Empty(f"{waits} yet: the pass {made_by} has not run.")
    if _ran(run, made_by):
        return Empty(f"This program needs no {what}: it only moves inputs and constants.")
    return Empty(
        f"This recording has no {what}: its compile ended before the pass {made_by}.",
        f"Press Compile, or: {command(run)}",
        "again",
    )


def _ran(run: Run, name: str) -> bool:
    return any(stage.pass_name == name for stage in run.stages())


def execution(run: Run) -> Empty:
    """Return the message for launches that were not timed."""
    missing = run.not_timed()
    if missing:
        return Empty(f"Not executed: {missing}")
    if run.live:
        return Empty("Not executed yet: launches are timed when the compile is finished.")
    return Empty(
        "Not executed: no times were measured.",
        f"Press Execute, or: {command(run, '--execute')}. Every launch is then timed on "
        "every thread.",
        "execute",
    )


def checks(run: Run) -> Empty:
    """Return the message for a compile without checks and value statistics."""
    if run.live:
        return Empty("No checks so far.")
    return Empty(
        "No rewrites were checked, and no values were recorded.",
        f"Press Compile and tick 'check every rewrite', or: {command(run, '--check')}. "
        "Each rewrite is then evaluated on real tensors, before and after.",
        "again",
    )


def statistics(run: Run, letter: str) -> Empty:
    """Return the message for the recording ``letter`` of two that has no statistics of values."""
    name = f"{letter} ({run.path.name})"
    if run.live:
        return Empty(f"{name} has no statistics of values so far.")
    return Empty(
        f"{name} has no statistics of values: it was compiled without checks.",
        f"Record it again: {command(run, '--check')}. Statistics of its values on the "
        "example inputs are then recorded.",
    )


def missing_in_one(run: Run, letter: str, what: str) -> Empty:
    """Return the message for the recording ``letter`` of two that has no ``what``."""
    why = ": its compile ended before them"
    if run.live:
        why = " so far"
    elif what == "launches" and (reason := run.not_timed()):
        why = f" with times: {reason}"
    elif _ran(run, "generate_code"):
        why = ": it only moves inputs and constants"
    return Empty(
        f"{letter} ({run.path.name}) has no {what}{why}.",
        f"Show {'B' if letter == 'A' else 'A'} alone, or compare with another recording.",
    )


def need_both(run: Run, other: Run, has: Callable[[Run], Any], what: str) -> None:
    """Raise Empty if one of two recordings has no ``what``."""
    for each, letter in ((run, "A"), (other, "B")):
        if not has(each):
            raise missing_in_one(each, letter, what)


def nothing_in_common(what: str) -> Empty:
    """Return the message for two recordings that have no ``what`` in common."""
    return Empty(f"The two recordings have no {what}.", "The view Compare shows their contents.")


def iterations(run: Run) -> Empty:
    """Return the message for a recording that is not of a training run."""
    spec = shlex.quote(str(run.meta().get("spec") or "MODEL"))
    return Empty(
        "This recording has no iterations: it is of an inference compile.",
        f"Record a training run: workbench train {spec} --iterations 200 "
        "--folder FOLDER --receipts gradients -o FILE.run",
    )
