"""``workbench show RUN VIEW --json``: a view's data in the form of the page, arrays as lists.

Views that a command of its own prints better (``workbench kernels``...) are text there; the
overview and the comparison of two recordings are text here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from core_compiler.support.errors import UserError, nearest
from workbench.commands import subject
from workbench.commands.printing import emit, number, painter, printable, table
from workbench.state.view_state import VIEWS, ViewState

if TYPE_CHECKING:
    from workbench.queries.run import Run, Runs

#: The longest text of a fact beside another (``--json`` has all of it).
WIDEST = 24
#: Parts of the page besides the views.
PARTS = {
    "rail": "the passes, and the rewrites of the shown one",
    "inspector": "the selected op, kernel or buffer",
    "search": "what matches the text of --ask",
}
#: The command that prints a view as text.
ELSEWHERE = {
    "graph": "export RUN --stage N -o stage.svg",
    "diff": "diff RUN --pass NAME",
    "rewrites": "export RUN -o rewrites.csv",
    "source": "lines RUN",
    "kernels": "kernels RUN",
    "code": "kernels RUN --show NAME",
    "memory": "memory RUN",
    "timeline": "export RUN -o run.trace.json",
    "numerics": "numerics RUN",
    "training": "export RUN -o iterations.csv",
    "divergence": "diverge FOLDER FOLDER",
    "bisect": "bisect RUN",
    "pipeline": "passes RUN",
    "rail": "passes RUN",
    "inspector": "op RUN OP",
    "search": "op RUN TEXT",
}


def add_arguments(parser) -> None:
    subject.add_subject(parser)
    parser.add_argument("view", metavar="VIEW", help=f"{', '.join(VIEWS)}; or {', '.join(PARTS)}")
    parser.add_argument("--stage", metavar="N|PASS", help="the selected stage")
    parser.add_argument("--op", metavar="OP", help="the selected op: %%name, id or text of it")
    parser.add_argument("--kernel", metavar="NAME", help="the selected kernel: its name or id")
    parser.add_argument("--buffer", metavar="ID", type=int, help="the selected buffer")
    parser.add_argument("--rewrite", metavar="N", type=int, help="a rewrite of the stage, from 0")
    parser.add_argument("--other", metavar="RUN", help="the recording to compare with")
    parser.add_argument(
        "--ask",
        metavar="KIND|JSON",
        help="an additional request of the view: passes, planners or again for memory; JSON for "
        "one with arguments; the text for search",
    )


def run(arguments) -> None:
    if arguments.view not in VIEWS and arguments.view not in PARTS:
        every = (*VIEWS, *PARTS)
        fix = nearest(arguments.view, every, f"views: {', '.join(every)}")
        raise UserError(f"unknown view {arguments.view!r}", "VIEW", fix)
    text = _TEXTS.get(arguments.view)
    if not arguments.json and (text is None or arguments.ask):
        words = ELSEWHERE.get(arguments.view, "show RUN overview")
        raise UserError(
            f"{arguments.view} is available only as JSON",
            "workbench show",
            f"add --json, or use `workbench {words}`",
        )
    from workbench.queries.run import Run

    with (
        subject.recording(arguments, execute=True) as opened,
        closing(Run(opened.path)) as shown,
        ExitStack() as stack,
    ):
        other = stack.enter_context(closing(Run(arguments.other))) if arguments.other else None
        runs = (shown,) if other is None else (shown, other)
        data = _data(arguments, runs, _state(arguments, shown))
    emit(arguments, lambda: as_lists(data), lambda: text(data["data"]) if text else "")


def _state(arguments, run: Run) -> ViewState:
    """Return the selection; UserError names items that do not exist."""
    chosen: dict[str, Any] = {}
    recording = run.recording
    if arguments.stage is not None:
        chosen["stage"] = subject.find_stage(recording, arguments.stage, "--stage")
    if arguments.op is not None:
        from workbench.commands.show_op import find

        chosen["op"], _ = find(recording, arguments.op, chosen.get("stage"))
    if arguments.kernel is not None:
        names = {name: k.id for k in run.kernels() for name in (str(k.id), k.name)}
        if arguments.kernel not in names:
            fix = nearest(arguments.kernel, names, "`workbench kernels` lists them")
            raise UserError(f"unknown kernel {arguments.kernel!r}", "--kernel", fix)
        chosen["kernel"] = names[arguments.kernel]
    if arguments.buffer is not None:
        if arguments.buffer not in {b.id for b in run.buffers()}:
            raise UserError(
                f"buffer {arguments.buffer} not found",
                "--buffer",
                "run `workbench show RUN memory --json` to list the ids",
            )
        chosen["buffer"] = arguments.buffer
    if arguments.rewrite is not None:
        stage = run.stage_number(chosen.get("stage"))
        count = len(run.rewrites(stage)) if stage else 0
        if not 0 <= arguments.rewrite < count:
            fix = f"choose 0 to {count - 1}" if count else "choose another --stage"
            raise UserError(
                f"rewrite {arguments.rewrite} not found: stage {stage} has {count} rewrites",
                "--rewrite",
                fix,
            )
        chosen["rewrite"] = arguments.rewrite
    return ViewState(run=run.path.name, panes=("overview",), **chosen)


def _data(arguments, runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return ``view``, ``shown`` (the stage and the selection), and ``data``.

    Views with a selection add ``selection``; ``answer`` is the response to the request.
    """
    from workbench import views

    name, run = arguments.view, runs[0]
    selected = ("rewrite", "op", "buffer", "kernel")
    stage = run.stage_number(state.stage) if run.version.stages else None
    found: dict[str, Any] = {
        "view": name,
        "shown": {"stage": stage, **{w: getattr(state, w) for w in selected}},
    }
    try:
        if name in PARTS:
            return {**found, "data": _part(name, arguments, runs, state)}
        if arguments.ask is not None:
            return {**found, "answer": _answer(arguments, runs, state)}
        found["data"] = views.data(name, runs, state)
        if name == "overview":  # the page requests it when the rest is drawn
            request = {"kind": "advice"}
            found["data"] = {**found["data"], "advice": views.answer(name, runs, state, request)}
        chosen = views.selection(name, runs, state)
        if chosen is not None:
            found["selection"] = chosen
    except views.Empty as empty:
        raise UserError(str(empty), f"view {name}", "") from None
    return found


def _part(name: str, arguments, runs: Runs, state: ViewState) -> Any:
    from workbench.views import inspector, passes, search

    if name == "search":
        if not arguments.ask:
            raise UserError("missing search text", "--ask", "pass --ask TEXT")
        return search.hits(runs[0], state, arguments.ask)
    if name == "inspector":
        return inspector.data(runs, state)
    return {**passes.data(runs, state), **passes.detail(runs, state)}


def _answer(arguments, runs: Runs, state: ViewState) -> Any:
    import json

    from workbench import views

    if not hasattr(views.module(arguments.view), "answer"):
        raise UserError(f"not supported by view {arguments.view}", "--ask", "leave it out")
    try:
        request = (
            json.loads(arguments.ask) if arguments.ask.startswith("{") else {"kind": arguments.ask}
        )
        return views.answer(arguments.view, runs, state, request)
    except (KeyError, ValueError, TypeError) as problem:
        what = f"view {arguments.view} does not support {arguments.ask!r} ({problem!r})"
        raise UserError(what, "--ask", "see docs/recording.md for what is supported") from None


def as_lists(value: Any) -> Any:
    """Return ``value`` as JSON: arrays as lists, numbers that are not finite as None."""
    if hasattr(value, "tolist"):  # avoids an import of NumPy
        value = value.tolist()
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(k): as_lists(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_lists(v) for v in value]
    return value


# -- text -----------------------------------------------------------------------------------------


def _overview(data: Mapping[str, Any]) -> str:
    if data.get("two"):
        return _overview_of_two(data)
    paint = painter()
    lines = [paint("bold", printable(data["title"])), printable(data["subtitle"])]
    if data["status"] != "finished":
        lines.append(printable(f"{data['status']}: {data['message']}".rstrip(": ")))
    rows = [
        (f["label"], _shown(f.get("text") or f["value"], f["unit"]), f["hint"])
        for f in data["figures"]
        if f.get("text") or f["value"] is not None
    ]
    lines += ["", table(("figure", "", ""), rows, right=(1,))]
    if data["phases"]:
        phases = [(p["phase"], p["ops"], p["launches"], number(p["us"], 1)) for p in data["phases"]]
        lines += ["", table(("phase", "ops", "launches", "us"), phases, right=(1, 2, 3))]
    return "\n".join([*lines, *_findings(data)])


def _overview_of_two(data: Mapping[str, Any]) -> str:
    head = ("figure", *(printable(f"{side.upper()}: {data[side]['name']}") for side in "ab"), "")
    rows = [
        (
            f["label"],
            *(_shown(f[side], f["unit"]) for side in "ab"),
            "" if f["a"] == f["b"] else "differs",
        )
        for f in data["figures"]
    ]
    return "\n".join(
        [
            painter()("bold", printable(data["title"])),
            "",
            table(head, rows, right=(1, 2)),
            *_findings(data),
        ]
    )


def _findings(data: Mapping[str, Any]) -> list[str]:
    """Return the findings and the advice, one line each; for two recordings with their sides."""
    paint, every = painter(), [*data["findings"], *data["advice"]]
    lines = ["", paint("bold", "findings"), *([] if every else ["no findings"])]
    colours = {"error": "red", "warning": "yellow", "note": "dim"}
    for each in every:
        text = printable(f"{each['title']}: {each['detail']}")
        sides = f"{each['sides'].upper()}  " if "sides" in each else ""
        lines.append(f"{paint(colours[each['severity']], each['severity'])}  {sides}{text}")
    if data["more_findings"]:
        lines.append(f"and {data['more_findings']} more")
    if data["advice"]:
        lines.append(paint("dim", "`workbench advise RUN` shows their cost and what to try"))
    return lines


def _compare(data: Mapping[str, Any]) -> str:
    if data["b"] is None:
        raise UserError("missing second recording", "--other", "pass --other RUN")
    head = ("", printable(data["a"]["name"]), printable(data["b"]["name"]))
    facts = [
        (r["name"], printable(r["a"])[:WIDEST], printable(r["b"])[:WIDEST])
        for r in data["facts"]
        if not r["equal"]
    ]
    figures = [
        (r["name"], _shown(r["a"], r["unit"]), _shown(r["b"], r["unit"])) for r in data["figures"]
    ]
    kernels = [(printable(r["title"]), _side(r["a"]), _side(r["b"])) for r in data["kernels"]]
    lines = [table(head, [*facts, *figures], right=(1, 2))]
    if kernels:
        lines += ["", table(("kernels: us", *head[1:]), kernels, right=(1, 2))]
        lines.append(
            "a time after ≈ is predicted; one after ≥ is the minimum within the machine's limits"
        )
    return "\n".join(lines)


def _side(side: Mapping[str, Any] | None) -> str:
    if side is None or side["us"] is None:
        return ""
    return f"{side['sign']} {number(side['us'], 1)}".lstrip()


def _shown(value: float | str | None, unit: str) -> str:
    return value if isinstance(value, str) else _figure(value, unit)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    shown = f"{value:,.0f}" if float(value).is_integer() else number(value)
    return f"{shown} {unit}".rstrip()


_TEXTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "overview": _overview,
    "compare": _compare,
}
