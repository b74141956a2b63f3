"""A recording as one HTML file: the page's own views, without a server and without a network.

The data that the server would derive for each stage, kernel and selected op is derived once and
stored in the file, compressed; `report.js` replaces the server. Features that need a live compiler
(editing the pipeline, why-not queries, comparing) say so.
"""

from __future__ import annotations

import base64
import html
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core_compiler.ir import Op
from core_compiler.support.errors import UserError
from widgets.encode import finite, pack
from widgets.static_host import POLICY, script_safe
from workbench import views
from workbench.queries import flat_graph, joint, links
from workbench.queries.run import Run
from workbench.state.view_state import PRESETS, VIEWS, ViewState
from workbench.ui import browser_modules
from workbench.ui.navigation import rewrite as choose_rewrite
from workbench.ui.page_frame import frame
from workbench.ui.prefetch import packed
from workbench.ui.updates import Message, message_for_error
from workbench.views import bisect, code, diff, inspector, memory, passes, training

WORKBENCH = Path(__file__).parents[1]
#: Views of a stage, whose data is stored for each stage; views of a kernel; all others are stored
#: once.
PER_STAGE = ("graph", "diff", "rewrites", "numerics", "source")
PER_KERNEL = ("code",)
#: Views that are of no use without a server.
LEFT_OUT = ("compare", "divergence")
SHOWN = tuple(name for name in VIEWS if name not in LEFT_OUT)
#: The number of ops whose facts form one chunk of the file.
BLOCK = 64
#: The most ops of the model's function, over all stages, that can be selected; those of later
#: stages first.
MAX_OPS = 20_000
_FIXED = "This is a report. Open the recording in the workbench to edit its pipeline."
_TRY = "this is a report: open the recording in the workbench, or copy the command"


@dataclass
class Report:
    """The contents of a report.

    ``boot`` (small, JSON), ``chunks`` (compressed, by name) and the parts omitted to limit its
    size.
    """

    boot: dict[str, Any] = field(default_factory=dict)
    chunks: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def put(self, name: str, text: str, blob: bytes = b"") -> None:
        raw = text.encode("utf-8")
        content = struct.pack("<I", len(raw)) + raw + blob
        squeezed = zlib.compress(content, 9, wbits=-15)
        self.chunks[name] = base64.b64encode(squeezed).decode("ascii")

    def put_json(self, name: str, value: Any) -> None:
        self.put(name, json.dumps(finite(value), separators=(",", ":"), allow_nan=False))


def write(recording: str | Path, path: str | Path, *, max_bytes: int = 25_000_000) -> Report:
    """Write the report of a recording to ``path``.

    If it would be larger than ``max_bytes`` (by default what mail commonly takes), machine code of
    the kernels that take least time is omitted first; the report and ``left_out`` list it.
    UserError if it is still too large.
    """
    run = Run(recording)
    try:
        with run.lock:
            if not run.version.stages:
                raise UserError(
                    "the recording has no stages", str(recording), "choose another recording"
                )
            made = _derive(run)
        text = _page(run, made)
        for kernel in reversed(_kernels_by_time(run)):
            if len(text) <= max_bytes:
                break
            made.chunks.pop(f"code/{kernel}", None)
            made.left_out.append(str(kernel))
            text = _page(run, made)
    finally:
        run.close()
    if len(text) > max_bytes:
        raise UserError(
            f"the report takes {len(text):,} bytes, more than the limit of {max_bytes:,}",
            str(path),
            "raise the limit with --max-size",
        )
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise UserError(
            f"cannot be written: {problem.strerror}", str(path), "choose another path"
        ) from None
    return made


def _kernels_by_time(run: Run) -> list[int]:
    from workbench.queries.kernel_table import table

    return [row["id"] for row in table(run)]


# -- derived data ---------------------------------------------------------------------------------


def _derive(run: Run) -> Report:
    made = Report()
    stages = [stage.index for stage in run.stages()]
    base = ViewState(run=run.path.name)
    messages: dict[str, Message] = {}
    for name in SHOWN:
        for key, state in _states(run, base, name, stages):
            try:
                _put_view(run, made, name, f"{name}{key}", state)
            except Exception as error:
                messages[f"{name}{key}"] = message_for_error(name, error)
    for stage in stages:
        _put_stage(run, made, base.with_(stage=stage))
    ops = _ops(run, stages)
    places = _places(run, stages)
    for first in range(0, len(ops), BLOCK):
        block = ops[first : first + BLOCK]
        facts = {str(op): _op_facts(run, base, op, home, places) for op, home in block}
        made.put_json(f"ops/{first // BLOCK}", facts)
    meta = run.meta()
    detail = [meta.get("target"), meta.get("mode"), run.path.name, "report"]
    made.boot = {
        "run": {
            "model": str(meta.get("model", run.path.stem)),
            "path": run.path.name,
            "detail": " · ".join(str(d) for d in detail if d),
            "fixed": True,
        },
        "views": [{"name": n, "title": VIEWS[n].title, "key": VIEWS[n].key} for n in SHOWN],
        "presets": [[k, title, panes] for k, (title, panes) in PRESETS.items()],
        "wide": [n for n in SHOWN if VIEWS[n].wide],
        "per_stage": PER_STAGE,
        "per_kernel": PER_KERNEL,
        "messages": messages,
        "rail": passes.data((run,), base),
        "first": run.stage_number(None),
        "ops": [op for op, _ in ops],
        "block": BLOCK,
        "named": [[k.id, k.name] for k in run.kernels()],
        "kernels": {str(k.id): links.costliest_launch(run, k.id) for k in run.kernels()},
        "kernel": code.chosen(run, base),
        "buffers": {str(b.id): links.writer_of(run, b.id) for b in run.buffers()},
        "peaks": _answers(run),
        "title": f"{meta.get('model', run.path.stem)} - report",
    }
    return made


def _states(
    run: Run, base: ViewState, name: str, stages: list[int]
) -> Iterator[tuple[str, ViewState]]:
    """Yield the keys of a view's data, each with a view state that shows it."""
    if name in PER_STAGE:
        yield from ((f"/{stage}", base.with_(stage=stage)) for stage in stages)
    elif name in PER_KERNEL:
        yield from ((f"/{k.id}", base.with_(kernel=k.id)) for k in run.kernels())
        if not run.kernels():
            yield "/null", base
    else:
        yield "", base


def _put_view(run: Run, made: Report, name: str, key: str, state: ViewState) -> None:
    if name == "pipeline":
        data = {**views.data(name, (run,), state), "fixed": _FIXED}
        made.put(key, *pack(data))
        return
    if name == "overview":
        made.put(key, *pack({**views.data(name, (run,), state), "advice": _advice(run)}))
        return
    if name == "training":
        made.put(key, *pack({**training.whole(run), "alone": True}))
        return
    if name == "bisect":  # its reader has the recording elsewhere
        command_data = {"path": run.path.name, "command": bisect.command(run, run.path.name)}
        made.put(key, *pack({**views.data(name, (run,), state), **command_data}))
        return
    if name == "diff":  # whole: no server can send further lines
        rows = diff.lines(run, run.stage_number(state.stage))
        made.put_json(f"lines/{key.rpartition('/')[2]}", rows)
    made.put(key, *packed(name, (run,), state))


def _advice(run: Run) -> list[dict[str, Any]]:
    """Return the advice without actions that need a server: each button is replaced by a reason."""
    found = views.answer("overview", (run,), ViewState(), {"kind": "advice"})
    for offer in (offer for each in found for offer in each["tries"] if offer["draft"]):
        offer |= {"draft": None, "reason": offer["reason"] or _TRY}
    return found


def _put_stage(run: Run, made: Report, state: ViewState) -> None:
    """Store the data of the rail and the inspector for a stage and each of its rewrites."""
    stage = run.stage_number(state.stage)
    rewrites = []
    for number in range(len(run.rewrites(stage)) if stage else 0):
        chosen_state = choose_rewrite(run, state, {"index": number})
        shown = views.module("rewrites").selection((run,), chosen_state)
        inspected = inspector.data((run,), state.with_(rewrite=number))
        rewrites.append(
            {
                "op": chosen_state.op,
                "detail": shown.get("detail"),
                "sections": inspected["sections"][:-1],
            }
        )
    made.put_json(
        f"stage/{stage}",
        {
            "detail": passes.detail((run,), state),
            "inspector": inspector.data((run,), state),
            "rewrites": rewrites,
        },
    )


def _ops(run: Run, stages: list[int]) -> list[tuple[int, int]]:
    """Return ``(op, stage)`` for the ops of the model's function that can be selected.

    The stage is the first one that contains the op (for a training step: the op and its gradient,
    if it has one).
    """
    found: dict[int, int] = {}
    linked = joint.first_linked(run)
    for stage in reversed(stages):
        for op in _walk(run.index(stage).module.main.body.ops):
            if stage >= linked or run.op_id(op) not in found:
                found[run.op_id(op)] = stage
        if len(found) > MAX_OPS:
            break
    return sorted(found.items())


def _walk(ops: Iterable[Op]) -> Iterator[Op]:
    for op in ops:
        yield op
        for region in op.regions:
            yield from _walk(region.ops)


@dataclass(frozen=True)
class _Stage:
    """The ops of a stage, and the scopes that the graph draws in place of some."""

    index: int
    ops: Mapping[int, Op]
    holders: Mapping[int, str]


def _places(run: Run, stages: list[int]) -> list[_Stage]:
    return [_Stage(s, run.index(s).ops, flat_graph.holders(run, s)) for s in stages]


def _op_facts(
    run: Run, base: ViewState, op: int, home: int, places: list[_Stage]
) -> dict[str, Any]:
    """Return the data of the views for a selected op.

    ``at`` (its op or scope, with the first stage of each), ``kernel``, ``buffer``, ``marks`` (by
    view), ``sections`` (of the inspector).
    """
    at: list[tuple[int, Any]] = []
    history = run.op_history(op)
    for place in places:
        relatives = (
            (op,)
            if op in place.ops
            else links.relatives_in_stage(run, place.ops, place.index, history)
        )
        shown = (relatives[0], place.holders.get(relatives[0])) if relatives else (None, None)
        if not at or at[-1][1] != shown:
            at.append((place.index, shown))
    state = base.with_(stage=home, op=op)
    found = links.linked(run, state)
    marks = {
        name: views.module(name).selection((run,), state)
        for name in SHOWN
        if name not in ("graph", "diff", "rewrites", "pipeline")
        and hasattr(views.module(name), "selection")
    }
    inspected = inspector.data((run,), state)
    return {
        "at": at,
        "kernel": found.kernel,
        "buffer": found.buffer,
        "marks": marks,
        "title": inspected["title"],
        "sections": inspected["sections"][:-1],
    }


def _answers(run: Run) -> dict[str, Any]:
    """Return the responses to the requests of the memory view."""
    if not run.buffers():
        return {}
    base = ViewState()
    return {kind: memory.answer((run,), base, {"kind": kind}) for kind in ("passes", "planners")}


# -- the page -------------------------------------------------------------------------------------


def _page(run: Run, made: Report) -> str:
    names = ("bar", "passes", "inspector", *SHOWN)
    shared = browser_modules.shared_text()
    scripts = [_script("shared", "module", shared)]
    for name in names:
        text = browser_modules.module_text(name)
        plain = text.startswith(shared)
        scripts.append(_script(name, "plain" if plain else "module", text.removeprefix(shared)))
    boot = json.dumps(finite({**made.boot, "left_out": made.left_out}), allow_nan=False)
    chunks = "\n".join(
        f'<script type="text/plain" data-chunk="{html.escape(name)}">{text}</script>'
        for name, text in made.chunks.items()
    )
    style = browser_modules.palette() + (WORKBENCH / "app" / "page.css").read_text(encoding="utf-8")
    body = frame(lambda name: f'<div data-component="{name}"></div>', SHOWN)
    kept_js, report = (
        (WORKBENCH / name).read_text(encoding="utf-8")
        for name in ("app/kept.js", "export/report.js")
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{html.escape(str(made.boot['title']))}</title><style>{style}</style>"
        f"<script>{script_safe(kept_js)}</script></head>\n"
        f'<body><div id="cw-loading" role="status">Opening the report …</div>\n{body}\n'
        f'<script type="application/json" id="boot">{_json_safe(boot)}</script>\n'
        f"{''.join(scripts)}\n{chunks}\n"
        f'<script type="module">{script_safe(report)}</script></body></html>\n'
    )


def _script(name: str, kind: str, text: str) -> str:
    return f'<script type="text/plain" data-{kind}="{name}">{script_safe(text)}</script>\n'


def _json_safe(text: str) -> str:
    return text.replace("<", "\\u003c")


def facts(made: Report, path: Path) -> Mapping[str, Any]:
    """Return the data that the command prints."""
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "views": list(SHOWN),
        "left_out": made.left_out,
    }
