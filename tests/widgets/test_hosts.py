"""The same modules in their Python hosts: a Panel server and notebook widgets."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.late_browser import without_ready
from tests.widgets.graphs import transformer
from tests.widgets.samples import code_data, diff_data, memory_data, timeline_data
from widgets import TRAITS, VIEWS, module_path, pack
from widgets.requests import Requests

DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "Graph": lambda: transformer(3).data(),
    "Diff": diff_data,
    "Code": code_data,
    "Memory": memory_data,
    "Timeline": timeline_data,
}


@pytest.fixture
def served(browser: Any, bundles: Any) -> Iterator[Callable[..., Any]]:
    """`served(component)`: a tab that shows the component from a Panel server, its requests, the
    address, and a function that calls another in the server's thread (Panel may lose what other
    threads set while it writes).  With `drawn=False` the server never hears that all is drawn."""
    pn = pytest.importorskip("panel", reason="panel is not installed")
    servers, context = [], browser.new_context(viewport={"width": 1200, "height": 800})

    def serve(
        component: Any, drawn: bool = True
    ) -> tuple[Any, list[str], str, Callable[[Any], Any]]:
        port = free_port()
        servers.append(pn.serve(component, port=port, threaded=True, show=False, verbose=False))
        url = f"http://localhost:{port}"
        tab, requests = context.new_page(), []
        tab.on("request", lambda request: requests.append(request.url))
        if not drawn:
            tab.route_web_socket(lambda _: True, without_ready)
        wait_for_port(port)
        tab.goto(url)
        tab.wait_for_selector(".cw[data-ready]", timeout=60_000)
        return tab, requests, url, servers[-1].asyncio_loop.call_soon_threadsafe

    yield serve
    context.close()
    for server in servers:
        server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def wait_for_port(port: int) -> None:
    """The server starts in its own thread; up to twenty seconds."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("localhost", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"no server on port {port}")


def wait_until(tab: Any, condition: Callable[[], bool]) -> None:
    """The browser's change arrives over a socket; give it up to ten seconds."""
    for _ in range(100):
        if condition():
            return
        tab.wait_for_timeout(100)
    assert condition()


@pytest.mark.slow
def test_panel_graph_both_ways(served: Any) -> None:
    """Data with bytes arrives; a click reaches Python; a selection from Python reaches the view."""
    from widgets.panel_host import GraphView

    view = GraphView(height=600, sizing_mode="stretch_width", theme="dark")
    view.show(transformer(3).data())
    tab, requests, url, call = served(view)
    root = tab.locator(".cw")
    assert root.get_attribute("data-theme") == "dark"
    key = transformer(3).kinds.index("gather")
    at = root.evaluate("(root, key) => root.workbench.placeOfOp(key)", key)
    tab.mouse.click(at["x"], at["y"])
    wait_until(tab, lambda: view.selection == {"op": key})
    call(lambda: view.param.update(selection={"op": key + 2}))
    selected = "root => root.workbench.selected()"
    wait_until(tab, lambda: root.evaluate(selected).startswith("subtract"))
    inside = (url, url.replace("http", "ws", 1), "blob:", "data:")
    assert [each for each in requests if not each.startswith(inside)] == []


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [True, False])
def test_panel_next_stage(served: Any, drawn: bool) -> None:
    """Also when it is given before the browser has said that the first one is drawn."""
    from widgets.panel_host import GraphView

    view = GraphView(height=600, sizing_mode="stretch_width")
    view.show(transformer(2).data())
    tab, _, _, call = served(view, drawn=drawn)
    call(lambda: view.show(transformer(3).data("1", "next")))
    tab.wait_for_selector('.cw[data-ready="2"]')


@pytest.mark.slow
def test_panel_answers_requests(served: Any) -> None:
    from widgets.panel_host import DiffView

    data = diff_data(9000)
    lines = data["lines"]
    kinds = ("equal", "changed", "added", "removed")
    data["kinds"] = np.array([kinds.index(line["kind"]) for line in lines], np.uint8)
    data["count"], data["lines"] = len(lines), lines[:2000]
    view = DiffView(height=600, sizing_mode="stretch_width", state={"whole": True})
    view.on_request(
        lambda request: {"start": request["from"], "lines": lines[request["from"] : request["to"]]}
    )
    view.show(data)
    tab, _, _, _ = served(view)
    tab.locator(".lines").evaluate("(e) => { e.scrollTop = 6200 * 18; }")
    tab.wait_for_selector('[data-row="6200"] .code')
    assert tab.locator('[data-row="6200"] .code').first.inner_text() in str(lines[6200])


def test_panel_shows_every_view(served: Any) -> None:
    pn = pytest.importorskip("panel")
    from widgets import panel_host

    views = []
    for name, data in DATA.items():
        view = getattr(panel_host, f"{name}View")(height=300, sizing_mode="stretch_width")
        view.show(data())
        views.append(view)
    tab, _, _, _ = served(pn.Column(*views, sizing_mode="stretch_width"))
    for view in VIEWS:
        tab.wait_for_selector(f".cw-{view}[data-ready]")


@pytest.mark.parametrize("name", list(DATA))
def test_notebook_widget(name: str, bundles: Any) -> None:
    """The widget carries the module itself and all traits; data and bytes are set together."""
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    from widgets import notebook_host

    widget = getattr(notebook_host, f"{name}Widget")()
    assert set(widget.keys) >= {trait.name for trait in TRAITS}
    data = DATA[name]()
    widget.show(data)
    assert (widget.data, widget.blob) == pack(data)
    source = module_path(name.lower()).read_text(encoding="utf-8")
    assert str(widget._esm) == source
    assert "export{" in source and "import " not in source.split("\n")[0][:200]


def test_notebook_widget_answers_requests(bundles: Any) -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    from widgets.notebook_host import DiffWidget

    widget = DiffWidget()
    widget.on_request(lambda request: request["from"] + 1)
    widget.request = json.dumps([{"id": 1, "session": "s", "from": 4}])
    assert json.loads(widget.response) == [{"value": 5, "id": 1, "session": "s"}]


def test_requests_are_answered_once() -> None:
    """The browser repeats what is open; each id is handled once, each session has its own ids."""
    seen = []
    requests = Requests(lambda request: seen.append(request["id"]))
    first = [{"id": 1, "session": "a"}, {"id": 2, "session": "a"}]
    assert len(json.loads(requests.answer(json.dumps(first)) or "")) == 2
    assert requests.answer(json.dumps(first)) is None
    assert requests.answer(json.dumps([*first, {"id": 1, "session": "b"}])) is not None
    assert seen == [1, 2, 1]


def test_an_answer_that_json_cannot_say_is_an_answer() -> None:
    """What is not finite is None; what cannot be encoded says so, and leaves the others."""
    values = {1: [float("inf"), {"x": float("nan")}, 2.5], 2: object(), 3: "there"}
    requests = Requests(lambda request: values[request["id"]])
    asked = [{"id": number, "session": "a"} for number in values]
    first, second, third = json.loads(requests.answer(json.dumps(asked)) or "")
    assert (first["value"], third["value"]) == ([None, {"x": None}, 2.5], "there")
    assert second["error"].startswith("TypeError") and second["id"] == 2


def test_failed_request_is_an_answer() -> None:
    requests = Requests(lambda request: request["missing"])
    (answer,) = json.loads(requests.answer('[{"id": 3, "session": "a"}]') or "")
    assert answer == {"error": "KeyError: 'missing'", "id": 3, "session": "a"}
