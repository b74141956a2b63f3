"""The order in which a page does what it is asked for, and that no page waits for another one's."""

from __future__ import annotations

import urllib.request

import pytest

from workbench.app.turns import QueuedTask, TaskQueue

SLOW = """
import time
from pathlib import Path
from workbench.views import memory
whole = memory.data
def data(*words):
    while not Path({flag!r}).exists():
        time.sleep(0.02)
    return whole(*words)
memory.data = data
"""


class Steps:
    """Turns whose thread and loop do one thing at a time, when they are told."""

    def __init__(self):
        self.aside, self.later, self.done = [], [], []
        self.turns = TaskQueue(self.aside.append, self.later.append)

    def ask(
        self, name: str, *work: str, urgent: bool = False, nested: tuple[str, ...] = ()
    ) -> None:
        def then(result) -> None:
            self.done.append(f"{name} {result() or ''}".strip())
            for each in nested:
                self.ask(each, each.upper())

        self.turns.submit(QueuedTask(then, (lambda: "".join(work)) if work else None, urgent))

    def go_on(self) -> None:
        while self.aside or self.later:
            (self.aside or self.later).pop(0)()


def test_what_takes_no_time_is_done_at_once_and_waits_for_what_does():
    steps = Steps()
    steps.ask("a")
    assert steps.done == ["a"]
    steps.ask("b", "long")
    steps.ask("c")
    steps.ask("d", "long")
    assert steps.done == ["a"] and len(steps.aside) == 1
    steps.go_on()
    assert steps.done == ["a", "b long", "c", "d long"]


def test_what_a_turn_asks_for_comes_before_what_waited():
    steps = Steps()
    steps.ask("a", "x", nested=("b", "c"))
    steps.ask("d", "y")
    steps.go_on()
    assert steps.done == ["a x", "b B", "c C", "d y"]


def test_a_turn_that_fails_is_told_and_the_next_comes():
    steps, told = Steps(), []

    def then(result) -> None:
        try:
            result()
        except ZeroDivisionError as error:
            told.append(str(error))

    steps.turns.submit(QueuedTask(then, lambda: 1 // 0))
    steps.ask("b")
    steps.go_on()
    assert told and steps.done == ["b"]


def test_it_is_known_whether_something_hurries():
    steps = Steps()
    steps.ask("a", "x")
    assert not steps.turns.has_urgent
    steps.ask("b", "y", urgent=True)
    assert steps.turns.has_urgent
    steps.go_on()
    assert not steps.turns.has_urgent and steps.done == ["a x", "b y"]


@pytest.mark.slow
@pytest.mark.playwright
def test_a_page_that_takes_long_holds_up_no_other(own_server, tab, recording, tmp_path):
    flag = tmp_path / "go on"
    server = own_server(str(recording), SLOW.format(flag=str(flag)))
    address = f"{server.url}?run={recording}"
    other = tab(f"{address}&panes=graph,diff&stage=0")
    other.drawn("diff")
    slow = tab(f"{address}&panes=overview")
    slow.show("memory")
    slow.wait("#cw-view-memory.left")
    other.press("j")  # needs the recording that the slow view is derived from
    other.press("z")
    title = f"Opening {recording.name}".encode()
    for path, says in (("health", b"ok"), (f"?run={recording}", title)) * 2:
        assert says in urllib.request.urlopen(server.url + path, timeout=30).read()
    assert not slow.locate("#cw-view-memory .cw[data-ready]").count()
    flag.touch()
    other.wait("#cw-rail .pass.on:not([data-stage='0'])")
    slow.drawn("memory")
    for page in (other, slow):
        assert page.errors == []
