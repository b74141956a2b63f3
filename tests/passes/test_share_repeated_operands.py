"""Products with a matrix that batches repeat: one product of more rows, bit for bit the same."""

from __future__ import annotations

import numpy as np
import pytest

from core_compiler.ops import evaluate_block
from core_compiler.passes.share_repeated_operands import ShareRepeatedOperands
from tests.passes import specs
from tests.passes.programs import program


def repeated(b, x, times: int):
    """Each matrix of the last batch axis, ``times`` times."""
    *batch, rows, columns = x.type.shape
    rank = x.type.rank
    wide = b.broadcast(
        x,
        shape=(*batch, times, rows, columns),
        dims=(*range(rank - 2), rank - 1, rank),
    )
    return b.reshape(wide, shape=(*batch[:-1], batch[-1] * times, rows, columns))


def turned(b, x):
    rank = x.type.rank
    return b.transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("batch", [(3,), (2, 3), (1, 1)], ids=str)
def test_one_product_has_the_rows_of_all_batches_that_repeat_a_matrix(batch, transposed, dtype):
    times, m, k, n = 4, 2, 5, 7

    def build(b, a, x):
        if transposed:
            return b.matmul(a, turned(b, repeated(b, x, times)))
        return b.matmul(a, repeated(b, x, times))

    lead = (*batch[:-1], batch[-1] * times)
    shapes = (*lead, m, k), (*batch, n, k) if transposed else (*batch, k, n)
    module = program(build, *(f"{'x'.join(map(str, s))}x{dtype}" for s in shapes))
    after, rewrites = specs.apply(ShareRepeatedOperands(), module)
    assert len(rewrites) == 1
    (product,) = (op for op in after.main.body.ops if op.kind == "core.matmul")
    assert product.operands[0].type.shape == (*batch, times * m, k)
    random = np.random.default_rng(0)
    kinds = [v.type.dtype.numpy for v in module.main.arguments]
    arrays = [(9 * random.normal(size=s)).astype(t) for s, t in zip(shapes, kinds, strict=True)]
    before, made = (evaluate_block(m.main.body, arrays)[0] for m in (module, after))
    assert made.tobytes() == before.tobytes()


CASES = {
    "each matrix four times": lambda b, a, x: b.matmul(
        a, b.reshape(b.broadcast(x, shape=(3, 4, 4, 5), dims=(0, 2, 3)), shape=(12, 4, 5))
    ),
    "the repeats are outside": lambda b, a, x: b.matmul(
        a, b.reshape(b.broadcast(x, shape=(4, 3, 4, 5), dims=(1, 2, 3)), shape=(12, 4, 5))
    ),
}


def test_other_repeats_stay():
    made = {}
    for name, build in CASES.items():
        module = program(build, "12x2x4xf32", "3x4x5xf32")
        made[name] = len(specs.apply(ShareRepeatedOperands(), module)[1])
    assert made == {"each matrix four times": 1, "the repeats are outside": 0}
