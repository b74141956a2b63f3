"""``workbench coverage``: the supported ops of the frameworks."""

from __future__ import annotations

from dataclasses import asdict

from core_compiler.frontends.coverage import FRONTENDS, MISSING, STATUSES, Coverage
from workbench.commands.printing import emit, table


def add_arguments(parser) -> None:
    parser.add_argument("--frontend", choices=FRONTENDS, help="only this frontend")
    parser.add_argument("--missing", action="store_true", help="only unsupported ops")


def run(arguments) -> None:
    names = [arguments.frontend] if arguments.frontend else list(FRONTENDS)
    found = [FRONTENDS[name]() for name in names]
    emit(
        arguments,
        lambda: {"frontends": [_plain(c, arguments.missing) for c in found]},
        lambda: _text(found, arguments.missing),
    )


def _shown(coverage: Coverage, missing: bool):
    return [e for e in coverage.entries if not missing or e.status == MISSING]


def _plain(coverage: Coverage, missing: bool) -> dict:
    return {
        "frontend": coverage.frontend,
        "library": coverage.library,
        "counts": coverage.counts,
        "ops": [asdict(entry) for entry in _shown(coverage, missing)],
    }


def _text(found: list[Coverage], missing: bool) -> str:
    counts = [(c.frontend, c.library, *(c.counts[s] for s in STATUSES)) for c in found]
    parts = [table(("frontend", "library", *STATUSES), counts)]
    for coverage in found:
        rows = [(e.op, e.since or "", e.status, ", ".join(e.of)) for e in _shown(coverage, missing)]
        if rows:
            parts.append(table((f"op of {coverage.frontend}", "since", "", "composed of"), rows))
    return "\n\n".join(parts)
