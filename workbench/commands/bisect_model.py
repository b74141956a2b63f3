"""``workbench bisect MODEL|RUN``: the first pass, and its rewrite, that changes the values."""

from __future__ import annotations

from pathlib import Path

from workbench.commands import common, subject
from workbench.commands.printing import emit, painter, printable


def add_arguments(parser) -> None:
    common.add_model(parser, "RUN|MODEL")
    common.add_compile(parser)
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-3,
        metavar="ERROR",
        help="largest relative error of the outputs against the import (default 1e-3)",
    )
    parser.add_argument(
        "--inputs",
        metavar="FILE.npz",
        help="arrays to run on, named as the inputs or arr_0, arr_1... (default: the model's own)",
    )
    parser.add_argument("--no-execute", action="store_true", help="do not check machine code")


def run(arguments) -> int:
    from workbench.model import first_bad_pass

    allowed = first_bad_pass.tolerance(arguments.tolerance)
    if subject.is_recording(arguments.model):
        options, model = _recorded(arguments)
    else:
        options = common.options(arguments)
        model = common.load(arguments)
    inputs = model.inputs
    if arguments.inputs is not None:
        inputs = first_bad_pass.read_inputs(Path(arguments.inputs), model)
    search = first_bad_pass.Search(
        model, arguments.target, options, inputs, allowed, not arguments.no_execute
    )
    progress = common.progress()
    data, _, found = search.run(progress.progress)
    progress.end("finished")
    emit(arguments, data, lambda: _text(data))
    return int(found is not None)


def _recorded(arguments):
    """Return the options of a recorded compile, and its model, imported again."""
    from core_compiler.record import Recording
    from workbench.model import memory_need, models, recorded_model

    with Recording.open(arguments.model) as opened:
        meta = opened.meta()
    spec = recorded_model.spec_of(meta, arguments.model, arguments.trust)
    options = common.recorded_options(arguments, meta)
    memory_need.before_import(spec)
    return options, models.load(spec, cache=not arguments.no_import_cache)


def _text(data) -> str:
    paint = painter()
    looked = data["looked"]
    if data["first_bad_pass"] is None:
        missing, launches = looked["not_executed"], looked["launches"]
        code = (
            f"; machine code was not compared: {missing}"
            if missing
            else (f", nor in the machine code of {launches} launches")
        )
        worst = (
            f"the relative error of the outputs is at most {looked['error']:.3g} (of max abs), "
            f"after {looked['worst_pass']}"
            if looked["worst_pass"]
            else "the outputs are bitwise equal to those of the import"
        )
        summary = f"{data['model']}: no fault found in {looked['passes']} passes{code}\n{worst}"
        return f"{summary}\n{data['stood_in']}" if data["stood_in"] else summary
    lines = [
        paint("red", f"{data['first_bad_pass']} is wrong")
        + f" (stage {data['stage']}, seen: {data['how']})",
        printable(data["note"]),
    ]
    rewrite = data["first_bad_rewrite"]
    if rewrite:
        lines.append(
            ("" if rewrite["number"] is None else f"rewrite {rewrite['number']}: ")
            + printable(rewrite["rule"] or "the one that raised")
            + (f"  ({rewrite['source']})" if rewrite["source"] else "")
        )
        lines += [paint("red", f"  - {printable(line)}") for line in rewrite["old"][:12]]
        lines += [paint("green", f"  + {printable(line)}") for line in rewrite["new"][:12]]
    if data["value"]:
        at = f" at {data['index']}" if data["index"] else ""
        lines.append(
            f"value {printable(data['value'])}{at}, relative error {data['error']:.3g} (of max abs)"
            if data["error"] == data["error"]
            else f"value {printable(data['value'])}"
        )
    if data["numbers"]:
        right, wrong = data["numbers"]
        distance = "" if data["ulps"] is None else f" ({data['ulps']:,} ulps)"
        lines.append(f"{right:.9g} became {wrong:.9g}, {data['absolute']:.3g} apart{distance}")
    lines += [f"model: {printable(line)}" for line in data["model_lines"]]
    lines += [data["stood_in"]] if data["stood_in"] else []
    return "\n".join(lines)
