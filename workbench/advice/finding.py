"""What advice consists of: findings, what they cost, what shows them, what to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ERROR, WARNING, NOTE = "error", "warning", "note"
#: What costs at least this part of its whole is a warning, less is a note.
LARGE = 0.10


#: How sentences of what to try begin: of what no edit of the pipeline can do, and of what only
#: measuring it shows.
NOTHING, EXPERIMENT = "Nothing to try here: ", "An experiment: "


@dataclass(frozen=True)
class Cost:
    """What a hazard costs.

    ``value``      in ``unit``: ``us``, ``B``, or ``relative`` (to the largest magnitude).
    ``how``        how the figure was got; ``estimated``: it was not measured or counted.
    ``part``       of what there is in all (0 to 1), by which findings are ordered; of an error the
                   error itself.  ``of`` says of what ("" where that goes without saying).
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
class Try:
    """What to try: a ``sentence``, and where our pipeline can do it the gestures of
    ``workbench.model.pipeline_editor.change`` (``done``) that lead to it.  Where it cannot the
    sentence begins with ``NOTHING`` and says why; one whose effect nobody knows beforehand with
    ``EXPERIMENT``.

    The rest is filled in by ``offers.resolve``: the ``draft`` to compile, the edit in ``words``,
    the ``command`` line and, where none of that is possible, the ``reason``.
    """

    sentence: str
    done: tuple[Mapping[str, Any], ...] = ()
    draft: Mapping[str, Any] | None = None
    words: str = ""
    command: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Finding:
    """Something a person should look at: how bad, what, and the link (`navigation.follow`) that
    shows it; ``hazard`` names its row of ``advice.HAZARDS`` ("" of what is no advice); ``look``:
    searching the first bad pass leads to its cause."""

    severity: str
    title: str
    detail: str
    go: Mapping[str, Any]
    hazard: str = ""
    cost: Cost | None = None
    evidence: tuple[Fact, ...] = ()
    tries: tuple[Try, ...] = ()
    look: bool = False

    @property
    def rank(self) -> tuple[int, float]:
        """By which findings are ordered: how bad, then the larger part first."""
        return (ERROR, WARNING, NOTE).index(self.severity), -(self.cost.part if self.cost else 0.0)


def severity(cost: Cost) -> str:
    return WARNING if cost.part >= LARGE else NOTE
