"""The file of a run's folder that says how to repeat the run.

It contains the plan, the function that made the step, and the edit of the pipeline.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_compiler.support.errors import UserError
from core_compiler.training.run import files

if TYPE_CHECKING:
    from core_compiler.training.run.step import TrainingStep

FILE = "run.json"
#: The definition of a task, for messages.
TASK = (
    "pass package.module:function, which takes edit (a PipelineEdit) and returns the compiled step "
    "and its data"
)


def write(folder: Path, description: Mapping[str, Any]) -> None:
    """Store in its folder how to repeat a run."""
    text = json.dumps(dict(description), indent=1) + "\n"
    files.write(folder / FILE, text.encode(), "the run's description")


def read(folder: Path) -> Mapping[str, Any]:
    """Return the contents that :func:`write` stored; raise UserError if missing or damaged."""
    try:
        held = json.loads((folder / FILE).read_text())
    except OSError as error:
        raise UserError(
            f"cannot read {FILE} ({error.strerror})",
            str(folder),
            "pass the folder of a training run",
        ) from None
    except (ValueError, RecursionError) as error:
        raise damaged_error(folder, error) from None
    if not isinstance(held, dict):
        raise damaged_error(folder, "not a JSON object")
    return held


def damaged_error(folder: Path, why: Any) -> UserError:
    return UserError(
        f"{FILE} is damaged ({why})", str(folder), "restore an intact copy of the folder"
    )


def describe_python_run(step: TrainingStep, plan: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return the contents for a run from Python; ``plan`` has the facts of its :class:`Plan`."""
    compilation = step.compilation
    held = {name: value for name, value in plan.items() if name != "folder"}  # the folder may move
    return {
        "task": task,
        **held,
        "target": compilation.target.name,
        "pipeline": compilation.edited(),
    }


def check_task(text: str) -> None:
    """Raise UserError if a later process could not find the function; it is not executed."""
    module, _, name = text.partition(":")
    if not module or not name.isidentifier():
        raise UserError(f"expected package.module:function, got {text!r}", "task", TASK)
    if module == "__main__":
        raise UserError(
            "a later process cannot import functions from __main__",
            "task",
            "move the function into a module of its own",
        )
    loaded = sys.modules.get(module)
    try:
        known = loaded is not None or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        known = False
    if not known:
        raise UserError(f"module {module!r} not found", f"task {text}", TASK)
    if loaded is not None and not callable(getattr(loaded, name, None)):
        raise UserError(f"module {module} has no function {name!r}", f"task {text}", TASK)
