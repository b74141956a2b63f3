"""Attention as one kernel: the bits of its ops, no scores in memory, and what stays apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.driver import compilation
from core_compiler.ir import Rewriter
from core_compiler.ir.refusal import Refusal
from core_compiler.ir.target import LAUNCH
from core_compiler.ops import evaluate_block
from core_compiler.passes.base import RefusalContext
from core_compiler.passes.chain_kernels import ChainKernels
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.scheduling.schedules import chain, chain_loops
from tests.passes.programs import program

#: Batches, queries, keys, width of keys, width of values.
SHAPES = {
    "heads": ((2, 3), 40, 40, 16, 16),
    "one batch": ((5,), 30, 70, 64, 48),
    "long": ((1, 2), 33, 600, 40, 24),
    "matrices": ((), 61, 45, 20, 33),
    "tiny": ((3,), 2, 3, 1, 1),
}


def _attention(batch, queries, keys, width, out, dtype="f32", mask=None, **attributes):
    shapes = [(*batch, queries, width), (*batch, keys, width), (*batch, keys, out)]
    types = ["x".join([*map(str, s), dtype]) for s in shapes]
    if mask is not None:
        types.append("x".join([*map(str, mask), "i1"]))
    module = program(lambda b, q, k, v, *m: b.attention(q, k, v, *m, **attributes), *types)
    return module, _arrays(module)


def _arrays(module):
    random = np.random.default_rng(3)
    made = []
    for argument in module.main.arguments:
        kind = argument.type.dtype
        drawn = random.normal(size=argument.type.shape)
        made.append(drawn > -0.5 if kind.name == "i1" else (2 * drawn).astype(kind.numpy))
    return made


def _compiled(module, threads=2, skip=(), **target):
    edit = PipelineEdit(skip=skip)
    options = compilation.Options(threads=threads, edit=edit, target=target)
    return compilation.start(module, options=options).finish()


def _launches(compiled):
    return [op for op in compiled.module.main.body.ops if op.kind == LAUNCH]


def _is_chain(compiled):
    (launch,) = _launches(compiled)
    return compiled.module.functions[launch["kernel"]].attributes["family"] == "chain"


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64"])
@pytest.mark.parametrize("name", SHAPES)
def test_bits_and_memory(name, dtype):
    module, arrays = _attention(*SHAPES[name], dtype)
    compiled = _compiled(module)
    if name != "tiny":  # no register tiles
        assert _is_chain(compiled)
        assert compiled.executable.program.arena_bytes == 0
    expected = evaluate_block(module.main.body, arrays)[0]
    assert np.asarray(compiled(*arrays)[0]).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "more",
    [
        {"causal": True},
        {"mask": (1, 1, 40, 40)},
        {"mask": (2, 3, 40, 40), "hidden": -1e9},
        {"mask": (40, 40), "empty_rows": "zero", "scale": 1.0},
        {"mask": (2, 1, 1, 40), "causal": True},
    ],
    ids=str,
)
def test_masks(more):
    module, arrays = _attention(*SHAPES["heads"], **more)
    compiled = _compiled(module)
    expected = evaluate_block(module.main.body, arrays)[0]
    assert np.asarray(compiled(*arrays)[0]).tobytes() == expected.tobytes()
    assert _is_chain(compiled)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_blocks_of_any_size(data):
    """Bits do not depend on the rows of a block, the panels at a time, threads and tiles."""
    sizes = [data.draw(st.integers(1, n)) for n in (3, 50, 80, 40, 40)]
    module, arrays = _attention((sizes[0],), *sizes[1:])
    expected = evaluate_block(module.main.body, arrays)[0].tobytes()
    kept = chain.BLOCK_BYTES, chain.TILES_AT_ONCE
    try:
        chain.BLOCK_BYTES = data.draw(st.sampled_from([1, 1 << 12, 1 << 21]))
        chain.TILES_AT_ONCE = data.draw(st.sampled_from([1, 3, 128]))
        chain.block.cache_clear()
        tiles = data.draw(st.sampled_from(["default", "small"]))
        made = _compiled(module, data.draw(st.integers(1, 3)), tiles=tiles)
        assert np.asarray(made(*arrays)[0]).tobytes() == expected
    finally:
        chain.BLOCK_BYTES, chain.TILES_AT_ONCE = kept
        chain.block.cache_clear()


def test_one_operand_for_several_parts():
    module = program(lambda b, x: b.attention(x, x, x), "2x30x24xf32")
    arrays = _arrays(module)
    compiled = _compiled(module)
    assert _is_chain(compiled)
    expected = evaluate_block(module.main.body, arrays)[0]
    assert np.asarray(compiled(*arrays)[0]).tobytes() == expected.tobytes()


def _softmax_of_products(b, q, k, v, result):
    scores = b.matmul(q, b.transpose(k, permutation=(0, 2, 1)))
    shares = b.softmax(scores, axis=2)
    made = b.matmul(shares, v)
    return {"scores": (made, scores), "shares": (made, shares)}[result]


@pytest.mark.parametrize(("result", "launches"), [("scores", 2), ("shares", 3)])
def test_what_the_caller_receives_is_in_memory(result, launches):
    types = ["2x20x16xf32"] * 3
    module = program(lambda b, *x: _softmax_of_products(b, *x, result), *types)
    arrays = _arrays(module)
    compiled = _compiled(module)
    assert len(_launches(compiled)) == launches  # scores are computed again for attention
    for got, expected in zip(
        compiled(*arrays), evaluate_block(module.main.body, arrays), strict=True
    ):
        assert np.asarray(got).tobytes() == expected.tobytes()


def test_refusals():
    types = ["2x20x16xf32"] * 3
    module = program(lambda b, *x: _softmax_of_products(b, *x, "shares"), *types)
    made = compilation.start(module, options=compilation.Options(threads=1))
    before = next(s.module for s in made.finish().stages if s.name == "schedule_kernels")
    context = RefusalContext(before, Rewriter(before.main.body))
    product, rows, last = (op for op in before.main.body.ops if op.kind == LAUNCH)
    found = [ChainKernels().refusal([op], context) for op in (product, rows, last)]
    assert all(isinstance(refused, Refusal) for refused in found)
    assert [refused.condition for refused in found] == ["one reader", "a product", "a launch"]


def test_an_epilogue_reads_another_chain():
    def layers(b, x, y):
        return b.add(b.attention(x, x, x), b.attention(y, y, y))

    compiled = _compiled(program(layers, "2x30x24xf32", "2x30x24xf32"))
    kernels = [op["kernel"] for op in _launches(compiled)]
    assert len(kernels) == 2  # the second one adds the first one's result


def test_checks_find_a_wrong_row(monkeypatch):
    rows = chain_loops.Joined.run_rows

    def too_few(self, copier, nest, at, loop, start):
        self.count, kept = self.kb.sub(self.count, 1), self.count
        rows(self, copier, nest, at, loop, start)
        self.count = kept

    monkeypatch.setattr(chain_loops.Joiner, "run_rows", too_few)
    module, arrays = _attention(*SHAPES["heads"])
    options = compilation.Options(threads=1, check=True)
    made = compilation.start(module, options=options, inputs=arrays)
    made.finish()
    stage = next(s for s in made.stages if s.name == "chain_kernels")
    failed = [c for c in made.checks[stage.index] if c.verdict == "failed"]
    assert failed
    assert all("between" in c.note or "never written" in c.note for c in failed)


def _shares(b, q, k, axis=1):
    return b.softmax(b.matmul(q, b.transpose(k, permutation=(1, 0))), axis=axis)


def _contracted(b, x, y, of_x, of_y):
    return b.contract(x, y, batch_a=(), batch_b=(), contract_a=(of_x,), contract_b=(of_y,))


#: What is summed of the shares [n, m] of q [n, 8] and k [m, 8], and the shapes of the other factor.
USES = {
    "over the rows (gradient of values)": (
        lambda b, q, k, v: _contracted(b, _shares(b, q, k), v, 0, 0),
        "n",
    ),
    "over the rows, as right operand": (
        lambda b, q, k, v: _contracted(b, v, _shares(b, q, k), 0, 0),
        "n",
    ),
    "over the columns, as right operand": (
        lambda b, q, k, v: _contracted(b, v, _shares(b, q, k), 0, 1),
        "m",
    ),
    "transposed": (
        lambda b, q, k, v: b.matmul(b.transpose(_shares(b, q, k), permutation=(1, 0)), v),
        "n",
    ),
    "of columns": (lambda b, q, k, v: b.matmul(_shares(b, q, k, axis=0), v), "m"),
    "of columns, over the rows": (
        lambda b, q, k, v: _contracted(b, _shares(b, q, k, axis=0), v, 0, 0),
        "n",
    ),
}


def _both(q_over, k_over, batch, v_over, v_batch=((), ())):
    """Contractions of q with k, softmax along the last axis, and of its shares with v."""
    facts = [
        dict(zip(("batch_a", "batch_b", "contract_a", "contract_b"), (*b, *over), strict=True))
        for b, over in ((batch, (q_over, k_over)), (v_batch, v_over))
    ]

    def build(b, q, k, v):
        scores = b.contract(q, k, **facts[0])
        return b.contract(b.softmax(scores, axis=scores.type.rank - 1), v, **facts[1])

    return build


def _assert_same_bits(module, arrays):
    """Of the ops as written; and, where they are recognised as attention, of separate kernels."""
    as_written = _compiled(module, skip=("recompose",))
    expected = evaluate_block(module.main.body, arrays)[0]
    assert np.asarray(as_written(*arrays)[0]).tobytes() == expected.tobytes()
    both = (_compiled(module, skip=skip)(*arrays)[0] for skip in ((), ("chain_kernels",)))
    found, apart = (np.asarray(y).tobytes() for y in both)
    assert found == apart
    return as_written


NONE, FIRST, BOTH = ((), ()), ((0,), (0,)), ((0, 1), (0, 1))
#: Axes that only some operands have, or that the two products use otherwise; all others are equal.
AXES = {
    "an axis of v": (_both((1,), (1,), NONE, ((1,), (1,))), ("", "", "3x")),
    "an axis of k": (_both((1,), (2,), NONE, ((2,), (0,))), ("", "3x", "")),
    "an axis of q": (_both((2,), (1,), NONE, ((2,), (0,))), ("3x", "", "")),
    "an axis of q and v": (_both((2,), (1,), NONE, ((2,), (1,)), FIRST), ("3x", "", "3x")),
    "rows become a batch": (_both((1,), (1,), NONE, ((1,), (1,)), FIRST), ("", "", "40x")),
    "a batch is summed": (_both((2,), (2,), FIRST, ((0, 2), (0, 1))), ("3x", "3x", "3x")),
    "two sums": (_both((1,), (2,), NONE, ((1, 2), (0, 1))), ("", "3x", "3x")),
    "v's batches turned": (
        _both((3,), (3,), BOTH, ((3,), (2,)), ((0, 1), (1, 0))),
        ("3x3x", "3x3x", "3x3x"),
    ),
    "all batches turned": (
        _both((3,), (3,), BOTH, ((3,), (2,)), ((1, 0), (0, 1))),
        ("3x3x", "3x3x", "3x3x"),
    ),
}


@pytest.mark.parametrize("case", AXES)
def test_other_axes_keep_their_bits(case):
    build, (q, k, v) = AXES[case]
    module = program(build, f"{q}40x8xf32", f"{k}40x8xf32", f"{v}40x24xf32")
    arrays = _arrays(module)
    _assert_same_bits(module, arrays)


@pytest.mark.parametrize("sizes", [(40, 40), (300, 37), (37, 300)], ids=str)
@pytest.mark.parametrize("use", USES)
def test_shares_summed_otherwise_have_their_own_kernels(use, sizes):
    """Rows of the last product must be rows of the shares, also where all sizes are equal."""
    build, summed = USES[use]
    n, m = sizes
    width = n if summed == "n" else m
    module = program(build, f"{n}x8xf32", f"{m}x8xf32", f"{width}x24xf32")
    arrays = _arrays(module)
    assert len(_launches(_assert_same_bits(module, arrays))) == 3
