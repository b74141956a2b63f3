"""``workbench reduce MODEL|RUN -o FOLDER``: the smallest module that still fails, as a program."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from core_compiler.support.errors import UserError
from workbench.commands import common, subject
from workbench.commands.printing import emit, painter, printable

if TYPE_CHECKING:
    from workbench.model.reducing import Suspect


def add_arguments(parser) -> None:
    common.add_model(parser, "RUN|MODEL")
    common.add_compile(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FOLDER", help="where to write reproducer.py"
    )
    parser.add_argument(
        "--stage", metavar="N|PASS", help="the wrong stage of a recording (its pass fails)"
    )
    parser.add_argument(
        "--time-limit",
        default="60s",
        metavar="TIME",
        help="time limit for reducing, 90s or 5m (default 60s)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-3,
        metavar="ERROR",
        help="largest relative error of the outputs for one inexact pass (default 1e-3)",
    )
    parser.add_argument(
        "--inputs",
        metavar="FILE.npz",
        help="arrays to run on, named as the inputs or arr_0, arr_1... (default: the model's own)",
    )
    parser.add_argument("--no-execute", action="store_true", help="do not run machine code")


def run(arguments) -> int:
    seconds = _seconds(arguments.time_limit)
    folder = _folder(arguments.output)
    if not arguments.tolerance > 0:
        raise UserError(
            f"expected a number above 0, got {arguments.tolerance:g}",
            "--tolerance",
            "pass a number above 0",
        )
    from workbench.model import reducing

    progress = common.progress()
    suspect = _suspect(arguments, progress)
    made = reducing.reduce_and_write(suspect, folder, seconds, progress.progress)
    progress.end("finished")
    if made is None:
        label, notes = suspect.trial.steps[-1].label, "".join(f" ({n})" for n in suspect.notes)
        raise UserError(
            f"pass {label} does not fail when it is run again{notes}: the values of this run do "
            "not trigger the failure, or it is fixed",
            arguments.model,
            "run `workbench bisect` to find what fails now, or try other inputs (--seed, --inputs) "
            "or another --stage",
        )
    data, found = made
    emit(arguments, data, lambda: _text(data, found))
    return 1


# -- location of the failure -----------------------------------------------------------------------


def _suspect(arguments, progress) -> Suspect:
    """Return the case to reduce.

    For a recording it is the given stage, or the first one whose check failed; otherwise, and if a
    pass ended the compile, the result of bisecting.
    """
    from core_compiler.driver import compilation
    from workbench.model import first_bad_pass, recorded_model, reducing

    number, names, single_step = None, [], None
    notes: tuple[str, ...] = ()
    if subject.is_recording(arguments.model):
        options, model, number, names, single_step = _recorded(arguments)
        stand_ins = recorded_model.describe_stand_ins(model, arguments.inputs is not None)
        notes = (stand_ins,) if stand_ins else ()
    elif arguments.stage is not None:
        raise UserError(
            "a model has no stages yet", "--stage", "name a recording, or leave --stage out"
        )
    else:
        options = common.options(arguments)
        model = common.load(arguments)
    if number is None and options.pass_timeout is None:
        options = replace(options, pass_timeout=reducing.PASS_SECONDS)
    inputs = model.inputs
    if arguments.inputs is not None:
        inputs = first_bad_pass.read_inputs(Path(arguments.inputs), model)
    made = compilation.start(model.imported.module, arguments.target, options, inputs)
    if single_step is not None:
        made.steps = [single_step]
    labels = [step.label for step in made.steps]
    count = min(len(names), number or len(names))
    if names[:count] != labels[:count] or (number or 0) > len(labels):
        raise recorded_model.another_pipeline(arguments.model)
    if arguments.no_execute:
        made.steps = [step for step in made.steps if step.pass_.name() != "generate_code"]
    if number is None:
        number = _found(arguments, made, inputs, progress)
    else:
        while len(made.stages) < number:
            progress.progress(f"compile {made.steps[len(made.stages) - 1].label}", 0, 0)
            made.step()
    return reducing.suspect(
        [stage.module for stage in made.stages],
        made.steps,
        number,
        model.name,
        inputs,
        made.target,
        options,
        arguments.tolerance,
        notes,
    )


def _found(arguments, made, inputs, progress) -> int:
    """Return the stage that shows the first wrong pass of a compile, by bisecting."""
    from core_compiler.debug.bisect import bisect
    from core_compiler.driver.legality import levels

    found = bisect(
        made,
        inputs,
        levels=levels(),
        tolerance=arguments.tolerance,
        execute=not arguments.no_execute,
        progress=progress.progress,
    )
    if found is not None:
        return found.seen
    progress.end("finished")
    message = f"none of the {len(made.stages) - 1} passes fails"
    if subject.is_recording(arguments.model):
        message = f"no check failed in this recording, and {message} now"
    raise UserError(
        message,
        arguments.model,
        "name the suspect pass with --insert FILE.py:CLASS, or try other inputs (--seed, --inputs) "
        "or a recording with --stage N; if the import differs from its framework, run `workbench "
        "compile --against NAME` to find the node",
    )


def _recorded(arguments):
    """Return the facts of a recorded compile.

    They are its options, its model, the wrong stage (None: no check names one), the passes that
    made its stages, and the one pass that ran (None: a pipeline did).
    """
    from core_compiler.pipelines.pipeline import PipelineEdit, Step
    from core_compiler.record import Recording
    from workbench.model import models, recorded_model

    with Recording.open(arguments.model) as opened:
        meta, stages = opened.meta(), opened.stages()
        if not stages:
            raise UserError(
                "the recording has no stages", arguments.model, "compile the model again"
            )
        number = _wrong_stage(arguments, opened, stages)
    spec = recorded_model.spec_of(meta, arguments.model, arguments.trust, code=arguments.trust)
    options = common.recorded_options(arguments, meta)
    model = models.load(spec, cache=not arguments.no_import_cache)
    names = [stage.pass_name for stage in stages[1:]]
    single_step = None
    if meta.get("alone") and options.edit.insert:  # made by the pytest fixture run_pass
        ((_, pass_), *_), limits = options.edit.insert, options.edit.limits
        single_step = Step(pass_.name(), pass_, limits.get(pass_.name()))
        options = replace(options, edit=PipelineEdit())
    return recorded_model.with_training(options, model), model, number, names, single_step


# -- recordings ------------------------------------------------------------------------------------


def _wrong_stage(arguments, opened, stages) -> int | None:
    """Return the given stage, or the first whose check failed.

    The number of stages denotes the stage that the failing pass did not make.

    None if there is none.
    """
    if arguments.stage is not None:
        text = arguments.stage
        if text == str(len(stages)):  # the pass that ended the compile made no stage
            return len(stages)
        number = subject.find_stage(opened, text, "--stage")
        if number == 0:
            raise UserError("stage 0 is the import, not a pass", "--stage", "choose a later stage")
        return number
    return next((s.index for s in stages if s.index and s.verdicts.get("failed")), None)


# -- arguments and output --------------------------------------------------------------------------


def _seconds(text: str) -> float:
    """Return the seconds of ``90``, ``90s`` or ``5m``."""
    unit = {"s": 1.0, "m": 60.0}.get(text[-1:])
    try:
        seconds = float(text if unit is None else text[:-1]) * (unit or 1.0)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"invalid duration {text!r}", "--time-limit", "write 90s or 5m")
    return seconds


def _folder(text: str) -> Path:
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise UserError("expected a folder, got a file", text, "name a folder")
    if not path.exists() and not path.absolute().parent.is_dir():
        raise UserError("folder not found", str(path.parent), "create it first")
    return path


def _text(data, found) -> str:
    from core_compiler.ir.text import print_module

    paint = painter()
    lines = [
        paint("red", f"{data['pass']} fails") + f" ({data['how']}): {printable(data['note'])}",
        (
            "{model}: {ops_before} ops became {ops_after}, {tried} candidates in {seconds:.1f} s"
        ).format(**data),
    ]
    if data["stopped"]:
        lines.append(f"stopped early ({data['stopped']}): this is the smallest so far")
    lines += ["", printable(print_module(found.case.module).rstrip()), ""]
    lines += data["notes"]
    lines.append(f"{data['files'][0]}: python {Path(data['files'][0]).name}")
    if not data["runs_alone"]:
        lines.append(
            paint("red", "it does not reproduce the failure on its own: ") + printable(data["says"])
        )
    return "\n".join(lines)
