"""What a run came to: counts and scores by class, as plain data and as text."""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tests.mutations import judge, tree

#: Exit code of a check's verdict, as against a traceback or a refusal that names something.
VERDICT = 1


def result(rows: Sequence[dict], seed: int, count: int, session: Any, seconds: float) -> dict:
    """The run as plain data: what was drawn, scores by class, and every mutation."""
    by_class: dict[str, list[dict]] = defaultdict(list)
    for row in counted(rows):
        by_class[row["class"]].append(row)
    left_out = Counter(r["outcome"] for r in rows if r not in counted(rows))
    return {
        "seed": seed,
        "count": count,
        **made_of(session),
        "commit": _commit(),
        "contract": _contract(),
        "jobs": session.jobs,
        "models": len(session.entries),
        "traces_carried_over": session.carried,
        "not_green": session.dropped,
        "train_flags": session.flags,
        "left_out": dict(left_out),
        "seconds": round(seconds),
        "seconds_per_mutation": round(seconds / max(len(rows), 1), 2),
        "whole": score([r for found in by_class.values() for r in found]),
        "classes": {name: score(found) for name, found in by_class.items()},
        "mutations": list(rows),
    }


def again(first: dict, rows: Sequence[dict], session: Any) -> dict:
    """The run ``first`` with ``rows`` in the place of what it had missed; ``first`` in the result
    says what that run was made of and came to."""
    # What changes nothing on other inputs stays what it was.
    place = {_edit(row): row for row in counted(rows)}
    tried = missed(first["mutations"])
    kept = [
        {**place.get(_edit(row), row), "first": row["outcome"]} if row in tried else row
        for row in first["mutations"]
    ]
    found = result(kept, first["seed"], first["count"], session, first["seconds"])
    names = ("sources", "corpus", "commit", "whole", "models")
    return {**found, "first": {name: first[name] for name in names}}


def _edit(row: dict) -> tuple:
    return row["file"], row["function"], row["before"], row["after"]


def made_of(session: Any) -> dict[str, str]:
    """What the outcomes depend on: digests of the sources and of the corpus."""
    return {"sources": session.digest, "corpus": tree.corpus_digest()}


def counted(rows: Sequence[dict]) -> list[dict]:
    """The mutants that are faults, or may be: they can be imported and change something."""
    return [r for r in rows if r["outcome"] not in (judge.INVALID, judge.NO_EFFECT)]


def missed(rows: Sequence[dict]) -> list[dict]:
    """The mutations that were not caught, or blamed on a wrong pass, and have no argument."""
    good = judge.CAUGHT, judge.EQUIVALENT_SITE
    return [r for r in counted(rows) if r["outcome"] not in good or r["right"] is False]


def score(rows: Sequence[dict]) -> dict[str, Any]:
    """Counts of outcomes.  Of the mutants without an argument that they are no faults, ``score`` is
    the part that was caught with nothing wrong blamed, ``red`` the part that ended with another
    exit code than 0.  ``by_verdict``: how many a check's verdict caught (others: a traceback, a
    refusal or a compiler that names a pass, kernel, op or node).  ``named_right``: the part of the
    caught ones, where passes execute the site, in which one of them was blamed."""
    counts = Counter(r["outcome"] for r in rows)
    judged = len(rows) - counts[judge.EQUIVALENT_SITE]
    caught = [r for r in rows if r["outcome"] == judge.CAUGHT]
    said = [r["right"] for r in caught if r["right"] is not None]
    good = sum(r["right"] is not False for r in caught)
    return {
        "drawn": len(rows),
        **{o: counts[o] for o in judge.OUTCOMES},
        "by_verdict": sum(r.get("code") == VERDICT for r in caught),
        "score": round(good / judged, 4) if judged else None,
        "red": round(1 - counts[judge.SURVIVED] / judged, 4) if judged else None,
        "named_right": round(sum(said) / len(said), 4) if said else None,
        "seconds": round(sum(r["seconds"] for r in rows) / max(len(rows), 1), 2),
        "processor": round(sum(r["processor"] for r in rows) / max(len(rows), 1), 2),
    }


def text(found: dict) -> str:
    """The scores as a table, and everything that was not caught or blamed a wrong pass."""
    heads = (
        "drawn",
        *judge.OUTCOMES,
        "by_verdict",
        "score",
        "red",
        "named_right",
        "seconds",
        "processor",
    )
    lines = ["class".ljust(13) + " ".join(h.rjust(max(len(h), 6)) for h in heads)]
    for name, row in (*found["classes"].items(), ("all", found["whole"])):
        cells = (("-" if row[h] is None else str(row[h])).rjust(max(len(h), 6)) for h in heads)
        lines.append(name.ljust(13) + " ".join(cells))
    lines.append(
        f"{found['seconds_per_mutation']} s a mutation, {found['seconds']} s in all; "
        f"not counted: {found['left_out']}"
    )
    for row in missed(found["mutations"]):
        wrong = row["outcome"] == judge.CAUGHT
        lines += _row(row, "wrong pass blamed" if wrong else row["outcome"])
    return "\n".join(lines)


def _row(row: dict, outcome: str) -> list[str]:
    where = f"{row['class']}, {row['file']}:{row['line']} in {row['function'] or 'the module'}"
    models = f"models {', '.join(row['tried'])} ({row['of']} execute it)"
    lines = ["", f"{outcome}: {where} ({row['operator']})", f"  - {row['before']}"]
    lines += [f"  + {row['after']}", f"  {models}; {row.get('said', '')}"]
    if row.get("named"):
        lines.append(f"  blamed {row['named']}, executed by {', '.join(row['passes'])}")
    if "effect" in row:
        lines.append(f"  changes {row['effect']} of {', '.join(row['shown_by'])}")
    return lines


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=tree.ROOT
    )
    return done.stdout.strip()


def _contract() -> int:
    source = (tree.ROOT / "core_compiler/numerics/__init__.py").read_text()
    line = next(line for line in source.splitlines() if line.startswith("CONTRACT_VERSION"))
    return int(line.rpartition("=")[2])
