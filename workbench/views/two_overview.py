"""The overview of two recordings: their figures beside each other, the passes of both in one chart,
the kernels that compute the same, and what is found in one of them or in both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.queries import compared
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import overview

#: Kernels that are listed, those first that take the longest in either.
MAX_KERNELS = 8
#: Units of which less is better.
_LESS = ("s", "ms", "us", "B", "relative")


def key(run: Run, sight: Sight, other: Run) -> tuple:
    return overview.key(run, sight), overview.key(other, sight)


def data(run: Run, sight: Sight, other: Run) -> dict[str, Any]:
    """``a`` and ``b``: what the recordings are; ``figures`` of both by label (``a``, ``b``: numbers
    or texts; ``less``: less is better), ``passes`` and ``kernels`` as Compare matches them,
    ``findings`` with the ``sides`` that have them.  ``advice`` is asked for, as for one."""
    one, two = overview.data(run, sight), overview.data(other, sight)
    rows = compared.kernels_of(run, other)["kernels"] if run.kernels() and other.kernels() else []
    return {
        "two": True, "title": one["title"],
        "a": {**compared.about(run), **_state(one)}, "b": {**compared.about(other), **_state(two)},
        "figures": _figures(one["figures"], two["figures"]),
        "passes": compared.passes(run, other),
        "kernels": sorted(rows, key=_longest, reverse=True)[:MAX_KERNELS],
        "findings": found_in(one["findings"], two["findings"]),
        "advice": [] if run.live or other.live else None,
        "more_findings": one["more_findings"] + two["more_findings"],
        "status": one["status"], "bisects": False,
    }  # fmt: skip


def answer(
    run: Run, sight: Sight, request: Mapping[str, Any], other: Run
) -> list[dict[str, Any]]:  # fmt: skip
    """``advice``: the hazards of both recordings, each with the sides that have it."""
    return found_in(*(overview.answer(each, sight, request) for each in (run, other)))


def _state(of: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: of[name]
        for name in ("subtitle", "status", "failed", "elsewhere", "training", "versions")
    }


def _longest(row: Mapping[str, Any]) -> float:
    return max((row[side] or {}).get("us") or 0.0 for side in ("a", "b"))


def _figures(
    ones: Iterable[Mapping[str, Any]], twos: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:  # fmt: skip
    """Figures of the same name, in the first recording's order; None where a side has none."""
    first, second = ({each["label"]: each for each in side} for side in (ones, twos))
    rows = []
    for label in dict.fromkeys((*first, *second)):
        one, two = first.get(label), second.get(label)
        known = one or two or {}
        a, b = (_said(each) for each in (one, two))
        if a is None and b is None:
            continue
        rows.append({
            "label": label, "unit": known["unit"], "view": known["view"],
            "less": known["unit"] in _LESS and label != "weights", "a": a, "b": b,
            "hints": ["" if each is None else each["hint"] for each in (one, two)],
        })  # fmt: skip
    return rows


def _said(figure: Mapping[str, Any] | None) -> float | str | None:
    if figure is None:
        return None
    return figure["text"] if figure.get("text") else figure["value"]


def found_in(
    ones: Sequence[Mapping[str, Any]], twos: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The findings of both: those of the same title once, as A has them.  What only B has leads
    nowhere in A, and is not tried on A's pipeline."""
    second = {(each["hazard"], each["title"]): each for each in twos}
    found = []
    for each in ones:
        in_both = second.pop((each["hazard"], each["title"]), None) is not None
        found.append({**each, "sides": "ab" if in_both else "a"})
    for each in second.values():
        evidence = [{**fact, "sight": {}} for fact in each["evidence"]]
        tries = [{**t, "draft": None, "reason": "it is of B: open B to try it"}
                 for t in each["tries"]]  # fmt: skip
        found.append({**each, "sides": "b", "sight": {}, "evidence": evidence, "tries": tries,
                      "look": False})  # fmt: skip
    return found
