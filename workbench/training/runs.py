"""Training runs of the command line: their execution, and their repetition from a folder."""

from __future__ import annotations

import inspect
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from core_compiler.ir.events import Observer
from core_compiler.pipelines.edit_data import edit_facts
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.support.errors import CANNOT_HERE, UserError, nearest
from core_compiler.support.regular_files import need_regular
from core_compiler.training.audit import receipts
from core_compiler.training.audit.inject import Injection
from core_compiler.training.audit.replay import Run
from core_compiler.training.config import Training
from core_compiler.training.run import run_file
from core_compiler.training.run.data import Data
from core_compiler.training.run.plan import Plan
from core_compiler.training.run.run_file import FILE
from core_compiler.training.run.step import TrainingStep
from core_compiler.training.run.stream import Stream
from workbench.model import edits
from workbench.model.arguments import TILINGS, pairs, require_execution, threads
from workbench.training import datasets, input_files
from workbench.training.datasets import inputs_of
from workbench.training.input_files import MODEL_FILES, is_model

#: The optimizer whose default rate is the sample's.
DESCENT = "sgd"
#: Model files that contain no parameters.
_FIXED = (".mlir", ".mlirbc", ".stablehlo")
#: The arguments that determine the results of a run.
_WHAT = (
    "model", "data", "batch", "loss", "optimizer", "rate", "schedule", "clip_norm", "freeze",
    "seed", "width", "depth", "size", "shards", "own_batch_norm", "precision", "loss_scale",
    "initialize", "drop_last",
)  # fmt: skip
#: All arguments needed to repeat a run; the edit of its pipeline is stored separately.
_KEPT = (
    *_WHAT,
    "target",
    "threads",
    "tiling",
    "recompute",
    "iterations",
    "every",
    "receipts",
    "ops_every",
    "inject",
    "leaves",
)
#: Stored next to the arguments: the edit of the pipeline, the files that were read as ``[path,
#: SHA-256]``, and the words of the command.
_PIPELINE, _FILES, _WORDS = "pipeline", "files", "command"
#: Defaults for entries that older runs lack.
_ADDED_DEFAULTS: dict[str, Any] = {
    "recompute": None,
    "leaves": "fast",
    "drop_last": True,
    "data": [],
    "schedule": [],
    _PIPELINE: {},
    _FILES: [],
    _WORDS: [],
}


def plan(arguments: Namespace) -> Plan:
    """Return the plan of ``workbench train``."""
    return Plan(
        arguments.iterations,
        arguments.batch,
        arguments.seed,
        Path(arguments.folder) if arguments.folder else None,
        arguments.every,
        arguments.receipts,
        arguments.ops_every,
        Injection.of(arguments.inject) if arguments.inject else None,
        arguments.leaves,
        arguments.drop_last,
    )


def make(
    arguments: Namespace,
    edit: PipelineEdit,
    observer: Observer | None = None,
    finish: bool = True,
) -> tuple[TrainingStep, Any]:
    """Return the compiled step and its data; ``finish`` False: before the first pass."""
    require_execution(arguments.target)
    model, loss, data = _task(arguments)
    training = _training(arguments, loss)
    return _compiled(arguments, edit, model, data, training, observer, finish), data


def make_with_torch(
    arguments: Namespace, edit: PipelineEdit, observer: Observer | None = None
) -> tuple[TrainingStep, Any, Any, list[str], Any]:
    """Return the compiled step with its gradients and the torch model to compare it with.

    The tuple is the step, the torch model it was compiled from, its data, the changes that were
    made to the model for the comparison, and a copy of the model without them.  UserError if this
    is impossible.
    """
    from core_compiler.debug import against_torch

    require_execution(arguments.target)
    model, loss, data = _task(arguments)
    training = replace(_training(arguments, loss), keep_gradients=True)
    torch_model = (
        _program(model) if isinstance(model, Path) and model.suffix.lower() == ".pt2" else model
    )
    against_torch.need_torch(torch_model, training)
    unchanged = against_torch.copied(torch_model)
    notes = against_torch.without_dropout(torch_model)
    step = _compiled(arguments, edit, model, data, training, observer)
    return step, torch_model, data, notes, unchanged


def _program(path: Path) -> Any:
    """Return a saved program as a torch module."""
    from core_compiler.frontends.pytorch.archive import read_pt2

    return read_pt2(path).module()


def _training(arguments: Namespace, loss: str) -> Training:
    return Training(
        loss=arguments.loss or loss,
        optimizer=_optimizer(arguments),
        freeze=tuple(arguments.freeze),
        clip_norm=arguments.clip_norm,
        seed=arguments.seed,
        shards=arguments.shards,
        sync_batch_norm=not arguments.own_batch_norm,
        precision=arguments.precision,
        loss_scale=arguments.loss_scale,
        recompute=arguments.recompute,
        keep_gradients=arguments.receipts == "gradients",
        initialize=pairs(arguments.initialize, "--initialize"),
    )


def _compiled(
    arguments: Namespace,
    edit: PipelineEdit,
    model: Any,
    data: Any,
    training: Training,
    observer: Observer | None,
    finish: bool = True,
) -> TrainingStep:
    import core_compiler as cc

    check = bool(getattr(arguments, "check", False))
    step = cc.compile(
        model,
        data.example(arguments.batch),
        training=training,
        target=arguments.target,
        threads=threads(arguments),
        observer=observer,
        edit=edit,
        finish=finish,
        check=check,
        options={"tiles": TILINGS[arguments.tiling]} if arguments.target == "cpu" else {},
    )
    name = arguments.model
    step.compilation.about["model"] = Path(name).stem if is_model(name) else name
    return step


def save(arguments: Namespace, edit: PipelineEdit) -> None:
    """Save the arguments, and the edit of the pipeline, in the run's folder."""
    stored = {name: getattr(arguments, name) for name in _KEPT}
    stored[_PIPELINE] = edit_facts(edit)
    stored[_FILES] = input_files.list_files(arguments.model, arguments.data)
    stored[_WORDS] = list(arguments.command_line)
    run_file.write(Path(arguments.folder), stored)


def check_resumed(arguments: Namespace) -> None:
    """Raise UserError if a run would resume with other files or initial parameters.

    Neither is part of the numerics identity.
    """
    fix = "resume with the arguments it was started with, or start another run in another folder"
    started = arguments_of(Path(arguments.folder))
    stored, current_files = (
        started.get(_FILES),
        input_files.list_files(arguments.model, arguments.data),
    )
    if isinstance(stored, list):
        for own, other_files, which in (
            (current_files, stored, "another"),
            (stored, current_files, "this"),
        ):
            known = {digest for _, digest in other_files}
            if path := next((path for path, digest in own if digest not in known), None):
                raise UserError(f"the run was started with {which} file", path, fix)
    first = started.get("initialize", arguments.initialize)
    if first != arguments.initialize:
        was, given = (" ".join(words) or "none" for words in (first, arguments.initialize))
        raise UserError(
            f"expected the run's --initialize {was}, got {given}", arguments.folder, fix
        )


def is_run(folder: Path) -> bool:
    """Return whether a folder states how to repeat its run."""
    stored = arguments_of(folder)
    return bool(stored.get("task") or stored.get("model"))


def arguments_of(folder: Path) -> Mapping[str, Any]:
    """Return the facts that a run's folder states; {} if it is missing or unreadable."""
    try:
        return run_file.read(folder)
    except UserError:
        return {}


def read(folder: str | Path, observer: Observer | None = None, target: str | None = None) -> Run:
    """Return the run in a folder; UserError if there is none.

    ``observer``: receives the progress of compiling its step and of repeating iterations.
    ``target``: the target for repetition (None: the run's).

    A run that Python made without a task, or whose ``run.json`` is missing, has only its receipts:
    repeating it raises a UserError with the reason (exit code CANNOT_HERE).
    """
    folder = Path(folder)
    folder = folder.parent if folder.is_file() else folder  # its receipts were named
    if not (folder / FILE).exists():
        if not (folder / receipts.FILE).exists():
            why = "No such file or directory" if not folder.is_dir() else "no receipts"
            raise UserError(
                f"training run not found ({why})",
                str(folder),
                "pass the --folder of `workbench train`, with --receipts",
            )
        return _only_receipts(folder, Plan(0, 1, folder=folder), f"its folder has no {FILE}")
    try:
        stored = _ADDED_DEFAULTS | dict(run_file.read(folder))
        edit = edits.from_json(stored[_PIPELINE])
        made_in_python = "task" in stored
        if made_in_python:
            plan_of = Plan.of(stored, folder)
            task, on = str(stored["task"]), str(stored["target"])
        else:
            arguments = Namespace(**{name: stored[name] for name in _KEPT}, folder=str(folder))
            known = [(str(path), str(digest)) for path, digest in stored[_FILES]]
    except (ValueError, KeyError, TypeError) as error:
        raise run_file.damaged_error(folder, error) from None
    watching = observer or Observer()
    if made_in_python:
        if target not in (None, on):
            raise UserError("the run's task chooses the target", str(folder), "leave --target out")
        if not task:
            return _only_receipts(folder, plan_of, "Python started it without a task")
        what = {"task": task, "batch": plan_of.batch, "seed": plan_of.seed}
        return Run(
            folder,
            plan_of,
            lambda new: _of_task(task, on, edit, new),
            edit,
            what,
            watching.progress,
        )
    arguments.target = target or arguments.target
    what = {name: stored[name] for name in _WHAT} | _contents(arguments, known)

    def make_again(new: PipelineEdit) -> tuple[TrainingStep, Any]:
        require_execution(arguments.target)
        return make(_with_current_paths(arguments, known, folder), new, watching)

    return Run(folder, plan(arguments), make_again, edit, what, watching.progress)


def _only_receipts(folder: Path, plan: Plan, why: str) -> Run:
    """Return a run that cannot be repeated."""

    unavailable = UserError(
        f"the run cannot be repeated: {why}",
        str(folder),
        "train with fit(..., task='package.module:function')",
        CANNOT_HERE,
    )

    def refuse(edit: PipelineEdit) -> tuple[TrainingStep, Any]:
        raise unavailable

    made = Run(folder, plan, refuse)
    made.unavailable = unavailable
    return made


def _contents(arguments: Namespace, known: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the model and data of a run as digests of their files, the same on any machine."""
    digests = [f"SHA-256 {digest[:12]}" for _, digest in known]
    made: dict[str, Any] = {"data": digests[len(digests) - len(arguments.data) :]}
    return made | ({"model": digests[0]} if is_model(arguments.model) and digests else {})


def _with_current_paths(
    arguments: Namespace, known: list[tuple[str, str]], folder: Path
) -> Namespace:
    """Return ``arguments`` with the run's files at their present locations."""
    paths = [str(input_files.find_file(Path(path), digest, folder)) for path, digest in known]
    model = paths[0] if is_model(arguments.model) and paths else arguments.model
    data = paths[len(paths) - len(arguments.data) :]
    return Namespace(**{**vars(arguments), "model": model, "data": data})


def command_for_values(folder: Path, iteration: int) -> str:
    """Return the command, or Python call, that hashes an iteration's values where it can run."""
    stored = arguments_of(folder)
    words = [str(word) for word in stored.get(_WORDS) or ()]
    if not words:
        return f"fit(..., iterations={iteration}, ops_every={iteration})"
    arguments, given = [], iter(words)
    for word in given:
        name, equals, _ = word.partition("=")
        if name in ("-o", "--output", "--folder"):
            if not equals:
                next(given, None)
        elif name not in ("--resume", "--json"):
            arguments.append(word)
    more = ["--folder", f"{folder.name}-values", "--iterations", str(iteration)]
    return shlex.join(["workbench", *arguments, *more, "--ops-every", str(iteration)])


# -- tasks of Python -------------------------------------------------------------------------------


def _of_task(
    text: str, target: str, recorded_edit: PipelineEdit, edit: PipelineEdit
) -> tuple[TrainingStep, Any]:
    """Return the step and the data that a task makes, with an edit of the pipeline."""
    from workbench.model import user_code

    require_execution(target)
    parameters = inspect.signature(user_code.found(text)).parameters
    if "edit" not in parameters and edit_facts(edit) != edit_facts(recorded_edit):
        raise UserError(
            "the task compiles only one pipeline",
            text,
            "let it take edit: cc.compile(..., edit=edit)",
        )
    made = user_code.call_function(text, {"edit": edit} if "edit" in parameters else {})
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], TrainingStep):
        raise UserError("the task did not return (step, data)", text, run_file.TASK)
    return made


# -- training tasks --------------------------------------------------------------------------------


def _optimizer(arguments) -> Any:
    from core_compiler.training.optimisers.optimizers import optimizer
    from core_compiler.training.optimisers.schedules import read as read_schedule
    from sample_models import training
    from sample_models.catalogue import CATALOGUE

    made = optimizer(arguments.optimizer)
    rate: Any = made.rate if arguments.rate is None else arguments.rate  # a number by default
    if arguments.rate is None and arguments.optimizer == DESCENT and arguments.model in CATALOGUE:
        rate = training.rate(arguments.model)
    if arguments.schedule:
        rate = read_schedule(arguments.schedule, rate)
    return replace(made, rate=rate)  # type: ignore[type-var]


def _task(arguments) -> tuple[Any, str, Data | Stream]:
    """Return the model, its loss by name, and its data."""
    from sample_models.catalogue import CATALOGUE, build
    from sample_models.training import task

    name = arguments.model
    if name in CATALOGUE:
        sizes = {k: getattr(arguments, k) for k in ("width", "depth")}
        sizes = {k: v for k, v in sizes.items() if v is not None}
        sizes |= pairs(arguments.size, "--size")
        built = build(name, seed=arguments.seed, **sizes)
        found = task(name, built, arguments.seed)
        return built.module, found.loss, _data(arguments, built.module, found.arrays)
    if is_model(name):
        return _from_file(arguments)
    if Path(name).suffix.lower() in _FIXED:
        raise UserError(
            "a StableHLO or IR program has no parameters to train",
            name,
            f"train a {', '.join(MODEL_FILES)} file or a Python function",
        )
    if ":" not in name:
        fix = nearest(name, CATALOGUE, f"choose {', '.join(CATALOGUE)}")
        raise UserError(f"unknown sample model {name!r}", "train", fix)
    from workbench.model import user_code

    made = user_code.call_function(name, {})
    pair = isinstance(made, tuple) and len(made) == 2
    model = made[0] if pair else made
    owners = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    if not (pair or arguments.data) or not (callable(model) or "onnx" in owners):
        raise UserError(
            "the function did not return (model, data)",
            name,
            "return a torch, Keras or ONNX model and its training data; with "
            "--data the model alone is enough",
        )
    return model, "cross_entropy", _data(arguments, model, made[1] if pair else None)


def _from_file(arguments: Namespace) -> tuple[Any, str, Data | Stream]:
    """Return the model of a file, and the data given for it."""
    path = Path(arguments.model)
    need_regular(path)
    given = [n for n in ("width", "depth", "size") if getattr(arguments, n)]
    if given:
        raise UserError(f"--{given[0]} cannot be set for a file", str(path), "leave it out")
    model: Any = path
    if path.suffix.lower() == ".onnx":
        from core_compiler.frontends.onnx.reading import read_model

        inputs = inputs_of(read_model(path))
    elif path.suffix.lower() == ".keras":
        from core_compiler.frontends.keras import read_file

        model = read_file(path)
        inputs = inputs_of(model)
    else:
        from core_compiler.frontends.pytorch.archive import read_pt2

        inputs = inputs_of(read_pt2(path))
    if not arguments.data:
        wanted = datasets.columns(inputs, arguments.loss)
        raise UserError(
            "a model file contains no training data",
            str(path),
            f"pass --data FILE ({datasets.KINDS}) with the columns "
            f"{', '.join(column.name for column in wanted)}",
        )
    return model, "cross_entropy", _read(arguments, inputs)


def _data(arguments: Namespace, model: Any, own: Any) -> Data | Stream:
    """Return the data that the arguments name, else the model's ``own``."""
    inputs = inputs_of(model)
    if arguments.data:
        return _read(arguments, inputs)
    return Data.of(own, datasets.columns(inputs, arguments.loss))


def _read(arguments: Namespace, inputs: Sequence[datasets.Input]) -> Data:
    return datasets.read(arguments.data, inputs, arguments.loss, arguments.batch)
