"""Launches done again where that lowers the peak, and not where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.debug.check import summary
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.passes.rematerialise import Rematerialise
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.support.errors import UserError
from tests.passes.programs import inputs, program

#: ``kept`` waits while the wide product is there.
WIDE = ("256x256xf32", "256x256xf32", "256x1024xf32", "1024x256xf32")


def waits(b, x, w, v, u):
    kept = b.matmul(x, w)
    return b.matmul(b.matmul(b.matmul(kept, v), u), kept)


def viewed(b, x, w, v, u):
    """As before; what waits is read through a view that was made early."""
    kept = b.reshape(b.matmul(x, w), shape=(1, 256, 256))
    flat = b.reshape(kept, shape=(256, 256))
    return b.matmul(b.matmul(b.matmul(flat, v), u), flat)


def does_not_wait(b, x, w, v, u):
    return b.matmul(b.matmul(b.matmul(x, w), v), u)


def compiled(build, *types, edit=PipelineEdit(), **options):
    module = program(build, *types)
    arrays = inputs(module)
    made = compilation.start(module, "cpu", Options(edit=edit, **options), arrays).finish()
    return made, made(*arrays)


def inserted(**options) -> PipelineEdit:
    return PipelineEdit(insert=(("after:outline_kernels", Rematerialise(**options)),))


@pytest.mark.slow
def test_a_value_that_waits_is_computed_again_and_the_peak_falls():
    plain, wanted = compiled(waits, *WIDE)
    made, found = compiled(waits, *WIDE, edit=inserted(), check=True)
    assert made.memory.peak == plain.memory.peak - 256 * 256 * 4
    (stage,) = [s for s in made.stages if s.name == "rematerialise"]
    assert [r.rule for r in stage.rewrites] == ["compute again"]
    assert stage.rewrites[0].note == "the peak falls by 262,144 bytes"
    assert summary(made.checks)["failed"] == 0
    assert [a.tobytes() for a in found] == [a.tobytes() for a in wanted], "the same bits"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("build", "types"),
    [
        (does_not_wait, WIDE),
        (viewed, WIDE),
        (lambda b, x: b.exp(x), ("4xf32",)),
    ],
)
def test_nothing_is_done_again_in_vain(build, types):
    made, found = compiled(build, *types, edit=inserted())
    plain, wanted = compiled(build, *types)
    (stage,) = [s for s in made.stages if s.name == "rematerialise"]
    assert made.memory.peak <= plain.memory.peak
    assert len(stage.rewrites) == (made.memory.peak < plain.memory.peak)
    np.testing.assert_array_equal(found, wanted)


def test_its_option_is_checked():
    with pytest.raises(UserError, match="launches to be 1 or more, got 0"):
        compiled(waits, *WIDE, edit=inserted(launches=0))
