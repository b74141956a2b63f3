"""Generated source to PTX, cubin and SASS: Numba types and lowers it, NVVM optimises it.

The cubin has one entry, ``kernel``, with a 64-bit parameter for each argument: addresses of buffers
in global memory, then sizes.  Nothing here needs a GPU or a driver.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from itertools import pairwise

from core_compiler.codegen.cuda import toolchain
from core_compiler.codegen.entry import entry_of
from core_compiler.codegen.source import SYMBOL, Source


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """``cubin`` defines ``symbol`` for ``architecture`` (``sm_90``); ``threads`` of a block;
    ``ptx_lines`` has (PTX line, source line) rows, lines from 1; ``seconds`` by step."""

    name: str
    symbol: str
    architecture: str
    threads: int
    ptx: str
    cubin: bytes
    sass: str
    facts: dict[str, int]
    ptx_lines: list[tuple[int, int]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def compile_source(source: str | Source, capability: tuple[int, int], name: str = ""):
    """Compile the text of a generated module for a compute capability: :class:`CompiledKernel`."""
    toolchain.require()
    if isinstance(source, Source):
        name, source = source.name, source.text
    clock = [time.perf_counter()]
    ptx, threads = lower(source, capability, name or SYMBOL)
    clock.append(time.perf_counter())
    architecture = f"sm_{capability[0]}{capability[1]}"
    made = toolchain.assemble(ptx, architecture)
    clock.append(time.perf_counter())
    sass = toolchain.disassemble(made.cubin)
    clock.append(time.perf_counter())
    steps = (b - a for a, b in pairwise(clock))
    facts = {
        "registers": made.registers, "shared": made.shared, "stack": made.stack,
        "spilled": made.spilled, "threads": threads,
    }  # fmt: skip
    return CompiledKernel(
        name, SYMBOL, architecture, threads, ptx, made.cubin, sass, facts, source_lines(ptx),
        dict(zip(("nvvm", "ptxas", "nvdisasm"), steps, strict=True)),
    )  # fmt: skip


def lower(source: str, capability: tuple[int, int], name: str) -> tuple[str, int]:
    """The PTX of a generated module, its entry called ``kernel``, and the threads of a block."""
    from numba import cuda
    from numba.core import types

    from core_compiler.codegen.cuda.names import Namespace

    function, facts = entry_of(source, name, Namespace)
    signature = types.void(*[types.int64] * facts["ARGUMENTS"])
    ptx, _ = cuda.compile(
        function, signature, device=False, abi="numba", cc=capability, output="ptx", lineinfo=True
    )  # fmt: skip
    entry = re.search(r"\.visible \.entry (\w+)\(", ptx)
    assert entry is not None, "NVVM made no entry"
    ptx = re.sub(r"^\.common \.global .*NumbaEnv.*\n", "", ptx, flags=re.M)
    ptx = re.sub(rf"\b{re.escape(entry[1])}\b", SYMBOL, ptx)
    return ptx.replace(f"{entry[1]}_param_", "argument_"), facts["THREADS"]


_LOCATION = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")


def source_lines(ptx: str) -> list[tuple[int, int]]:
    """(PTX line, source line) of every instruction whose source line is known."""
    rows, current = [], 0
    for number, line in enumerate(ptx.splitlines(), 1):
        found = _LOCATION.match(line)
        if found:
            current = int(found[1])
        elif current and line.rstrip().endswith(";") and not line.strip().startswith("."):
            rows.append((number, current))
    return rows
