"""Makes the pictures in ``docs/images/``: each view, light and dark, 1440 by 900 pixels, in a
headless Chromium.

``python docs/make_screenshots.py FOLDER`` compiles, executes and trains what ``FOLDER`` lacks
(``RECIPES``; minutes the first time), then takes all of them; ``--only NAME`` some.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image

from core_compiler.record.reader import Recording
from workbench.export import report

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
ARGUMENTS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
SIZE = {"width": 1440, "height": 900}
SCHEMES = {"light": "", "dark": "-dark"}
#: Larger files are refused (bytes).
LARGEST = 200_000
#: How long a picture may take to come to be (milliseconds).
PATIENCE = 180_000
_TRAIN = ["train", "digits-cnn", "--iterations", "400", "--batch", "32", "--optimizer", "adamw",
          "--rate", "0.01", "--every", "50", "--receipts", "gradients"]  # fmt: skip
#: The recordings by name and the commands that make them; ``{}`` is the folder.
RECIPES = {
    "resnet18": ["compile", "resnet18", "--check", "--execute", "--against", "torch"],
    "resnet18-unfolded": [
        "compile",
        "resnet18",
        "--check",
        "--execute",
        "--skip",
        "fold_batch_norm",
        "--skip",
        "fuse_epilogues",
    ],
    "resnet18-cuda": ["compile", "resnet18", "-t", "cuda"],
    "resnet18-int8": ["compile", "resnet18", "--quantize", "int8"],
    "digits-cnn": ["compile", "digits-cnn", "--check", "--execute"],
    # Again, for figures over time.
    **{f"digits-cnn-{i}": ["compile", "digits-cnn", "--check", "--execute"] for i in (2, 3, 4)},
    "digits-mlp-unfused": [
        "compile",
        "digits-mlp",
        "--width",
        "0.25",
        "--batch",
        "1024",
        "--skip",
        "fuse_elementwise",
        "--skip",
        "fuse_epilogues",
    ],
    "digits-onnx": ["compile", "digits-cnn", "--frontend", "onnx-passes", "--check", "--execute"],
    "wrong-gelu": [
        "compile",
        "digits-mlp",
        "--check",
        "--insert",
        "tests/debug/planted.py:QuickGelu@canonicalise",
    ],
    "training-a": [*_TRAIN, "--folder", "{}/a"],
    "training-b": [*_TRAIN, "--folder", "{}/b", "--inject", "core.conv#2:122"],
}
#: The views that are shown with two recordings, and what says that they are drawn.
TWO_RUNS = {
    "overview": "#cw-view-overview .value.side",
    "numerics": "#cw-view-numerics tbody tr",
    "memory": "#cw-view-memory .cw[data-ready]",
    "source": "#cw-view-source .two tbody tr",
    "rewrites": "#cw-view-rewrites .two tbody tr",
    "graph": "#cw-view-graph .legend .side",
    "diff": "#cw-view-diff .cw[data-ready]",
    "kernels": "#cw-view-kernels .two tbody tr",
    "code": "#cw-view-code .both .cell.left",
    "timeline": "#cw-view-timeline .cw[data-ready]",
    "pipeline": "#cw-view-pipeline .two .row",
}
_SERVE = """
import sys
from pathlib import Path
from workbench.app import serve
serve(port=0, open_browser=False, root=Path(sys.argv[1]))
"""


#: Who may sign in to the server of which a picture shows how.
_USERS = {"alice": "a password for a picture"}


@dataclass(frozen=True)
class Picture:
    """A state, what has to be drawn before it is taken (``ready``, a CSS selector), and what is
    done on the page before that.  ``of``: whose page it is, the ``workbench``'s (``workbench
    open``), a ``team``'s server or a ``report``'s."""

    name: str
    state: dict[str, str]
    ready: str
    act: Callable[[Any], None] | None = None
    of: str = "workbench"


def record(folder: Path) -> None:
    """Make the recordings that are not there, or were cut off."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, words in RECIPES.items():
        path = folder / f"{name}.run"
        if not is_complete(path):
            path.unlink(missing_ok=True)
            if "--folder" in words:
                shutil.rmtree(words[words.index("--folder") + 1].format(folder), ignore_errors=True)
            words = [word.format(folder.absolute()) for word in words]
            run = (
                "import sys; from workbench.commands.cli import main; sys.exit(main(sys.argv[1:]))"
            )
            command = [sys.executable, "-c", run, *words, "-o", str(path.absolute())]
            print(" ".join(["workbench", *words]), flush=True)
            # A compile whose check fails says so with its exit status, and is recorded.
            subprocess.run(command, check="--insert" not in words, cwd=ROOT)


def is_complete(path: Path) -> bool:
    if not path.exists():
        return False
    with Recording.open(path) as file:
        return file.status == "finished"


def pictures(folder: Path) -> list[Picture]:
    """All pictures: what each view is for."""
    return [
        Picture("start", {}, "#cw-start tbody tr"),
        Picture(
            "over-time",
            {"shelf": "trend", "find": "digits-cnn"},
            "#cw-start figure circle",
            first_of_them,
        ),
        *of_a_model(folder / "resnet18.run"),
        *of_training(folder / "training-a.run"),
        of_onnx(folder / "digits-onnx.run"),
        Picture("sign-in", {}, "input[type=password]", of="team"),
        Picture("report", {}, "body[data-ready]", of="report"),
        # Last: what it deletes is not there for the others.
        Picture("trash", {}, "#cw-start [data-table=trash] tbody tr", delete_runs),
    ]


def of_onnx(path: Path) -> Picture:
    """A model in ONNX's own words, when all passes from ONNX to ONNX have run."""
    with Recording.open(path) as file:
        stage = next(s.index for s in file.stages() if s.pass_name == "import_onnx") - 1
    return Picture(
        "onnx", {"run": path.name, "panes": "graph", "stage": str(stage)}, drawn("graph"), fit
    )


def of_a_model(path: Path) -> list[Picture]:
    """A network and one op of it."""
    with Recording.open(path) as file:
        stages = {s.pass_name: s.index for s in file.stages()}
        ops = file.module(0).main.body.ops
        relus = [op for op in ops if op.kind == "core.relu"]
        chosen = relus[len(relus) // 3]
        reader = next(o for o in ops if o.kind == "core.conv" and chosen.result in o.operands)
        a, b = file.op_id(chosen), file.op_id(reader)
        kernel = str(next(k.id for k in file.kernels() if "max" in k.name))
    op, last = str(a), str(max(stages.values()))
    fold, fuse = str(stages["fold_batch_norm"]), str(stages["fuse_epilogues"])
    edited = {"edit": {"skip": ["fold_batch_norm"], "limits": {"fuse_epilogues": 8}}}
    draft = json.dumps({"of": path.name, "draft": edited})
    # Where the two differ: what folding leaves, and a kernel that only one has fused.
    two = {
        "graph": {"stage": fuse},
        "diff": {"stage": fold},
        "code": {"kernel": kernel},
        "timeline": {"op": op},
    }
    why, cuda = json.dumps({"why": {"a": a, "b": b}}), "resnet18-cuda.run"
    kernels = "#cw-view-kernels .point"

    def state_of(panes: str, stage: str = last, **more: str) -> dict[str, str]:
        return {"run": path.name, "panes": panes, "stage": stage, "op": op, **more}

    return [
        Picture("overview", {"run": path.name}, "#cw-view-overview .figure"),
        Picture("advice", {"run": "digits-mlp-unfused.run"},
                "#cw-view-overview .evidence", read_advice),
        Picture("step", state_of("graph,diff", fold), drawn("graph")),
        Picture("rewrites", state_of("rewrites", fold, rewrite="3"), "#cw-view-rewrites tr.on"),
        Picture("why-not", state_of("rewrites", fuse, **{"rewrites.view": why}),
                "#cw-view-rewrites .answer"),
        Picture("source", state_of("source"), "#cw-view-source tr.on"),
        Picture("kernels", state_of("kernels"), kernels),
        Picture("speed", state_of("kernels,code"), drawn("code")),
        Picture("kernels-cuda", {"run": cuda, "panes": "kernels,code"}, drawn("code")),
        Picture("memory", state_of("memory,graph"), drawn("memory")),
        Picture("timeline", {"run": path.name, "panes": "timeline", "op": op}, drawn("timeline")),
        Picture("numerics", {"run": path.name, "panes": "numerics,diff", "stage": fold},
                "#cw-view-numerics tbody tr"),
        Picture("framework", {"run": path.name, "panes": "numerics,graph", "stage": "0",
                              "numerics.view": '{"tab":"beside"}'},
                "#cw-view-numerics [data-tab=beside][aria-selected=true]", choose_framework),
        Picture("quantised", {"run": "resnet18-int8.run", "panes": "numerics,graph"},
                "#cw-view-numerics tr.on", choose_loss),
        *(Picture(f"two-{view}", {"run": path.name, "other": "resnet18-unfolded.run",
                                  "panes": view, f"{view}.view": '{"ab":true}',
                                  **two.get(view, {})}, ready)
          for view, ready in TWO_RUNS.items()),
        Picture("pipeline", state_of("pipeline", fold, **{"pipeline.view": draft}),
                "#cw-view-pipeline .row.skipped"),
        Picture("compare", {"run": path.name, "other": cuda, "panes": "compare"},
                '#cw-view-compare [data-table="kernels"] tr'),
        Picture("search", state_of("graph,diff", fold), "#cw-bar .hit", look_for("conv")),
        Picture("bisect", {"run": "wrong-gelu.run", "panes": "bisect"},
                '#cw-view-bisect [data-result="pass"]', find_bad_pass),
        Picture("step-by-step", {}, drawn("graph"), open_held_compile),
        Picture("tour", {}, "#cw-tour .card", take_tour),
    ]  # fmt: skip


def of_training(path: Path) -> list[Picture]:
    """A training run, its step, and where it parts from another."""
    with Recording.open(path) as file:
        stages = {s.pass_name: s.index for s in file.stages()}
        at = stages["differentiate"]
        convolutions = [o for o in file.module(at - 1).main.body.ops if o.kind == "core.conv"]
        op = str(file.op_id(convolutions[-1]))
    run, pair = {"run": path.name}, {"run": path.name, "other": "training-b.run"}
    rows = "#cw-view-training .rows .row"
    return [
        Picture("training", {**run, "panes": "training"}, rows),
        Picture("training-pair", {**pair, "panes": "training", "fold": "inspector"}, rows),
        Picture(
            "divergence", {**pair, "panes": "divergence"}, "#cw-view-divergence [data-result]", find
        ),
        Picture("joint", {**run, "panes": "graph", "stage": str(at), "op": op}, drawn("graph")),
        Picture(
            "memory-backward",
            {**run, "panes": "memory", "memory.view": '{"side":"backward"}'},
            drawn("memory"),
        ),
    ]


def drawn(view: str) -> str:
    """What says that a view of `widgets` has drawn."""
    return f"#cw-view-{view} .cw[data-ready]"


# -- what is done on a page before its picture -----------------------------------------------


def look_for(text: str) -> Callable[[Any], None]:
    def act(page: Any) -> None:
        page.wait_for_selector(drawn("graph"))
        page.keyboard.press("/")
        page.keyboard.type(text)

    return act


def choose_loss(page: Any) -> None:
    page.click("#cw-view-numerics [data-do=lost]")
    page.click("#cw-view-numerics tbody tr:nth-child(3) td")


def choose_framework(page: Any) -> None:
    page.click("#cw-view-numerics [data-do=beside]")
    page.wait_for_selector("#cw-view-numerics tbody tr.on")


def fit(page: Any) -> None:
    page.wait_for_selector(drawn("graph"))
    page.locator("#cw-view-graph button", has_text="fit").click()


def read_advice(page: Any) -> None:
    page.wait_for_selector("#cw-view-overview [data-hazard]")
    page.locator("#cw-view-overview [data-hazard='unfused chain'] .open").first.click()
    page.locator("#cw-view-overview .evidence").evaluate("(it) => it.scrollIntoView(false)")


def first_of_them(page: Any) -> None:
    """Of several models and targets that are found the first."""
    page.locator("#cw-start .runs tbody tr").first.click()


def delete_runs(page: Any) -> None:
    """Two runs in the trash, and the trash open."""
    page.wait_for_selector("#cw-start tbody tr")
    for name in ("wrong-gelu.run", "digits-cnn.run"):
        delete_button = page.locator(f'#cw-start [aria-label="Delete {name}"]')
        if delete_button.count():
            delete_button.click()
            page.wait_for_selector(f'#cw-start tr[data-run="{name}"]', state="detached")
    page.click("#cw-start [data-do=trash]")


def find(page: Any) -> None:
    """The first op in which two runs differ; it is kept for the next picture."""
    page.wait_for_selector("#cw-view-divergence [data-result], #cw-view-divergence [data-do=find]")
    if not page.query_selector("#cw-view-divergence [data-result]"):
        page.click("#cw-view-divergence [data-do=find]")


def find_bad_pass(page: Any) -> None:
    page.wait_for_selector("#cw-view-bisect [data-do=look]")
    if not page.query_selector("#cw-view-bisect [data-result]"):
        page.click("#cw-view-bisect [data-do=look]")


def open_held_compile(page: Any) -> None:
    """A compile that waits before a pass."""
    page.get_by_label("step by step").check()
    page.fill("#cw-start input[type=text]", "digits-cnn")
    page.keyboard.press("Enter")
    for _ in range(4):
        page.wait_for_selector("#cw-bar [data-held=change]")
        before = page.text_content("#cw-bar .held")
        page.click("#cw-bar [data-held=change]")
        page.wait_for_function(
            "(before) => document.querySelector('#cw-bar')?.textContent !== before", arg=before
        )
        page.wait_for_timeout(600)
    page.wait_for_selector("#cw-bar [data-held=change]")
    page.keyboard.press("1")
    page.wait_for_selector(drawn("graph"))
    page.locator("#cw-view-graph button", has_text="change").last.click()


def take_tour(page: Any) -> None:
    page.click("#cw-start [data-do=tour]")
    for _ in range(2):
        page.click('#cw-tour [data-tour="next"]')
        page.wait_for_timeout(300)
    page.wait_for_selector(drawn("graph"))


# -- taking them ------------------------------------------------------------------------------


def take(
    browser: Any, urls: Mapping[str, str], picture: Picture, scheme: str, folder: Path
) -> Path:
    """One picture; AssertionError where the page reports an error of its own or it is too large."""
    context = browser.new_context(viewport=SIZE, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    url = urls[picture.of]
    page.goto(f"{url}?{urlencode(picture.state)}" if picture.state else url)
    if picture.of == "workbench":
        page.wait_for_selector("#cw-loading", state="detached")
    if picture.act is not None:
        picture.act(page)
    page.wait_for_selector(picture.ready)
    page.wait_for_function("() => !document.getElementById('cw-busy')?.classList.contains('on')")
    page.wait_for_timeout(1500)
    assert not errors, errors
    path = folder / f"{picture.name}{SCHEMES[scheme]}.png"
    page.screenshot(path=path)
    if (cancel_button := page.locator("#cw-bar .job button", has_text="Cancel")).is_visible():
        cancel_button.click()  # a held compile would wait for ever
        page.wait_for_timeout(1000)
    context.close()
    shrink(path)
    assert path.stat().st_size < LARGEST, f"{path} has {path.stat().st_size} bytes"
    return path


def shrink(path: Path) -> None:
    """256 colours are enough for a page and a third of the bytes."""
    with Image.open(path) as picture:
        kind = Image.Quantize.MAXCOVERAGE  # k-means then keeps large even areas as they are
        small = picture.convert("RGB").quantize(256, method=kind, kmeans=1, dither=0)
    small.save(path, optimize=True)


@contextmanager
def served(folder: Path):
    """A server whose library has the recordings of ``folder``; its address."""
    with tempfile.TemporaryDirectory() as root:
        library = Path(root) / "recordings"
        library.mkdir()
        for path in folder.iterdir():
            if path.suffix in (".run", ".json"):
                shutil.copy(path, library / path.name)
        command = [sys.executable, "-c", _SERVE, root]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()
            server.wait(20)
            for path in library.glob("*.json"):  # what was found between two runs
                shutil.copy(path, folder / path.name)


@contextmanager
def team(folder: Path):
    """A server that people sign in to; its address."""
    users = folder / "users.json"
    users.write_text(json.dumps(_USERS))
    users.chmod(0o600)
    run = "import sys; from workbench.commands.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [
        sys.executable,
        "-c",
        run,
        "serve",
        "--store",
        str(folder / "store"),
        "--port",
        "0",
        "--auth",
        str(users),
        "--json",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout is not None
    try:
        yield json.loads(server.stdout.readline())["url"]
    finally:
        server.terminate()
        server.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("recordings", type=Path, help="a folder; what it lacks is recorded first")
    parser.add_argument("--only", action="append", help="make this picture only (again for more)")
    parser.add_argument("--folder", type=Path, default=IMAGES, help="where the pictures go")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    record(arguments.recordings)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as other,
        served(arguments.recordings) as url,
        team(Path(other)) as signing,
        sync_playwright() as playwright,
    ):
        page = Path(other) / "digits-cnn.html"
        report.write(arguments.recordings / "digits-cnn.run", page)
        urls = {"workbench": url, "team": signing, "report": page.as_uri()}
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        for picture in pictures(arguments.recordings):
            for scheme in SCHEMES:
                if not arguments.only or picture.name in arguments.only:
                    print(take(browser, urls, picture, scheme, arguments.folder), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
