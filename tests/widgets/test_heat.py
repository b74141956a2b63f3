"""The scale of a heat overlay, on the code that the browser runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.widgets.graphs import Builder


def _heat(run_layout, values: list[float], scale: str) -> dict[str, Any]:
    g = Builder()
    for i in range(len(values)):
        g.add("add", (i - 1,) if i else ())
    overlay = {
        "name": "error",
        "unit": "",
        "values": np.array(values),
        "combine": "max",
        "scale": scale,
    }
    (report,) = run_layout(g.data(overlays=[overlay]))
    (heat,) = report["heat"]
    return heat


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_what_is_infinite_stands_at_the_ends_of_a_scale_of_finite_values(run_layout, scale):
    heat = _heat(run_layout, [1e-6, math.inf, 1e-2, -math.inf, 1e-4, math.nan], scale)
    assert (heat["low"], heat["high"]) == (1e-6, 1e-2)
    low, infinite, high, least, between, _ = heat["colours"]
    assert infinite == high and least == low
    assert len({tuple(each) for each in (low, between, high)}) >= 2


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_where_all_is_infinite_there_are_colours(run_layout, scale):
    heat = _heat(run_layout, [math.inf, math.inf], scale)
    assert (heat["low"], heat["high"]) == (0, 0)
    assert all(0 <= part <= 255 for colour in heat["colours"] for part in colour)
