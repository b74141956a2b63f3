"""What generated PTX and SASS must not hold: whatever rounds in another way than the contract."""

from __future__ import annotations

import re

from tests.cuda.ptx import read

#: Floating-point instructions that need ``rn``: without it ptxas may contract them.
_ROUNDED = ("add", "sub", "mul", "fma", "div", "sqrt", "rcp")
#: What SASS spells with further FFMAs of its own.
_EXPANDED = ("div", "sqrt", "rcp")
_APPROXIMATE = ("ex2", "lg2", "sin", "cos", "tanh", "rsqrt")


def complaints(ptx: str, sass: str = "") -> list[str]:
    """What is wrong with a module, a line each; [] where nothing is."""
    found = []
    code = read(ptx).code
    for instruction in code:
        name, *words = instruction.opcode
        floats = [w for w in words if re.fullmatch(r"f(16|32|64)", w)]
        if bad := {"approx", "ftz", "full", "sat"} & set(words):
            found.append(f"{instruction}: {', '.join(sorted(bad))}")
        elif name in _APPROXIMATE:
            found.append(f"{instruction}: an approximation")
        if name in _ROUNDED and floats and "rn" not in words:
            found.append(f"{instruction}: not rounded to nearest by name")
        if name in ("atom", "red") and floats:
            found.append(f"{instruction}: an atomic operation on floats has no order")
    return found + (_contracted(code, sass) if sass else [])


def _contracted(code, sass: str) -> list[str]:
    """Whether ptxas made fmas of what are two roundings in the PTX."""
    if any(i.opcode[0] in _EXPANDED and i.opcode[-1].startswith("f") for i in code):
        return []
    made = len(re.findall(r"\b[FD]FMA\b", sass))
    if made and not any(i.opcode[0] == "fma" for i in code):
        return [f"SASS has {made} FFMA or DFMA, PTX no fma"]
    return []
