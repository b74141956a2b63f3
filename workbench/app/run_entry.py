"""The library's entry for a recording: facts from a few cheap queries, and annotations.

Annotations (tags, a note, a pin) are in a file next to the recording.
"""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from core_compiler.record import schema
from core_compiler.record.file import is_running
from core_compiler.record.recorder import machine_id
from core_compiler.support.errors import UserError

#: The most tags of a run, and the longest tag and note (characters).
MAX_TAGS, MAX_TAG, MAX_NOTE = 20, 40, 2000
#: The longest name of a model, target or device that is kept: a recording is untrusted
#: (characters).
MAX_NAME = 200
#: The first second that Python and browsers reject as a date (since 1970; of the year 10,000).
MAX_DATE = 253_402_300_800
#: The time limit for reading one: the file may not be a real recording (seconds).
MAX_SECONDS = 5.0


@dataclass(frozen=True)
class Entry:
    """A recording in the library.

    ``variant``: the sizes that the model was built with unless they are the defaults, the frontend
    if it was selected, and the edits of the pipeline (``width 0.25; by onnx; skip
    fuse_elementwise``); ``began``: seconds since 1970; ``checks`` counts verdicts; ``device`` is
    the GPU it was made on ("" if none is named); ``mode`` is ``inference`` or ``training``;
    ``elsewhere``: another machine writes it; ``error``: why it cannot be read. Missing figures are
    None: ``total_ms`` of one execution, ``compile_s``, ``peak_bytes`` of the arena, ``kernels``
    that are launched, ``worst_error`` of a checked rewrite (relative).
    """

    name: str
    path: str
    model: str
    target: str
    began: float
    size: int
    status: str
    stages: int
    checks: dict[str, int]
    total_ms: float | None
    error: str = ""
    device: str = ""
    mode: str = ""
    variant: str = ""
    compile_s: float | None = None
    peak_bytes: int | None = None
    kernels: int | None = None
    worst_error: float | None = None
    iterations: int = 0
    elsewhere: bool = False
    tags: tuple[str, ...] = ()
    note: str = ""
    pinned: bool = False


_FIGURES = f"""SELECT
  (SELECT value FROM figure WHERE name = 'total_ms' AND section = 'timing'
   ORDER BY rowid DESC LIMIT 1),
  (SELECT value FROM figure WHERE name = 'compile_seconds' AND section = 'run'),
  (SELECT value FROM figure WHERE name = 'arena_bytes' AND section = 'memory'),
  (SELECT count(*) FROM stage),
  (SELECT max(worst_error) FROM check_result WHERE {schema.OF_TENSORS}),
  (SELECT count(DISTINCT kernel) FROM kernel_op WHERE role = 'launch')"""


def read(path: Path, name: str) -> Entry:
    """Return the entry of a recording; ``error`` is set if it cannot be read. FileNotFoundError."""
    stat = path.stat()
    blank = Entry(
        name,
        str(path),
        _text(path.stem),
        "",
        stat.st_mtime,
        stat.st_size,
        "",
        0,
        {},
        None,
        **about(path),
    )
    try:
        db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=1)
        try:
            deadline = time.monotonic() + MAX_SECONDS
            db.set_progress_handler(lambda: int(time.monotonic() > deadline), 10_000)
            return _read(db, blank, stat.st_mtime)
        finally:
            db.close()
    except (
        sqlite3.Error,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as problem:
        return replace(blank, status="unreadable", error=str(problem)[:200])


def _read(db: sqlite3.Connection, blank: Entry, made: float) -> Entry:
    schema.harden(db)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > schema.VERSION:  # its tables may have another meaning
        return replace(blank, status="unreadable", error=schema.made_by_newer(version))
    meta = {k: json.loads(v) for k, v in db.execute("SELECT key, value FROM meta")}
    checks = dict(db.execute("SELECT verdict, count(*) FROM check_result GROUP BY verdict"))
    total, seconds, peak, stages, worst, kernels = db.execute(_FIGURES).fetchone()
    iterations = 0 if version < 4 else db.execute("SELECT count(*) FROM iteration").fetchone()[0]
    status, writer = _text(meta.get("status")), str(meta.get("writer", ""))
    live = status == "recording"
    if live and not is_running(writer, machine_id()):
        status = "interrupted"
    return replace(
        blank,
        model=_text(meta.get("model"), blank.model),
        target=_text(meta.get("target")),
        began=_date(meta.get("began")) or made,
        status=status,
        stages=int(stages),
        checks={str(k)[:MAX_TAG]: int(v) for k, v in checks.items()},
        total_ms=_float(total),
        device=_device(meta),
        mode=_text(meta.get("mode")),
        variant=_variant(meta),
        compile_s=_float(seconds),
        peak_bytes=_bytes(peak),
        kernels=int(kernels) or None,
        worst_error=_number(worst),
        iterations=int(iterations),
        elsewhere=live and writer.rpartition("@")[2] != machine_id(),
    )


def _text(value: Any, otherwise: str = "") -> str:
    return otherwise if value is None else _without_surrogates(str(value)[:MAX_NAME])


def _without_surrogates(text: str) -> str:
    """Return ``text`` without lone surrogates, which JSON may have and the index cannot store."""
    return text.encode("utf-8", "replace").decode()


def _device(meta: Mapping[str, Any]) -> str:
    device = meta.get("device")
    return _text(device.get("name")) if isinstance(device, dict) else ""


def _variant(meta: Mapping[str, Any]) -> str:
    sizes = meta.get("sizes")
    items = sorted(sizes.items()) if isinstance(sizes, dict) else ()
    others = ", ".join(f"{k} {v}" for k, v in items if v is not None and (k, v) != ("width", 1))
    return _text("; ".join(filter(None, (others, _import_frontend(meta), _edited(meta))))).replace(
        '"', ""
    )


def _import_frontend(meta: Mapping[str, Any]) -> str:
    """Return the frontend of a model, as text, if another one is the default for it."""
    frontend = _text(meta.get("frontend"))
    usual = "torch" if meta.get("kind") == "sample" else "onnx"
    chosen = frontend not in ("", usual) and (usual == "torch" or frontend == "onnx-passes")
    return f"by {frontend}" if chosen else ""


def _edited(meta: Mapping[str, Any]) -> str:
    """Return the edits of the pipeline as text."""
    edit, options = meta.get("edit"), meta.get("target_options")
    given = options if isinstance(options, dict) else {}
    if not given and not (isinstance(edit, dict) and any(edit.values())):
        return ""
    from workbench.model import edits  # knows all passes, slow to import

    try:
        return edits.words(edits.checked(edit), given)
    except UserError:
        return ""


def _number(value: Any) -> float | None:
    """Return a number (infinities included), or None."""
    with suppress(TypeError, ValueError, OverflowError):
        number = float(value)
        return None if math.isnan(number) else number
    return None


def _date(value: Any) -> float | None:
    """Return a date as seconds since 1970; None if calendars lack it (after the year 9999)."""
    number = _float(value)
    return number if number is not None and 0 <= number < MAX_DATE else None


def _bytes(value: Any) -> int | None:
    """Return a number of bytes; None if it is missing or too large for a file."""
    number = _float(value)
    return None if number is None or abs(number) >= 1 << 63 else int(number)


def _float(value: Any) -> float | None:
    """Return a finite number, or None."""
    number = _number(value)
    return None if number is None or math.isinf(number) else number


# -- annotations ----------------------------------------------------------------------------------


def about_path(recording: Path) -> Path:
    """Return the file next to a recording with its tags, note, pin and uploader."""
    return recording.with_suffix(".about.json")


def about(recording: Path) -> dict[str, Any]:
    """Return ``tags``, ``note`` and ``pinned`` of a recording; damaged values count as missing."""
    found = _read_annotations(recording)
    tags, note = found.get("tags"), found.get("note")
    tags = (
        [_without_surrogates(t[:MAX_TAG]) for t in tags if isinstance(t, str)]
        if isinstance(tags, list)
        else []
    )
    return {
        "tags": tuple(tags[:MAX_TAGS]),
        "note": _without_surrogates(note[:MAX_NOTE]) if isinstance(note, str) else "",
        "pinned": found.get("pinned") is True,
    }


def uploader(file: Path) -> str:
    """Return the user who uploaded a file; "" if it was not a signed-in user."""
    by = _read_annotations(file).get("by")
    return by if isinstance(by, str) else ""


def record_uploader(file: Path, by: str) -> None:
    """Record next to a file that ``by`` uploaded it; OSError."""
    about_path(file).write_text(json.dumps({"by": by}) + "\n", "utf-8")


def _read_annotations(recording: Path) -> dict[str, Any]:
    try:
        found = json.loads(about_path(recording).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def checked(
    *, tags: Iterable[str] | None = None, note: str | None = None, pinned: bool | None = None
) -> dict[str, Any]:
    """Return the given annotations (not None) as :func:`about` does; UserError if invalid."""
    made: dict[str, Any] = {}
    if tags is not None:
        made["tags"] = tuple(dict.fromkeys(_tag(tag) for tag in tags))
        if len(made["tags"]) > MAX_TAGS:
            raise UserError(
                f"expected at most {MAX_TAGS} tags, got {len(made['tags'])}",
                made["tags"][-1],
                "use fewer tags",
            )
    if note is not None:
        if len(note) > MAX_NOTE:
            raise UserError(
                f"expected at most {MAX_NOTE:,} characters in a note, got {len(note):,}",
                note[:40],
                "shorten it",
            )
        made["note"] = note.strip()
    if pinned is not None:
        made["pinned"] = bool(pinned)
    return made


def _tag(text: str) -> str:
    tag = str(text).strip().lower()
    if not re.fullmatch(rf"[^\s,:\"]{{1,{MAX_TAG}}}", tag) or not tag.isprintable():
        raise UserError(
            "invalid tag",
            str(text)[:60],
            f"use 1 to {MAX_TAG} characters without spaces, commas, colons or quotes",
        )
    return tag


def annotate(recording: Path, changes: Mapping[str, Any]) -> None:
    """Write the result of :func:`checked` next to a recording.

    UserError if its folder is not writable.
    """
    if not recording.is_file():
        raise UserError("run not found", recording.name, "see workbench runs")
    path = about_path(recording)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    by = {"by": uploaded_by} if (uploaded_by := uploader(recording)) else {}
    try:
        text = json.dumps({**about(recording), **by, **changes}, indent=1)
        draft.write_text(text + "\n", "utf-8")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UserError(
            f"cannot write the file: {error.strerror}", str(path), "make the folder writable"
        ) from None
