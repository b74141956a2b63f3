"""Training runs of the command line: what is run, and the same again from its folder."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_compiler.edit_facts import edit_facts
from core_compiler.errors import UserError, nearest
from core_compiler.ir.events import Observer
from core_compiler.pipelines import PipelineEdit
from core_compiler.training import files
from core_compiler.training.data import Data
from core_compiler.training.fit import Plan
from core_compiler.training.inject import Injection
from core_compiler.training.replay import Run
from core_compiler.training.rows import Wanted
from core_compiler.training.step import TrainingStep
from core_compiler.training.stream import Stream
from workbench import edits
from workbench.commands import common
from workbench.commands.train_model import TILINGS

#: How the command's arguments are called in a run's folder.
FILE = "run.json"
#: Those that decide what a run computes.
_WHAT = (
    "model", "batch", "loss", "optimizer", "rate", "clip_norm", "freeze", "seed", "width", "depth",
    "size", "shards", "own_batch_norm", "precision", "loss_scale", "initialize",
)  # fmt: skip
#: All that a run is done again with; what is changed about its pipeline comes beside them.
_KEPT = (
    *_WHAT, "target", "threads", "tiling", "recompute", "iterations", "every", "receipts",
    "ops_every", "inject", "leaves",
)  # fmt: skip
_PIPELINE = "pipeline"
#: What runs of before lack.
_LATER: dict[str, Any] = {"recompute": None, "leaves": "fast", _PIPELINE: {}}


def plan(arguments: Namespace) -> Plan:
    """What ``workbench train`` does with its step."""
    return Plan(
        arguments.iterations, arguments.batch, arguments.seed,
        Path(arguments.folder) if arguments.folder else None, arguments.every, arguments.receipts,
        arguments.ops_every, Injection.of(arguments.inject) if arguments.inject else None,
        arguments.leaves,
    )  # fmt: skip


def make(
    arguments: Namespace, edit: PipelineEdit, observer: Observer | None = None,
    finish: bool = True,
) -> tuple[TrainingStep, Any]:  # fmt: skip
    """The compiled step and its data; ``finish`` False: no pass of the compile has run yet."""
    import core_compiler as cc
    from core_compiler.training.config import Training

    common.require_execution(arguments.target)
    module, loss, data = _task(arguments)
    training = Training(
        loss=arguments.loss or loss, optimizer=_optimizer(arguments),
        freeze=tuple(arguments.freeze), clip_norm=arguments.clip_norm, seed=arguments.seed,
        shards=arguments.shards, sync_batch_norm=not arguments.own_batch_norm,
        precision=arguments.precision, loss_scale=arguments.loss_scale,
        recompute=arguments.recompute, keep_gradients=arguments.receipts == "gradients",
        initialize=common.pairs(arguments.initialize, "--initialize"),
    )  # fmt: skip
    step = cc.compile(
        module, data.example(arguments.batch), training=training,
        target=arguments.target, threads=common.threads(arguments), observer=observer, edit=edit,
        finish=finish,
        options={"tiles": TILINGS[arguments.tiling]} if arguments.target == "cpu" else {},
    )  # fmt: skip
    step.compilation.about["model"] = arguments.model
    return step, data


def save(arguments: Namespace, edit: PipelineEdit) -> None:
    """Keep the arguments, and what is changed about the pipeline, in the run's folder."""
    held = {name: getattr(arguments, name) for name in _KEPT}
    held[_PIPELINE] = edit_facts(edit)
    text = json.dumps(held, indent=1) + "\n"
    files.write(Path(arguments.folder) / FILE, text.encode(), "how the run is done again")


def is_run(folder: Path) -> bool:
    """Whether a folder says how its run is done again."""
    return bool(arguments_of(folder))


def arguments_of(folder: Path) -> Mapping[str, Any]:
    """What a run's folder says of how it was made; {} where there is nothing that can be read."""
    try:
        held = json.loads((folder / FILE).read_text())
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def read(folder: str | Path, observer: Observer | None = None) -> Run:
    """The run in a folder; UserError where there is none.  ``observer``: told how far its step is
    compiled again, and iterations done again."""
    folder = Path(folder)
    folder = folder.parent if folder.is_file() else folder  # its receipts were named
    try:
        held = _LATER | json.loads((folder / FILE).read_text())
        arguments = Namespace(**{name: held[name] for name in _KEPT}, folder=str(folder))
        edit = edits.from_json(held[_PIPELINE])
    except OSError as error:
        raise UserError(f"there is no training run here ({error.strerror})", str(folder),
                        "give the --folder of `workbench train`") from None  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{FILE} is damaged ({error})", str(folder),
                        "take a copy of the folder that is whole") from None  # fmt: skip
    what = {name: held[name] for name in _WHAT}
    watching = observer or Observer()
    return Run(folder, plan(arguments), lambda edit: make(arguments, edit, watching), edit, what,
               watching.progress)  # fmt: skip


def _optimizer(arguments) -> Any:
    from dataclasses import replace

    from core_compiler.training.optimizers import optimizer

    made = optimizer(arguments.optimizer)
    return made if arguments.rate is None else replace(made, rate=arguments.rate)  # type: ignore[type-var]


def _task(arguments) -> tuple[Any, str, Data | Stream]:
    """The module, its loss by name, and its data."""
    from sample_models.catalogue import CATALOGUE, build
    from sample_models.training import task

    name = arguments.model
    if name in CATALOGUE:
        sizes = {k: getattr(arguments, k) for k in ("width", "depth")}
        sizes = {k: v for k, v in sizes.items() if v is not None}
        sizes |= common.pairs(arguments.size, "--size")
        built = build(name, seed=arguments.seed, **sizes)
        found = task(name, built, arguments.seed)
        return built.module, found.loss, Data.of(found.arrays)
    if Path(name).suffix in (".onnx", ".keras", ".pt2"):
        raise UserError("a file brings no data to train on", name, "train it from Python: "
                        "cc.compile(path, (x, y), training=cc.Training(...))")  # fmt: skip
    if ":" not in name:
        fix = nearest(name, CATALOGUE, f"there are {', '.join(CATALOGUE)}")
        raise UserError(f"no sample model is called {name!r}", "train", fix)
    from workbench import user_code

    made = user_code.returned(name, {})
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise UserError("the function did not return (model, data)", name,
                        "return a torch module and what it is trained on")  # fmt: skip
    return made[0], "cross_entropy", Data.of(made[1], _wanted(made[0]))


def _wanted(module: Any) -> list[Wanted]:
    """What a torch module takes, by its ``forward``, and the targets: before it is imported."""
    from inspect import Parameter, signature

    try:
        taken = signature(module.forward).parameters.values()
    except (AttributeError, TypeError, ValueError):
        return []
    if any(p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for p in taken):
        return []
    return [Wanted(p.name) for p in taken if p.default is Parameter.empty] + [Wanted("targets")]
