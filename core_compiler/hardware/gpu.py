"""NVIDIA GPUs as machines: the shipped description, updated with a GPU's own figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core_compiler.hardware.machine import Figure, Machine, shipped

#: The machine that is compiled for if there is no GPU.
SHIPPED = "h200"


def machine(
    name: str = "",
    processors: int = 0,
    clock: int = 0,
    memory: int = 0,
    bandwidth: float = 0.0,
    shared: int = 0,
    cache: int = 0,
) -> Machine:
    """Return the shipped GPU with given figures (clock in Hz, bytes, bytes/s) replaced."""
    base = shipped(SHIPPED)
    if not name:
        return base

    def given_figure(value: float, unit: str = "") -> Figure:
        return Figure(value, unit, "detected")

    unit = replace(
        base.units[0], count=given_figure(processors), clock=given_figure(clock / 1e9, "GHz")
    )
    tiers: dict[str, dict[str, Any]] = {
        "shared": {"capacity": given_figure(shared / 1024, "KiB")},
        "l2": {"capacity": given_figure(cache / 2**20, "MiB")},
        "hbm": {
            "capacity": given_figure(memory / 2**30, "GiB"),
            "bandwidth": given_figure(bandwidth / 1e9, "GB/s"),
        },
    }
    return base.with_(
        name=name,
        summary=f"{name}, {processors} multiprocessors",
        units=(unit,),
        tiers=tuple(replace(t, **tiers.get(t.name, {})) for t in base.tiers),
    )
