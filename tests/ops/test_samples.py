"""Every op on real operands against an oracle nobody here wrote."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ir import dtype
from core_compiler.ops import REGISTRY, agrees, cost, decomposed, evaluate, infer_op
from tests.ops.samples import SAMPLES, TOLERANCE, Sample


@pytest.mark.sampled(12)
@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_agrees_with_its_oracle(sample: Sample):
    op = sample.op()
    found = evaluate(op, sample.operands)
    wanted = sample.wanted()
    assert len(found) == len(wanted) == len(op.results)
    for got, want, result in zip(found, wanted, op.results, strict=True):
        assert got.shape == result.type.shape == want.shape
        assert got.dtype == result.type.dtype.numpy
        if sample.exact:
            assert_same(got, want.astype(got.dtype))
        else:
            assert_close(
                got,
                want,
                sample.slack * TOLERANCE[dtype(got.dtype).name]
                if dtype(got.dtype).is_float
                else 0.0,
            )


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal values, signs of zeros and places of NaN."""
    nan = got != got
    np.testing.assert_array_equal(nan, want != want)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    if dtype(got.dtype).is_float:
        signs = (np.signbit(a.astype(np.float64)) for a in (got[~nan], want[~nan]))
        np.testing.assert_array_equal(*signs)


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    """Infinities and NaN in the same places; elsewhere |got - want| <= tolerance * max|want|."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    if finite.any():
        bound = tolerance * np.abs(want[finite]).max()
        assert np.abs(got[finite] - want[finite]).max() <= bound


def test_every_op_has_a_sample():
    assert sorted({s.kind for s in SAMPLES}) == sorted(REGISTRY)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("declared", REGISTRY.values(), ids=lambda d: d.kind)
def test_every_declaration_is_complete(declared):
    assert declared.summary.strip()
    assert all(a.doc for a in declared.attributes.values())
    meanings = (declared.reference, declared.decompose, declared.execute)
    constant = declared.kind == "core.constant"  # evaluate reads it from the weight store
    assert sum(m is not None for m in meanings) == (0 if constant else 1)
    assert declared.flops or declared.decompose or "elementwise" in declared.traits


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_costs_are_counted(kind):
    sample = next(s for s in SAMPLES if s.kind == kind)
    op = sample.op()
    found = cost(op)
    assert found.flops >= 0
    assert found.bytes == sum(v.type.bytes for v in (*dict.fromkeys(op.operands), *op.results))


COMPOSITES = [s for s in SAMPLES if REGISTRY[s.kind].decompose is not None]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sample", COMPOSITES, ids=str)
def test_a_decomposition_has_the_declared_types(sample: Sample):
    op = sample.op()
    block = decomposed(op)
    assert all(map(agrees, (v.type for v in block.outputs), (v.type for v in op.results)))
    for part in block.ops:
        assert all(map(agrees, infer_op(part), (v.type for v in part.results)))
        assert part.kind != op.kind
