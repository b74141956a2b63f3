"""Reading PTX text: entry, parameters, registers, shared memory, instructions, labels."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Instruction:
    """``@guard opcode operands`` at ``line`` of the text; ``guard`` is (register, wanted value)."""

    opcode: tuple[str, ...]
    operands: tuple[str, ...]
    guard: tuple[str, bool] | None
    line: int

    def __str__(self) -> str:
        return f"line {self.line}: {'.'.join(self.opcode)} {', '.join(self.operands)}"


@dataclass
class Kernel:
    """One entry of a module.  ``labels``: name to instruction number; ``registers``: prefix to
    (type, count); ``shared`` and ``constants``: variable to offset."""

    name: str
    parameters: list[str] = field(default_factory=list)
    registers: dict[str, tuple[str, int]] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    shared_bytes: int = 0
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    local: str = ""
    local_bytes: int = 0
    constants: dict[str, int] = field(default_factory=dict)
    constant_bytes: bytes = b""


_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(([^)]*)\)")
_SHARED = re.compile(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\]")
_LOCAL = re.compile(r"\.local\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[(\d+)\]")
_CONSTANT = re.compile(r"\.const\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[\d+\]\s*=\s*\{([^}]*)\}")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+%(\w+?)(?:<(\d+)>)?;")
_GUARD = re.compile(r"@(!?)(%\w+)\s+")
#: Commas between operands: not those inside ``{a, b}`` or ``[p, 4]``.
_COMMA = re.compile(r",(?![^{\[]*[}\]])")


def read(text: str) -> Kernel:
    """The only entry of a module; ValueError where there is none or more than one."""
    entries = _ENTRY.findall(text)
    if len(entries) != 1:
        raise ValueError(f"{len(entries)} entries, not one")
    name, parameters = entries[0]
    kernel = Kernel(name)
    kernel.parameters = [p.split()[-1] for p in parameters.split(",") if p.strip()]
    for align, variable, size in _SHARED.findall(text):
        offset = -(-kernel.shared_bytes // int(align)) * int(align)
        kernel.shared[variable] = offset
        kernel.shared_bytes = offset + int(size)
    for variable, size in _LOCAL.findall(text):
        kernel.local, kernel.local_bytes = variable, int(size)
    for align, variable, numbers in _CONSTANT.findall(text):
        padding = -len(kernel.constant_bytes) % int(align)
        kernel.constants[variable] = len(kernel.constant_bytes) + padding
        kernel.constant_bytes += bytes(padding) + bytes(map(int, numbers.split(",")))
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("//")[0].strip()
        if line == "{":
            inside = True
        elif line == "}":
            inside = False
        elif inside and line:
            _line(kernel, line, number)
    return kernel


def _line(kernel: Kernel, line: str, number: int) -> None:
    for kind, prefix, count in _REGISTERS.findall(line):
        kernel.registers[prefix] = kind, int(count or 1)
    label = re.match(r"([$\w]+):\s*", line)
    if label:
        kernel.labels[label[1]] = len(kernel.code)
        line = line[label.end() :]
    if not line or line.startswith((".", "}", "{")):
        return
    guard = None
    if found := _GUARD.match(line):
        guard, line = (found[2], not found[1]), line[found.end() :]
    opcode, _, rest = line.rstrip(";").partition(" ")
    opcode, _, tabbed = opcode.partition("\t")
    operands = [o.strip() for o in _COMMA.split(f"{tabbed}{rest}") if o.strip()]
    kernel.code.append(Instruction(tuple(opcode.split(".")), tuple(operands), guard, number))
