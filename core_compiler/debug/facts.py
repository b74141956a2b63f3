"""An independent check of what `schedule_kernels` leaves for the passes after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_compiler.ir import Module
from core_compiler.ir.core import structure_key
from core_compiler.passes.outline_kernels import LAUNCH


def complaints(module: Module, facts: Mapping[str, Any]) -> list[str]:
    """What is missing or not what the schedules say, one line each: the schedule of a kernel that
    is launched, the kernels that it invokes, those that pack constants for it."""
    schedules, packers = facts.get("schedules", {}), facts.get("packers", {})
    wrong = []
    launched = (op["kernel"] for op in module.main.body.ops if op.kind == LAUNCH)
    for name in dict.fromkeys(launched):
        scheduled = schedules.get(name)
        if scheduled is None:
            wrong.append(f"kernel {name} is launched and has no schedule")
            continue
        expected = {name: scheduled.function, **scheduled.cores}
        for place, pack in scheduled.launch.pack.items() if scheduled.launch is not None else ():
            packer = packers.get((name, place))
            if packer is None:
                wrong.append(f"nothing packs buffer {place} of kernel {name}")
            else:
                expected[packer] = pack
        for own, function in expected.items():
            there = module.functions.get(own)
            if there is None:
                wrong.append(f"the module has no kernel {own}, which kernel {name} needs")
            elif there is not function and _key(there) != _key(function):
                wrong.append(f"kernel {own} is not what the schedule of kernel {name} made")
    return wrong


def _key(function: Any) -> str:
    return structure_key(Module({"kernel": function.with_(name="kernel")}))
