"""Predicted times of a linked program's launches on a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from core_compiler.codegen.cuda.predict import CompiledLaunches
from core_compiler.hardware.machine import Machine
from core_compiler.hardware.prediction import GPUModel, Prediction
from core_compiler.ir import Function, Op
from core_compiler.ir.target import LAUNCH
from core_compiler.runtime.compile_worker import ASSEMBLY


def predict_launches(facts: Mapping[str, Any], machine: Machine) -> dict[Op, Prediction]:
    """Return the prediction of each launch op; {} if the machine's description lacks a figure."""
    model = GPUModel.of(machine)
    if model is None:
        return {}
    program, _, ops = facts["program"]
    held = {space: sum(sizes) for space, sizes in program.space_sizes().items()}
    kernels: dict[str, CompiledLaunches] = {}
    found: dict[Op, Prediction] = {}
    for op, launch in zip(ops, program.launches, strict=True):
        if op.kind != LAUNCH:
            continue
        name = launch.kernel
        if name not in kernels:
            kernels[name] = _compiled(facts["schedules"][name].function, facts["compiled"][name])
        cold = cold_arguments(held, [r.space for r in launch.buffers], model.cache_bytes)
        sizes, blocks = launch.indices, launch.work_items
        found[op] = kernels[name].predict(model, sizes, blocks, launch.bytes, cold)
    return found


def _compiled(function: Function, compiled: Any) -> CompiledLaunches:
    ops = list(function.body.walk())
    lines = [
        (line, ops[number])
        for line, name, number, *_ in json.loads(compiled.text("lines.json") or "[]")
        if name == function.name and 0 <= number < len(ops)
    ]
    places = json.loads(compiled.text("assembly.json") or "[]")
    known = json.loads(compiled.text("facts.json"))
    return CompiledLaunches.of(function, compiled.text(ASSEMBLY), places, lines, known)


def cold_arguments(sizes: Mapping[str, int], spaces: Sequence[str], cache: float) -> frozenset[int]:
    """Return the buffer arguments of a launch that are not in the second cache.

    ``sizes``: the bytes of a program's spaces; ``spaces``: those of the launch's buffers.
    A program whose data is larger than the cache reads weights, inputs and results from memory, and
    temporaries too if they alone are larger.
    """
    if sum(sizes.values()) <= cache:
        return frozenset()
    small = {"arena"} if sizes["arena"] <= cache else set()
    return frozenset(n for n, space in enumerate(spaces) if space not in small)
