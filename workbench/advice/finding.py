"""The data of advice: findings, their costs, evidence, and suggestions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ERROR, WARNING, NOTE = "error", "warning", "note"
#: A cost of at least this fraction of its total is a warning, less is a note.
LARGE = 0.10


#: The prefixes of suggestions that no edit of the pipeline can implement, and of those whose effect
#: only a measurement shows.
NOTHING, EXPERIMENT = "Nothing to try here: ", "An experiment: "


@dataclass(frozen=True)
class Cost:
    """The cost of a hazard.

    ``value``      in ``unit``: ``us``, ``B``, or ``relative`` (to the largest magnitude).
    ``how``        how the figure was obtained; ``estimated``: it was not measured or counted.
    ``part``       the fraction of the total (0 to 1) by which findings are sorted; for an error,
                   the error itself.  ``of`` names the total ("" if that is obvious).
    """

    value: float
    unit: str
    how: str
    part: float
    of: str = ""
    estimated: bool = False


@dataclass(frozen=True)
class Fact:
    """A sentence of the evidence, and the link (`navigation.follow`) that shows it ({}: none)."""

    text: str
    go: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Suggestion:
    """A suggestion.

    It has a ``sentence`` and, if the pipeline can implement it, the gestures of
    ``workbench.model.pipeline_editor.change`` (``done``) that lead to it. If not, the sentence
    begins with ``NOTHING`` and gives the reason; if its effect cannot be predicted, with
    ``EXPERIMENT``.

    The rest is filled in by ``offers.resolve``: the ``draft`` to compile, the edit in ``words``,
    the ``command`` line and, if none of that is possible, the ``reason``.
    """

    sentence: str
    done: tuple[Mapping[str, Any], ...] = ()
    draft: Mapping[str, Any] | None = None
    words: str = ""
    command: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Finding:
    """A problem or hazard that the user should look at.

    It has its severity, a title, and the link (`navigation.follow`) that shows it; ``hazard``
    names its row of ``advice.HAZARDS`` ("" if it is not advice); ``look``: searching the first bad
    pass leads to its cause.
    """

    severity: str
    title: str
    detail: str
    go: Mapping[str, Any]
    hazard: str = ""
    cost: Cost | None = None
    evidence: tuple[Fact, ...] = ()
    tries: tuple[Suggestion, ...] = ()
    look: bool = False

    @property
    def rank(self) -> tuple[int, float]:
        """Return the sort key: severity, then the larger fraction first."""
        return (ERROR, WARNING, NOTE).index(self.severity), -(self.cost.part if self.cost else 0.0)


def severity(cost: Cost) -> str:
    return WARNING if cost.part >= LARGE else NOTE
