"""Makes the pictures in ``docs/images/`` from a recording, in a headless Chromium.

``python docs/make_screenshots.py FILE.run [OTHER.run] [--training A.run B.run]`` (for those in the
repository a ResNet-50: ``workbench compile resnet50 --check --execute -o FILE.run``, and ``-t cuda
-o OTHER.run``; and two runs of ``workbench train digits-cnn --iterations 400 --batch 32 --optimizer
adamw --rate 0.01 --every 50 --receipts gradients --folder DIR -o A.run``, the second with
``--inject core.conv#2:120``, between which *Find the op* was pressed).
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image

from core_compiler.record.reader import Recording
from workbench.divergences import RESULTS

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
SIZE = {"width": 1440, "height": 900}
_SERVE = """
import sys
from pathlib import Path
from workbench.app import serve
serve(port=0, open_browser=False, root=Path(sys.argv[1]))
"""


@dataclass(frozen=True)
class Picture:
    """A sight and what has to be drawn before it is taken."""

    name: str
    sight: dict[str, str]
    ready: str
    dark: bool = False


def pictures(recording: Path, other: Path | None = None) -> list[Picture]:
    """The sights worth a picture: what each view is for, on one op of the model; ``other``: of the
    same model for a GPU, to compare with."""
    both = "memory,graph"
    with Recording.open(recording) as file:
        stages = {s.pass_name: s.index for s in file.stages()}
        relus = [op for op in file.module(0).main.body.ops if op.kind == "core.relu"]
        op = str(file.op_id(relus[len(relus) // 3])) if relus else "1"
        readers = [o for o in file.module(0).main.body.ops if o.kind == "core.conv" and relus
                   and relus[len(relus) // 3].result in o.operands]  # fmt: skip
        why = {"why": {"a": int(op), "b": file.op_id(readers[0])}} if readers else {}
    fold, fuse = stages.get("fold_batch_norm", 1), stages.get("fuse_epilogues", 1)
    last = max(stages.values())
    graph, code = "#cw-view-graph .cw[data-ready]", "#cw-view-code .cw[data-ready]"
    memory, overview = "#cw-view-memory .cw[data-ready]", "#cw-view-overview .figure"
    numbers, timeline = "#cw-view-numerics tbody tr", "#cw-view-timeline .cw[data-ready]"
    step, speed = "graph,diff", "kernels,code"
    rewrites = "#cw-view-rewrites tr.on"
    edited = {"edit": {"skip": ["fold_batch_norm"], "limits": {"fuse_epilogues": 8}}}
    beside = [
        Picture("kernels-cuda", {"run": other.name, "panes": speed}, code),
        Picture("compare", {"other": other.name, "panes": "compare"},
                '#cw-view-compare [data-table="kernels"] tr'),
    ] if other is not None else []  # fmt: skip
    return [
        *beside,
        Picture("overview", {}, overview),
        Picture("step", {"stage": str(fold), "panes": step, "op": op}, graph),
        Picture("rewrites", {"stage": str(fold), "panes": "rewrites", "rewrite": "3"}, rewrites),
        Picture("why-not", {"stage": str(fuse), "panes": "rewrites", "op": op,
                            "rewrites.view": json.dumps(why)}, "#cw-view-rewrites .answer"),
        Picture("source", {"stage": str(last), "panes": "source", "op": op},
                "#cw-view-source tr.on"),
        Picture("kernels", {"stage": str(last), "panes": "kernels", "op": op},
                "#cw-view-kernels .point"),
        Picture("speed", {"stage": str(last), "panes": speed, "op": op}, code),
        Picture("memory", {"stage": str(last), "panes": both, "op": op}, memory),
        Picture("numerics", {"stage": str(fold), "panes": "numerics,diff"}, numbers),
        Picture("pipeline", {"stage": str(fold), "panes": "pipeline",
                             "pipeline.view": json.dumps({"of": recording.name, "draft": edited})},
                "#cw-view-pipeline .row.skipped"),
        Picture("timeline", {"panes": "timeline", "op": op}, timeline),
        Picture("step-dark", {"stage": str(fold), "panes": step, "op": op}, graph, True),
    ]  # fmt: skip


def of_training(a: Path, b: Path) -> list[Picture]:
    """One training run, and where it parts from another."""
    both = {"run": a.name, "other": b.name}
    drawn = "#cw-view-training .rows .row"
    return [
        Picture("training", {"run": a.name, "panes": "training"}, drawn),
        Picture("training-pair", {**both, "panes": "training", "fold": "inspector"}, drawn),
        Picture("divergence", {**both, "panes": "divergence"}, "#cw-view-divergence [data-result]"),
    ]


def take(browser, url: str, recording: Path, picture: Picture, folder: Path) -> Path:
    """One picture; AssertionError where the page reports an error of its own."""
    scheme = "dark" if picture.dark else "light"
    context = browser.new_context(viewport=SIZE, color_scheme=scheme)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    query = {} if picture.name == "start" else {"run": recording.name, **picture.sight}
    page.goto(f"{url}?{urlencode(query)}" if query else url)
    page.wait_for_selector("#cw-loading", state="detached")
    page.wait_for_selector(picture.ready)
    page.wait_for_function("() => !document.getElementById('cw-busy').classList.contains('on')")
    page.wait_for_timeout(1500)
    assert not errors, errors
    path = folder / f"{picture.name}.png"
    page.screenshot(path=path)
    context.close()
    shrink(path)
    return path


def shrink(path: Path) -> None:
    """256 colours are enough for a page and a third of the bytes."""
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=0)
    small.save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("other", type=Path, nargs="?", help="the same model compiled for a GPU")
    parser.add_argument("--training", type=Path, nargs=2, default=(), metavar="RUN",
                        help="two training runs that part")  # fmt: skip
    parser.add_argument("--only", action="append", help="make this picture only (again for more)")
    parser.add_argument("--folder", type=Path, default=IMAGES)
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as root, sync_playwright() as playwright:
        library = Path(root) / "recordings"
        library.mkdir()
        given = (arguments.recording, arguments.other, *arguments.training)
        for path in filter(None, given):
            shutil.copy(path, library / path.name)
            if (found := RESULTS.path_of(path)).exists():
                shutil.copy(found, library / found.name)
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVE, root], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            url = server.stdout.readline().strip()
            browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
            start = Picture("start", {}, "#cw-start tbody tr")
            training = of_training(*arguments.training) if arguments.training else []
            for picture in (start, *pictures(arguments.recording, arguments.other), *training):
                if not arguments.only or picture.name in arguments.only:
                    print(take(browser, url, arguments.recording, picture, arguments.folder))
            browser.close()
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
