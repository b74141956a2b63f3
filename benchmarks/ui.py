"""How quickly the page opens a recording and steps through it, in a headless Chromium.

``python benchmarks/ui.py FILE.run [FILE.run ...]`` prints one JSON object a recording, times in
milliseconds:

``open``        from the request to the first view that is drawn (a fresh browser: nothing cached)
``reload``      the same with the browser's cache
``step``        from the key ``j`` to the graph and the IR diff of the next changed pass drawn
``select``      from a click in the kernel table to the selection shown everywhere
``server_mb``   memory of the server after all that, in MB

and beside them the machine's load, because they mean little on a busy one.
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
from pathlib import Path
from urllib.parse import quote

import psutil

ROOT = Path(__file__).resolve().parents[1]
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_SERVE = """
import sys
from pathlib import Path
from workbench.app import serve
serve(port=0, open_browser=False, root=Path(sys.argv[1]))
"""
#: Installed before the page's own scripts: notes when the loading note went away.
_WATCH = """
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


def measure(browser, url: str, process: psutil.Process, path: Path, steps: int) -> dict:
    """The figures of one recording."""
    address = f"{url}?run={quote(str(path.absolute()))}"
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(_WATCH)
    page = context.new_page()
    opened = [_open(page, address) for _ in range(3)]
    page.goto(f"{address}&stage=0&panes=graph,diff")
    page.wait_for_selector("#cw-view-graph .cw[data-ready]")
    page.wait_for_selector("#cw-view-diff .cw[data-ready]")
    page.wait_for_timeout(500)
    first = [page.evaluate(_STEP, "j") for _ in range(steps)]
    back = [page.evaluate(_STEP, "k") for _ in range(steps)]
    select = [page.evaluate(_SELECT) for _ in range(8)]
    context.close()
    return {
        "recording": path.name,
        "open": round(opened[0]),
        "reload": round(min(opened[1:])),
        "step": _summary(first),
        "step_again": _summary(back),
        "select": _summary(select),
        "server_mb": round(process.memory_info().rss / 1e6),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
    }


def _open(page, address: str) -> float:
    page.goto(address)
    page.wait_for_function("() => window.opened")
    page.wait_for_selector("#cw-view-overview h1")
    return page.evaluate("() => window.opened")


def _summary(values: list[float]) -> dict[str, float]:
    known = sorted(v for v in values if v == v)
    if not known:
        return {}
    return {"median": round(statistics.median(known)), "min": round(known[0]),
            "max": round(known[-1])}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--steps", type=int, default=12, help="passes to step through")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as root, sync_playwright() as playwright:
        began = time.perf_counter()
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVE, root], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            url = server.stdout.readline().strip()
            print(json.dumps({"server_start_ms": round((time.perf_counter() - began) * 1e3)}))
            browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
            process = psutil.Process(server.pid)
            for path in arguments.recordings:
                print(json.dumps(measure(browser, url, process, path, arguments.steps)), flush=True)
            browser.close()
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
