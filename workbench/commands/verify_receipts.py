"""``workbench verify RECEIPT``: do an iteration of a training run again and compare its hashes."""

from __future__ import annotations

from core_compiler.errors import UserError
from workbench.commands.printing import emit


def add_arguments(parser) -> None:
    parser.add_argument("receipt", metavar="RECEIPT",
                        help="the folder of a run, or its receipts.jsonl")  # fmt: skip
    parser.add_argument("--iteration", type=int, metavar="K", action="append", default=[],
                        help="which one (again for more; default: the last)")  # fmt: skip


def run(arguments) -> int:
    from core_compiler.training.replay import mismatch
    from workbench import training_runs

    held = training_runs.read(arguments.receipt)
    known = held.book.receipts
    if not known:
        raise UserError("there is no receipt yet", str(held.folder), "train first")
    rows = []
    for iteration in arguments.iteration or [max(known)]:
        if iteration not in known:
            raise UserError(f"there is no receipt of iteration {iteration}", str(held.folder),
                            f"there are those of {min(known)} to {max(known)}")  # fmt: skip
        found = held.receipt(iteration)
        wanted = known[iteration]
        shared = {n: len([k for k in getattr(wanted, n) if k in getattr(found, n)])
                  for n in ("state", "gradients", "ops")}  # fmt: skip
        rows.append({"iteration": iteration, "mismatch": _told(held, mismatch(wanted, found)),
                     "compared": shared, "root": wanted.root})  # fmt: skip
    emit(arguments, {"identity": held.book.identity, "iterations": rows}, lambda: _text(rows))
    return 1 if any(row["mismatch"] for row in rows) else 0


def _told(run, name: str | None) -> str | None:
    """A mismatch in words: a value by its op and where that comes from."""
    kind, _, key = (name or "").partition(" ")
    if kind != "value":
        return name
    named = run.book.names[int(key.split("/")[1])]
    return f"{named.op} ({named.origin})" if named.origin else named.op


def _text(rows) -> str:
    lines = []
    for row in rows:
        compared = ", ".join(f"{n} of {what}" for what, n in row["compared"].items() if n)
        said = f"differs first in {row['mismatch']}" if row["mismatch"] else "holds"
        lines.append(f"iteration {row['iteration']}: {said} ({compared} compared)")
    return "\n".join(lines)
