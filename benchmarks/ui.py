"""How quickly the page opens a recording, steps through it and draws it, in a headless Chromium.

    python benchmarks/ui.py [--json] [-o FILE]          generated models: 1,000, 10,000, 100,000 ops
                                                        and the training step of a real one
    python benchmarks/ui.py FILE.run ... [--json]       recordings

For each recording, beside the machine's load (figures mean little on a busy one):

``first_paint_s``  from the open connection to the server to the first view that is drawn, in a
                   fresh browser (nothing cached): the median of ``first_paints_s``.
                   ``from_request_s`` counts from the request, so also what every page does before
                   it connects: fetching and starting Bokeh and Panel.  ``reload`` has both with
                   the browser's cache, the best of two
``graph_s``        from the request to the graph of the import drawn (of small models: the median
                   of several browsers)
``step_ms``        from the key ``j`` to the graph and the IR diff of the next changed pass drawn,
                   for the first time; ``step_again_ms`` with ``k``, back (of small models: of
                   several walks)
``select_ms``      from the key ``J`` to the next rewrite shown everywhere
``pan_frame_ms``   a frame while the graph is dragged, the 95th percentile; the slower one of
                   ``pan``: ``near`` (text can be read), ``whole`` (everything in the window)
``redraw_ms``      from the last of some moves of the graph, during which a picture of it is moved,
                   until it is drawn anew and sharp; the slower one (by ``p95``) of ``redraw``:
                   ``near`` and ``whole``, as above.  The time in which the hand may go on is in it
``server_bytes``   memory of the server after all that
``ops``            of the stage that has most

``--json`` prints one object at the end: ``sizes`` maps op counts to these figures of chains of
equal blocks, ``long`` to those of such models with edges that span everything, ``training`` names
of sample models to those of a training step compiled for the CPU, ``recordings`` files.  What is
beyond the budgets (`benchmarks.budgets`) is said on stderr; with ``--strict`` the exit status is 1
then.  ``--table FILE`` writes the figures of such a file beside the budgets, in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # also run as a file
from benchmarks import budgets  # noqa: E402
from benchmarks.models import machine  # noqa: E402
from core_compiler.record.reader import Recording  # noqa: E402

ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
#: Installed before the page's own scripts: notes when the page was connected to its server and when
#: the loading note went away.
_WATCH = """
window.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener('open', () => { window.connected ??= performance.now(); });
  }
};
addEventListener('DOMContentLoaded', () => {
  const look = () => {
    if (document.getElementById('cw-loading')) requestAnimationFrame(look);
    else requestAnimationFrame(() => { window.opened = performance.now(); });
  };
  look();
});
"""
#: Presses a key and waits until the server's answer is there and both views have drawn it.
_STEP = """
(key) => new Promise((done) => {
  const views = ['graph', 'diff'].map((n) => document.querySelector(`#cw-view-${n}`));
  const find = (node) => {
    if (node.shadowRoot) { const inner = find(node.shadowRoot); if (inner) return inner; }
    for (const child of node.children) {
      if (child.classList?.contains('cw')) return child;
      const inner = find(child);
      if (inner) return inner;
    }
    return null;
  };
  const roots = views.map(find);
  const before = roots.map((r) => r.dataset.ready);
  const busy = document.getElementById('cw-busy');
  const started = performance.now();
  document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  const look = () => {
    const drawn = roots.every((r, i) => r.dataset.ready !== before[i]);
    if (drawn && !busy.classList.contains('on')) {
      requestAnimationFrame(() => done(performance.now() - started));
    } else if (performance.now() - started > 20000) done(NaN);
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})
"""
_SELECT = """
() => new Promise((done) => {
  const busy = document.getElementById('cw-busy');
  const started = performance.now();
  document.dispatchEvent(new KeyboardEvent('keydown', { key: 'J', bubbles: true }));
  const look = () => (busy.classList.contains('on')
    ? requestAnimationFrame(look)
    : requestAnimationFrame(() => done(performance.now() - started)));
  requestAnimationFrame(look);
})
"""


#: Drags the graph a few pixels a frame and notes how long frames take.
_PAN = """
(frames) => new Promise((done) => {
  const find = (node) => {
    if (node.shadowRoot) { const inner = find(node.shadowRoot); if (inner) return inner; }
    for (const child of node.children) {
      if (child.classList?.contains('stage')) return child;
      const inner = find(child);
      if (inner) return inner;
    }
    return null;
  };
  const stage = find(document.querySelector('#cw-view-graph'));
  const times = [];
  let last = performance.now();
  const frame = () => {
    const now = performance.now();
    times.push(now - last);
    last = now;
    if (times.length > frames) return done(times.slice(2));
    const by = times.length % 40 < 20 ? 9 : -9;
    const turn = { deltaX: by, deltaY: by, bubbles: true, cancelable: true };
    stage.dispatchEvent(new WheelEvent('wheel', turn));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})
"""
#: Moves the graph for some frames, rests, and notes how long it takes until it is drawn anew.
_REDRAW = """
(times) => new Promise((done) => {
  const find = (node, wanted) => {
    for (const child of (node.shadowRoot ?? node).children) {
      const found = child.classList?.contains(wanted) ? child : find(child, wanted);
      if (found) return found;
    }
    return null;
  };
  const root = find(document.querySelector('#cw-view-graph'), 'cw');
  const stage = find(root, 'stage');
  const took = [];
  let moves = 0;
  let rested = 0;
  const frame = () => {
    const now = performance.now();
    if (!rested) {
      const by = took.length % 2 ? -9 : 9;
      const turn = { deltaX: by, deltaY: by, bubbles: true, cancelable: true };
      stage.dispatchEvent(new WheelEvent('wheel', turn));
      moves += 1;
      if (moves % 12 === 0) rested = now;
    } else if (root.workbench.sharp() || now - rested > 20000) {
      took.push(root.workbench.sharp() ? now - rested : NaN);
      rested = 0;
    }
    if (took.length < times) requestAnimationFrame(frame);
    else done(took);
  };
  requestAnimationFrame(frame);
})
"""
SIZES = (1000, 10_000, 100_000)
#: What is trained for ``training``: as many layers as deep models have, narrow ones.
TRAINED = {"llama-4l": ("--depth", "32", "--width", "0.125", "--batch", "1", "--iterations", "1")}
FRAMES, REDRAWS = 120, 12
#: Browsers in which a page is opened before the one that goes on.
OPENED = 4
#: Passes that are stepped through, and how often this is done (of small models), each time with a
#: copy of the recording.
STEPS, WALKS = 12, 4


def measure(browser, url: str, server: psutil.Process, path: Path) -> dict:
    """The figures of one recording."""
    address = f"{url}?run={quote(str(path.absolute()))}"
    opens = []
    for _ in range(OPENED):
        context = fresh(browser)
        opens.append(_open(context.new_page(), address))
        context.close()
    context = fresh(browser)
    page = context.new_page()
    opened = [_open(page, address) for _ in range(3)]
    opens.append(opened[0])
    graph, there, back = _walk(page, address)
    graphs = [graph]
    select = [page.evaluate(_SELECT) for _ in range(8)]
    pan, redraw = _pan(page)
    context.close()
    server_bytes = server.memory_info().rss
    with Recording(path) as recording:
        ops = max(stage.ops for stage in recording.stages())
    with tempfile.TemporaryDirectory() as folder:
        for again in range(WALKS - 1 if ops < 20_000 else 0):
            # Five or ten steps vary as the machine does; of a copy the server knows nothing.
            copy = shutil.copy(path, Path(folder) / f"{again}.run")
            context = fresh(browser)
            graph, more, more_back = _walk(context.new_page(), f"{url}?run={quote(str(copy))}")
            graphs.append(graph)
            there, back = there + more, back + more_back
            context.close()
    return {
        "recording": path.name,
        "ops": ops,
        **sorted(opens, key=lambda o: o["first_paint_s"])[len(opens) // 2],
        "first_paints_s": [o["first_paint_s"] for o in opens],
        "reload": min(opened[1:], key=lambda o: o["from_request_s"]),
        "graph_s": round(statistics.median(graphs), 3),
        "step_ms": _summary(there),
        "step_again_ms": _summary(back),
        "select_ms": _summary(select),
        "pan_frame_ms": max(p["p95"] for p in pan.values()),
        "pan": pan,
        "redraw_ms": max(redraw.values(), key=lambda r: r["p95"]),
        "redraw": redraw,
        "server_bytes": server_bytes,
        "load": round(os.getloadavg()[0], 1),
    }


def _walk(page, address: str) -> tuple[float, list[float], list[float]]:
    """How long the import's graph takes, and each step through the changed passes and back."""
    began = time.perf_counter()
    page.goto(f"{address}&stage=0&panes=graph,diff")
    page.wait_for_selector("#cw-view-graph .cw[data-ready]")
    graph = time.perf_counter() - began
    page.wait_for_selector("#cw-view-diff .cw[data-ready]")
    page.wait_for_timeout(500)
    changed = page.locator(".pass:not(.same)").count() - 1  # but the import
    steps = min(STEPS, changed)
    there = [page.evaluate(_STEP, "j") for _ in range(steps)]
    return graph, there, [page.evaluate(_STEP, "k") for _ in range(steps)]


def _pan(page) -> tuple[dict[str, dict[str, float]], ...]:
    """Frames while panning a graph with as many ops drawn as the view draws at most, and how long
    it takes to draw it anew after that."""
    page.locator("#cw-view-graph .stage").focus()
    page.keyboard.press("E")
    page.wait_for_timeout(1500)
    pan, redraw = {}, {}
    # The first f of a tall graph fits its width.
    for name, keys in (("whole", "ff"), ("near", ".")):
        if name == "near":
            page.keyboard.press("ArrowDown")  # selects something, at a size that can be read
        for key in keys:
            page.keyboard.press(key)
        page.wait_for_timeout(800)
        pan[name] = _summary(page.evaluate(_PAN, FRAMES))
        page.wait_for_timeout(500)
        redraw[name] = _summary(page.evaluate(_REDRAW, REDRAWS))
    return pan, redraw


def fresh(browser):
    """A browser that knows nothing of the page."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(120_000)
    context.add_init_script(_WATCH)
    return context


def _open(page, address: str) -> dict[str, float]:
    page.goto(address)
    page.wait_for_function("() => window.opened")
    page.wait_for_selector("#cw-view-overview h1")
    connected, opened = page.evaluate("() => [window.connected, window.opened]")
    return {
        "first_paint_s": round((opened - connected) / 1e3, 3),
        "from_request_s": round(opened / 1e3, 3),
    }


def _summary(values: list[float]) -> dict[str, float]:
    known = sorted(v for v in values if v == v)
    if not known:
        return {
            "median": float("nan"),
            "p95": float("nan"),
            "max": float("nan"),
            "lost": len(values),
        }
    p95 = known[min(len(known) - 1, round(0.95 * (len(known) - 1)))]
    made = {
        "median": round(statistics.median(known), 1),
        "p95": round(p95, 1),
        "max": round(known[-1], 1),
    }
    lost = len(values) - len(known)
    return {**made, "lost": lost} if lost else made


@contextmanager
def serving(root: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A server of its own, as a person starts it: its address and its process."""
    server = subprocess.Popen(
        [sys.executable, "-m", "workbench", "open", "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "COMPILER_WORKBENCH_CACHE": str(root)},
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip(), psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="op counts")
    parser.add_argument("--short", action="store_true", help="no long edges, no training step")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--output", type=Path, help="the object of --json, into a file")
    parser.add_argument("--strict", action="store_true", help="exit with 1 beyond a budget")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure nothing: FILE's table")
    arguments = parser.parse_args()
    if arguments.table:
        print(budgets.table(json.loads(arguments.table.read_text(encoding="utf-8"))))
        return
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    made: dict[str, Any] = {"machine": machine(2)}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        for group, name, path in _wanted(arguments, Path(folder)):
            # A server for each recording: its memory is that of this one alone.
            with serving(Path(folder)) as (url, process):
                row = measure(browser, url, process, path)
            made.setdefault(group, {})[name] = row
            if not arguments.json:
                print(json.dumps({group: name, **row}), flush=True)
        browser.close()
    text = json.dumps(made, indent=1)
    if arguments.json:
        print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    beyond = [each for each in budgets.compare_budgets(made) if not each[-1]]
    for group, budget, ops, value, _ in beyond:
        print(
            f"beyond the budget: {budget.figure} of {group} {ops}: {value:g} {budget.unit}, "
            f"at most {budget.most[ops]:g}",
            file=sys.stderr,
        )
    if arguments.strict and beyond:
        sys.exit(1)


def _wanted(arguments, folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Group, name and file of each recording, made when it is its turn."""
    if arguments.recordings:
        for path in arguments.recordings:
            yield "recordings", path.name, path
        return
    for group in ("sizes",) if arguments.short else ("sizes", "long"):
        for ops in arguments.sizes:
            path = folder / f"{group}-{ops}.run"
            subprocess.run(  # in a process of its own: its memory goes with it
                [sys.executable, "-m", "benchmarks.generated_runs", str(path), str(ops), group],
                check=True,
                cwd=ROOT,
            )
            yield group, str(ops), path
    if not arguments.short:
        for name, words in TRAINED.items():
            path = folder / f"{name}.run"
            subprocess.run(
                [sys.executable, "-m", "workbench", "train", name, *words, "-o", str(path)],
                check=True,
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
            )
            yield "training", name, path


if __name__ == "__main__":
    main()
