"""What every frontend hands over, and how it reports what it cannot read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.ir import Dense, FrontendNode, Module, Resource
from core_compiler.ir.framework import Nodes
from core_compiler.ops.positions import Positions
from core_compiler.support.errors import UserError, one_line

#: Elements of an array that an import makes because a model declares a size: positions, weights
#: of windows, matrices of transforms.
MADE_ELEMENTS = 1 << 24
#: Times that an import writes ops out for one op of a model: each tap of a window, each part.
WRITTEN_OUT = 1 << 14


def need_small(count: int, what: str, most: int = MADE_ELEMENTS) -> None:
    """ValueError where ``count`` of something, which an import would write out, are too many."""
    if count > most:
        raise ValueError(f"{count} {what} (at most {most} are supported)")


def is_saved_model(path: Path) -> bool:
    """Whether a folder is a SavedModel; what can be no path is none (``os.path`` says so)."""
    return os.path.isfile(path / "saved_model.pb")


@dataclass(frozen=True, eq=False)
class Imported:
    """A model in tensor IR.

    ``inputs`` and ``outputs`` name main's arguments and results in the model's own words.
    ``sources`` maps file names (as the origins spell them) to their text.  ``facts`` are what else
    the recording shows: framework version, opset, how the model was found; ``facts["state"]`` is
    how many of the arguments and results are the model's state.
    """

    module: Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: What the last arguments of main are at first: the model's state (statistics, caches), whose
    #: next values are main's results after the model's own, named alike.
    state: tuple[np.ndarray, ...] = ()
    #: Where the framework's graph is at hand: not of an import from a cache.
    nodes: Nodes | None = field(default=None, repr=False)
    #: What a framework's state dict has beside the state, where the model was read to be trained,
    #: by name: ``constants`` are read, nothing reads what is in ``unread``.
    constants: Mapping[str, Dense | Resource | np.ndarray] = field(default_factory=dict, repr=False)
    unread: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    #: What a call is to check of the model's own inputs, where its framework does.
    positions: Positions | None = field(default=None, repr=False)

    def trimmed(self, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The model's own results: of those whose size depends on data what counts, without the
        numbers that say how much.  ``results``: of main."""
        sizes = self.facts.get("run_time_sizes") or {}
        made = list(results)
        for name, axes in sizes.items():
            place = self.outputs.index(name)
            for axis, count in axes:
                box = [slice(None)] * made[place].ndim
                box[axis] = slice(int(results[count]))
                made[place] = made[place][tuple(box)]
        return made[: len(made) - sum(map(len, sizes.values()))]


@dataclass(frozen=True)
class Unsupported:
    """One node that has no translation: what it is, why, and where the model says it.

    ``misfit``: there is one, but shapes, types or attributes contradict the op's definition.
    """

    kind: str
    reason: str
    node: FrontendNode
    misfit: bool = False


def refuse(found: Sequence[Unsupported], where: str) -> UserError:
    """One error that names all unsupported nodes at once, grouped, with the model's source
    lines."""
    groups: dict[tuple[str, str], list[FrontendNode]] = {}
    for item in found:
        key = one_line(item.kind, 120), one_line(item.reason, 400)
        groups.setdefault(key, []).append(item.node)
    parts = []
    for (kind, reason), nodes in groups.items():
        places = dict.fromkeys(
            f"{one_line(n.file, 200)}:{n.line}" if n.file else one_line(n.name, 200) for n in nodes
        )
        shown = ", ".join(list(places)[:3]) + (
            f" and {len(places) - 3} more" if len(places) > 3 else ""
        )
        parts.append(f"{kind} ({reason}; {shown})" if reason else f"{kind} ({shown})")
    count = len(groups)
    if all(item.misfit for item in found):
        return UserError(
            f"{count} op{'s have' if count > 1 else ' has'} invalid inputs or attributes: "
            f"{'; '.join(parts)}",
            where,
            "check the shapes and types of the model, and export it again",
        )
    return UserError(
        f"{count} op{'s are' if count > 1 else ' is'} not supported: {'; '.join(parts)}",
        where,
        "replace them in the model, or see `workbench coverage` for what is supported",
    )


def distinct(names: Sequence[str]) -> list[str]:
    """The names, a number behind each that was there before."""
    seen: set[str] = set()
    made = []
    for name in names:
        own, number = name, 1
        while own in seen:
            number += 1
            own = f"{name}_{number}"
        seen.add(own)
        made.append(own)
    return made


def read_sources(files: Sequence[str], limit: int = 1 << 20) -> dict[str, str]:
    """The text of the model's own source files (each at most ``limit`` bytes; unreadable: left
    out)."""
    texts = {}
    for name in dict.fromkeys(files):
        path = Path(name)
        try:
            if path.is_file() and path.stat().st_size <= limit:
                texts[name] = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return texts
