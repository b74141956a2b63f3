"""Origins of the ops of a StableHLO program, read from their MLIR locations.

JAX writes ``"jit(f)/layer0/dot_general"(callsite("f"("model.py":5:21 to :36) at ...))``: named
scopes as a path, then the Python frames, innermost first.  Other producers write a file and a line,
a name, or nothing: then the op's line in the program itself is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from core_compiler.ir import FrontendNode

#: The name of the program as a source file.
LISTING = "program.mlir"
#: The maximum length of a location that is parsed (characters).
_LENGTH = 1 << 14

_TEXT = r'"((?:[^"\\]|\\.)*)"'
_FRAME = re.compile(rf"{_TEXT}\({_TEXT}:(\d{{1,9}}):\d+")
_PLACE = re.compile(rf"{_TEXT}:(\d{{1,9}}):\d+")
_NAME = re.compile(rf"loc\((?:fused\[)?{_TEXT}")
#: The prefix that TensorFlow's bridge adds to the path of a graph's op.
_GRAPH = re.compile(r"^(?:.*;)?(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)*")
_ESCAPE = re.compile(r"\\([0-9A-Fa-f]{2}|.)")
#: Transformations that JAX wraps around a scope's name.
_WRAPPED = re.compile(r"^(?:jit|pjit|jvp|vmap|transpose|checkpoint|remat|shard_map)\((.*)\)$")
#: Frames of these packages, and of the code that called JAX from here, are not the user's lines.
FOREIGN = re.compile(
    r"/(?:site|dist)-packages/(?:jax|jaxlib|flax|keras)/|/tensorflow/python/|/keras/src/"
    r"|/core_compiler/frontends/|/bin/workbench$"
    rf"|^{re.escape(str(Path(__file__).parents[3]))}/(?:core_compiler|workbench)/"
)
#: The frames of a frontend: outer frames passed the model to it and are not part of the model.
_FRONTEND = re.compile("/core_compiler/frontends/")


class Origins:
    """The frontend nodes of one program; equal locations are parsed once."""

    def __init__(self, op_lines: Mapping[str, tuple[str, int]]):
        self._op_lines = op_lines
        self._read: dict[str, tuple[str, str, int, tuple, tuple[str, int]]] = {}
        self._count = 0

    def describe(
        self,
        kind: str,
        location: str,
        line: int,
        calls: Sequence[str],
        caller: FrontendNode | None = None,
    ) -> FrontendNode:
        """Return the node of an op inside ``calls`` functions.

        ``line`` is its line in the listing, used if neither its location nor that of the ``caller``
        has one (0: unknown).
        """
        if location not in self._read:
            self._read[location] = _read(location)
        name, file, at, stack, call_site = self._read[location]
        if name in self._op_lines:
            file, at = self._op_lines[name]
        self._count += 1
        parts = name.split("/")[:-1]
        if parts and parts[0].startswith(("jit(", "pjit(")):
            del parts[0]  # the whole function
        scopes = [part for part in map(_unwrapped, parts) if part]
        path = scopes if scopes else list(calls)
        if not file and caller is not None and caller.file not in ("", LISTING):
            file, at, stack = caller.file, caller.line, (*caller.stack, *stack)
        elif not file and call_site[0]:
            file, at = call_site
        elif not file:
            file, at = (LISTING, line) if line else ("", 0)
        short = kind.rpartition(".")[2]
        return FrontendNode(f"{short}_{self._count}", kind, file, at, "/".join(path), stack)


def _read(location: str) -> tuple[str, str, int, tuple, tuple[str, int]]:
    """Return (name, file, line, stack, place) of a location's text.

    The innermost frame of the stack is last; the place is where the model was passed to the
    frontend.
    """
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
            name = ""  # the location is just a position
    inner = max((i for i, row in enumerate(rows) if _FRONTEND.search(row[0])), default=-1) + 1
    (file, line), call_site = _innermost_position(rows[inner:]), _innermost_position(rows[:inner])
    if file == "-":  # MLIR's name of a text passed in memory
        file, rows = LISTING, ()
    return name, file, line, rows, call_site


def _innermost_position(rows: Sequence[tuple]) -> tuple[str, int]:
    """Return the innermost position in the user's own code."""
    own = [row for row in rows if row[0][:1] != "<" and not FOREIGN.search(row[0])]
    return own[-1][:2] if own else ("", 0)


def _plain(text: str) -> str:
    """Return an MLIR string without its escapes."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if len(m[1]) == 2 else m[1], text)


def _unwrapped(part: str) -> str:
    """Return a scope's own name, without the transformations that JAX wraps around it."""
    while found := _WRAPPED.match(part):
        part = found[1]
    return part
