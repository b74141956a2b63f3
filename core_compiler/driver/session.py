"""The API for notebooks and scripts: ``import core_compiler as cc; c = cc.compile(model, inputs)``.

The model may be a live torch module, an exported program, an ONNX or Keras model, a JAX or
TensorFlow function, a ``.onnx``, ``.pt2``, ``.keras`` or ``.mlir`` file, a folder with a
SavedModel, or a module of our IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler import targets
from core_compiler.driver import known_models
from core_compiler.driver.compilation import Compilation, Options, start
from core_compiler.driver.other_batches import OtherBatches
from core_compiler.driver.other_sizes import OtherSizes
from core_compiler.frontends.base import Imported
from core_compiler.frontends.open import Opened, as_arrays, name_of, open_model
from core_compiler.ir import Module, TensorType, Value, WeightStore
from core_compiler.ir.events import Observer
from core_compiler.numerics.jit import assert_no_flush_to_zero
from core_compiler.pipelines.pipeline import LEVELS_OF, PipelineEdit, level_of
from core_compiler.pipelines.quantization import Quantization
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph.joint import Joint, build_joint, names
from core_compiler.training.graph.losses import Loss, Own
from core_compiler.training.graph.roles import Roles
from core_compiler.training.run.step import TrainingStep, shard_of


def compile(
    model: Any,
    inputs: Sequence | None = None,
    *,
    target: str | Any = "cpu",
    check: bool = False,
    threads: int = 0,
    edit: PipelineEdit = PipelineEdit(),
    options: Mapping[str, Any] | None = None,
    finish: bool = True,
    observer: Observer | None = None,
    pass_timeout: float | None = None,
    frontend: str | None = None,
    training: Training | None = None,
    quantize: Quantization | None = None,
    record: str | Path | None = None,
) -> Any:
    """Compile ``model`` and return the compilation: its stages, its checks, and a callable.

    ``inputs``  example inputs (arrays or tensors, in order): required for a live torch module, a
                JAX function (there: trees of arrays), and ``check``, which evaluates every rewrite
                on them.  They bind symbolic sizes of the model; for an ONNX model also values that
                determine shapes, axes or branches: calls with other values are rejected.
    ``target``  ``cpu``, ``cuda`` or another that is installed; ``options`` are the target's.
    ``finish``  False: no pass has run yet, call ``step()``.
    ``pass_timeout``  time limit of a pass in seconds (None: no limit).
    ``frontend``  ``onnx-passes``: an ONNX model is read as a graph of ONNX nodes, and the passes of
                that level run before the import.
    ``training``  the loss, the optimiser and so on: the result is then a
                :class:`~core_compiler.training.run.step.TrainingStep`; ``inputs`` are an example
                batch: the model's inputs, then the targets unless the loss is the model's own.
    ``quantize``  a :class:`~core_compiler.pipelines.quantization.Quantization`: the passes of
                post-training quantisation run at the end of the meaning half.
    ``record``  a ``.run`` that is written pass by pass: the page (``workbench open``, also in
                another process) shows the compile live.  With ``finish=False``, write it on
                demand: ``c.record(path)``.

    UserError says what is wrong with a model, where, and how to fix it.
    """
    if record is not None and not finish:
        raise UserError(
            "record and finish=False are mutually exclusive",
            "compile",
            "call c.record(path) to write the recording",
        )
    assert_no_flush_to_zero()  # before the import, which computes sizes and constants
    if training is not None:
        if not isinstance(training, Training):
            raise UserError(
                f"expected training to be a cc.Training, got {type(training).__name__}",
                "compile",
                "pass a cc.Training(loss=..., optimizer=...)",
            )
        if quantize is not None:
            raise UserError(
                "a training step is not quantised after training",
                "compile",
                "train fake-quantised values, or quantise the trained model",
            )
        step = _training_step(
            model,
            inputs,
            training,
            target,
            Options(check, True, threads, edit, dict(options or {}), pass_timeout, training),
            observer,
        )
        if finish:
            finished(step.compilation, record)
        return step
    if not isinstance(quantize, Quantization | None):
        raise UserError(
            f"expected quantize to be a cc.Quantization, got {type(quantize).__name__}",
            "compile",
            "pass a cc.Quantization()",
        )
    found = targets.target(target) if isinstance(target, str) else target
    key = known_models.key_of(model, inputs, found.name)
    if finish and not (known := known_models.is_known(key)):
        found.prepare()
    opened = open_model(model, inputs) if frontend is None else _as_graph(model, inputs, frontend)
    imported, arrays = opened.imported, opened.inputs
    if arrays is not None:
        _need_examples(imported, arrays)
        arrays = (*arrays, *imported.state)
    if quantize is not None:
        edit = quantize.edited(edit)
    how = Options(check, True, threads, edit, dict(options or {}), pass_timeout)
    made = start(imported.module, found, how, arrays, observer)
    if quantize is not None:
        made.facts.update(quantize.facts(arrays))
    made.bind_import(imported)
    made.about = _about(model, imported, found.name, how)
    trees: tuple = ()
    if imported.facts.get("frontend") == "jax":
        from core_compiler.frontends.stablehlo import jax

        made.leaves, trees = jax.leaves, (jax.refilled,)
    if frontend is None and not isinstance(model, Imported | Module):
        made.other_sizes = OtherSizes(made, _reopener(model, imported.module.weights), *trees)
    if not finish:
        return made
    finished(made, record)
    if not known:
        known_models.remember(key)
    return made


def finished(made: Compilation, record: str | Path | None) -> Compilation:
    """Run all passes, writing a recording if requested."""
    if record is None:
        return made.finish()
    from core_compiler.record.recorder import Recorder

    with Recorder(record) as recorder:
        made.finish_and_report(recorder)
    return made


def _reopener(model: Any, weights: WeightStore) -> Callable[[Sequence], Imported]:
    """Return a function that imports the model again, for inputs of other sizes.

    ``weights``: those of the first import.
    """
    stamp = _stamp(model)

    def reopen(arrays: Sequence) -> Imported:
        if _stamp(model) != stamp:
            raise UserError("the file has changed", str(model), "compile it again")
        opened = open_model(model, arrays, earlier=weights)
        if opened.inputs is not None:
            _need_examples(
                opened.imported,
                opened.inputs,
                "call",
                "pass that shape, or export the model so that this size may vary",
            )
        return opened.imported

    return reopen


def _stamp(model: Any) -> tuple[int, int] | None:
    """Return what tells a changed model file from the one that was compiled; None: no file."""
    if not isinstance(model, str | Path) or not Path(model).is_file():
        return None
    found = Path(model).stat()
    return found.st_mtime_ns, found.st_size


def _training_step(
    model: Any,
    inputs: Sequence | None,
    training: Training,
    target: str | Any,
    how: Options,
    observer: Observer | None,
) -> TrainingStep:
    """Return the training step of a model before its first pass; ``inputs``: an example batch."""
    if inputs is None or not len(inputs):
        raise UserError(
            "a training step needs an example batch",
            "compile",
            "pass the model's inputs, then the targets",
        )
    if training.shards > 1:
        inputs = shard_of(as_arrays(inputs), 0, training.shards)
    imported, joint, arrays = _begun_step(model, inputs, training)
    found = targets.target(target) if isinstance(target, str) else target
    first = [np.zeros((), np.int64)] * len(joint.roles.numbers("shard"))
    examples = [*arrays, *first, *joint.state]
    made = start(joint.module, found, how, examples, observer)
    indices = names(joint.roles)
    name_at = {index: name for name, index in indices.items()}
    input_names = [name_at.get(i, a[1]) for i, a in enumerate(joint.roles.arguments)]
    made.set_names(input_names, [])
    made.check_import(imported)
    made.about = {
        **_about(model, imported, found.name, how),
        "mode": "training",
        "inputs": input_names,
        "outputs": ["loss"],
        "training": dict(training.facts()),
    }
    order = imported.facts.get("parameters", ())
    tied = imported.facts.get("tied", ())
    step = TrainingStep(joint.roles, joint.state, training.shards, tied, made, order)
    if not isinstance(model, Imported | Module):
        step.other_batches = OtherBatches(step, _step_reopener(model, training))
    step.classes, step.positions = joint.classes, imported.positions
    step.fixed, step.unread = joint.fixed, imported.unread
    step.transient = frozenset(imported.facts.get("transient", ()))
    return step


def _begun_step(
    model: Any, inputs: Sequence, training: Training, where: str = "compile"
) -> tuple[Imported, Joint, list[np.ndarray]]:
    """Return the import of a model that trains, the start of its step, and the batch as arrays.

    ``inputs`` is an example batch of one shard.
    """
    own = len(inputs) if isinstance(training.loss, Own) else len(inputs) - 1
    opened = open_model(model, inputs[:own], training=True)
    imported = opened.imported
    arrays = [*(opened.inputs or ()), *as_arrays(inputs[own:])]
    joint = build_joint(
        imported.module,
        training,
        inputs=imported.inputs,
        buffers=imported.state,
        tied=imported.facts.get("tied", ()),
        constants=imported.constants,
    )
    _need_batch(
        joint.roles,
        joint.module.main.arguments[: len(joint.roles.numbers("batch"))],
        arrays,
        training.loss,
        imported.module.main.outputs[0].type,
        where,
    )
    return imported, joint, arrays


def _step_reopener(
    model: Any, training: Training
) -> Callable[[Sequence[np.ndarray]], tuple[Imported, Joint]]:
    """Return a function that begins the step of a model again, for batches of other sizes."""
    stamp, modes = _stamp(model), _modes(model)

    def reopen(batch: Sequence[np.ndarray]) -> tuple[Imported, Joint]:
        if _stamp(model) != stamp:
            raise UserError("the file has changed", str(model), "compile it again")
        present = _modes(model)
        try:
            _set_modes(modes)  # the parts that train, as at the compile
            imported, joint, _ = _begun_step(model, batch, training, "training step")
        finally:
            _set_modes(present)
        return imported, joint

    return reopen


def _modes(model: Any) -> list[tuple[Any, bool]]:
    """Return the parts of a torch module and whether each is in training mode."""
    parts = getattr(model, "modules", None)
    return [(part, part.training) for part in parts()] if callable(parts) else []


def _set_modes(modes: Sequence[tuple[Any, bool]]) -> None:
    for part, mode in modes:
        part.training = mode


def _need_examples(
    imported: Imported,
    arrays: Sequence[np.ndarray],
    where: str = "compile",
    fix: str = "pass inputs with the model's shapes and dtypes",
) -> None:
    """Raise UserError if example inputs do not match the model's."""
    for name, value, array in zip(
        imported.inputs, imported.module.main.arguments, arrays, strict=False
    ):
        kind = value.type  # (a graph's own may have symbolic sizes)
        if not isinstance(kind, TensorType) or not kind.is_static:
            continue
        if array.shape != kind.shape or array.dtype != kind.dtype.numpy:
            given = "x".join(map(str, array.shape)) or "scalar"
            what = "input" if where == "call" else "example input"
            raise UserError(
                f"expected {what} {name} to be {kind}, got {array.dtype} {given}", where, fix
            )


def _need_batch(
    roles: Roles,
    wanted: Sequence[Value],
    arrays: Sequence[np.ndarray],
    loss: Loss,
    output: TensorType,
    where: str,
) -> None:
    """Raise UserError if the example batch does not fit.

    The operands that the loss compares determine the targets.
    """
    for (_, name, _), value, array in zip(roles.arguments, wanted, arrays, strict=False):
        if array.shape != value.type.shape or array.dtype != value.type.dtype.numpy:
            given = "x".join(map(str, array.shape)) or "scalar"
            fix = "pass an example batch with the shapes and dtypes to train on"
            if where != "compile":
                fix = "pass that shape, or export the model so that this size may vary"
            if name == "targets":
                other = loss.hint(output, array.shape) or "another loss"
                fix = f"pass targets of {value.type.dtype.numpy} in that shape, or use {other}"
            raise UserError(
                f"expected {name} to be {value.type}, got {array.dtype} {given}", where, fix
            )
    if len(arrays) != len(wanted):
        listed = ", ".join(a[1] for a in roles.arguments[: len(wanted)])
        raise UserError(
            f"expected a batch of {listed}, got {len(arrays)} tensors",
            "compile",
            "pass the model's inputs, then the targets",
        )


def _about(model: Any, imported: Imported, target: str, how: Options) -> dict[str, Any]:
    """Return the recording's description of how it was made."""
    return {
        "model": name_of(model),
        "target": target,
        "mode": "inference",
        "inputs": list(imported.inputs),
        "outputs": list(imported.outputs),
        "facts": dict(imported.facts),
        "sources": dict(imported.sources),
        "threads": how.threads,
        "checked": how.check,
    }


def _as_graph(model: Any, inputs: Sequence | None, frontend: str) -> Opened:
    """Return an ONNX model as a module of level ``onnx``, and its inputs as arrays."""
    if level_of(frontend) != "onnx":
        fix = f"choose {' or '.join(LEVELS_OF)}, or leave it out to detect it from the model"
        raise UserError(f"unknown frontend {frontend!r}", "compile", fix)
    from core_compiler.onnx_level import read

    if isinstance(model, str | Path):
        module = read.read_file(model)
    elif type(model).__module__.partition(".")[0] == "onnx":
        module = read.read(model)
    else:
        raise UserError(
            f"{name_of(model)} is not an ONNX model",
            "compile",
            "pass a .onnx file or a ModelProto, or leave frontend out",
        )
    main = module.main
    facts = {"frontend": frontend, "opset": dict(main.attributes["opsets"]).get("", 0)}
    names = tuple(v.name or "" for v in main.arguments), main.attributes["outputs"]
    return Opened(
        Imported(module, *names, {}, facts), None if inputs is None else as_arrays(inputs)
    )
