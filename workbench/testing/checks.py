"""The assertion that every rewrite of a compile was checked on real tensors and none failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core_compiler.debug.check import summary
from core_compiler.driver.compilation import Compilation
from core_compiler.driver.stage import Stage
from core_compiler.ir.events import CheckRecord
from core_compiler.support.errors import UserError
from workbench.support import units

#: The most rewrites that a message lists.
SHOWN = 5


def check_passes(made: Any) -> dict[str, int]:
    """Raise AssertionError unless every rewrite of ``made`` was checked and passed.

    ``made`` is a compilation or a training step that was compiled with ``check=True``. A rewrite
    passes if it is bitwise the same or within the tolerance of its rule.

    Returns how many were ``bitwise``, ``within``, ``failed`` and ``unchecked`` (the last two are
    0). UserError if there was nothing to check.
    """
    __tracebackhide__ = True
    compilation: Compilation = getattr(made, "compilation", made)
    if not compilation.options.check:
        raise UserError(
            "the compile was not checked",
            "check_passes",
            "compile with check=True and example inputs",
        )
    wrong = [
        _describe(stage, record)
        for stage in compilation.stages
        for record in compilation.checks.get(stage.index, ())
        if record.verdict in ("failed", "unchecked")
    ] + list(_without_check(compilation))
    counts = summary(compilation.checks)
    if not wrong:
        return counts
    total = sum(counts.values())
    more = [f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
    raise AssertionError(
        "\n".join(
            [
                (
                    f"of {total} checks {counts['failed']} failed and "
                    f"{counts['unchecked']} could not be made"
                ),
                *wrong[:SHOWN],
                *more,
            ]
        )
    )


def _without_check(compilation: Compilation) -> Iterator[str]:
    for stage in compilation.stages:
        if stage.rewrites and stage.index not in compilation.checks:
            rewrites = units.counted(len(stage.rewrites), "rewrite")
            yield f"stage {stage.index} {stage.name}: {rewrites} unchecked"


def _describe(stage: Stage, record: CheckRecord) -> str:
    """Return ``stage 4 fold: x * 1 => x (rules.py:12) failed: ...`` with the values there."""
    rewrite = record.rewrite
    rule = (
        f" {rewrite.rule} ({rewrite.source})"
        if rewrite and rewrite.source
        else (f" {rewrite.rule}" if rewrite else "")
    )
    lines = [f"stage {stage.index} {stage.name}:{rule} {record.verdict}: {record.note}"]
    if record.old is not None and record.new is not None:
        at = f" at {list(record.index)}" if record.index else ""
        lines.append(f"  {record.old!r} before, {record.new!r} after{at}")
    return "\n".join(lines)
