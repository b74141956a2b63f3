"""Shared parts of commands: naming a model, compile options, importing it, progress.

The compiler is imported inside the functions that need it, so that ``--help`` and commands that
compile nothing stay fast.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from typing_extensions import override

from core_compiler.support.errors import UserError
from workbench.model.arguments import pairs, threads

#: The default target.
TARGET = "cpu"


def add_model(parser: argparse.ArgumentParser, metavar: str = "MODEL") -> None:
    """Add the arguments that name a model."""
    files = "a .onnx, .pt2, .keras or .mlir file, a SavedModel's folder"
    say = f"a sample (see `workbench models`), {files}, or package.module:function"
    parser.add_argument(
        "model",
        metavar=metavar,
        help=f"{say}; a .run file: its first stage"
        if metavar == "MODEL"
        else f"a .run file, or {say}",
    )
    parser.add_argument(
        "--frontend",
        metavar="NAME",
        help="the frontend: torch (default) or onnx for a sample; "
        "onnx-passes: import an ONNX graph and run the ONNX-to-ONNX passes first",
    )
    parser.add_argument("--width", type=float, help="scale the channels or features of a sample")
    parser.add_argument("--depth", type=int, help="number of blocks or layers of a sample")
    parser.add_argument("--batch", type=int, help="batch size of a sample")
    parser.add_argument("--seed", type=int, help="seed of a sample's weights and inputs")
    parser.add_argument(
        "--size",
        "--shape",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another size of a sample (image=64, sequence=32), one that a model file leaves "
        "open, by its name or as INPUT.AXIS (batch=5, x.0=5), or of the inputs of a function's "
        "model (x.0=5)",
    )
    parser.add_argument(
        "--trust", action="store_true", help="allow a .pt2 file to run code when it is loaded"
    )
    parser.add_argument("--no-import-cache", action="store_true", help="do not use cached imports")


def add_compile(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for compile options."""
    parser.add_argument(
        "-t", "--target", default=TARGET, help=f"what to compile for (default {TARGET})"
    )
    parser.add_argument("--threads", type=int, default=0, help="threads to execute with (0: all)")
    add_pipeline(parser)
    parser.add_argument(
        "--pass-timeout",
        type=float,
        metavar="SECONDS",
        help="stop a pass that takes longer, and report it (default: no limit)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help="time limit for measurements: fewer repeats, at least one (default 60)",
    )
    parser.add_argument(
        "--target-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the target (vector_width=8, tiles=small)",
    )


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that change the pipeline."""
    parser.add_argument("--skip", action="append", default=[], metavar="PASS", help="skip a pass")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PASS.OPTION=VALUE",
        help="set an option of a pass",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="PASS=N",
        help="stop a pass after its first N rewrites",
    )
    parser.add_argument(
        "--insert",
        action="append",
        default=[],
        metavar="FILE.py[:CLASS]|NAME[@PLACE]",
        help="run a custom pass, or a built-in one that is in no pipeline (saturate, "
        "round_correctly, widen_sums, rematerialise, recompute), at after:PASS, before:PASS or a "
        "position (default: at the end of the meaning half)",
    )
    parser.add_argument(
        "--order",
        action="append",
        default=[],
        metavar="PASS,PASS...",
        help="run these passes in this order, in the positions that they have now",
    )
    parser.add_argument(
        "--repeat", action="append", default=[], metavar="PASS", help="run a pass twice in a row"
    )
    parser.add_argument(
        "--cut",
        action="append",
        default=[],
        metavar="PASS=N,N...",
        help="split a pass into several stages: the first N rewrites, the next N (20x1: twenty of "
        "one), then the rest",
    )
    parser.add_argument(
        "--quantize",
        choices=("int8",),
        help="quantise values to integers of 8 bits after training: passes observe, "
        "insert_quantization and integerize at the end of the meaning half",
    )
    parser.add_argument(
        "--calibrate",
        metavar="FILE.npz",
        help="arrays of samples for --quantize, by the names of the inputs (default: the example "
        "inputs)",
    )
    parser.add_argument(
        "--quantize-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of --quantize: method=minmax|percentile|mse|entropy, percentile=P, "
        "symmetric=true, weights=max|mse, rounding=nearest|gptq, correct_bias=true, "
        "equalise=true, smooth=STRENGTH",
    )
    parser.add_argument(
        "--keep-float",
        type=int,
        metavar="N",
        help="with --quantize: keep the N products in floats that lose most if they alone are "
        "quantised (0: measure only); takes about half an evaluation for each product and sample",
    )


#: The optional arguments of add_model and add_compile that do not apply to a recording.
COMPILE_ONLY = (
    "frontend",
    "width",
    "depth",
    "batch",
    "seed",
    "size",
    "trust",
    "skip",
    "set",
    "limit",
    "insert",
    "order",
    "repeat",
    "cut",
    "quantize",
    "calibrate",
    "quantize_option",
    "keep_float",
    "pass_timeout",
    "seconds",
    "target_option",
)


def spec(arguments):
    """Return the model that the arguments name (a ``spec.Spec``); UserError if it is invalid."""
    from workbench.model.spec import read_spec

    sizes = {name: getattr(arguments, name) for name in ("width", "depth", "batch", "seed")}
    for name, value in pairs(arguments.size, "--size").items():
        if name in sizes and (name != "batch" or sizes[name] is not None):
            raise UserError(f"{name} has its own option", "--size", f"use --{name} {value}")
        sizes[name] = value
    return read_spec(arguments.model, arguments.frontend, arguments.trust, **sizes)


def load(arguments):
    """Return the model that the arguments name, imported.

    It is rejected before the import if it cannot fit in memory.
    """
    from workbench.model import memory_need, models

    model_spec = spec(arguments)
    memory_need.before_import(model_spec)
    model = models.load(model_spec, cache=not arguments.no_import_cache)
    memory_need.before_compile(model)
    return model


def options(arguments, check: bool = False, pipeline_start: tuple[str, Any] | None = None):
    """Return the compile options from the arguments; UserError names a malformed one.

    ``pipeline_start``: the level that the pipeline begins with and the training of the model
    (default: those of their model).
    """
    from core_compiler import targets
    from core_compiler.driver.compilation import Options
    from core_compiler.pipelines.pipeline import build
    from workbench.model import recorded_model

    if arguments.pass_timeout is not None and not 0 < arguments.pass_timeout < inf:
        raise UserError(
            f"expected a time above 0, got {arguments.pass_timeout:g} s",
            "--pass-timeout",
            "pass a number of seconds above 0",
        )
    chosen = pairs(arguments.target_option, "--target-option")
    edit = pipeline_edit(arguments)
    level, training = pipeline_start or recorded_model.pipeline_start(spec(arguments))
    # Reject invalid options before the import.
    build(targets.target(arguments.target), chosen, edit, level, training)
    return Options(
        check=check,
        threads=threads(arguments),
        edit=edit,
        target=chosen,
        pass_timeout=arguments.pass_timeout,
    )


def recorded_options(arguments, meta: Mapping[str, Any]):
    """Return the compile's options as recorded, with ``--insert`` from the arguments."""
    from dataclasses import replace

    from workbench.model import edits, recorded_model, user_pass

    edit = edits.checked(meta.get("edit"))
    inserted = edit["insert"]
    arguments.target = str(meta.get("target", arguments.target))
    pipeline_start = recorded_model.level(meta), recorded_model.training(meta)
    found = options(arguments, pipeline_start=pipeline_start)
    inserted_passes = [pass_ for _, pass_ in found.edit.insert]
    all_builtin = all(user_pass.builtin_pass(item) is not None for item in inserted)
    if not inserted_passes and (all_builtin or arguments.trust):
        inserted_passes = [pass_ for _, pass_ in edits.from_json(edit).insert]
    if len(inserted_passes) != len(inserted):
        names = ", ".join(str(item.get("pass", "")) for item in inserted) or "none"
        raise UserError(
            f"expected the {len(inserted)} inserted passes of the recorded compile ({names}), "
            f"got {len(inserted_passes)}",
            "--insert",
            "insert the same passes, or --trust the code in the recording",
        )
    recorded = replace(
        found.edit,
        skip=(*edit["skip"], *found.edit.skip),
        limits={**edit["limits"], **found.edit.limits},
        options={**edit["options"], **found.edit.options},
        insert=tuple(zip((item["place"] for item in inserted), inserted_passes, strict=True)),
        order=(*edit["order"], *found.edit.order),
        repeat=(*edit["repeat"], *found.edit.repeat),
        cuts={**edits.from_json({"cuts": edit["cuts"]}).cuts, **found.edit.cuts},
    )
    return replace(
        found,
        edit=recorded,
        target={**(meta.get("target_options") or {}), **found.target},
        pass_timeout=found.pass_timeout or meta.get("pass_timeout"),
    )


def pipeline_edit(arguments):
    """Return the pipeline edit from the arguments; UserError names a malformed one."""
    from core_compiler.pipelines.pipeline import PipelineEdit
    from workbench.model.edits import read_cuts

    settings: dict[str, dict[str, str]] = {}
    for text in arguments.set:
        name_and_option, _, value = text.partition("=")
        name, _, option = name_and_option.rpartition(".")
        if not name or not value:
            raise UserError(f"invalid value {text!r}", "--set", "write PASS.OPTION=VALUE")
        settings.setdefault(name, {})[option] = value
    limits = {}
    for text in arguments.limit:
        name, _, count = text.partition("=")
        if not count.isdecimal():
            raise UserError(f"invalid value {text!r}", "--limit", "write PASS=N")
        limits[name] = int(count)
    cuts = {}
    for text in arguments.cut:
        name, equals, parts = text.partition("=")
        if not equals:
            raise UserError(f"invalid value {text!r}", "--cut", "write PASS=N,N...")
        cuts[name] = read_cuts(parts, "--cut")
    edit = PipelineEdit(
        tuple(arguments.skip),
        settings,
        limits,
        tuple(map(_own_pass, arguments.insert)),
        tuple(name for text in arguments.order for name in text.split(",") if name),
        tuple(arguments.repeat),
        cuts,
    )
    from core_compiler.pipelines.quantization import Quantization

    given = {
        "--calibrate": arguments.calibrate,
        "--quantize-option": arguments.quantize_option,
        "--keep-float": arguments.keep_float,
    }
    if not arguments.quantize:
        for flag, value in given.items():
            if value:
                raise UserError("nothing is quantised", flag, "add --quantize int8")
        return edit
    data = str(Path(arguments.calibrate).resolve()) if arguments.calibrate else ""
    options = pairs(arguments.quantize_option, "--quantize-option")
    if arguments.keep_float is not None:
        options["keep_float"] = str(arguments.keep_float)
    return Quantization.of_text({**options, "data": data}).edited(edit)


def _own_pass(text: str) -> tuple[int | str, Any]:
    """Return (place, pass) of ``FILE.py:CLASS@PLACE``.

    The default place is the end of the meaning half.
    """
    from core_compiler.pipelines.pipeline import labels, meaning
    from workbench.model.user_code import load_pass

    name, at, place = text.rpartition("@")
    if not at or "/" in place:
        return f"after:{labels(meaning())[-1]}", load_pass(text)
    if place.isdecimal():
        return int(place), load_pass(name)
    return place if place.startswith(("after:", "before:")) else f"before:{place}", load_pass(name)


def seconds(arguments) -> float:
    """Return the validated ``--seconds``: the time budget of measurements."""
    from core_compiler.runtime.budget import SECONDS

    given = SECONDS if arguments.seconds is None else arguments.seconds
    if not 0 < given < inf:
        raise UserError(
            f"expected a time above 0, got {given:g} s",
            "--seconds",
            "pass a number of seconds above 0",
        )
    return given


#: Seconds after which long work is reported without a terminal, and again after each doubling.
REPORT_AFTER = 10.0


class _DelayedReporter:
    """A reporter of long measurements on standard error, for use without a terminal.

    It prints a line after ``REPORT_AFTER`` seconds, and again each time that the wait has doubled.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._what = ""

    def report(self, what: str) -> None:
        with self._lock:
            self._what = what
            if self._thread is None:
                self._over.clear()
                self._thread = threading.Thread(target=self._wait, args=(sys.stderr,), daemon=True)
                self._thread.start()

    def end(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            self._over.set()
        if thread is not None:
            thread.join()

    def _wait(self, stream) -> None:
        began, pause = time.monotonic(), REPORT_AFTER
        while not self._over.wait(pause):
            pause = time.monotonic() - began
            with contextlib.suppress(ValueError, OSError):  # standard error is closed
                print(f"workbench: {self._what} (since {pause:.0f} s)", file=stream, flush=True)


def progress(enabled: bool | None = None, measures: bool = False):
    """Return an observer that shows long work on one line of standard error, only on a terminal.

    Each warning of a pass has a line of its own. Without a terminal, long measurements are
    reported in lines of their own; with ``measures`` all work that precedes them, too.
    """
    from core_compiler.ir.events import WARNING, Diagnostic, Observer, StageRecord
    from core_compiler.runtime.budget import describe_cutoff

    class Progress(Observer):
        """A progress line, updated at most ten times a second."""

        shown = enabled if enabled is not None else sys.stderr.isatty()
        last = 0.0

        def __init__(self):
            self.reported: set[str] = set()
            self.reporter = _DelayedReporter()

        @override
        def timings(self, timings, figures: Mapping[str, Any]) -> None:
            if figures.get("ended_by_budget"):
                self.end("")
                repeats = describe_cutoff(
                    figures["repeats"], figures["repeats_wanted"], figures["seconds"]
                )
                print(f"workbench: {repeats}", file=sys.stderr, flush=True)

        @override
        def stage(self, stage: StageRecord) -> None:
            self.diagnostics(stage.index, stage.diagnostics)

        @override
        def diagnostics(self, stage_index: int, found: Sequence[Diagnostic]) -> None:
            for each in found:
                text = f"{WARNING}: {each.message}" + (f" ({each.where})" if each.where else "")
                if each.severity == WARNING and text not in self.reported:
                    self.reported.add(text)
                    self.end("")
                    print(text, file=sys.stderr, flush=True)

        @override
        def progress(self, what: str, done: int, total: int) -> None:
            now = time.perf_counter()
            text = f"{what}  {done}/{total}" if total else what
            if not self.shown:
                if enabled is None and (measures or what.startswith("time ")):
                    self.reporter.report(text)
                return
            if now - self.last < 0.1:
                return
            self.last = now
            width = shutil.get_terminal_size().columns - 1
            print("\r" + text[:width].ljust(width), end="", file=sys.stderr, flush=True)

        @override
        def end(self, status: str, message: str = "") -> None:
            self.reporter.end()
            if self.shown:
                blank = " " * (shutil.get_terminal_size().columns - 1)
                print(f"\r{blank}\r", end="", file=sys.stderr, flush=True)

    return Progress()
