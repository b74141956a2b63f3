"""A notebook's session: the shown compilation or recording, and the selection."""

from __future__ import annotations

import json
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ipywidgets
from typing_extensions import override

from core_compiler.driver.compilation import Compilation, start
from core_compiler.ir import Op
from core_compiler.ir.events import Observer, Observers
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.support.errors import UserError, nearest
from core_compiler.training.run.step import TrainingStep
from workbench import views
from workbench.model import edits, pipeline_editor
from workbench.notebook import recordings
from workbench.notebook.panes import FRAME, Controls, Pane, can_time
from workbench.queries.links import linked
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS, ViewState
from workbench.ui import navigation
from workbench.ui.updates import Message, UpdateTracker, lock_all, unexpected

#: The workbenches of compilations (by their ``id``: a workbench keeps its compilation alive), so
#: that a second ``show()`` shares the selection of the first.
SHOWN: weakref.WeakValueDictionary[int, Workbench] = weakref.WeakValueDictionary()


class Workbench:
    """The views of one recording; at the end of a cell it shows all, ``view(name)`` shows one.

    The selection is the same in all of them and here::

        w.selection              # {'stage': 7, 'op': 123, 'kernel': 4, ...}, the last selection
        w.op                     # the selected op: an object of the IR
        w.select(op=..., stage=7)
        w.observe(lambda w: ...) # after each change
    """

    def __init__(self, shown: Compilation | Path):
        self._tracker = UpdateTracker(standalone=True)
        self._messages: dict[str, Message] = {}
        self._watchers: list[Callable[[Workbench], Any]] = []
        self._panes: dict[str, Pane] = {}
        self.refreshing = False
        self._controls: Controls | None = None
        self._compilation = shown if isinstance(shown, Compilation) else None
        self._op_ids: Mapping[Op, int] = {}
        if self._compilation is not None:
            self._follow(self._compilation)
        self.run = self._record() if self._compilation is not None else Run(Path(str(shown)))
        # The recording to compare with: the compile before the last edit, or one that the user
        # gave.
        self.other: Run | None = None
        self.view_state = ViewState(run=self.run.path.name, panes=())

    # -- the recording -----------------------------------------------------------------------------

    def _record(self) -> Run:
        """Record the compilation so far.

        Equal prefixes have equal ids, so that the selection stays valid when more is recorded.
        """
        made = self._compilation
        assert made is not None
        run = recordings.CompilationRun(made)
        self._op_ids = run.op_ids
        return run

    def _follow(self, made: Compilation) -> None:
        made.observer = Observers(made.observer, _Follower(weakref.ref(self), made))

    def reload(self) -> None:
        """Show the compilation's progress, or the current contents of the file."""
        old = self.run
        if self._compilation is not None:
            self.run = self._record()
        else:
            try:
                old.refresh()
            except UserError:  # the file is another recording
                self.run = Run(old.path)
        if self.run is not old:
            old.close()
        self._tracker.clear()
        self.refresh()

    @property
    def compilation(self) -> Compilation | None:
        """The shown compilation, the new one after an edit; None for a recording."""
        return self._compilation

    def rerun(
        self,
        edit: PipelineEdit,
        *,
        check: bool | None = None,
        target=None,
        execute=False,
        pass_timeout: float | None = None,
    ) -> Compilation:
        """Compile the same model with an edited pipeline, show it, and compare.

        ``target`` sets options of the target.

        It is compared with the one shown before; UserError if there is no compilation, or if the
        edit or one of its passes fails: the views then stay.
        """
        old = self._compilation
        if old is None:
            raise UserError(
                "a recording cannot be rerun", "rerun", "compile the model in this notebook"
            )
        options = replace(
            old.options,
            edit=edit,
            check=old.options.check if check is None else check,
            target=dict(old.options.target if target is None else target),
            pass_timeout=pass_timeout,
        )
        made = start(old.stages[0].module, old.target, options, old.inputs)
        made.take_over(old)
        made.about = {**old.about, "checked": options.check}
        made.finish()
        if execute and can_time(made):
            made.profile()
        if self.other is not None:
            self.other.close()
        self._compilation, self.other = made, self.run
        self.run = self._record()
        self._follow(made)
        SHOWN[id(made)] = self
        weakref.finalize(old, SHOWN.pop, id(old), None)  # another object may get its id
        stage = next(
            (s.index for s in self.run.stages() if s.pass_name == self._shown_pass()), None
        )
        self.view_state = self.view_state.with_(
            stage=stage, rewrite=None, op=None, kernel=None, buffer=None
        )
        self._tracker.clear()
        self._set_state(self.view_state)
        return made

    def compare(self, other: Compilation | TrainingStep | str | Path | None, *shown: str) -> None:
        """Compare with ``other``, B; None: stop comparing.

        B is another compilation so far, the path of a recording, or the name of a run in the
        library. All views compare with the same B; those in ``shown`` show both from now on, if
        they can. UserError if the recording is not found.
        """
        if isinstance(other, TrainingStep):
            other = other.compilation
        found: Run | None = None
        if isinstance(other, Compilation):
            found = recordings.CompilationRun(other)
        elif isinstance(other, str | Path):
            found = Run(recordings.find(other))
        elif other is not None:
            raise UserError(
                f"expected a compilation or a recording, got {type(other).__name__}",
                "compare",
                "pass one, or the path or name of a recording",
            )
        old, self.other = self.other, found
        if old is not None:
            old.close()
        view_state = self.view_state
        for name in shown:
            view_state = navigation.two(view_state, {"view": name, "on": True})
        self._set_state(view_state)

    def _shown_pass(self) -> str:
        """Return the label of the pass that was shown before the last edit."""
        if self.other is None:
            return ""
        return self.other.stages()[self.other.stage_number(self.view_state.stage)].pass_name

    # -- the selection -----------------------------------------------------------------------------

    @property
    def stage(self) -> int:
        """The shown stage; can be set."""
        return self.run.stage_number(self.view_state.stage)

    @stage.setter
    def stage(self, number: int) -> None:
        self._set_state(self.view_state.with_(stage=int(number), rewrite=None))

    @property
    def selection(self) -> Mapping[str, Any]:
        """Return the selection: ``stage``, and the other selected items.

        These are ``rewrite``, ``op``, ``kernel``, ``buffer`` (ids of the recording),
        ``kernel_name``, ``scope``.
        """
        with self.run.lock:
            found = linked(self.run, self.view_state)
            names = {k.id: k.name for k in self.run.kernels()}
        kernel = None if found.kernel is None else names.get(found.kernel)
        parts = {
            "stage": found.stage,
            "rewrite": self.view_state.rewrite,
            "op": found.op,
            "kernel": found.kernel,
            "kernel_name": kernel,
            "buffer": found.buffer,
            "scope": self.view_state.scope or None,
        }
        return MappingProxyType({k: v for k, v in parts.items() if v is not None})

    @property
    def op(self) -> Op | None:
        """Return the selected op in the shown stage: the compilation's own object, if any."""
        number = self.selection.get("op")
        if number is None:
            return None
        if self._compilation is not None:
            return next((op for op, n in self._op_ids.items() if n == number), None)
        return self.run.index(self.stage).ops.get(number)

    def select(
        self,
        *,
        op: Op | int | None = None,
        kernel: str | int | None = None,
        buffer: int | None = None,
        stage: int | None = None,
    ) -> None:
        """Select an op (an object of the IR or an id), a kernel (a name or an id) or a buffer.

        It is selected in ``stage``, by default the shown one; no argument selects nothing. Every
        view follows.
        """
        view_state = self.view_state.select(
            op=self._op_id(op), kernel=self._kernel_id(kernel), buffer=buffer
        )
        self._set_state(
            view_state if stage is None else view_state.with_(stage=int(stage), rewrite=None)
        )

    def _op_id(self, op: Op | int | None) -> int | None:
        if op is None or isinstance(op, int):
            return op
        try:
            return self._op_ids[op] if self._compilation is not None else self.run.op_id(op)
        except KeyError:
            raise UserError(
                "the op is not in a shown stage", "select", "pass an op of a shown stage"
            ) from None

    def _kernel_id(self, kernel: str | int | None) -> int | None:
        if kernel is None or isinstance(kernel, int):
            return kernel
        names = {k.name: k.id for k in self.run.kernels()}
        if kernel not in names:
            raise UserError(
                f"unknown kernel {kernel!r}",
                "select",
                nearest(kernel, list(names), "see c.kernels"),
            )
        return names[kernel]

    def observe(self, watcher: Callable[[Workbench], Any]) -> None:
        """Call ``watcher(workbench)`` after each change of the selection or the stage."""
        self._watchers.append(watcher)

    # -- views -------------------------------------------------------------------------------------

    def view(self, name: str) -> Pane:
        """Return one view as a widget of its own; it shares the selection."""
        self.check(name)
        pane = self._panes.get(name)
        if pane is None:
            pane = self._panes[name] = Pane(self, name)
            self.refresh()
        return pane

    @staticmethod
    def check(name: str) -> None:
        """Raise UserError for an unknown view."""
        if name not in VIEWS and name not in FRAME:
            raise UserError(
                f"unknown view {name!r}",
                "show",
                nearest(name, list(VIEWS), f"views: {', '.join(VIEWS)}"),
            )

    @property
    def widget(self) -> ipywidgets.Widget:
        """Return the complete workbench: controls, two panes, the inspector."""
        if self._controls is None:
            self._controls = Controls(self)
            self._controls.update_controls()
        return self._controls.box

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        shown: Any = self.widget._repr_mimebundle_()
        return {**shown, **self.fallback()}

    def fallback(self) -> dict[str, str]:
        """Return the output for frontends without widgets: text, and the stages as a table."""
        if self._compilation is not None:
            return self._compilation._repr_mimebundle_()
        from core_compiler.exporters.notebook import table
        from core_compiler.ir.markup import bundle

        rows = [(s.index, s.pass_name, s.ops, s.rewrites) for s in self.run.stages()]
        title = f"recording {self.run.path.name}"
        return bundle(*table(("stage", "pass", "ops", "rewrites"), rows, title, (0, 2, 3)))

    @override
    def __repr__(self) -> str:
        return f"<workbench of {self.run.path.stem}, stage {self.stage}, views {', '.join(VIEWS)}>"

    # -- messages from the browser -----------------------------------------------------------------

    def command(self, view: str, text: str) -> None:
        """Execute a command of a view (JSON); commands that only the page has are ignored."""
        try:
            command = json.loads(text)
            self._tracker.note_message(view, command)
            name = str(command.pop("name", ""))
        except (ValueError, AttributeError, TypeError):
            return
        if navigation.known(name):
            self.move(lambda: navigation.move(name, self.run, self.view_state, command))
        elif name == "rerun":
            self._rerun(command)
        elif name == "bisect":  # the stored result, and the command that searches
            show_command = {**command, "view": "bisect"}
            self.move(lambda: navigation.move("show", self.run, self.view_state, show_command))

    def _rerun(self, command: Mapping[str, Any]) -> None:
        """Compile the draft of the pipeline view; errors are reported to the view."""
        # The same error is sent again: a user who repeated the command waits for it.
        status: dict[str, Any] = {"run": self.run.path.name, "n": time.time()}
        self._send_edit_status({**status, "state": "running"})
        status |= {"state": "failed", "kept": None}
        try:
            basis = pipeline_editor.basis_of(self.run)
            draft = pipeline_editor.clean(command.get("draft"), basis.base)
            basis.check(draft)
            self.rerun(
                edits.from_json(draft["edit"]),
                check=draft["check"],
                target=draft["target"],
                execute=draft["execute"],
                pass_timeout=draft["timeout"],
            )
            status |= {"state": "done"}
        except UserError as error:
            status["error"] = error.to_json()["error"]
        except Exception as error:
            status["error"] = unexpected(error)
        self._send_edit_status(status)

    def _send_edit_status(self, status: Mapping[str, Any]) -> None:
        """Send the progress of a compile with an edit to the views that can start one."""
        for name in ("pipeline", "overview"):
            if name in self._panes:
                self._panes[name].update({"detail": json.dumps(status)})

    def apply_selection(self, view: str, selection: Mapping[str, Any]) -> None:
        """Apply the selection of a view of `widgets`."""
        self._tracker.note_message(view, selection)
        self.move(
            lambda: navigation.apply_selection(self.run, self.view_state, view, dict(selection))
        )

    def remember(self, view: str, state: Mapping[str, Any]) -> None:
        """Remember the user's settings of a view."""
        self.view_state = self.view_state.remember(view, state)

    def move(self, move: Callable[[], ViewState]) -> None:
        try:
            with self.run.lock:
                view_state = move()
        except (navigation.NoTarget, UserError) as error:
            message = str(error)
        except Exception as error:
            message = unexpected(error)["what"]
        else:
            self._set_state(view_state)
            return
        self.refresh()  # the view shows the choice at once
        self._show_note(message)

    def _show_note(self, text: str) -> None:
        if self._controls is not None:
            self._controls.note(text)

    def _set_state(self, view_state: ViewState) -> None:
        new_panes = tuple(p for p in view_state.panes if p not in self.view_state.panes)
        if new_panes and self._controls is not None:
            self._controls.open(new_panes)  # a link to a view that is not shown
        self.view_state = view_state
        self.refresh()
        for watcher in list(self._watchers):
            watcher(self)

    def refresh(self) -> None:
        """Update all widgets from the view state."""
        panes = tuple(name for name in self._panes if name in VIEWS)
        self.view_state = self.view_state.with_(panes=panes, zoom=None)
        self.refreshing = True
        try:
            found = self._tracker.updates(self.view_state, self.run, self.other, self._messages)
            for update in found:
                if update.name in self._panes:
                    self._panes[update.name].update(update.values)
                    self._tracker.mark_sent(update)
        finally:
            self.refreshing = False
        for name in panes:
            self._panes[name].show_message(self._messages.get(name))
        if self._controls is not None:
            self._controls.update_controls()

    def answer(self, view: str, request: Mapping[str, Any]) -> Any:
        """Return the response to a request of a view's browser module."""
        runs = views.runs_for(view, self.view_state, self.run, self.other)
        with lock_all(*runs):
            return views.answer(view, runs, self.view_state, dict(request))


class _Follower(Observer):
    """An observer that shows the progress of a shown compilation."""

    def __init__(self, shown: weakref.ref[Workbench], made: Compilation):
        self._shown, self._made = shown, weakref.ref(made)
        self._finishing = False

    @override
    def progress(self, what, done, total):
        made = self._made()
        if made is None:
            return
        if what == "done":
            self._finishing = False
            self._reload()
        elif made.next is not None and what == made.next.label and total == len(made.steps):
            self._finishing = True  # every pass is reported; show them together at the end

    @override
    def stage(self, stage):
        made = self._made()
        if made is not None and not self._finishing and not made.options.check:
            self._reload()

    @override
    def check(self, stage_index, results):
        if not self._finishing:
            self._reload()

    @override
    def timings(self, timings, figures):
        self._reload()

    def _reload(self) -> None:
        shown = self._shown()
        if shown is not None:
            shown.reload()
