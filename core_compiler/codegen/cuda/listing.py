"""Analysis of PTX and SASS: the source line of each line, and the instruction mix of SASS."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PTX_PLACE = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_SASS_PLACE = re.compile(r'\s*//## File "[^"]*", line (\d+)')
_SASS_CODE = re.compile(r"\s*/\*[0-9a-f]+\*/")


def ptx_lines(ptx: str) -> list[tuple[int, int]]:
    """Return (PTX line, source line) of every instruction with a known one; lines from 1."""
    rows, current = [], 0
    for number, line in enumerate(ptx.splitlines(), 1):
        found = _PTX_PLACE.match(line)
        if found:
            current = int(found[1])
        elif current and line.rstrip().endswith(";") and not line.strip().startswith("."):
            rows.append((number, current))
    return rows


def sass_lines(listing: str) -> tuple[str, list[tuple[int, int]]]:
    """Return nvdisasm's listing without its location comments, and its (line, source line) rows."""
    kept: list[str] = []
    rows, current = [], 0
    for line in listing.splitlines():
        found = _SASS_PLACE.match(line)
        if found:
            current = int(found[1])
            continue
        kept.append(line.rstrip())
        if current and _SASS_CODE.match(line):
            rows.append((len(kept), current))
    return "\n".join(kept).strip("\n") + "\n", rows


_INSTRUCTION = re.compile(
    r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z]\w*)(?P<form>[.\w]*)"
)
_LABEL = re.compile(r"(\.L_x_\d+):")
_BRANCH = re.compile(r"\bBRA(?:\.\w+)*\s[^`]*`\((\.L_x_\d+)\)")
_BITS = re.compile(r"\.(?:U|S)?(8|16|64|128)\b")


@dataclass(frozen=True, slots=True)
class Mix:
    """The instruction mix of a piece of SASS.

    It counts ``instructions`` (without padding), and among them f32 fmas (``FFMA``) and loads from
    ``shared`` memory (``LDS``). ``load_bits`` is the width of its widest load from global memory
    (``LDG``), 0 if there is none.
    """

    instructions: int
    fmas: int
    shared: int
    load_bits: int

    @property
    def fma_share(self) -> float:
        return self.fmas / self.instructions if self.instructions else 0.0


def mix(sass: str) -> Mix:
    """Return the instruction mix of a listing, each instruction counted once."""
    found = [m for m in map(_INSTRUCTION.match, sass.splitlines()) if m and m["opcode"] != "NOP"]
    opcodes = [m["opcode"] for m in found]
    loads = [_BITS.search(m["form"]) for m in found if m["opcode"] == "LDG"]
    widest = max((int(bits[1]) if bits else 32 for bits in loads), default=0)
    return Mix(len(found), opcodes.count("FFMA"), opcodes.count("LDS"), widest)


def inner_loop(sass: str) -> str:
    """Return the innermost loop with the most f32 fmas, or "" if no loop has any."""
    lines = sass.splitlines()
    labels = {m[1]: n for n, line in enumerate(lines) if (m := _LABEL.match(line))}
    loops = [
        (labels[m[1]], n)
        for n, line in enumerate(lines)
        if (m := _BRANCH.search(line)) and labels.get(m[1], n) < n
    ]
    loops = [(a, b) for a, b in loops if b - a > 1]  # the last instruction branches to itself
    inner = [(a, b) for a, b in loops if not any(a < c and d < b for c, d in loops)]
    pieces = ["\n".join(lines[a : b + 1]) for a, b in inner]
    best = max(pieces, key=lambda piece: mix(piece).fmas, default="")
    return best if mix(best).fmas else ""
