"""SASS as data: instructions with the registers they read and write, and the loops around them.

Source of the opcodes: NVIDIA, "CUDA binary utilities", instruction set reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_LINE = re.compile(
    r"\s*/\*[0-9a-f]+\*/\s+(?P<guard>@!?U?PT?\w*\s+)?(?P<opcode>[A-Z][A-Z0-9]*)(?P<form>[.\w]*)\s*(?P<rest>[^;]*);"
)
_LABEL = re.compile(r"(\.L_x_\d+):")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_REGISTER = re.compile(r"\b(U?R|U?P)(\d+)\b(?:\.reuse|\.X\d*)?(\.64)?")
#: Subroutines follow the kernel: quotients of operands of more than 32 bits.
_SUBROUTINES = re.compile(r"\$__internal_\d+_\$.*:")
_BITS = re.compile(r"\.(?:U|S)?(8|16|64|128)\b")
#: Opcodes without a register result.
_NO_RESULT = frozenset(
    (
        *("ST", "STG", "STS", "STL", "RED", "BRA", "BRX", "EXIT", "BAR", "BSSY", "BSYNC", "NOP"),
        *("LDGSTS", "LDGDEPBAR"),
        *("MEMBAR", "RET", "CALL", "WARPSYNC", "ERRBAR", "CCTL", "DEPBAR", "YIELD"),
    )
)
#: Opcodes whose results are predicates.
_PREDICATES = frozenset(
    ("ISETP", "FSETP", "DSETP", "HSETP2", "PLOP3", "UISETP", "UPLOP3", "FCHK", "R2P")
)
#: Opcodes whose results and operands are pairs of registers.
_PAIRS = frozenset(("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"))


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction: ``line`` of the listing (from 1), ``bits`` a lane loads or stores."""

    line: int
    opcode: str
    form: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    bits: int = 0


@dataclass(eq=False)
class Region:
    """A loop of the listing, or all of it: instructions and loops in order.

    ``branch``: the line of the loop's backward branch, 0 for the whole.
    """

    branch: int = 0
    items: list[Instruction | Region | Label] = field(default_factory=list)

    def instructions(self) -> list[Instruction]:
        """Return the instructions outside of its inner loops."""
        return [i for i in self.items if isinstance(i, Instruction)]

    def loops(self) -> list[Region]:
        return [i for i in self.items if isinstance(i, Region)]

    def every(self) -> list[Instruction]:
        """Return its instructions, those of inner loops too."""
        found: list[Instruction] = []
        for item in self.items:
            found += item.every() if isinstance(item, Region) else []
            found += [item] if isinstance(item, Instruction) else []
        return found


@dataclass(frozen=True, slots=True)
class Label:
    """The start of a basic block."""

    name: str


def parse(listing: str) -> Region:
    """Return a kernel's instructions in their loops.

    Subroutines, padding, and blocks that call a subroutine are left out: 64-bit quotients call one
    only for operands of more than 32 bits.
    """
    lines = listing.splitlines()
    end = next((n for n, text in enumerate(lines) if _SUBROUTINES.match(text)), len(lines))
    labels = {m[1]: n for n, text in enumerate(lines[:end]) if (m := _LABEL.match(text))}
    ends: dict[int, int] = {}
    found: dict[int, Instruction] = {}
    for number, text in enumerate(lines[:end]):
        instruction = _instruction(number + 1, text)
        if instruction is None or instruction.opcode == "NOP":
            continue
        found[number] = instruction
        target = _TARGET.search(text) if instruction.opcode == "BRA" else None
        start = labels.get(target[1]) if target else None
        if start is not None and number - start > 1 and start < number:
            ends[start] = max(number, ends.get(start, 0))
    skipped = _slow_paths(found, labels)
    root = Region()
    stack: list[tuple[Region, int]] = []
    for number in range(end):
        while stack and number > stack[-1][1]:
            stack.pop()
        inside = stack[-1][0] if stack else root
        if number in ends and (not stack or ends[number] <= stack[-1][1]):
            loop = Region(ends[number] + 1)
            inside.items.append(loop)
            stack.append((loop, ends[number]))
            inside = loop
        if number in found and number not in skipped:
            inside.items.append(found[number])
            if found[number].opcode in ("BRA", "EXIT"):
                inside.items.append(Label(""))
        elif label := _LABEL.match(lines[number]):
            inside.items.append(Label(label[1]))
    return root


def _slow_paths(found: Mapping[int, Instruction], labels: Mapping[str, int]) -> set[int]:
    """Return the instructions of basic blocks that call a subroutine."""
    starts = set(labels.values())
    skipped: set[int] = set()
    block: list[int] = []
    for number in sorted({*found, *starts}):
        if number in starts:
            block = []
            continue
        block.append(number)
        if found[number].opcode == "BRA":
            if any(found[n].opcode == "CALL" for n in block):
                skipped.update(block)
            block = []
    return skipped


def _instruction(line: int, text: str) -> Instruction | None:
    found = _LINE.match(text)
    if found is None:
        return None
    opcode, form = found["opcode"], found["form"]
    operands = [part.strip() for part in found["rest"].split(",")] if found["rest"].strip() else []
    bits = _BITS.search(form)
    width = int(bits[1]) if bits else 32
    memory = opcode in ("LDG", "LDS", "LDL", "LD", "STG", "STS", "STL", "ST", "LDC", "LDGSTS")
    results = 0
    if opcode not in _NO_RESULT and operands:
        results = 1
        while results < len(operands) and re.fullmatch(r"U?P\d|U?PT", operands[results]):
            results += 1
        if opcode not in _PREDICATES and results == len(operands):
            results = 1
        results = min(results, 2 if opcode in _PREDICATES or ".X" in form else 3)
        if ".X" in form and opcode not in _PREDICATES:
            results = 1
    writes = [r for text in operands[:results] for r in _registers(text)]
    if writes and memory:
        writes = _run(writes[0], max(1, width // 32))
    elif writes and (".WIDE" in form or opcode in _PAIRS or ".64" in form):
        writes = [*_run(writes[0], 2), *writes[1:]]
    reads = [r for text in operands[results:] for r in _registers(text)]
    if opcode in ("STG", "STS", "ST", "STL") and width > 32 and len(operands) > 1:
        reads += [r for first in _registers(operands[-1])[:1] for r in _run(first, width // 32)]
    if opcode in _PAIRS:
        reads = [r for first in reads for r in _run(first, 2)]
    if found["guard"]:
        reads += _registers(found["guard"])
        reads += writes  # if the guard is false, the old value stays
    return Instruction(line, opcode, form, tuple(reads), tuple(writes), width if memory else 0)


def _registers(text: str) -> list[str]:
    found = []
    for kind, number, wide in _REGISTER.findall(text):
        found += _run(f"{kind}{number}", 2 if wide else 1)
    return found


def _run(first: str, count: int) -> list[str]:
    """Return consecutive registers from ``first`` on."""
    kind, number = first.rstrip("0123456789"), first.lstrip("URP")
    return [f"{kind}{int(number) + n}" for n in range(count)]
