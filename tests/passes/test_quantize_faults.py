"""Faults planted in quantisation: each is named in the pass that has it."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import dtype
from core_compiler.ops.builder import Builder
from core_compiler.passes.quantize import insert_quantization, integerize
from core_compiler.passes.quantize.forms import base, products, rows, sums
from tests.passes.quantised import compiled

I32 = dtype("i32")


def _zero_forgotten(monkeypatch):
    monkeypatch.setattr(base.Stored, "centred", lambda self, b: b.cast(self.q, dtype=I32))


def _shift_off_by_one(monkeypatch):
    real = base.fixed_point

    def off(factor):
        made = real(factor)
        return made and (made[0], made[1] - 1)

    monkeypatch.setattr(base, "fixed_point", off)


def _options_of(monkeypatch, kind: str, **changed):
    real = Builder.op

    def op(self, made, *a, **k):
        return real(self, made, *a, **(k | changed if made == kind else k))

    monkeypatch.setattr(Builder, "op", op)


def _output_zero_dropped(monkeypatch):
    _options_of(monkeypatch, "core.rescale", output_zero=0)


def _saturation_dropped(monkeypatch):
    """A result that does not fit wraps."""

    def scaled(self, x, factors, axis, kind, input_zero, output_zero):
        wide = real(self, x, factors, axis, I32, input_zero, 0)
        added = self.b.add(wide, self.b.scalar_like(output_zero, wide))
        return self.b.cast(added, dtype=kind)

    real = base.Form.scaled
    monkeypatch.setattr(base.Form, "scaled", scaled)


def _limits_forgotten(monkeypatch):
    monkeypatch.setattr(integerize, "_limited", lambda form, limit: form.limits())


def _bias_forgotten(monkeypatch):
    real = products._bias
    monkeypatch.setattr(
        products, "_bias", lambda form, bias, *a: real(form, np.zeros_like(bias), *a)
    )


def _factor_forgotten(monkeypatch):
    real = integerize.product
    monkeypatch.setattr(
        integerize, "product", lambda form, op, factor, bias: real(form, op, 1.0, bias)
    )


def _scale_of_the_other(monkeypatch):
    real = base.Form.both

    def swapped(self, maker):
        x, y = real(self, maker)
        return base.Stored(x.q, y.scale, x.zero), base.Stored(y.q, x.scale, y.zero)

    monkeypatch.setattr(base.Form, "both", swapped)


def _count_forgotten(monkeypatch):
    monkeypatch.setattr(sums, "prod", lambda sizes: 1)


def _padding_counted(monkeypatch):
    real = sums._counts
    monkeypatch.setattr(
        sums, "_counts", lambda pool: np.full_like(real(pool), np.prod(pool.window))
    )


def _operands_turned(monkeypatch):
    real = sums._added
    monkeypatch.setattr(
        sums, "_added", lambda form, maker, terms, unit: real(form, maker, [terms[0]] * 2, unit)
    )


def _table_shifted(monkeypatch):
    real = Builder.constant

    def rolled(self, array, *more, **options):
        array = np.asarray(array)
        return real(self, np.roll(array, 8) if array.shape == (256,) else array, *more, **options)

    monkeypatch.setattr(Builder, "constant", rolled)


def _exponent_off_by_one(monkeypatch):
    real = rows.fixed_point

    def off(factor):
        made = real(factor)
        return made and (made[0], made[1] - 1)

    monkeypatch.setattr(rows, "fixed_point", off)


def _mask_forgotten(monkeypatch):
    real = rows._visible

    def all_of_it(form, *a):
        q, seen = real(form, *a)
        return q, form.b.or_(seen, form.b.not_(seen))

    monkeypatch.setattr(rows, "_visible", all_of_it)


def _mean_kept(monkeypatch):
    _options_of(monkeypatch, "core.integer_normalize", centre=False)


def _zero_of_the_range(monkeypatch):
    def stored(b, value, chosen):
        scale, zero = b.constant(np.float32(chosen.scale)), b.constant(chosen.zero, chosen.dtype)
        q = b.quantize(value, scale, zero, dtype=chosen.dtype)
        return b.dequantize(q, scale, b.constant(min(127, chosen.zero + 20), chosen.dtype))

    monkeypatch.setattr(insert_quantization, "_stored", stored)


FAULTS = {
    "zero point forgotten": (_zero_forgotten, "residual", "integerize"),
    "shift off by one": (_shift_off_by_one, "residual", "integerize"),
    "zero point of the result dropped": (_output_zero_dropped, "residual", "integerize"),
    "saturation dropped": (_saturation_dropped, "residual", "integerize"),
    "limits of relu6 forgotten": (_limits_forgotten, "residual", None),
    "bias forgotten": (_bias_forgotten, "residual", "integerize"),
    "scale of the other operand": (_scale_of_the_other, "residual", "integerize"),
    "a mean's count forgotten": (_count_forgotten, "residual", "integerize"),
    "padding counted in a mean": (_padding_counted, "windows", "integerize"),
    "table shifted": (_table_shifted, "residual", "integerize"),
    "constant of a sum forgotten": (_operands_turned, "decoder", "integerize"),
    "factor of the scores forgotten": (_factor_forgotten, "decoder", "integerize"),
    "exponent's shift off by one": (_exponent_off_by_one, "decoder", "integerize"),
    "mask forgotten": (_mask_forgotten, "decoder", "integerize"),
    "mean not subtracted": (_mean_kept, "decoder", "integerize"),
    "zero point of the way back": (_zero_of_the_range, "residual", "insert_quantization"),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_planted_faults_are_named(name, monkeypatch):
    plant, model, where = FAULTS[name]
    plant(monkeypatch)
    made, _, _ = compiled(model)
    if where is None:  # saturation of the range does what the limit did: nothing to find
        assert made.finding is None
        return
    assert made.finding is not None and made.finding.pass_label == where
