"""``workbench export RUN -o FILE``: a copy, a trace, a stage or tables of a recording.

``-o FILE.run``: a complete copy; ``-o FILE.trace.json``: a trace for Perfetto; ``--stage N -o
x.mlir`` (or ``.dot``, ``.svg``): a stage; ``-o x.onnx`` (or ``.pt2``, ``.py``, ``.tosa.mlir``,
``.linalg.mlir``): a stage with its weights, for other tools; ``-o x.graph.json``: graphs for Model
Explorer; ``--tables csv``: every table.
"""

from __future__ import annotations

import json
import os
from contextlib import closing, suppress
from pathlib import Path

from core_compiler.driver.export import ending
from core_compiler.exporters.base import write_text
from core_compiler.support.errors import UserError, nearest
from workbench.commands import common, export_tables, subject
from workbench.commands.compile_model import output
from workbench.commands.printing import emit

#: A stage as a drawing: Graphviz's text, or a layout.
DRAWINGS = (".dot", ".svg")
#: Stages as graphs for Model Explorer.
GRAPHS = ".graph.json"


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="a .run, a .json (a trace for Perfetto), a .graph.json (for Model Explorer), with "
        "--stage a .mlir, .dot or .svg; a .onnx, .pt2 (PyTorch), .py (NumPy), .tosa.mlir or "
        ".linalg.mlir of a stage with its weights; a table as .csv or .parquet, a folder for "
        "--tables",
    )
    parser.add_argument(
        "--stage",
        metavar="N|PASS",
        help="only this stage (with weights by default the last that all targets share; of "
        ".graph.json every stage that changed something)",
    )
    parser.add_argument(
        "--integer-only",
        action="store_true",
        help="with --quantize, of .tosa.mlir: TOSA's integer profile, a function that takes and "
        "returns integers (comments give their scales)",
    )
    parser.add_argument(
        "--locations",
        choices=("none", "short", "full"),
        default="full",
        help="source locations of ops in the text (default full)",
    )
    export_tables.add_arguments(parser)


def run(arguments) -> None:
    if export_tables.is_meant(arguments):
        return export_tables.run(arguments)
    if arguments.other:
        raise UserError(
            "two recordings can only be exported as tables",
            "--other",
            "add --tables csv, or name a table: -o two_kernels.csv",
        )
    if arguments.integer_only and not (arguments.output or "").lower().endswith(".tosa.mlir"):
        raise UserError(
            "only TOSA has an integer profile", "--integer-only", "add -o FILE.tosa.mlir"
        )
    if not arguments.output:
        raise UserError("missing output file", "-o", "pass one, for example -o x.trace.json")
    if arguments.output.lower().endswith(GRAPHS):
        return _graphs(arguments)
    if ending(arguments.output) not in (None, ".mlir"):
        return _export_with_weights(arguments)
    as_trace = arguments.stage is None and arguments.output.lower().endswith(".json")
    given = Path(arguments.output).suffix.lower()
    of_stage = given if given in DRAWINGS else ".mlir"
    suffix = ".json" if as_trace else ".run" if arguments.stage is None else of_stage
    if arguments.stage is None and given in DRAWINGS:
        raise UserError(
            "a drawing shows one stage only",
            arguments.output,
            "add --stage with a number or a pass (`workbench passes` lists them)",
        )
    path = output(arguments.output, suffix)
    with subject.recording(arguments, execute=as_trace) as opened:
        if as_trace:
            stage = None
            write_text(path, [_trace(opened)])
        elif arguments.stage is None:
            if path.exists() and path.samefile(opened.path):
                raise UserError(
                    "the output is the recording itself", str(path), "choose another name"
                )
            _copy(opened, path)
            stage = None
        else:
            stage = subject.find_stage(opened, arguments.stage, "--stage")
            if of_stage in DRAWINGS:
                from core_compiler.exporters.dot import draw

                drawing = draw(opened.module(stage))
                write_text(path, [drawing.dot if of_stage == ".dot" else drawing.svg])
                return _report_file(arguments, path, stage)
            locations = "" if arguments.locations == "none" else arguments.locations
            write_text(path, [opened.text(stage, locations=locations)])
    _report_file(arguments, path, stage)


def _graphs(arguments) -> None:
    from workbench.export import model_explorer
    from workbench.queries.run import Run

    path = output(arguments.output, ".json")
    with subject.recording(arguments, execute=True) as opened, closing(Run(opened.path)) as run:
        stages = model_explorer.changed(run.stages())
        if arguments.stage is not None:
            stages = [subject.find_stage(opened, arguments.stage, "--stage")]
        if not stages:
            raise UserError(
                "the recording has no stages", arguments.model, "choose another recording"
            )
        nodes = model_explorer.write(run, stages, path)
    data = {"file": str(path), "bytes": path.stat().st_size, "stages": stages, "nodes": nodes}
    count = f"{len(stages)} graphs" if len(stages) > 1 else "1 graph"
    emit(arguments, data, f"{path}: {count}, {nodes:,} nodes, {data['bytes']:,} bytes")


def _export_with_weights(arguments) -> None:
    """Export a stage with its weights, from a new compile: a recording has no weights."""
    path = output(arguments.output, Path(arguments.output).suffix.lower())
    made = _start_compile(arguments)
    wanted = arguments.stage
    last = {"onnx": "source"}.get(made.level if path.suffix == ".onnx" else "", "meaning")
    while made.next is not None and not _is_stage(made.stages[-1], wanted):
        if wanted is None and made.next.half not in ("source", last):
            break
        if wanted is None and last == "source" and made.next.label == "import_onnx":
            break
        made.step()
    stage = made.stages[-1]
    if wanted is not None and not _is_stage(stage, wanted):
        names = [s.name for s in made.stages]
        fix = nearest(wanted, names, f"choose a stage from 0 to {len(names) - 1}, or a pass")
        raise UserError(f"unknown stage {wanted!r}", "--stage", fix)
    files = stage.export(path, **({"integer_only": True} if arguments.integer_only else {}))
    sizes = {str(f): f.stat().st_size for f in files}
    data = {"file": str(path), "files": sizes, "stage": stage.index, "pass": stage.name}
    sizes_text = "\n".join(f"{name}: {size:,} bytes" for name, size in sizes.items())
    emit(arguments, data, f"stage {stage.index} ({stage.name})\n{sizes_text}")


def _is_stage(stage, wanted: str | None) -> bool:
    return wanted is not None and wanted in (str(stage.index), stage.name)


def _start_compile(arguments):
    """Return the compile that the arguments or their recording describe, before its first pass."""
    from core_compiler.driver import compilation
    from workbench.model import edits, memory_need, models, recorded_model

    if not subject.is_recording(arguments.model):
        model, options = common.load(arguments), common.options(arguments)
        target = arguments.target
    else:
        from core_compiler.record import Recording

        subject.need_no_options(arguments)
        with Recording.open(arguments.model) as opened:
            meta = opened.meta()
        spec = recorded_model.spec_of(meta, arguments.model)
        memory_need.before_import(spec)
        target = str(meta.get("target") or "cpu")
        if arguments.target not in (common.TARGET, target):
            raise UserError(
                f"the recording was compiled for {target}",
                "--target",
                "leave it out, or name the model instead of the recording",
            )
        model = models.load(spec)
        edit = edits.checked(meta.get("edit"))
        if edit["insert"]:
            raise UserError(
                "the recording was compiled with inserted passes",
                arguments.model,
                "name the model instead, and pass them with --insert",
            )
        options = compilation.Options(
            edit=edits.from_json(edit), target=dict(meta.get("target_options") or {})
        )
    options = recorded_model.with_training(options, model)
    made = compilation.start(model.imported.module, target, options, model.inputs)
    made.set_names(model.imported.inputs, model.imported.outputs)
    return made


def _trace(opened) -> str:
    from core_compiler.exporters.trace import trace

    try:
        return json.dumps(trace(opened), allow_nan=False)
    except ValueError:
        raise UserError(
            "the recording contains non-finite times", str(opened.path), "record the compile again"
        ) from None


def _report_file(arguments, path: Path, stage: int | None) -> None:
    data = {"file": str(path), "bytes": path.stat().st_size, "stage": stage}
    emit(arguments, data, f"{path}: {data['bytes']:,} bytes")


def _copy(opened, path: Path) -> None:
    """Copy the whole recording; only a complete copy replaces a file at ``path``."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        opened.export(draft)
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
