"""The memory map: each placed buffer by address and program order, per tier, with the peak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from core_compiler.ir import Op
from core_compiler.record.reader import Buffer
from workbench.state import Sight
from workbench.views import Empty
from workbench.views.links import LAUNCH, launches, linked, writers, written_by
from workbench.views.reading import Run

#: Tiers in the order of their tabs, and how a person calls them.
_TIERS = {"dram": "arena (DRAM)", "weights": "weights", "inputs": "inputs", "results": "results"}


def key(run: Run, sight: Sight) -> tuple:
    return run.version.buffers, run.version.figures, run.status


def data(run: Run, sight: Sight) -> dict[str, Any]:
    """The ``data`` of the memory view (widgets/README.md)."""
    buffers = run.buffers()
    if not buffers:
        raise Empty(
            "Memory is not planned yet: the pass plan_memory places the buffers."
            if run.live
            else "This recording holds no memory plan. Press Compile to make one that does."
        )
    figures = run.figures("memory")
    present = dict.fromkeys(b.tier for b in buffers)
    tiers = [t for t in _TIERS if t in present] + sorted(set(present) - set(_TIERS))
    kinds = list(dict.fromkeys(b.kind for b in buffers))
    steps = max(b.end for b in buffers) + 1
    labels = _labels(run, steps)
    made = writers(run)
    columns = {
        "tier": [tiers.index(b.tier) for b in buffers],
        "start": [b.start for b in buffers],
        "end": [b.end + 1 for b in buffers],
        "category": [kinds.index(b.kind) for b in buffers],
    }
    sizes = {
        "offset": [b.offset for b in buffers],
        "size": [b.size for b in buffers],
        "unpadded": [b.unpadded_size for b in buffers],
    }
    ops = [written_by(run, b) for b in buffers]
    return {
        "title": f"plan: {figures.get('planner', '')}",
        "steps": steps,
        **labels,
        "tiers": [_tier(name, figures) for name in tiers],
        "categories": kinds,
        "buffers": {
            "key": np.array([b.id for b in buffers], np.int32),
            "name": [_name(run, b, made) for b in buffers],
            **{name: np.array(column, np.int32) for name, column in columns.items()},
            **{name: np.array(column, np.float64) for name, column in sizes.items()},
            "op": np.array([-1 if op is None else op for op in ops], np.int32),
            "type": [_type(run, b.value) for b in buffers],
        },
    }


def selection(run: Run, sight: Sight) -> dict[str, Any]:
    found = linked(run, sight)
    return {} if found.buffer is None else {"buffer": found.buffer}


def _tier(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": _TIERS.get(name, name)}
    if name == "dram" and figures.get("lower_bound_bytes") is not None:
        found["lower_bound"] = float(figures["lower_bound_bytes"])
    return found


def _labels(run: Run, steps: int) -> dict[str, Any]:
    """The op at each program position: lifetimes count the ops of the last stage's main."""
    ops = run.index(run.version.stages - 1).module.main.body.ops
    if not any(op.kind == LAUNCH for op in ops):
        return {}
    return {
        "step_op": np.array([run.op_id(op) for op in ops[:steps]], np.int32),
        "step_label": [_label(op) for op in ops[:steps]],
    }


def _label(op: Op) -> str:
    if op.kind == LAUNCH:
        return f"launch {op.get('kernel', '')}"
    return op.kind.rpartition(".")[2]


def _name(run: Run, buffer: Buffer, made: Mapping[int, int]) -> str:
    """A buffer's name and the kernel that fills it."""
    name = buffer.name or ("" if buffer.value is None else f"%{buffer.value}")
    maker = None if buffer.value is None else made.get(buffer.value)
    launch = None if maker is None else launches(run).get(maker)
    return f"{name} {launch['kernel']}" if launch is not None else name


def _type(run: Run, value: int | None) -> str:
    return "" if value is None else str(run.recording.value(value).type)
