"""Where an op of a StableHLO program came from, read from its MLIR location.

JAX writes ``"jit(f)/layer0/dot_general"(callsite("f"("model.py":5:21 to :36) at ...))``: named
scopes as a path, then the Python frames, innermost first.  Other producers write a file and a line,
a name, or nothing: then the op's line in the program itself stands for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from core_compiler.ir import FrontendNode

#: The name under which the program is shown as a source file.
LISTING = "program.mlir"
#: How much of a location is read (characters).
_LENGTH = 1 << 14

_TEXT = r'"((?:[^"\\]|\\.)*)"'
_FRAME = re.compile(rf"{_TEXT}\({_TEXT}:(\d{{1,9}}):\d+")
_PLACE = re.compile(rf"{_TEXT}:(\d{{1,9}}):\d+")
_NAME = re.compile(rf"loc\((?:fused\[)?{_TEXT}")
#: What TensorFlow's bridge puts before the path of a graph's op.
_GRAPH = re.compile(r"^(?:.*;)?(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)*")
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")
#: Transformations that JAX wraps around a scope's name.
_WRAPPED = re.compile(r"^(?:jit|pjit|jvp|vmap|transpose|checkpoint|remat|shard_map)\((.*)\)$")
#: Frames of these packages, and of what called JAX from here, are nobody's own lines.
FOREIGN = re.compile(
    r"/(?:site|dist)-packages/(?:jax|jaxlib|flax|keras)/|/tensorflow/python/|/keras/src/"
    r"|/core_compiler/frontends/|/bin/workbench$"
    rf"|^{re.escape(str(Path(__file__).parents[3]))}/(?:core_compiler|workbench)/"
)
#: The frames of a frontend: those further out have handed it the model, and are no part of it.
_FRONTEND = re.compile("/core_compiler/frontends/")


class Origins:
    """The frontend nodes of one program; equal locations are read once."""

    def __init__(self, places: Mapping[str, tuple[str, int]]):
        self._places = places
        self._read: dict[str, tuple[str, str, int, tuple, tuple[str, int]]] = {}
        self._count = 0

    def describe(
        self, kind: str, location: str, line: int, calls: Sequence[str],
        caller: FrontendNode | None = None,
    ) -> FrontendNode:  # fmt: skip
        """The node of an op inside ``calls`` functions; ``line``: where it stands in the listing,
        if its location does not say so (0: not known), nor that of the ``caller``."""
        if location not in self._read:
            self._read[location] = _read(location)
        name, file, at, stack, handed = self._read[location]
        if name in self._places:
            file, at = self._places[name]
        self._count += 1
        parts = name.split("/")[:-1]
        if parts and parts[0].startswith(("jit(", "pjit(")):
            del parts[0]  # the whole function
        scopes = [part for part in map(_unwrapped, parts) if part]
        path = scopes if scopes else list(calls)
        if not file and caller is not None and caller.file not in ("", LISTING):
            file, at, stack = caller.file, caller.line, (*caller.stack, *stack)
        elif not file and handed[0]:
            file, at = handed
        elif not file:
            file, at = (LISTING, line) if line else ("", 0)
        short = kind.rpartition(".")[2]
        return FrontendNode(f"{short}_{self._count}", kind, file, at, "/".join(path), stack)


def _read(location: str) -> tuple[str, str, int, tuple, tuple[str, int]]:
    """(name, file, line, stack: innermost frame last, place where the model was handed over) of a
    location's text."""
    text = location[:_LENGTH]
    found = _NAME.match(text)
    name = _GRAPH.sub("", _plain(found[1])) if found else ""
    rows = tuple(
        (_plain(file), int(line), _plain(function), "")
        for function, file, line in reversed(_FRAME.findall(text))
    )
    if not rows:
        place = _PLACE.search(text)
        rows = ((_plain(place[1]), int(place[2]), "", ""),) if place else ()
        if place and found and place[1] == found[1]:
            name = ""  # the location is the place alone
    inner = max((i for i, row in enumerate(rows) if _FRONTEND.search(row[0])), default=-1) + 1
    (file, line), handed = _place(rows[inner:]), _place(rows[:inner])
    if file == "-":  # MLIR's name of a text that it was handed
        file, rows = LISTING, ()
    return name, file, line, rows, handed


def _place(rows: Sequence[tuple]) -> tuple[str, int]:
    """The innermost place of the person's own."""
    own = [row for row in rows if row[0][:1] != "<" and not FOREIGN.search(row[0])]
    return own[-1][:2] if own else ("", 0)


def _plain(text: str) -> str:
    """A string of MLIR without its escapes."""
    return _ESCAPE.sub(
        lambda m: chr(int(m[1], 16)) if len(m[1]) == 2 else m[1], text
    )  # fmt: skip


def _unwrapped(part: str) -> str:
    """A scope's own name, without the transformations that JAX wraps around it."""
    while found := _WRAPPED.match(part):
        part = found[1]
    return part
