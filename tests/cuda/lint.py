"""What generated PTX and SASS must not hold: whatever rounds in another way than the contract.

PTX says how it rounds; of SASS the question is whether ptxas kept to it.  It unrolls loops and
joins equal tails, so counts say nothing (a loop's ten additions become 34, an epilogue's seven
products five).  What stays is where code comes from, the line of the generated source, which has
one operation or a few:

- **By line**: an FFMA whose line has no fma in the PTX is a product and a sum contracted; an FMUL,
  or FADD, on a line without mul, or add and sub, is an fma taken apart.  A line that has one of the
  three in the PTX has it in the SASS: so contraction is found on the line of an fma, too.
- **By name**: no tensor core (their sums have another order), no float atomics, no approximation
  but the start of a division or a root, no flushing to zero and no other rounding.

div, sqrt and rcp are spelled with further instructions of all these kinds, flushing ones too, where
nothing is lost: on their lines, and in the functions they call, anything goes.

Not seen: contraction in one of several copies of a line that has fma, mul and add, or on the line
of a division; operands that changed places.  Without lines the same is asked of the whole kernel.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cuda.ptx import Instruction, read

#: (line of a text, source line) rows, lines from 1.
Places = Iterable[tuple[int, int]]

#: Floating-point instructions that need ``rn``: without it ptxas may contract them.
_ROUNDED = ("add", "sub", "mul", "fma", "div", "sqrt", "rcp")
#: What SASS spells with further FFMAs of its own.
_EXPANDED = ("div", "sqrt", "rcp")
_APPROXIMATE = ("ex2", "lg2", "sin", "cos", "tanh", "rsqrt")
#: What PTX calls an operation, and SASS, by the width.
_CLASSES = {
    "fma": {"f32": "FFMA", "f64": "DFMA"},
    "mul": {"f32": "FMUL", "f64": "DMUL"},
    "add": {"f32": "FADD", "f64": "DADD"},
    "sub": {"f32": "FADD", "f64": "DADD"},
}
_COMPARED = frozenset(name for wide in _CLASSES.values() for name in wide.values())
_FLOATS = ("F16", "F32", "F64")
#: Where divisions and roots begin (integer ones too).
_STARTS = re.compile(r"MUFU\.(RCP|RSQ)(64H)?$")
_FORMS = re.compile(r"U?([FD](?:FMA|MUL|ADD))2?")
_CODE = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*(?:\.\w+)*)")
#: A sum with -0 changes no bit: so SASS spells neg and abs.
_NEGATION = re.compile(r"U?[FD]ADD[.\w]* .*-U?RZ\b")
_FUNCTION = re.compile(r"\$?__internal_\d+\S*:|(\.text\.\S+):")


@dataclass(frozen=True)
class Machine:
    """One instruction of SASS: ``FADD.FTZ`` at ``line``; ``called``: in a function of ptxas."""

    opcode: str
    line: int
    called: bool

    @property
    def name(self) -> str:
        """``FADD``, also of one for all threads (``UFADD``) and of two at once (``FADD2``)."""
        word = self.opcode.split(".")[0]
        plain = _FORMS.fullmatch(word)
        return plain[1] if plain else word

    def __str__(self) -> str:
        return f"SASS line {self.line}: {self.opcode}"


def complaints(ptx: str, sass: str = "", places: Sequence[Places] = ((), ())) -> list[str]:
    """What is wrong with a module, a line each; [] where nothing is.

    ``places``: the source lines of its PTX and of its SASS (``CompiledKernel.intermediate_lines``,
    ``assembly_lines``).
    """
    code = read(ptx).code
    found = [told for instruction in code for told in _of_ptx(instruction)]
    if sass:
        of_ptx, of_sass = map(dict, places)
        machine = list(_machine(sass))
        found += _by_name(machine, code, of_ptx, of_sass)
        found += _by_line(machine, code, of_ptx, of_sass)
    return found


def complaints_about(made) -> list[str]:
    """The same of a ``CompiledKernel``."""
    return complaints(
        made.intermediate, made.assembly, (made.intermediate_lines, made.assembly_lines)
    )


def complaints_about_all(compiled: Mapping[str, Any]) -> list[str]:
    """The same of all kernels of a compile (its fact ``compiled``), each named."""
    found = []
    for name, made in compiled.items():
        texts = [json.loads(made.text(f"{text}.json")) for text in ("intermediate", "assembly")]
        places = [[(line, source) for line, source in rows] for rows in texts]
        own = complaints(made.text("kernel.ir"), made.text("kernel.s"), places)
        found += [f"{name}: {told}" for told in own]
    return found


def _of_ptx(instruction: Instruction) -> Iterator[str]:
    name, *words = instruction.opcode
    floats = [w for w in words if re.fullmatch(r"f(16|32|64)", w)]
    if bad := {"approx", "ftz", "full", "sat"} & set(words):
        yield f"{instruction}: {', '.join(sorted(bad))}"
    elif name in _APPROXIMATE:
        yield f"{instruction}: an approximation"
    if name in _ROUNDED and floats and "rn" not in words:
        yield f"{instruction}: not rounded to nearest by name"
    if name in ("atom", "red") and floats:
        yield f"{instruction}: an atomic operation on floats has no order"


def _machine(sass: str) -> Iterator[Machine]:
    called = False
    for number, line in enumerate(sass.splitlines(), 1):
        if label := _FUNCTION.match(line):
            called = label[1] is None
        elif (code := _CODE.match(line)) and not _NEGATION.search(line):
            yield Machine(code[1], number, called)


def _wide(instruction: Instruction) -> str:
    return instruction.opcode[-1]


def _class(instruction: Instruction) -> str | None:
    """What SASS calls an instruction of PTX, where it is one of those that are compared."""
    return _CLASSES.get(instruction.opcode[0], {}).get(_wide(instruction))


def _expanded(code: Iterable[Instruction]) -> list[Instruction]:
    return [i for i in code if i.opcode[0] in _EXPANDED and _wide(i).startswith("f")]


def _by_name(machine, code, of_ptx, of_sass) -> Iterator[str]:
    """Instructions that no PTX of ours asks for."""
    expanded = _expanded(code)
    free = {of_ptx.get(i.line) for i in expanded}
    for m in machine:
        words = m.opcode.split(".")[1:]
        if m.name.endswith("MMA"):
            yield f"{m}: the sums of tensor cores have another order"
        if m.name.startswith(("ATOM", "RED")) and any(w[:3] in _FLOATS for w in words):
            yield f"{m}: an atomic operation on floats has no order"
        if m.name == "MUFU" and not _STARTS.match(m.opcode):
            yield f"{m}: an approximation"
        own = m.called or (expanded and (not of_sass or of_sass.get(m.line) in free))
        bad = {"FTZ", "RZ", "RM", "RP"} & set(words)
        if m.name in _COMPARED and bad and not own:
            yield f"{m}: {', '.join(sorted(bad))}"


def _by_line(machine, code, of_ptx, of_sass) -> Iterator[str]:
    """Products and sums on lines that have none in the PTX, and the other way round."""
    wanted = _kinds_of(code, of_ptx)
    made: dict[int | None, set[str]] = {}
    free = {of_ptx.get(i.line) for i in _expanded(code)}
    for m in machine:
        source = of_sass.get(m.line)
        if m.called or m.name not in _COMPARED or source in free:
            continue
        if m.name not in made.setdefault(source, set()) and m.name not in wanted.get(source, ()):
            yield f"{m}: the PTX of {_place(source)} has none"
        made[source].add(m.name)
    for source, names in wanted.items():
        for name in sorted(names - made.get(source, set()) if source not in free else ()):
            yield f"SASS of {_place(source)} has no {name}, its PTX has"


def _kinds_of(code: Iterable[Instruction], of_ptx: Mapping[int, int]) -> dict[int | None, set[str]]:
    """Which of the instructions that are compared a source line has."""
    there: dict[int | None, set[str]] = {}
    for i in code:
        if (name := _class(i)) is not None:
            there.setdefault(of_ptx.get(i.line), set()).add(name)
    return there


def _place(source: int | None) -> str:
    return "the kernel" if source is None else f"source line {source}"
