"""The first difference of two training runs: from their receipts, and its op after a search."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core_compiler.support.errors import UserError
from core_compiler.training.audit import receipts
from core_compiler.training.audit.diverge import Divergence, part
from core_compiler.training.audit.receipts import Book
from workbench.model import divergences, edits, user_pass
from workbench.queries import contracts, training_run
from workbench.queries.links import kernel_by_name
from workbench.queries.run import Run, Runs, shown
from workbench.state.view_state import ViewState
from workbench.training import runs as training_runs
from workbench.views import training

#: Larger receipts (bytes) are read by the command only: it takes seconds.
MAX_RECEIPT_BYTES = 16 << 20


def key(run: Run, state: ViewState) -> tuple:
    results_path = divergences.RESULTS.path_of(run.path)
    return training.key(run, state), _stamp(_receipts(run)), _stamp(results_path)


def data(runs: Runs, state: ViewState) -> dict[str, Any]:
    """Return the runs ``a`` and ``b`` and their first difference.

    ``together``: the comparison of their recordings (see the view *training*); ``part``: that of
    the receipts in their folders, or the ``problem`` in reading them; ``pipelines``: they compute
    different things; ``result``: the op, or for two pipelines the pass, if it was found, and what
    to select in this recording; ``command``.
    """
    run, other = shown(runs)
    training.need(run)
    a = training.about(run)
    if other is None or not training_run.is_training(other):
        refused = "" if other is None else f"{other.path.name} is not a training run"
        return {"a": a, "b": None, "refused": refused}
    b = training.about(other)
    made: dict[str, Any] = {
        "a": a,
        "b": b,
        "refused": "",
        "together": training.together(run, other),
        "part": None,
        "compared": 0,
        "problem": None,
        "result": None,
        "pipelines": a["identity"] != b["identity"],
        "again": all(training_runs.is_run(f) for f in map(_folder, (run, other)) if f is not None),
        "command": _command(a["folder"], b["folder"]) if a["folder"] and b["folder"] else "",
    }
    try:
        _need_one_contract(run, other)
        books = _book(run), _book(other)
        found = part(*books)
        made["compared"] = len(books[0].receipts.keys() & books[1].receipts.keys())
    except UserError as error:
        return {**made, "problem": error.to_json()["error"]}
    if found is not None:
        result = divergences.RESULTS.kept(run.path, _key(books, found))
        made |= {
            "part": _parting_data(books[0], found),
            "result": result and linked(run, other, result),
        }
    return made


def job(run: Run, other: Run) -> dict[str, Any]:
    """Return the worker's job that finds the op; UserError if there is nothing to search."""
    _need_one_contract(run, other)
    books = _book(run), _book(other)
    found = part(*books)
    if found is None:
        raise UserError("the runs do not differ", "diverge", "compare other runs")
    a, b = (str(training.facts(each)["folder"]) for each in (run, other))
    return {
        "model": f"{run.path.name} and {other.path.name}",
        "diverge": [a, b],
        "out": str(divergences.RESULTS.path_of(run.path)),
        "recording": str(run.path),
        "other": str(other.path),
        "key": _key(books, found),
    }


def _need_one_contract(run: Run, other: Run) -> None:
    if why := contracts.refusal(run, other):
        raise UserError(why.rstrip("."), "diverge", contracts.remedy(run, other).rstrip("."))


def code_of(run: Run) -> list[str]:
    """Return the user code that the folder of a run names, for the worker to run."""
    arguments = training_runs.arguments_of(_folder(run) or Path())
    model = str(arguments.get("task") or arguments.get("model", ""))
    items = edits.checked(arguments.get("pipeline"))["insert"]
    foreign = [edits.name_of(item) for item in items if user_pass.builtin_pass(item) is None]
    return [*([model] if ":" in model else []), *foreign]


def linked(run: Run, other: Run, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result with its ids in the recordings.

    ``id`` of the op and the ``stage`` that has it (None if it is not an op), and the
    ``kernel_ids`` in each recording; for a pass the ``stage`` that it made, if this recording has
    the rewrite.
    """
    if "pass" in result:
        made = next((s for s in run.stages() if s.pass_name == result["pass"]), None)
        steps = [] if made is None else run.rewrites(made.index)
        is_found = 0 < result["number"] <= len(steps) and (
            steps[result["number"] - 1].rewrite.rule == result["rule"]
        )
        return {**result, "stage": made.index if made is not None and is_found else None}
    names = [kernel_by_name(each) for each in (run, other)]
    kernels = [found.get(name) for found, name in zip(names, result["kernels"], strict=True)]
    stage, op = _op(run, str(result["value"]))
    return {**result, "id": op, "stage": stage, "kernel_ids": kernels}


def _op(run: Run, value: str) -> tuple[int | None, int | None]:
    """Return ``(stage, op)`` of a value ``SHARD/NUMBER`` in the stage common to all targets."""
    number = value.partition("/")[2]
    stages = [s.index for s in run.stages() if s.index == 0 or s.half != "implementation"]
    if not number.isdecimal() or not stages:
        return None, None
    made = [op for op in run.index(stages[-1]).module.main.body.ops for _ in op.results]
    if int(number) >= len(made):
        return None, None
    return stages[-1], run.op_id(made[int(number)])


def _parting_data(book: Book, found: Divergence) -> dict[str, Any]:
    """Return the result from receipts; a value is given by its op and origin."""
    kind, _, name = found.leaf.partition(" ")
    origin = ""
    number = name.partition("/")[2]
    if kind == "value" and number.isdecimal() and int(number) < len(book.names):
        named = book.names[int(number)]
        kind, name, origin = "op", named.op, named.origin
    return {
        "iteration": found.iteration,
        "until": found.until,
        "last": found.last,
        "kind": kind,
        "name": name.removeprefix("of "),
        "origin": origin,
    }


def _key(books: tuple[Book, Book], found: Divergence) -> str:
    a, b = (book.receipts[found.iteration].root for book in books)
    identity = " ".join(dict.fromkeys(book.identity for book in books))
    return divergences.key_of(identity, found.iteration, (a, b))


# -- receipts in folders --------------------------------------------------------------------------


def _folder(run: Run) -> Path | None:
    """Return the folder that a recording names.

    Returns None if it names none, or reading it is not allowed.
    """
    folder = Path(str(training.facts(run).get("folder") or ""))
    return folder if run.folders and folder.is_absolute() else None


def _receipts(run: Run) -> Path | None:
    folder = _folder(run)
    return None if folder is None else folder / receipts.FILE


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        found = None if path is None else path.stat()
    except (OSError, ValueError):
        return None
    return found and (found.st_mtime_ns, found.st_size)


def _book(run: Run) -> Book:
    """Return the receipts of a run, from its folder; UserError if they are not available."""
    plan, name = training.facts(run), run.path.name
    if not plan.get("folder"):
        raise UserError(
            "the run has no folder with receipts",
            name,
            "train with --folder DIR --receipts gradients",
        )
    if not run.folders:
        raise UserError(
            "reading folders of runs is disabled on this address",
            name,
            "start the server with --allow-code, or on localhost",
        )
    path = _receipts(run)
    if path is None:
        raise UserError(
            f"expected an absolute path of the folder of {name}",
            str(plan["folder"]),
            "record it again: workbench train -o FILE.run --folder DIR",
        )
    stamp = _stamp(path)
    if not path.parent.is_dir():
        raise UserError(
            f"folder of {name} not found",
            str(path.parent),
            "restore it if it was moved or deleted, or train again",
        )
    if stamp is None:
        raise UserError(
            f"{name} has no receipts", str(path.parent), "train with --receipts state or gradients"
        )
    if stamp[1] > MAX_RECEIPT_BYTES:
        raise UserError(
            f"the receipts of {name} are too large for the page ({stamp[1] >> 20} MiB)",
            str(path),
            "read them with the command below",
        )
    book: Book = run.cached(("book", stamp), lambda: Book.read(path))
    for number, row in run.iterations().items():
        receipt = book.receipts.get(number)
        if receipt is not None and row.root and receipt.root != row.root:
            raise UserError(
                f"the receipts do not match {name} (iteration {number} differs): another run has "
                "used the folder since",
                str(path),
                "train each run in its own folder",
            )
    return book


def _command(*folders: str) -> str:
    return shlex.join(["workbench", "diverge", *folders])


def choices(entries: Iterable[Any]) -> dict[str, Any]:
    """Return the recordings of training runs."""
    return training.choices(entries)
