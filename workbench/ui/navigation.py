"""Navigation: functions from the recording, the state and a command to the next state.

Commands come from the browser and are checked here: an invalid one changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from core_compiler.record.reader import Stage
from workbench.queries import breakpoints, flat_graph, links
from workbench.queries.run import Run
from workbench.state.url_text import MAX_FULL
from workbench.state.view_state import MAX_TEXT, PRESETS, VIEWS, ViewState

Command = Mapping[str, Any]


class NoTarget(Exception):
    """There is nothing further in that direction; the message describes it."""


def valid_ids(parts: Command, *names: str) -> dict[str, int | None]:
    """Return the named parts that are ids (or None); others are dropped."""
    found = {name: parts[name] for name in names if name in parts}
    return {k: v for k, v in found.items() if v is None or (type(v) is int and v >= 0)}


def go(run: Run, state: ViewState, command: Command) -> ViewState:
    """Go to a ``stage``, and to one ``rewrite`` of it or none."""
    return state.with_(**valid_ids(command, "stage", "rewrite"))


def select(run: Run, state: ViewState, command: Command) -> ViewState:
    """Select another ``op``, ``buffer`` or ``kernel``; nothing if none is given."""
    chosen = valid_ids(command, "op", "buffer", "kernel")
    return state.select(**chosen).with_(rewrite=state.rewrite if chosen else None)


def follow(run: Run, state: ViewState, command: Command) -> ViewState:
    """Follow a link (``go``) to any part of a view state; its ids replace the selection.

    ``panes``: the layout if none of these views is shown; ``open``: a view to show in any case
    (``beside`` another one); ``state``: the state to remember for views, by name.
    """
    link = command.get("go")
    if not isinstance(link, Mapping):
        return state
    chosen = valid_ids(link, "op", "buffer", "kernel")
    if chosen:
        state = state.select(**chosen)
    for name, saved in _mapping(link.get("state")).items():
        if name in VIEWS and isinstance(saved, Mapping):
            fits = len(json.dumps(saved, separators=(",", ":"))) <= MAX_FULL
            state = state.remember(name, saved if fits else {})
    stage = valid_ids(link, "stage").get("stage")
    if stage is not None:
        stage = max(0, stage - 1) if link.get("before") else stage
        state = state.with_(stage=stage, rewrite=None)
    if link.get("open") in VIEWS:
        state = _open_pane(state, str(link["open"]), link.get("beside"))
    if valid_ids(link, "rewrite").get("rewrite") is not None:
        state = rewrite(run, state, {"index": link["rewrite"], **valid_ids(link, "op")})
    panes = tuple(p for p in link.get("panes", ()) if p in VIEWS)[:2]
    if panes and not set(panes) & set(state.panes):
        return state.with_(panes=panes, zoom=None)
    return _leave_overview(state, panes)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def show(run: Run, state: ViewState, command: Command) -> ViewState:
    """Show a ``view`` in its layout, or ``beside`` a shown one; optionally at a ``stage``."""
    view = str(command.get("view"))
    if view not in VIEWS:
        return state
    if valid_ids(command, "stage").get("stage") is not None:
        state = state.with_(stage=command["stage"], rewrite=None)
    if command.get("beside") in state.panes:
        return _open_pane(state, view, command["beside"])
    if view not in state.panes:
        panes = next((p for _, p in PRESETS.values() if view in p), (view,))
        state = state.with_(panes=panes)
    return state.with_(zoom=None)


def _open_pane(state: ViewState, view: str, beside: Any = None) -> ViewState:
    """Open ``view`` in a pane: beside ``beside``, or in the first one (the overview: alone)."""
    if view in state.panes:
        return state.with_(zoom=None)
    other_panes = [p for p in state.panes if p == beside] or [
        p for p in state.panes if p != "overview"
    ]
    return state.with_(panes=(*other_panes[:1], view), zoom=None)


def step(run: Run, state: ViewState, command: Command) -> ViewState:
    """Go to the next (``by`` 1) or previous (-1) item of a kind.

    The kinds are stages that changed something, rewrites, failed checks, breakpoints, and changes
    of the selected op.
    """
    if not run.version.stages:
        return state
    by = -1 if command.get("by") == -1 else 1
    return _STEPS.get(str(command.get("what")), _next_changed)(run, state, by)


def _next_changed(run: Run, state: ViewState, by: int) -> ViewState:
    at = run.stage_number(state.stage)
    if state.stage is None and state.panes == ("overview",):
        return _leave_overview(state.with_(stage=at))
    changed = [s.index for s in run.stages() if s.changed or s.index == 0]
    candidates = [s for s in changed if (s > at if by > 0 else s < at)]
    if not candidates:
        raise NoTarget("No later pass changed anything." if by > 0 else "This is the import.")
    stage = min(candidates) if by > 0 else max(candidates)
    return _leave_overview(state.with_(stage=stage, rewrite=None))


def _next_rewrite(run: Run, state: ViewState, by: int) -> ViewState:
    stage = run.stage_number(state.stage)
    index = (0 if by > 0 else -1) if state.rewrite is None else state.rewrite + by
    counts = {s.index: s.rewrites for s in run.stages()}
    while not 0 <= index < counts[stage]:
        stage += by
        if stage not in counts:
            raise NoTarget("No more rewrites.")
        index = 0 if by > 0 else counts[stage] - 1
    return rewrite(run, state.with_(stage=stage), {"index": index})


def _next_failing(run: Run, state: ViewState, by: int) -> ViewState:
    at = (0, -1) if state.stage is None else _position(run, state)
    for stage in run.stages():
        if stage.index >= at[0] and stage.verdicts.get("failed"):
            found = breakpoints.nearest(_failed(run, stage), at, 1)
            if found is not None:
                return _go_to(run, state, found)
    if not any(stage.verdicts for stage in run.stages()):
        raise NoTarget("No checks were recorded: compile with --check.")
    failing = any(stage.verdicts.get("failed") for stage in run.stages())
    raise NoTarget("No failed check after this one." if failing else "No check failed.")


def _failed(run: Run, stage: Stage) -> list[breakpoints.Position]:
    """Return the rewrites of a stage whose checks failed, and the stage itself if others failed.

    Others are the checks of its kernels, and of the memory it planned.
    """
    failed = [
        (stage.index, each.number)
        for each in run.rewrites(stage.index)
        if each.check is not None and each.check.verdict == "failed"
    ]
    of_itself = stage.verdicts["failed"] > len(failed)
    return [(stage.index, -1), *failed] if of_itself else failed


def _position(run: Run, state: ViewState) -> breakpoints.Position:
    return run.stage_number(state.stage), -1 if state.rewrite is None else state.rewrite


def _next_breakpoint(run: Run, state: ViewState, by: int) -> ViewState:
    if not state.stops:
        raise NoTarget("No breakpoints: b sets one on the pass or rule, B on the op.")
    found = breakpoints.next_breakpoint(run, state.stops, _position(run, state), by)
    if found is None:
        raise NoTarget(f"No breakpoint {'after' if by > 0 else 'before'} this point.")
    return _go_to(run, state, found)


def _next_of_op(run: Run, state: ViewState, by: int) -> ViewState:
    """Go to the next change of the selected op, its sources or its results."""
    op = links.linked(run, state).op or state.op
    if op is None:
        raise NoTarget("Select an op first.")
    found = breakpoints.nearest(breakpoints.changes(run, op), _position(run, state), by)
    if found is None:
        raise NoTarget(f"{run.name_of(op)} does not change {'later' if by > 0 else 'earlier'}.")
    return _go_to(run, state, found)


def _go_to(run: Run, state: ViewState, position: breakpoints.Position) -> ViewState:
    stage, number = position
    if number < 0:
        return _leave_overview(state.with_(stage=stage, rewrite=None))
    return rewrite(run, state.with_(stage=stage), {"index": number})


def toggle_breakpoint(run: Run, state: ViewState, command: Command) -> ViewState:
    """Toggle a breakpoint.

    ``text`` as in :mod:`workbench.queries.breakpoints`, or ``what``: ``here`` (the rule of the
    shown rewrite, else the shown pass) or ``op`` (the selected one).
    """
    text = str(command.get("text", ""))
    if not text:
        text = (
            _breakpoint_of_op(run, state)
            if command.get("what") == "op"
            else _breakpoint_here(run, state)
        )
    return (
        state.with_(stops=breakpoints.toggle(state.stops, text[:MAX_TEXT]))
        if (breakpoints.is_valid(text))
        else state
    )


def _breakpoint_of_op(run: Run, state: ViewState) -> str:
    op = links.linked(run, state).op
    if op is None:
        raise NoTarget("Select an op first.")
    return f"{breakpoints.OP}:{op}"


def _breakpoint_here(run: Run, state: ViewState) -> str:
    if not run.version.stages:
        raise NoTarget("No pass to stop at yet.")
    stage, number = _position(run, state)
    steps = run.rewrites(stage) if stage and number >= 0 else []
    if number < len(steps) and number >= 0:
        return f"{breakpoints.RULE}:{steps[number].rewrite.rule}"
    return f"{breakpoints.PASS}:{run.stages()[stage].pass_name}"


_STEPS = {
    "changed": _next_changed,
    "rewrite": _next_rewrite,
    "failing": _next_failing,
    "stop": _next_breakpoint,
    "op": _next_of_op,
}


def rewrite(run: Run, state: ViewState, command: Command) -> ViewState:
    """Show the rewrite ``index`` of the shown stage, with one of its ops.

    This is ``op``, by default the first that computes.
    """
    state = _leave_overview(state)
    stage = run.stage_number(state.stage)
    steps = run.rewrites(stage) if stage else []
    index = valid_ids(command, "index").get("index")
    if index is None or index >= len(steps):
        return state
    made = steps[index].rewrite
    ops = [op for op in (*made.new, *made.old) if not op.kind.endswith("constant")]
    ops = ops or [*made.new, *made.old]
    chosen = valid_ids(command, "op") or ({"op": run.op_id(ops[0])} if ops else {})
    return state.select(**chosen).with_(stage=stage, rewrite=index)


def _leave_overview(state: ViewState, panes: tuple[str, ...] = ()) -> ViewState:
    if state.panes != ("overview",):
        return state
    return state.with_(panes=panes or PRESETS["1"][1], zoom=None)


# -- panes ----------------------------------------------------------------------------------------


def preset(state: ViewState, command: Command) -> ViewState:
    """Apply the layout of a ``key``."""
    found = PRESETS.get(str(command.get("key")))
    return state if found is None else state.with_(panes=found[1], zoom=None)


def pane(state: ViewState, command: Command) -> ViewState:
    """Show another ``view`` in pane ``index``; if the other pane shows it, the two are swapped."""
    view, index = str(command.get("view")), valid_ids(command, "index").get("index")
    panes = list(state.panes)
    if view not in VIEWS or index is None or index >= len(panes):
        return state
    if view in panes:
        other = panes.index(view)
        panes[other], panes[index] = panes[index], view
    else:
        panes[index] = view
    return state.with_(panes=tuple(panes))


def two(state: ViewState, command: Command) -> ViewState:
    """Make a ``view`` show both recordings, or (``on`` false) only one."""
    view = str(command.get("view"))
    if view not in VIEWS or not VIEWS[view].two:
        return state
    return state.with_two(view, command.get("on") is True)


def split(state: ViewState, command: Command) -> ViewState:
    """Open a second pane."""
    view = next(v for v in ("diff", "graph") if v not in state.panes)
    return state.with_(panes=(*state.panes[:1], view), zoom=None)


def close(state: ViewState, command: Command) -> ViewState:
    """Close pane ``index``."""
    panes = tuple(p for i, p in enumerate(state.panes) if i != command.get("index"))
    return state.with_(panes=panes, zoom=None) if panes else state


def zoom(state: ViewState, command: Command) -> ViewState:
    """Maximise pane ``index``; None: show all panes."""
    index = valid_ids(command, "index").get("index")
    return state.with_(zoom=index if index is not None and index < len(state.panes) else None)


def fold(state: ViewState, command: Command) -> ViewState:
    """Fold the ``rail`` or the ``inspector`` away, or back."""
    what = command.get("what")
    if what not in ("rail", "inspector"):
        return state
    return state.with_(fold=tuple(sorted({*state.fold} ^ {what}, reverse=True)))


# -- selections sent by views ---------------------------------------------------------------------


def apply_selection(run: Run, state: ViewState, view: str, chosen: Command) -> ViewState:
    """Apply the selection that ``view`` sent: ids, or a scope of the graph.

    For the scope of a group, its op is selected.
    """
    parts = valid_ids(chosen, "op", "buffer", "kernel")
    scope = chosen.get("scope")
    if view == "graph" and isinstance(scope, str) and "op" not in parts:
        op = flat_graph.op_of_scope(run, run.stage_number(state.stage), scope)
        return state.select(op=op) if op is not None else state.select(scope=scope[:1000])
    if view == "memory" and "buffer" in parts:
        parts.pop("op", None)  # the buffer's own writer is searched again
    if view in ("graph", "diff"):
        parts = valid_ids(chosen, "op")
    return state.select(**parts)


#: Commands that lead somewhere in a recording.
MOVES: Mapping[str, Callable[[Run, ViewState, Command], ViewState]] = {
    "go": go,
    "select": select,
    "follow": follow,
    "show": show,
    "step": step,
    "rewrite": rewrite,
    "stop": toggle_breakpoint,
}
#: Commands that change the layout, even before the recording exists.
LAYOUTS: Mapping[str, Callable[[ViewState, Command], ViewState]] = {
    "preset": preset,
    "pane": pane,
    "two": two,
    "split": split,
    "close": close,
    "zoom": zoom,
    "fold": fold,
}
#: Commands that are not added to the browser's history.
WITHOUT_HISTORY = ("zoom", "fold", "stop")


def known(name: str) -> bool:
    """Return whether ``name`` is a command that leads somewhere."""
    return name in MOVES or name in LAYOUTS


def is_quick(name: str, command: Command) -> bool:
    """Return whether a command needs only the list of passes of a recording."""
    return (
        name in LAYOUTS
        or name in ("go", "select", "show")
        or (name == "step" and command.get("what") == "changed")
    )


def move(name: str, run: Run | None, state: ViewState, command: Command) -> ViewState:
    """Return the state after the command ``name``.

    Without a recording (None) only the layout can change.
    """
    if name in LAYOUTS:
        return LAYOUTS[name](state, command)
    return state if run is None else MOVES[name](run, state, command)
