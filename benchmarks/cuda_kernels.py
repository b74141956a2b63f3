"""Every distinct CUDA kernel of the sample models, as ptxas and its SASS describe it: docs/cuda.md.

    python -m benchmarks.cuda_kernels [MODEL ...] [--architecture sm_90] [-o docs/cuda.md]

Models are compiled at full size; nothing is executed and no GPU is needed.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("kernel", "launches", "threads", "registers", "shared B", "spilled B", "occupancy %",
           "FFMA %", "loop FFMA %", "FFMA/LDS", "load bits")  # fmt: skip
_HEAD = """\
# CUDA kernels of the sample models

Written by `python -m benchmarks.cuda_kernels`: do not edit.  Compiled for {architecture} with
{versions}.

These are figures of the machine code, not times (`benchmarks/results/gpu-*.json` has those): ptxas
counts registers, memory and spills, the rest is read from the SASS.  What the kernels compute is
tested with an interpreter of their PTX (`tests/cuda`), which gives the CPU's bits.

| column | meaning |
|---|---|
| kernel | a distinct compiled kernel: kernels of equal source share their code |
| launches | in one run of the model |
| threads, registers | threads of a block; 32-bit registers of a thread |
| shared B | shared memory of a block, bytes |
| spilled B | bytes that a thread stores and loads because registers ran out |
| occupancy % | warps of the kernel that fit a multiprocessor at once, of the most there can be |
| FFMA % | f32 fmas among the instructions of the whole kernel, each counted once |
| loop FFMA % | the same in the innermost loop with the most of them |
| FFMA/LDS | in that loop, fmas for each load from shared memory (a load may be of 128 bits) |
| load bits | the widest load from global memory |
"""


@dataclass(frozen=True)
class Row:
    """A distinct kernel: its ``name``, how often the model launches it, and its facts and SASS."""

    name: str
    launches: int
    facts: Mapping[str, Any]
    sass: str

    def cells(self) -> list[str]:
        from core_compiler.codegen.cuda.listing import inner_loop, mix

        whole, loop = mix(self.sass), mix(inner_loop(self.sass))
        facts = self.facts
        numbers = [self.launches, *(facts[k] for k in ("threads", "registers", "shared"))]
        return [
            f"`{self.name}`", *map(str, numbers), str(facts["spilled"] + facts["stack"]),
            f"{100 * facts['occupancy']:.0f}", f"{100 * whole.fma_share:.0f}",
            f"{100 * loop.fma_share:.0f}" if loop.fmas else "",
            f"{loop.fmas / loop.shared:.1f}" if loop.shared else "",
            str(whole.load_bits or ""),
        ]  # fmt: skip


def kernels(made: Any) -> list[Row]:
    """The distinct kernels of a compilation for CUDA, the most launched first."""
    program = made.facts["program"][0]
    keys = {name: compiled.ref.key for name, compiled in made.facts["compiled"].items()}
    counts = Counter(keys[x.kernel] for x in program.launches if x.kernel in keys)
    rows: dict[str, Row] = {}
    for name, compiled in made.facts["compiled"].items():
        facts = json.loads(compiled.text("facts.json"))
        rows.setdefault(keys[name], Row(name, counts[keys[name]], facts, compiled.text("kernel.s")))
    return sorted(rows.values(), key=lambda r: (-r.launches, r.name))


def table(rows: Iterable[Row]) -> list[str]:
    """The lines of a Markdown table."""
    head = f"| {' | '.join(COLUMNS)} |"
    line = "|---|" + "---:|" * (len(COLUMNS) - 1)
    return [head, line, *(f"| {' | '.join(row.cells())} |" for row in rows)]


def page(models: Mapping[str, Sequence[Row]], architecture: str) -> str:
    """The document: what the columns mean, a line over all models, a table a model."""
    from core_compiler.codegen.cuda import toolchain

    versions = ", ".join(f"{n} {v}" for n, v in toolchain.versions().items())
    every = [row for rows in models.values() for row in rows]
    spilling = sum(bool(r.facts["spilled"] + r.facts["stack"]) for r in every)
    parts = [_HEAD.format(architecture=architecture, versions=versions)]
    said = "none spills" if not spilling else f"{spilling} spill"
    parts.append(f"{len(models)} models, {len(every)} kernels; {said}.\n")
    for name, rows in models.items():
        launches = sum(r.launches for r in rows)
        parts.append(f"## {name}\n\n{len(rows)} kernels, {launches} launches.\n")
        parts.append("\n".join(table(rows)) + "\n")
    return "\n".join(parts)


def main() -> None:
    from sample_models.catalogue import CATALOGUE

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=list(CATALOGUE))
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "cuda.md")
    arguments = parser.parse_args()
    found = {}
    for name in arguments.models:
        found[name] = kernels(_compiled(name, arguments.architecture))
        print(f"{name}: {len(found[name])} kernels", flush=True)
    arguments.output.write_text(page(found, arguments.architecture))


def _compiled(name: str, architecture: str) -> Any:
    from core_compiler.driver.compilation import Options
    from workbench.model import jobs, models
    from workbench.model.spec import read_spec

    options = Options(target={"architecture": architecture})
    return jobs.compile(models.load(read_spec(name)), "cuda", options)


if __name__ == "__main__":
    main()
