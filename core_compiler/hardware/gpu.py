"""NVIDIA GPUs as machines: the shipped description, updated with a GPU's own figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core_compiler.hardware.machine import Figure, Machine, shipped

#: The machine that is compiled for if there is no GPU.
SHIPPED = "h200"
#: The machines that come with the compiler.
NAMES = ("h200", "h100", "a100", "rtx4090")


def nearest(name: str, capability: tuple[int, int]) -> str:
    """Return the shipped GPU that describes a detected one best: by name, else by architecture."""
    spelled = name.lower().replace(" ", "")
    known = {n: shipped(n).figures["capability"].value for n in NAMES}
    wanted = capability[0] + capability[1] / 10
    older = [n for n in NAMES if known[n] <= wanted]
    return next((n for n in NAMES if n in spelled), max(older or NAMES, key=lambda n: known[n]))


def machine(
    name: str = "",
    processors: int = 0,
    clock: int = 0,
    memory: int = 0,
    bandwidth: float = 0.0,
    shared: int = 0,
    cache: int = 0,
    capability: tuple[int, int] = (9, 0),
) -> Machine:
    """Return the nearest shipped GPU with given figures (clock in Hz, bytes, bytes/s) replaced."""
    if not name:
        return shipped(SHIPPED)
    base = shipped(nearest(name, capability))

    def given_figure(value: float, unit: str = "") -> Figure:
        return Figure(value, unit, "detected")

    unit = replace(
        base.units[0], count=given_figure(processors), clock=given_figure(clock / 1e9, "GHz")
    )
    tiers: dict[str, dict[str, Any]] = {
        "shared": {"capacity": given_figure(shared / 1024, "KiB")},
        "l2": {"capacity": given_figure(cache / 2**20, "MiB")},
        base.tiers[-1].name: {
            "capacity": given_figure(memory / 2**30, "GiB"),
            "bandwidth": given_figure(bandwidth / 1e9, "GB/s"),
        },
    }
    number = Figure(capability[0] + capability[1] / 10, "", "detected")
    return base.with_(
        name=name,
        figures={**base.figures, "capability": number},
        summary=f"{name}, {processors} multiprocessors",
        units=(unit,),
        tiers=tuple(replace(t, **tiers.get(t.name, {})) for t in base.tiers),
    )
