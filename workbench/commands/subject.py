"""The subject of reading commands: a recording, or a model that is compiled into one first.

Such a recording is cached under a key of everything that determines it (the model, the options,
our own sources), so that a second query about the same compile is answered at once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import core_compiler
from core_compiler.runtime.cache_folder import CacheFolder
from core_compiler.support.errors import UserError, nearest
from workbench.commands import common

if TYPE_CHECKING:
    from core_compiler.record import Recording

KIND = "recordings"
FILE = "compile.run"
_SQLITE = b"SQLite format 3\0"


def add_subject(parser: argparse.ArgumentParser) -> None:
    """Add RUN or MODEL, with the options of a compile."""
    common.add_model(parser, "RUN|MODEL")
    common.add_compile(parser)
    parser.add_argument(
        "--check", action="store_true", help="check every rewrite when MODEL is compiled"
    )


def need_no_options(arguments) -> None:
    """Raise UserError if the arguments name a recording and say how to compile it."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in (*common.COMPILE_ONLY, "check")
        if getattr(arguments, name) not in (None, False, [])
    ]
    if given:
        raise UserError(
            f"{given[0]} is a compile option, and a recording is already compiled",
            arguments.model,
            "leave it out, or name the model",
        )


@contextmanager
def recording(arguments, execute: bool = False) -> Iterator[Recording]:
    """Open the recording that the arguments name.

    A model is compiled first, and with ``execute`` also timed.
    """
    from core_compiler.record import Recording

    if is_recording(arguments.model):
        need_no_options(arguments)
        with Recording.open(arguments.model) as opened:
            yield opened
        return
    with (
        tempfile.TemporaryDirectory(prefix="compiler-workbench-") as folder,
        Recording.open(_compiled(arguments, execute, Path(folder))) as opened,
    ):
        yield opened


def is_recording(text: str) -> bool:
    """Return whether ``text`` names a recording, or a missing ``.run`` file (reported later)."""
    if text.lower().endswith(".run"):
        return True
    path = Path(text)
    try:
        if not path.is_file():  # opening a pipe would wait for its writer
            return False
        with path.open("rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _compiled(arguments, execute: bool, folder: Path) -> Path:
    from workbench.model import import_cache

    options = common.options(arguments, arguments.check)
    spec = common.spec(arguments)
    cache = CacheFolder()
    # The result of a user pass may depend on anything: compile it again.
    is_cacheable = not arguments.no_import_cache and not options.edit.insert
    imported = import_cache.key(spec) if is_cacheable else None
    # A recording that was also executed answers every query.
    for executed in dict.fromkeys((True, execute)):
        key = imported and _key(imported, arguments.target, options, executed)
        if key and cache.get(KIND, key, FILE) is not None:
            return cache.path(KIND, key) / FILE
    path = folder / FILE
    record(arguments, options, path, execute)
    if imported is None or import_cache.key(spec) != imported:  # its files have changed since
        return path
    try:
        key = _key(imported, arguments.target, options, execute)
        return cache.put(KIND, key, {FILE: path.read_bytes()}) / FILE
    except UserError:
        return path  # errors of a full or read-only cache are ignored


def record(arguments, options, path: Path, execute: bool = False):
    """Compile the arguments' model into the recording ``path``."""
    from workbench.model import jobs

    return jobs.compile(
        common.load(arguments),
        arguments.target,
        options,
        path=path,
        observer=common.progress(),
        execute=execute,
        seconds=common.seconds(arguments),
    )


def _key(imported: str, target: str, options, execute: bool) -> str:
    from core_compiler.hardware import host
    from core_compiler.pipelines.edit_data import edit_facts

    identity_parts = [
        imported,
        sources(),
        host.detect().identity,  # schedules and limits are this processor's
        target,
        options.check,
        options.threads,
        execute,
        sorted(options.target.items()),
        edit_facts(options.edit),
    ]
    return hashlib.sha256(json.dumps(identity_parts, sort_keys=True).encode()).hexdigest()


def sources() -> str:
    """Return one hash over our own sources: another compiler makes another recording."""
    state = hashlib.sha256()
    root = Path(core_compiler.__file__).parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".sql", ".yaml"):
            state.update(f"{path.relative_to(root).as_posix()}\0".encode())
            state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()


def find_stage(opened: Recording, text: str, option: str = "--pass") -> int:
    """Return the stage that a pass's name (``fold_constants#2``) or number denotes.

    UserError lists the stages.
    """
    stages = opened.stages()
    names = [stage.pass_name for stage in stages]
    if text.isdecimal():
        if int(text) < len(stages):
            return int(text)
        raise UserError(
            f"stage {text} not found", option, f"choose a stage from 0 to {len(stages) - 1}"
        )
    if text in names:
        return names.index(text)
    fix = nearest(text, names, f"passes: {', '.join(names[1:])}")
    raise UserError(f"pass {text!r} not found in this compile", option, fix)
