"""What commands share: naming a model, compile options, progress, printing."""
from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from core_compiler.compiler import Options
from core_compiler.errors import UserError
from core_compiler.ir.events import Observer
from core_compiler.pipelines import PipelineEdit
from workbench import models


def add_model(parser: argparse.ArgumentParser) -> None:
    """The arguments that name a model."""
    parser.add_argument("model", help="a sample, a .onnx or .pt2 file, or package.module:function")
    parser.add_argument("--frontend", choices=models.FRONTENDS, help="how to read a sample (default torch)")
    parser.add_argument("--width", type=float, help="of a sample: channels or features, as a factor")
    parser.add_argument("--depth", type=int, help="of a sample: blocks or layers")
    parser.add_argument("--batch", type=int, help="of a sample: batch size")
    parser.add_argument("--seed", type=int, help="of a sample's weights and inputs")
    parser.add_argument("--trust", action="store_true", help="let a .pt2 file run code when it is read")
    parser.add_argument("--no-import-cache", action="store_true", help="import anew")


def add_compile(parser: argparse.ArgumentParser) -> None:
    """The arguments that say how to compile."""
    parser.add_argument("-t", "--target", default="cpu", help="what to compile for (default cpu)")
    parser.add_argument("--threads", type=int, default=0, help="threads to execute with (0: all)")
    parser.add_argument("--skip", action="append", default=[], metavar="PASS", help="leave a pass out")
    parser.add_argument("--set", action="append", default=[], metavar="PASS.OPTION=VALUE",
                        help="set an option of a pass")  # fmt: skip
    parser.add_argument("--limit", action="append", default=[], metavar="PASS=N",
                        help="stop a pass after its first N rewrites")  # fmt: skip
    parser.add_argument("--target-option", action="append", default=[], metavar="NAME=VALUE",
                        help="an option of the target (vector_width=8, tile=small...)")  # fmt: skip


def load(arguments) -> models.Model:
    """The model that the arguments name, imported."""
    wanted = models.spec(
        arguments.model, arguments.frontend, arguments.trust, width=arguments.width,
        depth=arguments.depth, batch=arguments.batch, seed=arguments.seed,
    )  # fmt: skip
    return models.load(wanted, cache=not arguments.no_import_cache)


def options(arguments, check: bool = False) -> Options:
    """The compile options that the arguments say; UserError names a malformed one."""
    if arguments.threads < 0:
        raise UserError(f"{arguments.threads} threads", "--threads", "give 0 (all) or more")
    settings: dict[str, dict[str, str]] = {}
    for text in arguments.set:
        place, _, value = text.partition("=")
        name, _, option = place.rpartition(".")
        if not name or not value:
            raise UserError(f"cannot read {text!r}", "--set", "write PASS.OPTION=VALUE")
        settings.setdefault(name, {})[option] = value
    limits = {}
    for text in arguments.limit:
        name, _, count = text.partition("=")
        if not count.isdigit():
            raise UserError(f"cannot read {text!r}", "--limit", "write PASS=N")
        limits[name] = int(count)
    target_options: dict[str, Any] = {}
    for text in arguments.target_option:
        name, separator, value = text.partition("=")
        if not separator:
            raise UserError(f"cannot read {text!r}", "--target-option", "write NAME=VALUE")
        target_options[name] = int(value) if value.lstrip("-").isdigit() else value
    edit = PipelineEdit(skip=tuple(arguments.skip), options=settings, limits=limits)
    return Options(check=check, threads=arguments.threads, edit=edit, target=target_options)


class Progress(Observer):
    """Shows long work on one line of standard error, only on a terminal, at most ten times a second."""

    def __init__(self, enabled: bool | None = None):
        self.enabled = sys.stderr.isatty() if enabled is None else enabled
        self._last = 0.0

    def progress(self, what: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if not self.enabled or now - self._last < 0.1:
            return
        self._last = now
        width = shutil.get_terminal_size().columns - 1
        text = f"{what}  {done}/{total}" if total else what
        print("\r" + text[:width].ljust(width), end="", file=sys.stderr, flush=True)

    def end(self, status: str, message: str = "") -> None:
        if self.enabled:
            print("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r", end="", file=sys.stderr)


def emit(arguments, data: Mapping[str, Any], text: str) -> None:
    """Print ``data`` as JSON with ``--json``, else ``text``."""
    print(json.dumps(data) if arguments.json else text)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int] = ()) -> str:
    """Columns padded to their widest cell; ``right`` are the columns aligned to the right."""
    cells = [list(map(str, head)), *([("" if c is None else str(c)) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "  ".join(c.rjust(w) if i in right else c.ljust(w)
                  for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in cells
    ]  # fmt: skip
    return "\n".join(lines)
