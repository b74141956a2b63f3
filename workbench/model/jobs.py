"""The one path from a model to a recording, for the command line, the page and notebooks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from core_compiler import targets
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Cancelled, Compilation, Options
from core_compiler.driver.kernel_records import report
from core_compiler.ir.events import Observer, Observers
from core_compiler.numerics.contract import made_with
from core_compiler.pipelines.edit_data import edit_facts
from core_compiler.record.recorder import Recorder
from core_compiler.record.resumed import ExecutionRecorder
from core_compiler.runtime.budget import SECONDS
from core_compiler.support.errors import CANNOT_HERE, UserError
from workbench.model import peers, recorded_model
from workbench.model.models import Model
from workbench.model.stepping import Hold
from workbench.queries import numeric_results

_LIBRARIES = ("torch", "onnx", "transformers", "numpy", "numba", "llvmlite")


def compile(
    model: Model,
    target: str | Any = "cpu",
    options: Options = Options(),
    path: Path | str | None = None,
    observer: Observer | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    execute: bool = False,
    source_text: bool = True,
    hold: Hold | None = None,
    against: str = "",
    seconds: float = SECONDS,
) -> Compilation:
    """Compile ``model`` for ``target``; with ``path``, record everything into that ``.run`` file.

    ``execute`` runs the program once on the model's inputs and times every launch (within
    ``seconds``), into the same recording, or records why this machine cannot. ``against`` names
    the framework whose values are compared with the import's, node by node. A compile that fails
    or is stopped keeps its finished stages; the recording then states how it ended. ``hold``
    decides before each pass whether to run it.
    """
    # Reject invalid options before a recording of that name is replaced.
    compared = peers.values(model, against) if against else None
    watchers = [o for o in (observer,) if o is not None]
    recorder = None if path is None else Recorder(Path(path), source_text=source_text)
    if recorder is not None:
        watchers.append(recorder)
    observers = Observers(*watchers)
    observers.begin(describe(model, getattr(target, "name", target), options, source_text))
    try:
        started = time.perf_counter()
        if not model.cached:
            # A new model will need kernels that no cache has yet.
            (targets.target(target) if isinstance(target, str) else target).prepare()
        made = compilation.start(
            model.imported.module,
            target,
            recorded_model.with_training(options, model),
            model.inputs,
            observers,
            cancelled,
        )
        if compared is not None:
            _compare(compared, against, observers)
        made.bind_import(model.imported)
        if hold is not None:
            hold.begin(observers, recorder)
            while hold.should_step(made):
                made.step()
        made.finish()
        observers.figures({"compile_seconds": time.perf_counter() - started})
        report(made, observers)
        if cancelled():
            raise Cancelled
        missing = made.not_executed if execute else None
        if missing:
            observers.figures({"not_executed": missing})
        elif execute:
            made.profile(*model.inputs, seconds=seconds)
    except (KeyboardInterrupt, Cancelled):
        observers.end("cancelled", "stopped by the user")
        raise
    except UserError as error:
        observers.end("failed", str(error))
        raise
    except Exception as error:
        observers.end("failed", f"{type(error).__name__}: {error}")
        raise
    observers.end("finished")
    return made


def execute(
    model: Model,
    target: str | Any,
    options: Options,
    path: Path | str,
    observer: Observer | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    seconds: float = SECONDS,
) -> Compilation:
    """Execute the program of the recording ``path`` again and add its launch times.

    ``model``, ``target`` and ``options`` are those it was compiled with: the program is compiled
    again, mostly from caches. UserError if that results in another program than the recorded one,
    or if this machine cannot execute it.
    """
    made = compile(
        model, target, replace(options, check=False), observer=observer, cancelled=cancelled
    )
    if made.not_executed:
        raise UserError(
            made.not_executed,
            f"target {made.target.name}",
            "execute it on a machine that has the device",
            CANNOT_HERE,
        )
    is_original = not recorded_model.describe_stand_ins(model)
    recorder = ExecutionRecorder(
        path, made.identity if is_original else "", made.module, digests=is_original
    )
    try:
        made.observer = Observers(made.observer, recorder)
        made.profile(*model.inputs, seconds=seconds)
    finally:
        recorder.close()
    return made


def _compare(compared: Callable[..., Any], against: str, observers: Observer) -> None:
    """Report the comparison of the import's values with the framework's."""
    what = f"compare with {against}"
    found = compared(lambda done, total: observers.progress(what, done, total))
    observers.framework(found.records)
    name, beyond = numeric_results.FRAMEWORK, found.beyond
    observers.figures(
        {
            name: against,
            f"{name}_left_out": found.left_out,
            f"{name}_verdict": found.verdict,
            f"{name}_tried": found.tried,
            f"{name}_beyond": "" if beyond is None else json.dumps(numeric_results.beyond(beyond)),
        }
    )


def describe(
    model: Model, target: str, options: Options, source_text: bool = True
) -> dict[str, Any]:
    """Return the facts that a recording states about its compile.

    ``source_text``: with the code of inserted passes.
    """
    facts = dict(model.imported.facts)
    trained = facts.get("training")
    return {
        "model": model.name,
        "spec": model.spec.text,
        "kind": model.spec.kind,
        "frontend": model.spec.frontend,
        "sizes": dict(model.spec.sizes),
        "target": target,
        "mode": "inference" if trained is None else "training",
        **({} if trained is None else {"training": trained}),
        "inputs": list(model.imported.inputs),
        "outputs": list(model.imported.outputs),
        "facts": facts,
        "imported_from_cache": model.cached,
        **made_with(),
        "threads": options.threads,
        "checked": options.check,
        "edit": edit_facts(options.edit, source_text),
        "target_options": dict(options.target),
        "pass_timeout": options.pass_timeout,
        "versions": {n: _version(n) for n in _LIBRARIES},
        "sources": dict(model.imported.sources),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
