"""Live intervals of buffers over a straight list of steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from core_compiler.placement.problem import ALIGNMENT, Lifetime
from core_compiler.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class Storage:
    """A buffer that needs memory, with its size in bytes.

    It may be live from before the first step (``on_entry``) or until after the last one
    (``on_exit``).
    """

    name: str
    size: int
    alignment: int = ALIGNMENT
    on_entry: bool = False
    on_exit: bool = False


def lifetimes(
    storages: Mapping[Hashable, Storage],
    steps: Sequence[Iterable[Hashable]],
    aliases: Mapping[Hashable, Hashable] | None = None,
) -> list[Lifetime]:
    """Return the live interval of each storage, in the order of ``storages``.

    ``steps[t]`` are the buffers that step t reads or writes: a buffer is live from the first step
    that names it through the last, so a result never shares bytes with an operand of its own step.
    ``aliases`` maps a view or a donated buffer to the buffer that owns its memory (chains are
    followed), which gets its uses. Buffers that are not in ``storages`` (constants, inputs) are
    ignored; a storage that no step names has no steps and needs no memory unless it is live on
    entry and exit.
    """
    aliases = aliases or {}
    first: dict[Hashable, int] = {}
    last: dict[Hashable, int] = {}
    for t, step in enumerate(steps):
        for buffer in step:
            owner = _owner(buffer, aliases)
            first.setdefault(owner, t)
            last[owner] = t
    end = len(steps)

    def one(key: Hashable, s: Storage) -> Lifetime:
        if key in aliases:
            raise InternalError(f"buffer {s.name} is both a storage and another's alias")
        start = 0 if s.on_entry else first.get(key, end if s.on_exit else 0)
        stop = end if s.on_exit else last.get(key, start - 1) + 1
        return Lifetime(s.name, s.size, start, max(start, stop), s.alignment)

    return [one(key, s) for key, s in storages.items()]


def _owner(buffer: Hashable, aliases: Mapping[Hashable, Hashable]) -> Hashable:
    seen = set()
    while buffer in aliases:
        if buffer in seen:
            raise InternalError(f"buffers are views of each other: {buffer!r}")
        seen.add(buffer)
        buffer = aliases[buffer]
    return buffer
