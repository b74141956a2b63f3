"""The contents of a cell: panes, each a view as a widget, and the controls around them."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import ipywidgets

from core_compiler.driver.compilation import Compilation
from core_compiler.support.errors import UserError
from widgets.notebook_host import widget
from workbench import views
from workbench.state.view_state import PRESETS, VIEWS
from workbench.support import units
from workbench.ui import navigation
from workbench.ui.browser_modules import standalone_text
from workbench.ui.updates import Message
from workbench.views.passes import check

if TYPE_CHECKING:
    from workbench.notebook.session import Workbench

#: Heights of a pane (pixels): alone or side by side, and one of two stacked.
HEIGHT, STACKED = 460, 340
#: The components around the views, with their modules.
FRAME = {"rail": "passes", "inspector": "inspector"}


@cache
def _widget_class(module: str) -> type:
    return widget(f"{module.title()}Pane", standalone_text(module))


class Pane:
    """A view in a cell: the widget, or a message in its place."""

    def __init__(self, owner: Workbench, name: str):
        self._owner, self.name = owner, name
        made = _widget_class(FRAME.get(name, name))()
        made.layout = ipywidgets.Layout(height=f"{HEIGHT}px", min_width="0", flex="0 0 auto")
        made.observe(self._on_command, "command")
        if name in VIEWS:
            made.observe(self._on_selection, "selection")
            made.observe(self._on_state, "state")
            if hasattr(views.module(name), "answer"):
                made.on_request(partial(owner.answer, name))
        self.view = made
        self._message = ipywidgets.HTML(layout=ipywidgets.Layout(display="none", padding="24px"))
        self.widget = ipywidgets.VBox(
            [self._message, made], layout=ipywidgets.Layout(flex="1 1 0%", min_width="0")
        )

    @property
    def height(self) -> int:
        """The height in pixels; can be set."""
        return int(self.view.layout.height.removesuffix("px"))

    @height.setter
    def height(self, pixels: int) -> None:
        self.view.layout.height = f"{int(pixels)}px"

    def update(self, values: Mapping[str, Any]) -> None:
        """Set traits, together."""
        with self.view.hold_sync():
            for name, value in values.items():
                if getattr(self.view, name) != value:
                    setattr(self.view, name, value)

    def show_message(self, message: Message | None) -> None:
        """Show a message instead of the view; None: the view."""
        if message is not None:
            parts = [message["what"], message.get("where", ""), message.get("fix", "")]
            lines = "<br>".join(html.escape(str(part)) for part in parts if part)
            self._message.value = f'<div style="text-align:center;opacity:.8">{lines}</div>'
        self._message.layout.display = "" if message else "none"
        self.view.layout.display = "none" if message else ""

    def _on_command(self, change: Mapping[str, Any]) -> None:
        if change["new"]:
            self._owner.command(self.name, change["new"])

    def _on_selection(self, change: Mapping[str, Any]) -> None:
        if not self._owner.refreshing:
            self._owner.apply_selection(self.name, change["new"] or {})

    def _on_state(self, change: Mapping[str, Any]) -> None:
        if not self._owner.refreshing:
            self._owner.remember(self.name, change["new"] or {})

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        shown: Any = self.widget._repr_mimebundle_()
        return {**shown, **self._owner.fallback()}


class Controls:
    """The ipywidgets around the panes: pass, layout, views, inspector, selection."""

    def __init__(self, owner: Workbench):
        self._owner = owner
        self._is_updating = False
        names = [(view.title, name) for name, view in VIEWS.items()]
        self._stages = ipywidgets.Dropdown(description="Pass", layout=_width_layout("300px"))
        self._stages.style.description_width = "34px"
        self._left = _chooser("Left", names, "graph")
        self._right = _chooser("Right", [("none", ""), *names], "diff")
        self._inspect = ipywidgets.ToggleButton(
            value=True, description="Inspector", layout=_width_layout("auto")
        )
        self._measure = _button(
            "Time kernels", "Execute on the example inputs and time every kernel", self._time
        )
        self._two = ipywidgets.ToggleButton(
            description="A | B",
            tooltip="Show the other recording too, as B",
            layout=_width_layout("auto"),
        )
        pairs = [(title, panes) for title, panes in PRESETS.values() if len(panes) == 2]
        self._note = ipywidgets.HTML()
        self._body = ipywidgets.HBox(layout=_width_layout("100%"))
        bar = ipywidgets.HBox(
            [
                _button("◀", "Previous pass that changed something", partial(self._step, -1)),
                self._stages,
                _button("▶", "Next pass that changed something", partial(self._step, 1)),
                *(_button(t, " and ".join(p), partial(self._layout, *p)) for t, p in pairs),
                self._left,
                self._right,
                self._inspect,
                self._two,
                self._measure,
            ],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        self.box = ipywidgets.VBox([bar, self._body, self._note])
        self._stages.observe(self._on_stage, "value")
        self._two.observe(self._on_compare_toggle, "value")
        for chooser in (self._left, self._right, self._inspect):
            chooser.observe(lambda _change: self._arrange(), "value")
        self._arrange()

    # -- user actions --------------------------------------------------------------------------

    def _step(self, by: int) -> None:
        owner = self._owner
        owner.move(
            lambda: navigation.step(owner.run, owner.view_state, {"what": "changed", "by": by})
        )

    def _on_stage(self, change: Mapping[str, Any]) -> None:
        if not self._is_updating and change["new"] is not None:
            self._owner.stage = change["new"]

    def _on_compare_toggle(self, change: Mapping[str, Any]) -> None:
        """Switch all shown views that can show both recordings to both, or to this one only."""
        if self._is_updating:
            return
        state = self._owner.view_state
        for name in self._comparable_views():
            state = navigation.two(state, {"view": name, "on": change["new"]})
        self._owner.move(lambda: state)

    def _comparable_views(self) -> list[str]:
        """Return the shown views that can show two recordings, if there are two."""
        shown = (self._left.value, self._right.value)
        return [n for n in shown if n and VIEWS[n].two] if self._owner.other is not None else []

    def _layout(self, left: str, right: str) -> None:
        self._is_updating = True
        self._left.value, self._right.value = left, right
        self._is_updating = False
        self._arrange()

    def open(self, panes: tuple[str, ...]) -> None:
        """Show the views that a link leads to."""
        self._layout(panes[0], panes[1] if len(panes) > 1 else self._right.value)

    def _arrange(self) -> None:
        if self._is_updating:
            return
        owner = self._owner
        names = list(dict.fromkeys(n for n in (self._left.value, self._right.value) if n))
        wide = len(names) == 2 and any(VIEWS[n].wide for n in names)
        for name in names:
            owner.view(name).height = STACKED if wide else HEIGHT
        made = ipywidgets.VBox if wide else ipywidgets.HBox
        panes = made(
            [owner.view(n).widget for n in names],
            layout=ipywidgets.Layout(flex="1 1 0%", min_width="0"),
        )
        side_panes = []
        if self._inspect.value:
            inspector = owner.view("inspector")
            inspector.widget.layout = ipywidgets.Layout(width="270px", flex="0 0 270px")
            side_panes = [inspector.widget]
        self._body.children = [panes, *side_panes]
        owner.refresh()

    def _time(self) -> None:
        made = self._owner.compilation
        if made is None:
            return
        self.note("timing the kernels …")
        try:
            made.profile()
            self.note("")
        except UserError as error:
            self.note(str(error))

    # -- display -------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Show a line under the panes."""
        self._note.value = f'<span style="opacity:.75">{html.escape(text)}</span>'

    def update_controls(self) -> None:
        """Update the controls from the state."""
        owner = self._owner
        self._is_updating = True
        options = [(_title(stage), stage.index) for stage in owner.run.stages()]
        if options != list(self._stages.options or ()):
            self._stages.options = options
        self._stages.value = owner.stage if options else None
        made = owner.compilation
        self._measure.layout.display = "" if can_time(made) else "none"
        comparable = self._comparable_views()
        self._two.layout.display = "" if comparable else "none"
        self._two.value = bool(comparable) and all(
            owner.view_state.shows_two(name) for name in comparable
        )
        self._is_updating = False
        chosen = owner.selection
        named = {"scope": "scope", "kernel_name": "kernel", "buffer": "buffer"}
        what = [f"{title} {chosen[part]}" for part, title in named.items() if part in chosen]
        if "op" in chosen:
            what.insert(0, f"op {owner.run.name_of(chosen['op'])}")
        self.note("selected: " + ", ".join(what) if what else "")


def _width_layout(width: str) -> ipywidgets.Layout:
    return ipywidgets.Layout(width=width)


def _chooser(side: str, names: list[tuple[str, str]], shown: str) -> ipywidgets.Dropdown:
    made = ipywidgets.Dropdown(
        description=side,
        options=names,
        value=shown,
        tooltip=f"The view on the {side.lower()}",
        layout=_width_layout("150px"),
    )
    made.style.description_width = "42px"
    return made


def _button(title: str, hint: str, callback: Callable[[], None]) -> ipywidgets.Button:
    made = ipywidgets.Button(description=title, tooltip=hint, layout=_width_layout("auto"))
    made.on_click(lambda _button: callback())
    return made


def _title(stage: Any) -> str:
    mark = {"bitwise": " ✓", "within": " ≈", "failed": " ✗"}
    verdict = check(stage)
    sign = mark.get(verdict["verdict"], "") if verdict else ""
    did = "" if stage.changed else ", no change"
    if stage.rewrites:
        did = f", {units.counted(stage.rewrites, 'rewrite')}"
    return f"{stage.index:02d} {stage.pass_name}{did}{sign}"


def can_time(made: Compilation | None) -> bool:
    return (
        made is not None
        and made.next is None
        and made.inputs is not None
        and made.target.available() is None
    )
