"""``workbench verify RECEIPT``: repeat an iteration of a training run and compare its hashes."""

from __future__ import annotations

from core_compiler.numerics import CONTRACT_VERSION
from core_compiler.support.errors import CANNOT_HERE, UserError
from workbench.commands.printing import emit


def add_arguments(parser) -> None:
    parser.add_argument(
        "receipt", metavar="RECEIPT", help="the folder of a run, or its receipts.jsonl"
    )
    parser.add_argument(
        "--iteration",
        type=int,
        metavar="K",
        action="append",
        default=[],
        help="the iteration to verify (repeatable; default: the last)",
    )
    parser.add_argument(
        "-t",
        "--target",
        help="target to repeat it on (default: the run's); all targets compute the same bits",
    )


def run(arguments) -> int:
    from core_compiler.training.audit.replay import mismatch
    from workbench.training import runs

    repeated = runs.read(arguments.receipt, target=arguments.target)
    known = repeated.book.receipts
    if not known:
        raise UserError("no receipts found", str(repeated.folder), "train first")
    rows = []
    for iteration in arguments.iteration or [max(known)]:
        if iteration not in known:
            raise UserError(
                f"receipt of iteration {iteration} not found",
                str(repeated.folder),
                f"choose one from {min(known)} to {max(known)}",
            )
        wanted, why = known[iteration], ""
        try:
            found = repeated.receipt(iteration)
        except UserError as error:
            if error.exit_code != CANNOT_HERE:
                raise
            found, why = repeated.checkpoint_receipt(iteration), str(error)
        shared = {
            n: len([k for k in getattr(wanted, n) if k in getattr(found, n)])
            for n in ("state", "gradients", "ops")
        }
        differs = mismatch(wanted, found)
        differs = f"{differs} of its checkpoint" if why and differs else differs
        rows.append(
            {
                "iteration": iteration,
                "mismatch": _describe_mismatch(repeated, differs),
                "compared": shared,
                "root": wanted.root,
                "not_done_again": why,
            }
        )
    data = {"identity": repeated.book.identity, "contract": CONTRACT_VERSION, "iterations": rows}
    emit(arguments, data, lambda: _text(rows))
    if any(row["mismatch"] for row in rows):
        return 1
    return CANNOT_HERE if any(row["not_done_again"] for row in rows) else 0


def _describe_mismatch(run, name: str | None) -> str | None:
    """Return a mismatch as text: a value by its op and origin."""
    kind, _, key = (name or "").partition(" ")
    if kind != "value":
        return name
    named = run.book.names[int(key.split("/")[1])]
    return f"{named.op} ({named.origin})" if named.origin else named.op


def _text(rows) -> str:
    lines = []
    for row in rows:
        compared = ", ".join(f"{n} of {what}" for what, n in row["compared"].items() if n)
        compared = f" ({compared} compared)" if compared else ""
        if row["mismatch"]:
            outcome = f"differs first in {row['mismatch']}{compared}"
        elif row["not_done_again"]:
            of = (
                f"its receipt is intact, its checkpoint matches{compared}"
                if compared
                else ("its receipt is intact, its checkpoint is missing")
            )
            outcome = f"not repeated; {of}: {row['not_done_again']}"
        else:
            outcome = f"holds{compared}"
        lines.append(f"iteration {row['iteration']}: {outcome}")
    return "\n".join(lines)
