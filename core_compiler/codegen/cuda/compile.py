"""Compilation of generated source to PTX, cubin and SASS by Numba and NVVM.

The cubin has one entry, ``kernel``, with a 64-bit parameter for each argument: addresses of buffers
in global memory, then sizes. Nothing here needs a GPU or a driver.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from itertools import pairwise

from core_compiler.codegen.cuda import toolchain
from core_compiler.codegen.cuda.listing import ptx_lines, sass_lines
from core_compiler.codegen.entry import entry_of
from core_compiler.codegen.source import SYMBOL, Source
from core_compiler.hardware.occupancy import occupancy


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """A compiled kernel.

    ``object`` is a cubin that defines ``symbol``. ``intermediate`` is its PTX, ``assembly`` its
    SASS, with (line, source line) rows, lines from 1.

    ``facts``: the ``architecture`` (``sm_90``), ``threads`` of a block, number of ``arguments``,
    ``registers`` of a thread, ``shared`` bytes of a block, ``stack`` and ``spilled`` bytes of a
    thread, ``occupancy`` and its limit; ``seconds`` by step.
    """

    name: str
    symbol: str
    object: bytes
    intermediate: str
    assembly: str
    facts: dict[str, int | float | str]
    lines: list | None = None
    intermediate_lines: list[tuple[int, int]] = field(default_factory=list)
    assembly_lines: list[tuple[int, int]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def compile_source(source: str | Source, capability: tuple[int, int], name: str = ""):
    """Compile a generated module for a compute capability; return a :class:`CompiledKernel`."""
    toolchain.require()
    lines = None
    if isinstance(source, Source):
        name, lines, source = source.name, [list(row) for row in source.lines], source.text
    clock = [time.perf_counter()]
    ptx, shape = lower(source, capability, name or SYMBOL)
    clock.append(time.perf_counter())
    architecture = f"sm_{capability[0]}{capability[1]}"
    made = toolchain.assemble(ptx, architecture)
    clock.append(time.perf_counter())
    sass, places = sass_lines(toolchain.disassemble(made.cubin))
    clock.append(time.perf_counter())
    steps = (b - a for a, b in pairwise(clock))
    resident, why = occupancy(capability, shape["threads"], made.registers, made.shared)
    facts: dict[str, int | float | str] = {
        "intermediate": "PTX",
        "assembly": "SASS",
        "architecture": architecture,
        **shape,
        "registers": made.registers,
        "shared": made.shared,
        "stack": made.stack,
        "spilled": made.spilled,
        "occupancy": resident,
        "occupancy_limit": why,
    }
    seconds = dict(zip(("nvvm", "ptxas", "nvdisasm"), steps, strict=True))
    return CompiledKernel(
        name, SYMBOL, made.cubin, ptx, sass, facts, lines, ptx_lines(ptx), places, seconds
    )


def lower(source: str, capability: tuple[int, int], name: str) -> tuple[str, dict[str, int]]:
    """Return the PTX of a generated module and facts about it.

    Its entry is called ``kernel``; the facts are the ``threads`` of a block and the number of
    ``arguments``.
    """
    from numba import cuda
    from numba.core import types

    from core_compiler.codegen.cuda.names import Namespace

    function, facts = entry_of(source, name, Namespace)
    signature = types.void(*[types.int64] * facts["ARGUMENTS"])
    ptx, _ = cuda.compile(
        function, signature, device=False, abi="numba", cc=capability, output="ptx", lineinfo=True
    )
    entry = re.search(r"\.visible \.entry (\w+)\(", ptx)
    assert entry is not None, "NVVM generated no entry"
    ptx = re.sub(r'^(\s*\.file\s+\d+) ".*"', r'\1 "source.py"', ptx, flags=re.M)
    ptx = re.sub(r"^\.common \.global .*NumbaEnv.*\n", "", ptx, flags=re.M)
    ptx = re.sub(rf"\b{re.escape(entry[1])}\b", SYMBOL, ptx)
    shape = {"threads": facts["THREADS"], "arguments": facts["ARGUMENTS"]}
    return ptx.replace(f"{entry[1]}_param_", "argument_"), shape
