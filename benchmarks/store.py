"""How quickly the library answers, with as many runs as a team makes in years.

    python benchmarks/store.py [--runs 10000] [--json] [-o FILE]

Makes so many small recordings in a temporary folder (facts and figures of a run, no stages; a tenth
of them with tags and a note) and asks the library of them, in one process and without a browser.
For each question, the median and the 95th percentile in milliseconds:

``list``     the first page of all runs; ``list_last`` the last one
``search``   the first page of the runs in which a word stands
``tag``      the first page of the runs with a tag
``fields``   the same by model, target and status, sorted by time
``trend``    all runs of one model over time
``page``     all that the first page of the workbench is sent of it; then it looks for news
``look``     a look at every file of the folder; ``quick_look`` where nothing came or went

``index_s`` is how long it takes to read all recordings into a new index, ``index_bytes`` its size.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # also run as a file
from benchmarks.models import machine  # noqa: E402
from core_compiler.record import schema  # noqa: E402
from widgets.encode import finite  # noqa: E402
from workbench.app import run_entry, run_query, runs  # noqa: E402
from workbench.app.library import Library  # noqa: E402
from workbench.state.view_state import ViewState  # noqa: E402

#: How often each question is asked.
TIMES = 40
MODELS = tuple(
    f"{family}-{size}"
    for family in ("bert", "gpt", "llama", "resnet", "vit", "unet")
    for size in ("tiny", "small", "base", "large")
)
TAGS = ("release", "nightly", "before-tiles", "fast", "wrong")
BEGAN = 1.75e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--output", type=Path, help="the object of --json, into a file")
    arguments = parser.parse_args()
    made: dict[str, Any] = {"machine": machine(2), "runs": arguments.runs}
    with tempfile.TemporaryDirectory() as folder:
        made |= measure(Path(folder), arguments.runs)
    made["machine"]["load_after"] = machine(2)["load"]
    text = json.dumps(made, indent=1)
    print(text if arguments.json else _table(made))
    if arguments.output:
        arguments.output.write_text(text + "\n")


def measure(root: Path, count: int) -> dict[str, Any]:
    """Every figure of a new library of ``count`` runs."""
    library = Library(root)
    make(library, count)
    began = time.perf_counter()
    library.index.refresh()
    index_s = time.perf_counter() - began
    model = run_query.exactly("resnet-base", "", "cpu")
    last = (count - 1) // runs.PAGE_SIZE * runs.PAGE_SIZE
    questions: Mapping[str, Callable[[], Any]] = {
        "list": lambda: library.listing("", runs.PAGE_SIZE),
        "list_last": lambda: library.listing("", runs.PAGE_SIZE, last),
        "search": lambda: library.listing("resnet", runs.PAGE_SIZE),
        "tag": lambda: library.listing("tag:release", runs.PAGE_SIZE),
        "fields": lambda: library.listing(f"{model} status:finished sort:time", runs.PAGE_SIZE),
        "trend": lambda: library.trend(model),
        "page": lambda: json.dumps(finite(runs.facts(library, ViewState()))),
        "look": library.index.refresh,
        "quick_look": lambda: library.index.refresh(quick=True),
    }
    return {
        "ms": {name: _times(ask) for name, ask in questions.items()},
        "found": {
            "search": library.listing("resnet").total,
            "tag": library.listing("tag:release").total,
            "trend": len(library.trend(model)["runs"]),
        },
        "index_s": round(index_s, 2),
        "index_bytes": library.index.file.stat().st_size,
    }


def _times(ask: Callable[[], Any]) -> dict[str, float]:
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        ask()
        times.append(1e3 * (time.perf_counter() - began))
    return {
        "median": round(statistics.median(times), 2),
        "p95": round(sorted(times)[round(0.95 * (TIMES - 1))], 2),
    }


def make(library: Library, count: int) -> None:
    """``count`` recordings, the same ones each time."""
    library.folder.mkdir(parents=True)
    draw = random.Random(0)
    with sqlite3.connect(":memory:", isolation_level=None) as db:
        schema.create(db)
        empty = db.serialize()
    for number in range(count):
        model = draw.choice(MODELS)
        path = library.folder / f"{model}-{number:05}.run"
        path.write_bytes(_recording(empty, model, BEGAN + 600 * number, draw))
        if number % 10 == 0:
            annotations = run_entry.checked(
                tags=draw.sample(TAGS, 2), note=f"number {number}", pinned=number % 1000 == 0
            )
            run_entry.annotate(path, annotations)


def _recording(empty: bytes, model: str, began: float, draw: random.Random) -> bytes:
    status = draw.choices(("finished", "failed", "cancelled"), (90, 7, 3))[0]
    sizes = {"width": draw.choice((0.5, 1))}
    meta = {
        "model": model,
        "target": draw.choice(("cpu", "cuda")),
        "status": status,
        "began": began,
        "mode": "inference",
        "sizes": sizes,
    }
    figures = [
        ("timing", "total_ms", draw.uniform(1, 100)),
        ("run", "compile_seconds", draw.uniform(1, 60)),
        ("memory", "arena_bytes", draw.randrange(1 << 20, 1 << 30)),
    ]
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.deserialize(empty)
    db.executemany("INSERT INTO meta VALUES (?, ?)", [(k, json.dumps(v)) for k, v in meta.items()])
    db.executemany("INSERT INTO figure VALUES (NULL, ?, ?, ?)", figures)
    content = db.serialize()
    db.close()
    return content


def _table(made: Mapping[str, Any]) -> str:
    rows = [f"{made['runs']:,} runs, read in {made['index_s']} s; load {made['machine']['load']}"]
    rows += [
        f"{name:12}{each['median']:10} ms{each['p95']:10} ms" for name, each in made["ms"].items()
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
