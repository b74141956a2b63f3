"""The result of every frontend, and the reporting of unsupported models."""

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

#: The maximum number of elements of an array that an import creates for a size that a model
#: declares: positions, weights of windows, matrices of transforms.
MAX_CREATED_ELEMENTS = 1 << 24
#: The maximum number of copies that an import emits for one op: taps of a window, parts.
MAX_EXPANDED_COPIES = 1 << 14


def need_small(count: int, what: str, most: int = MAX_CREATED_ELEMENTS) -> None:
    """Raise ValueError if ``count`` items, which an import would expand, are too many."""
    if count > most:
        raise ValueError(f"{count} {what} (at most {most} are supported)")


def is_saved_model(path: Path) -> bool:
    """Return whether a folder is a SavedModel; False for an invalid path, as in ``os.path``."""
    return os.path.isfile(path / "saved_model.pb")


@dataclass(frozen=True, eq=False)
class Imported:
    """A model in tensor IR.

    ``inputs`` and ``outputs`` are the model's names of main's arguments and results.  ``sources``
    maps file names (as in the origins) to their text.  ``facts`` are further properties for the
    recording: framework version, opset, how the model was found; ``facts["state"]`` is the number
    of arguments and results that are the model's state.
    """

    module: Module
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: The initial values of the last arguments of main: the model's state (statistics, caches).
    #: Their next values are main's last results, with the same names.
    state: tuple[np.ndarray, ...] = ()
    #: The framework's graph, if available: an import from a cache does not have it.
    nodes: Nodes | None = field(default=None, repr=False)
    #: The entries of a framework's state dict besides the state, by name, if the model was imported
    #: for training: ``constants`` are used by the model, those in ``unread`` are not.
    constants: Mapping[str, Dense | Resource | np.ndarray] = field(default_factory=dict, repr=False)
    unread: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    #: The checks of the model's inputs before a call, if its framework performs them too.
    positions: Positions | None = field(default=None, repr=False)

    def trimmed(self, results: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the model's own results from the ``results`` of main.

        Results with data-dependent sizes are cut to their valid elements, and the sizes themselves
        are removed.
        """
        sizes = self.facts.get("run_time_sizes") or {}
        made = list(results)
        for name, axes in sizes.items():
            index = self.outputs.index(name)
            for axis, count in axes:
                box = [slice(None)] * made[index].ndim
                box[axis] = slice(int(results[count]))
                made[index] = made[index][tuple(box)]
        return made[: len(made) - sum(map(len, sizes.values()))]


@dataclass(frozen=True)
class Unsupported:
    """A node without a translation: the op, the reason, and its origin in the model.

    ``mismatch``: it has a translation, but shapes, types or attributes contradict the op's
    definition. ``crashed``: its translation raised an error of Python's.
    """

    kind: str
    reason: str
    node: FrontendNode
    mismatch: bool = False
    crashed: bool = False

    @property
    def wrong(self) -> bool:
        """Return whether its translation is at fault: a decomposition would only hide it."""
        return self.mismatch or self.crashed


def unsupported_ops_error(found: Sequence[Unsupported], where: str) -> UserError:
    """Return one error that lists all unsupported nodes, grouped, with the model's source lines."""
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
    if all(item.mismatch for item in found):
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


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names, with a number appended to repeated ones."""
    seen: set[str] = set()
    made = []
    for name in names:
        unique, number = name, 1
        while unique in seen:
            number += 1
            unique = f"{name}_{number}"
        seen.add(unique)
        made.append(unique)
    return made


def read_sources(files: Sequence[str], limit: int = 1 << 20) -> dict[str, str]:
    """Return the text of the model's readable source files of at most ``limit`` bytes each."""
    texts = {}
    for name in dict.fromkeys(files):
        path = Path(name)
        try:
            if path.is_file() and path.stat().st_size <= limit:
                texts[name] = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
    return texts
