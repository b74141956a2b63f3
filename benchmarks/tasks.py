"""Six questions people ask of a recording: the clicks that answer each, and how long they take.

    python benchmarks/tasks.py [--json] [-o FILE]

From the address of a recording to the answer in the window, in a headless Chromium with an empty
cache that clicks as soon as it can: ``open_s`` until the overview is drawn, ``seconds`` until the
answer is, both from the request; ``clicks`` are those the page saw.  The answer's text is printed,
so that one can see that it is one.  Recordings: ResNet-18 (compiled with checks, executed), a
training run whose loss becomes NaN, and a compile with a pass that is wrong, of which
``first_finding`` says when its finding can be read, from the request: ``noted_s`` in the note that
opens the page (the browser's first contentful paint), ``seconds`` in the overview, which is
``connected_s`` after the connection to the server is open; medians of five browsers with an empty
cache.  ``shift`` is what moves after that (the browser's cumulative layout shift).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # also run as a file
from benchmarks.models import machine  # noqa: E402
from benchmarks.ui import ARGUMENTS, fresh, serving  # noqa: E402

RECORDINGS = {
    "resnet18": ("compile", "resnet18", "--check", "--execute"),
    "nan": ("train", "digits-mlp", "--rate", "1e22", "--iterations", "4"),
    "wrong": (
        "compile",
        "digits-mlp",
        "--check",
        "--execute",
        "--insert",
        "tests/debug/planted.py:QuickGelu@canonicalise",
    ),
}
#: These end with an exit status that says what is wrong with them.
WRONG = ("nan", "wrong")
#: Counts the clicks that a page sees, in ``window.clicks``.
COUNT = """
window.clicks = 0;
addEventListener('click', (event) => { if (event.isTrusted) window.clicks += 1; }, true);
"""
#: Sums what moved.
SHIFT = """
window.shift = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.shift += entry.value;
}).observe({ type: 'layout-shift', buffered: true });
"""
BROWSERS = 5


@dataclass(frozen=True)
class Task:
    """``path``: what is clicked in turn, as Playwright's selectors, or pressed and typed (a text
    that begins with ``key:`` or ``type:``); ``answer``: where it stands, after ``seen``."""

    question: str
    recording: str
    path: tuple[str, ...]
    answer: str
    seen: str = ""


TASKS = (
    Task("Which kernel is the slowest, which line of the model made it, and where is its loop?",
         "resnet18",
         ("#cw-view-overview .kernel >> nth=0", "#cw-inspector .place .link >> nth=0"),
         "#cw-view-source tr.on td.code"),
    Task("Which pass changed the numbers?", "resnet18",
         ("#cw-view-overview .figure:has-text('end-to-end error')",), "#cw-view-numerics .told"),
    Task("What sets the memory peak?", "resnet18",
         ("#cw-view-overview .figure:has-text('peak memory')",),
         "#cw-view-memory .side .item >> nth=0"),
    Task("Why were two ops not fused?", "resnet18",
         ("#cw-view-overview .kernel >> nth=0", "#cw-inspector .link:has-text('why not fused')"),
         "#cw-view-rewrites .answer >> nth=0"),
    Task("Where did the loss first become NaN?", "nan",
         ("#cw-view-overview .finding:has-text('is not finite')",),
         "#cw-view-source tr.on td.code"),
    Task("What did a pass do to this op?", "resnet18",
         ("key:/", "type:kind:batch_norm", "key:Enter", "key:h"),
         "#cw-inspector section >> nth=0", "#cw-inspector h3:has-text('Rewrite')"),
)  # fmt: skip


def measure(browser, url: str, path: Path, task: Task) -> dict:
    """One task in a fresh browser."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(120_000)
    context.add_init_script(COUNT)
    page = context.new_page()
    began = time.perf_counter()
    page.goto(f"{url}?run={quote(str(path.absolute()))}")
    page.wait_for_selector("#cw-loading", state="detached")
    page.wait_for_selector("#cw-view-overview .figure")
    opened = time.perf_counter() - began
    for step in task.path:
        if step.startswith("key:"):
            page.wait_for_function("() => !document.querySelector('#cw-busy.on')")
            page.keyboard.press(step[4:])
        elif step.startswith("type:"):
            page.keyboard.type(step[5:])
        else:
            page.locator(step).click()
    if task.seen:
        page.wait_for_selector(task.seen)
    answer = page.locator(task.answer)
    answer.wait_for()
    seconds = time.perf_counter() - began
    found = {
        "question": task.question,
        "clicks": page.evaluate("() => window.clicks"),
        "open_s": round(opened, 2),
        "seconds": round(seconds, 2),
        "answer": " ".join(answer.inner_text().split()),
    }
    context.close()
    return found


def first_finding(browser, url: str, path: Path) -> dict:
    """When the finding of a recording is drawn."""
    times = []
    for _ in range(BROWSERS):
        context = fresh(browser)
        context.add_init_script(SHIFT)
        page = context.new_page()
        page.goto(f"{url}?run={quote(str(path.absolute()))}", wait_until="commit")
        page.locator("#cw-loading .error").first.wait_for()
        page.locator("#cw-view-overview .finding[data-severity=error]").first.wait_for()
        now, connected, noted = page.evaluate("""() => [performance.now(), window.connected,
          performance.getEntriesByName('first-contentful-paint')[0].startTime]""")
        page.wait_for_timeout(1500)
        shift = page.evaluate("() => window.shift")
        times.append((noted / 1e3, now / 1e3, (now - connected) / 1e3, shift))
        context.close()
    noted, seconds, connected, shift = zip(*times, strict=True)
    return {
        "noted_s": round(median(noted), 2),
        "seconds": round(median(seconds), 2),
        "connected_s": round(median(connected), 2),
        "shift": max(shift),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--output", type=Path, help="the object of --json, into a file")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        for recording, words in RECORDINGS.items():
            command = [
                sys.executable,
                "-m",
                "workbench",
                *words,
                "-o",
                str(folder / f"{recording}.run"),
            ]
            subprocess.run(
                command,
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=recording not in WRONG,
            )
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        with serving(folder) as (url, _):
            rows = [measure(browser, url, folder / f"{t.recording}.run", t) for t in TASKS]
            finding = first_finding(browser, url, folder / "wrong.run")
        browser.close()
    made = {
        "machine": machine(2),
        "load": round(os.getloadavg()[0], 1),
        "tasks": rows,
        "first_finding": finding,
    }
    text = json.dumps(made, indent=1, ensure_ascii=False)
    print(
        text
        if arguments.json
        else "\n".join(
            f"{r['question']}  {r['clicks']} clicks, {r['seconds']} s: {r['answer'][:150]}"
            for r in rows
        )
        + f"\nfirst finding: {finding}"
    )
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
