"""The guided tour: the first things to look at in a small recording, with their positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.app.library import Entry
from workbench.queries.kernel_table import table
from workbench.queries.run import Run
from workbench.state.view_state import ViewState

#: The sample model that the tour shows; its weights are trained when it is built.
MODEL = "digits-cnn"
#: Its compile options.
OPTIONS: Mapping[str, Any] = {"check": True, "execute": True}


@dataclass(frozen=True)
class Step:
    """A step of the tour.

    ``place``: a CSS selector of the element that ``text`` describes, which the page outlines;
    ``state`` is shown meanwhile.
    """

    title: str
    text: str
    place: str
    view_state: ViewState


def is_suitable(entry: Entry) -> bool:
    """Return whether a recording of the library has everything that the tour shows."""
    matches = entry.model == MODEL and entry.target == "cpu" and entry.mode != "training"
    matches = matches and not entry.variant  # as the tour itself would compile it
    return matches and entry.status == "finished" and bool(entry.checks) and bool(entry.total_ms)


def steps(run: Run, name: str) -> list[dict[str, Any]]:
    """Return the steps for the page.

    A step has ``title``, ``text``, ``place`` and the ``query`` of the URL; ``name`` is the
    recording's in the URL.
    """
    return [
        {"title": s.title, "text": s.text, "place": s.place, "query": s.view_state.query()}
        for s in _steps(run, ViewState(run=name))
    ]


def _steps(run: Run, start: ViewState) -> Iterator[Step]:
    yield Step(
        "Overview",
        "The run in figures, then the findings, worst first, then how each pass changed"
        " the number of ops. A click on a figure or a finding leads to the view that explains "
        "it; hovering over a figure shows how it is measured.",
        "#cw-view-overview",
        start,
    )
    stage, rewrite = _most_changing_stage(run)
    step = start.with_(stage=stage, panes=("graph", "diff"))
    yield Step(
        "Passes",
        "The compiler as a list of passes, in order: what each did to the number of ops, and "
        "whether its rewrites were checked on real tensors (✓ every bit kept, ≈ within "
        "tolerance, ✗ failed). j and k go to the next and the previous pass that changed "
        "something.",
        "#cw-rail",
        step,
    )
    yield Step(
        "Graph",
        "The changes of the pass as a drawing: added and removed ops are coloured; next to it "
        "the same as IR text. A click selects an op in every view, a double click opens a "
        "group, the wheel zooms.",
        "#cw-view-graph",
        step,
    )
    yield Step(
        "One rewrite",
        "Each application of a rule by itself: the ops before and after, the rule and its "
        "source, the time it took, and how much the values changed. 'why not?' shows "
        "which condition kept a rule from fusing two ops.",
        "#cw-view-rewrites",
        start.with_(stage=stage, rewrite=rewrite, panes=("rewrites",)),
    )
    kernel, op = _costliest_kernel(run)
    end = start.with_(stage=run.version.stages - 1)
    yield Step(
        "Inspector",
        "The facts of the selected op: its type and attributes, the line of the model it "
        "came from, its life across the passes, and the kernel and buffer it became. h goes to "
        "the next change of it.",
        "#cw-inspector",
        step.with_(stage=0, op=op),
    )
    yield Step(
        "Kernels and code",
        "Every compiled function with its time, the minimum time this machine allows, and "
        "the line of the model it came from. Below it the selected one's generated source, LLVM"
        " IR and assembly: hovering over a line marks the lines generated from it.",
        "#cw-panes",
        end.with_(kernel=kernel, panes=("kernels", "code")),
    )
    yield Step(
        "Memory",
        "The memory plan: each rectangle is a buffer, with its addresses upwards and its "
        "lifetime across. The curve shows the live bytes, the list next to it what sets the peak.",
        "#cw-view-memory",
        end.with_(kernel=kernel, panes=("memory", "graph")),
    )
    yield Step(
        "Numbers",
        "How far each pass is from the model as imported, rewrite by rewrite and value by "
        "value: it names the first pass that changes a bit. That was the tour: press ? for all "
        "keys, or open a model of your own from the title in the top left corner.",
        "#cw-view-numerics",
        start.with_(stage=stage, panes=("numerics", "diff")),
    )


def _most_changing_stage(run: Run) -> tuple[int, int | None]:
    """Return the stage that changed the values most, and its first rewrite.

    Without measured values it is the stage with most rewrites.
    """
    done = [s for s in run.stages() if s.rewrites]
    if not done:
        return run.stage_number(None), None
    return max(done, key=lambda s: (s.worst_error or 0.0, s.rewrites)).index, 0


def _costliest_kernel(run: Run) -> tuple[int | None, int]:
    """Return the kernel that takes the most time, and a convolution of the import."""
    launched = [row for row in table(run) if row["count"]]  # the most expensive first
    imported = run.index(0).ops
    convolution = next((n for n, op in imported.items() if op.kind == "core.conv"), min(imported))
    return launched[0]["id"] if launched else None, convolution
