"""The model of a recording: the one it names, if it can be imported again, else its stage 0."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core_compiler.driver import recorded_stage
from core_compiler.frontends.base import Imported
from core_compiler.record import Recording
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph.roles import Roles
from core_compiler.training.run.recorded import training_of
from workbench.model import import_cache
from workbench.model.spec import RECORDED, Spec, read_spec
from workbench.queries.run import Run
from workbench.support import units

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Options
    from core_compiler.pipelines.pipeline import Step
    from workbench.model.models import Model


def spec_of(
    meta: Mapping[str, Any], path: str | Path, trust: bool = False, code: bool = True
) -> Spec:
    """Return the model of the recording at ``path``, by its facts.

    For a training step, a compile from Python and a model that is not available it is the
    recording itself. ``code`` False: a Python function is not called, the recording replaces it
    too.
    """

    text, sizes = str(meta.get("spec") or ""), meta.get("sizes")
    recorded_spec = Spec(str(path), RECORDED, RECORDED, {}, trust)
    if not text or recorded_stage.is_training(meta):
        return recorded_spec
    kind, frontend = meta.get("kind"), meta.get("frontend")
    chosen = str(frontend) if frontend and kind in ("sample", "function", "onnx") else None
    try:
        found = read_spec(text, chosen, trust, **(sizes if isinstance(sizes, dict) else {}))
    except (UserError, TypeError, ValueError, OSError):
        # Its file is gone, it was recorded where other models exist, or its facts are invalid.
        return recorded_spec
    if found.kind == "function" and not (code and _is_here(found.text)):
        return recorded_spec
    return found


def compiled_as(run: Run) -> dict[str, Any]:
    """Return the facts of a recording, with the model to compile again.

    This is the named one, or the recording itself.
    """
    meta = run.meta()
    spec = spec_of(meta, run.path)
    return {**meta, "spec": spec.text, "kind": spec.kind, "sizes": dict(spec.sizes)}


def replacement_note(meta: Mapping[str, Any], path: str | Path) -> str:
    """Return the message for a recording that replaces its model; "" if that is imported again."""
    if spec_of(meta, path).kind != RECORDED:
        return ""
    if recorded_stage.is_training(meta):
        return (
            "The first stage of this recording stands for the training step. Seeded numbers "
            "stand for its parameters, its state and the batch."
        )
    return (
        "The model itself is not at hand: the first stage of this recording stands for it. "
        "Seeded numbers stand for weights that are not found, and for the inputs."
    )


def for_search(meta: Mapping[str, Any], path: str | Path, stages: int) -> Spec:
    """Return the model in which to search a bad pass.

    UserError if the recording neither names it nor, with that number of ``stages``, can replace
    it.
    """
    found = spec_of(meta, path)
    training(meta)
    if found.kind == RECORDED and not stages:
        raise UserError("the recording has no stages", Path(path).name, "compile the model again")
    return found


def _is_here(function: str) -> bool:
    """Return whether the package of a function could be imported, without running any of it."""
    try:
        return importlib.util.find_spec(function.partition(":")[0].partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def level(meta: Mapping[str, Any]) -> str:
    """Return the level of a recording's stage 0."""
    from core_compiler.pipelines.pipeline import level_of  # slow; a library does not need it

    return level_of(recorded_stage.frontend_of(meta))


def training(meta: Mapping[str, Any]) -> Training | None:
    """Return how the recorded step was trained; None for an inference compile.

    UserError if that is unknown.
    """
    return training_of(meta.get("training")) if recorded_stage.is_training(meta) else None


def pipeline_start(spec: Spec) -> tuple[str, Training | None]:
    """Return the initial level and the training, on which the pipeline of a model depends."""
    if spec.kind != RECORDED:
        return level({"frontend": spec.frontend}), None
    with Recording.open(spec.text) as opened:
        meta = opened.meta()
    return level(meta), training(meta)


def with_training(options: Options, model: Model) -> Options:
    """Return ``options`` with the training of the model, if it is a training step."""
    recorded_training = _training(model.imported)
    return options if recorded_training is None else replace(options, training=recorded_training)


def _training(imported: Imported) -> Training | None:
    facts = imported.facts
    return training_of(facts["training"]) if "training" in facts else None


def load(spec: Spec) -> tuple[Imported, tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return stage 0 of the recording with two sets of inputs; missing values are synthesized."""
    imported = recorded_stage.import_file(Path(spec.text), import_cache.find_weights)
    recorded_training = _training(imported)
    first, second = (
        recorded_stage.inputs(imported.module, seed, training=recorded_training) for seed in (0, 1)
    )
    return imported, first, second


def describe_stand_ins(model: Model, given: bool = False) -> str:
    """Return which values of a model are synthesized, as text; "" if none are.

    ``given``: its inputs are given.
    """
    module = model.imported.module
    missing = int(model.imported.facts.get("stand_ins") or 0)
    if model.spec.kind != RECORDED and not missing:
        return ""
    others = "inputs"
    if "training" in model.imported.facts:
        missing += len(Roles.of(module.main).numbers("parameter"))
        others = "state" if given else "state and batch"
        given = False
    made = units.counted(missing, "seeded stand-in") if missing else "as recorded"
    return f"weights: {made}" + ("" if given else f"; {others} seeded")


def batch_indices(model: Model) -> list[int]:
    """Return the indices of the inputs that a training step receives in each iteration.

    Returns [] for an inference compile.
    """
    if "training" not in model.imported.facts:
        return []
    return Roles.of(model.imported.module.main).numbers("batch")


def check_pipeline(path: str | Path, steps: list[Step]) -> None:
    """Raise UserError if ``steps`` are not the passes of a recording, as far as it goes.

    Early recordings of compiles from Python did not state their edit.
    """
    with Recording.open(path) as opened:
        if "edit" in opened.meta():
            return
        names = [stage.pass_name for stage in opened.stages()[1:]]
    if [step.label for step in steps[: len(names)]] != names:
        raise another_pipeline(path)


def another_pipeline(path: str | Path) -> UserError:
    """Return the error for a recording made by other passes than the given ones."""
    return UserError(
        "the recording was made with another pipeline",
        str(path),
        "pass the same --insert as when it was made, or compile again",
    )
