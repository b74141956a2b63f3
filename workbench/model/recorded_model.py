"""The model of a recording: what its facts name where that can be imported again, else stage 0 of
the recording itself."""

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

if TYPE_CHECKING:
    from core_compiler.driver.compilation import Options
    from core_compiler.pipelines.pipeline import Step
    from workbench.model.models import Model


def spec_of(
    meta: Mapping[str, Any], path: str | Path, trust: bool = False, code: bool = True
) -> Spec:
    """The model of the recording at ``path``, by its facts.  Of a training step, of what was
    compiled from Python and of a model that is not here it is the recording itself.

    ``code`` False: a Python function is not called, the recording stands for it too.
    """

    text, sizes = str(meta.get("spec") or ""), meta.get("sizes")
    itself = Spec(str(path), RECORDED, RECORDED, {}, trust)
    if not text or recorded_stage.is_training(meta):
        return itself
    kind, frontend = meta.get("kind"), meta.get("frontend")
    chosen = str(frontend) if frontend and kind in ("sample", "function", "onnx") else None
    try:
        found = read_spec(text, chosen, trust, **(sizes if isinstance(sizes, dict) else {}))
    except (UserError, TypeError, ValueError, OSError):
        # Its file is gone, it was recorded where there are other models, or it makes no sense.
        return itself
    if found.kind == "function" and not (code and _is_here(found.text)):
        return itself
    return found


def compiled_as(run: Run) -> dict[str, Any]:
    """What a recording says of itself, with the model as it is compiled again: that which it names,
    or the recording itself."""
    meta = run.meta()
    wanted = spec_of(meta, run.path)
    return {**meta, "spec": wanted.text, "kind": wanted.kind, "sizes": dict(wanted.sizes)}


def itself(meta: Mapping[str, Any], path: str | Path) -> str:
    """What is said where a recording stands for its model; "" where that is imported again."""
    if spec_of(meta, path).kind != RECORDED:
        return ""
    if recorded_stage.is_training(meta):
        return ("The first stage of this recording stands for the training step. Seeded numbers "
                "stand for its parameters, its state and the batch.")  # fmt: skip
    return ("The model itself is not at hand: the first stage of this recording stands for it. "
            "Seeded numbers stand for weights that are not found, and for the inputs.")  # fmt: skip


def for_search(meta: Mapping[str, Any], path: str | Path, stages: int) -> Spec:
    """The model to look for a bad pass in; UserError where the recording can neither name it nor,
    with so many ``stages``, stand for it."""
    found = spec_of(meta, path)
    training(meta)
    if found.kind == RECORDED and not stages:
        raise UserError("the recording has no stages", Path(path).name, "compile the model again")
    return found


def _is_here(function: str) -> bool:
    """Whether the package of a function could be imported; none of it runs for the answer."""
    try:
        return importlib.util.find_spec(function.partition(":")[0].partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def level(meta: Mapping[str, Any]) -> str:
    """The level of a recording's stage 0."""
    from core_compiler.pipelines.pipeline import level_of  # needs the compiler: a library does not

    return level_of(recorded_stage.frontend_of(meta))


def training(meta: Mapping[str, Any]) -> Training | None:
    """How the recorded step was trained; None of an inference compile.  UserError where that
    cannot be told."""
    return training_of(meta.get("training")) if recorded_stage.is_training(meta) else None


def begins(wanted: Spec) -> tuple[str, Training | None]:
    """What the pipeline of a model depends on besides its target: the level that it begins with,
    and how it is trained."""
    if wanted.kind != RECORDED:
        return level({"frontend": wanted.frontend}), None
    with Recording.open(wanted.text) as opened:
        meta = opened.meta()
    return level(meta), training(meta)


def whole(options: Options, model: Model) -> Options:
    """``options`` with how the model is trained, where it is a training step."""
    how = _training(model.imported)
    return options if how is None else replace(options, training=how)


def _training(imported: Imported) -> Training | None:
    facts = imported.facts
    return training_of(facts["training"]) if "training" in facts else None


def load(wanted: Spec) -> tuple[Imported, tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Stage 0 of the recording with two sets of inputs; what is not in it is made up."""
    imported = recorded_stage.import_file(Path(wanted.text), import_cache.find_weights)
    how = _training(imported)
    first, second = (recorded_stage.inputs(imported.module, seed, training=how) for seed in (0, 1))
    return imported, first, second


def stood_in(model: Model, given: bool = False) -> str:
    """Which numbers of a model are made up for want of its own, in plain words; "" where none are.
    ``given``: its inputs are given."""
    module = model.imported.module
    missing = int(model.imported.facts.get("stand_ins") or 0)
    if model.spec.kind != RECORDED and not missing:
        return ""
    others = "inputs"
    if "training" in model.imported.facts:
        missing += len(Roles.of(module.main).numbers("parameter"))
        others = "state" if given else "state and batch"
        given = False
    made = f"{missing} seeded stand-in{'' if missing == 1 else 's'}" if missing else "as recorded"
    return f"weights: {made}" + ("" if given else f"; {others} seeded")


def batch_of(model: Model) -> list[int]:
    """The places of the inputs that a training step is given anew in each iteration; [] of an
    inference compile."""
    if "training" not in model.imported.facts:
        return []
    return Roles.of(model.imported.module.main).numbers("batch")


def check_pipeline(path: str | Path, steps: list[Step]) -> None:
    """UserError where ``steps`` are not the passes of a recording, as far as it goes: what was
    compiled from Python did not say its edit once."""
    with Recording.open(path) as opened:
        if "edit" in opened.meta():
            return
        names = [stage.pass_name for stage in opened.stages()[1:]]
    if [step.label for step in steps[: len(names)]] != names:
        raise another_pipeline(path)


def another_pipeline(path: str | Path) -> UserError:
    """The recording was made by passes that are not those at hand."""
    return UserError("the recording was made with another pipeline", str(path),
                     "pass the same --insert as when it was made, or compile again")  # fmt: skip
