"""``workbench export RUN -o FILE.run``: a complete copy; ``-o FILE.trace.json``: a trace for
Perfetto; ``--stage N -o x.mlir`` (or ``.dot``, ``.svg``): a stage."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from core_compiler.errors import UserError
from workbench.commands import subject
from workbench.commands.compile_model import output
from workbench.commands.printing import emit

#: A stage as a drawing: Graphviz's text, or laid out.
DRAWINGS = (".dot", ".svg")


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="a .run, a .json (a trace for Perfetto), or with --stage a .mlir, .dot or .svg",
    )
    parser.add_argument("--stage", metavar="N|PASS", help="only this stage: MLIR text, or drawn")
    parser.add_argument(
        "--locations",
        choices=("none", "short", "full"),
        default="full",
        help="where ops come from, in the text (default full)",
    )


def run(arguments) -> None:
    as_trace = arguments.stage is None and arguments.output.lower().endswith(".json")
    given = Path(arguments.output).suffix.lower()
    of_stage = given if given in DRAWINGS else ".mlir"
    suffix = ".json" if as_trace else ".run" if arguments.stage is None else of_stage
    path = output(arguments.output, suffix)
    with subject.recording(arguments, execute=as_trace) as opened:
        if as_trace:
            from core_compiler.exporters.trace import trace

            stage = None
            _write(path, json.dumps(trace(opened), allow_nan=False))
        elif arguments.stage is None:
            if path.exists() and path.samefile(opened.path):
                raise UserError("this is the recording itself", str(path), "choose another name")
            _copy(opened, path)
            stage = None
        else:
            stage = subject.find_stage(opened, arguments.stage, "--stage")
            if of_stage in DRAWINGS:
                from core_compiler.exporters.dot import draw

                drawing = draw(opened.module(stage))
                _write(path, drawing.dot if of_stage == ".dot" else drawing.svg)
                return _told(arguments, path, stage)
            locations = "" if arguments.locations == "none" else arguments.locations
            _write(path, opened.text(stage, locations=locations))
    _told(arguments, path, stage)


def _told(arguments, path: Path, stage: int | None) -> None:
    data = {"file": str(path), "bytes": path.stat().st_size, "stage": stage}
    emit(arguments, data, f"{path}: {data['bytes']:,} bytes")


def _copy(opened, path: Path) -> None:
    """The whole recording; what was at ``path`` before goes only when the copy is complete."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        opened.export(draft)
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as problem:
        raise UserError(
            f"cannot be written: {problem.strerror}", str(path), "choose another place"
        ) from None
