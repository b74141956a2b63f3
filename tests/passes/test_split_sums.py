"""Split sums: the chunks of a long sum side by side on a GPU, the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ops import evaluate_block
from core_compiler.passes.split_sums import SplitSums
from tests.cuda.simulated_target import SimulatedCUDA
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import inputs, program
from tests.slow import slow_but


def product(b, x, w):
    return b.matmul(x, w)


def test_a_long_sum_of_few_blocks_is_split_into_its_chunks():
    before = program(product, "16x1024xf32", "1024x512xf32")
    after, rewrites = specs.apply(SplitSums(), before)
    assert specs.rules_fired(rewrites) == ["the chunks of a sum side by side"]
    specs.check(before, after, rewrites, exact=True)

    def wanted(b, x, w):
        left = b.reshape(x, shape=(16, 4, 256))
        right = b.reshape(w, shape=(4, 256, 512))
        axes = {"batch_a": (1,), "batch_b": (0,), "contract_a": (2,), "contract_b": (1,)}
        sums = b.contract(left, right, **axes, accumulate=x.type.dtype)
        parts = [
            b.reshape(
                b.slice(sums, starts=(n, 0, 0), limits=(n + 1, 16, 512), strides=(1, 1, 1)),
                shape=(16, 512),
            )
            for n in range(4)
        ]
        return b.add(b.add(b.add(parts[0], parts[1]), parts[2]), parts[3])

    specs.assert_same_program(after, program(wanted, "16x1024xf32", "1024x512xf32"))


@pytest.mark.parametrize(
    ("x", "w", "reason"),
    [
        ("16x1000xf32", "1000x512xf32", "adds 1000 products"),
        ("16x256xf32", "256x512xf32", "adds 256 products"),
        ("16x16384xf32", "16384x512xf32", "adds 16384 products"),
        ("4096x1024xf32", "1024x4096xf32", "has 1024"),
        ("1x1024xf32", "1024x512xf32", "multiplies a vector"),
        ("2x16x1024xf32", "2x1024x512xf32", "multiplies"),
        ("16x1024xi32", "1024x512xi32", "multiplies"),
        ("1024x512xf32", "512x512xf32", "too little time"),
    ],
)
def test_others_stay(x, w, reason):
    module = program(product, x, w)
    (op,) = module.main.body.ops
    found = SplitSums().refused(op)
    assert reason in str(found)
    assert specs.apply(SplitSums(), module)[0] is module


#: Sums that only underflow are -0; a sum that started from +0 again would lose the sign.
TINY = [-1e-30, 1e-30, -0.0, 1.0, -1.0, 3e38, np.inf, np.nan]


@settings(max_examples=examples(12), deadline=None)
@given(
    dtype=st.sampled_from(["f32", "bf16", "f16", "f64"]),
    chunks=st.integers(2, 3),
    picks=st.lists(st.integers(0, 7), min_size=1, max_size=9),
)
def test_the_bits_are_those_of_one_launch(dtype, chunks, picks):
    k = 256 * chunks
    module = program(product, f"2x{k}x{dtype}", f"{k}x3x{dtype}")
    after, _ = specs.apply(SplitSums(launch=-(10**9)), module)
    assert after is not module
    kind = module.main.arguments[0].type.dtype.numpy
    x = np.resize(np.array([TINY[i] for i in picks]), (2, k))
    w = np.random.default_rng(len(picks)).choice([1.0, -1.0, 1e-30, 0.5], (k, 3))
    with np.errstate(all="ignore"):
        arrays = [x.astype(kind), w.astype(kind)]
        (wanted,), (made,) = (evaluate_block(m.main.body, arrays) for m in (module, after))
    assert specs.same_bits(made, wanted)


@pytest.mark.parametrize("dtype", slow_but(("bf16",), ("f32", "bf16")))
def test_both_launches_give_the_cpus_bits(dtype):
    module = program(product, f"3x512x{dtype}", f"512x9x{dtype}")
    made = compilation.start(module, SimulatedCUDA(), Options()).finish()
    assert len(made.facts["program"][0].launches) == 2
    on_cpu = compilation.start(module, "cpu", Options()).finish()
    arrays = inputs(module)
    for a, b in zip(made(*arrays), on_cpu(*arrays), strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_sum_that_is_minus_zero_stays_it():
    module = program(product, "2x512xf32", "512x2xf32")
    after, _ = specs.apply(SplitSums(launch=-(10**9)), module)
    x, w = np.full((2, 512), -1e-30, np.float32), np.full((512, 2), 1e-30, np.float32)
    (made,) = evaluate_block(after.main.body, [x, w])
    (wanted,) = evaluate_block(module.main.body, [x, w])
    assert np.signbit(wanted).all() and made.tobytes() == wanted.tobytes()
