"""The code of a kernel: generated source beside LLVM IR and assembly, or PTX and SASS, and which
lines of these belong together."""

from __future__ import annotations

from typing import Any

from core_compiler.ir import Op
from core_compiler.record.reader import Kernel
from workbench.queries.kernel_table import table
from workbench.queries.kernel_texts import groups_of, hot_line, texts_of
from workbench.queries.links import launches, linked
from workbench.queries.model_lines import ModelLines, traced
from workbench.queries.run import Run
from workbench.state.view_state import Sight
from workbench.views import Empty, missing

#: Ops of kernels that hold others.
_LOOPS = ("kernel.for", "kernel.if")


def key(run: Run, sight: Sight) -> tuple:
    return run.version.kernels, run.version.timings, chosen(run, sight), run.status


def chosen(run: Run, sight: Sight) -> int | None:
    """The selected kernel, else the most expensive one."""
    found = linked(run, sight).kernel
    known = {k.id for k in run.kernels()}
    if found in known:
        return found
    rows = table(run)
    return rows[0]["id"] if rows else None


def data(run: Run, sight: Sight) -> dict[str, Any]:
    """The ``data`` of the code view (widgets/README.md)."""
    number = chosen(run, sight)
    kernel = next((k for k in run.kernels() if k.id == number), None)
    if kernel is None:
        raise missing.made_by(run, "generate_code", "No kernels are generated", "kernels")
    texts = texts_of(run, kernel)
    panes = [{"title": t, "language": lang, "text": text} for t, lang, text in texts if text]
    if not panes:
        raise Empty(f"The recording keeps no source of kernel {kernel.name}.")
    kept = [bool(text) for _, _, text in texts]
    return {
        "title": kernel.name,
        "kernel": kernel.id,
        "panes": panes,
        "groups": groups_of(run, kernel, [text for _, _, text in texts], kept),
        "hot": hot_line(texts[0][2]) if kept[0] else None,
    }


def selection(run: Run, sight: Sight) -> dict[str, Any]:
    """``kernel``, and ``ops``: those of its own ops that compute the selected op."""
    number = chosen(run, sight)
    if number is None or sight.op is None:
        return {} if number is None else {"kernel": number}
    kernel = next(k for k in run.kernels() if k.id == number)
    key = ("kernel ops", number, sight.op, run.version.compiled)
    op = sight.op
    return {"kernel": number, "ops": run.kept(key, lambda: _ops_for(run, kernel, op))}


def _ops_for(run: Run, kernel: Kernel, op: int) -> list[int]:
    """The ops of a kernel's source lines that compute ``op`` of the model's program; loops around
    them, and what only says where something lies, where there is nothing else."""
    mapped = list(dict.fromkeys(k for _, k in kernel.line_map))
    if op in mapped:
        return [op]
    found = traced(run)
    nodes = found.nodes_of(op)
    if not nodes:
        return []
    node = _twin(run, kernel, found, nodes[0])
    mine = [k for k in mapped if found.nodes_of(k)[:1] == (node,)]
    mine = mine or [k for k in mapped if node in found.nodes_of(k)]
    made = {k: run.recording.op(k) for k in mine}
    inner = [k for k, each in made.items() if each.kind not in _LOOPS]
    return [k for k in inner if _computes(made[k])] or inner or mine


def _computes(op: Op) -> bool:
    """Whether an op of a kernel does more than say where something lies."""
    return not op.results or any(str(value.type) != "index" for value in op.results)


def _twin(run: Run, kernel: Kernel, found: ModelLines, node: int) -> int:
    """The node that stands where ``node`` does in the launch that the kernel's lines speak of: the
    first of those that share it."""
    made = launches(run)
    here = next((n for n in kernel.launches if node in found.of_launch.get(n, ())), None)
    if here is None or here not in made or kernel.launches[0] not in made:
        return node
    mine, first = (made[n].regions[0].ops for n in (here, kernel.launches[0]))
    for ours, theirs in zip(mine, first, strict=False):
        twins = found.nodes_of(run.op_id(theirs))
        if twins and node in found.nodes_of(run.op_id(ours))[:1]:
            return twins[0]
    return node
