"""Loop transformations: any sizes, the same bits; what is not legal is refused with the reason."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.ir import Function
from core_compiler.kernel_ir.builder import KernelBuilder
from core_compiler.kernel_ir.interpreter import interpret
from core_compiler.kernel_ir.ops import access
from core_compiler.kernel_ir.verifier import verify
from core_compiler.kernel_ir.views import For
from core_compiler.scheduling.transforms import (
    Refused,
    carry_division,
    cover,
    double_buffer,
    find_loop,
    fission,
    hoist,
    hold_quotients,
    interchange,
    jam,
    lift,
    mark,
    merge,
    never_empty,
    outline,
    permute_dimensions,
    prefetch_ahead,
    promote,
    round_up,
    share_loads,
    split,
    split_dimension,
    stage,
    transpose_copy,
    unit_loop,
    unroll,
    unroll_by,
    unswitch,
    vectorise,
)
from core_compiler.scheduling.transforms.edit import loops, producers
from tests.examples import examples

SIZE = st.integers(1, 9)


def product(chunk: int = 4, start: float = 0.0) -> Function:
    """c[i, j] = sum over chunks of the sums of a[i, k] * b[k, j]; sums of chunks begin
    at ``start``."""
    kb = KernelBuilder("product")
    a = kb.buffer("a", ("m", "k"), "f32", strides=("k", 1))
    b = kb.buffer("b", ("k", "n"), "f32", strides=("n", 1))
    c = kb.buffer("c", ("m", "n"), "f32", strides=("n", 1))
    m, n, k = (kb.size(s) for s in "mnk")
    zero = kb.number(0.0, "f32")
    with kb.loop("i", 0, m, loop="parallel") as i, kb.loop("j", 0, n, loop="parallel") as j:
        with kb.loop("c", 0, k, chunk, init=[zero]) as (begin, total):
            end = kb.min(kb.add(begin, chunk), k)
            with kb.loop("k", begin, end, init=[kb.number(start, "f32")]) as (p, acc):
                kb.carry(kb.fma(kb.load(a, i, p), kb.load(b, p, j), acc))
            part = kb.results[0]
            kb.carry(kb.select(kb.eq(begin, 0), part, kb.add(total, part)))
        kb.store(kb.results[0], c, i, j)
    return kb.function()


def run(function: Function, m: int, n: int, k: int, functions=None, **more: int) -> bytes:
    verify(function)
    random = np.random.default_rng(m * 100 + n * 10 + k)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    values = {"m": m, "n": n, "k": k, **more}
    sizes = [values[v.name] for v in function.arguments[3:]]
    interpret(function, [a, b, c], sizes, functions=functions or {})
    return c.tobytes()


def scale(text: str = "plain") -> Function:
    """y[r, i] = 2 x[r, i] in different spellings."""
    kb = KernelBuilder("scale")
    step = 2 if text == "strided" else 1
    x = kb.buffer("x", ("r", "n"), "f32", strides=("n", 1))
    y = kb.buffer("y", ("r", "n"), "f32", strides=("n", 1))
    r, n = kb.size("r"), kb.size("n")
    with kb.loop("row", 0, r, loop="parallel") as row:
        upper = kb.min(n, row) if text == "ragged" else n
        with kb.loop("i", 0, upper, loop="sequential" if text == "ordered" else "vector") as i:
            place = kb.floordiv(kb.mul(i, step), step)
            kb.store(kb.mul(kb.load(x, row, place), kb.number(2.0, "f32")), y, row, i)
    return kb.function()


def tiled() -> Function:
    """The product in whole tiles of 4 x 4."""
    f = cover(cover(never_empty(product(), "c"), "i", 4, "ib", "i"), "j", 4, "jb", "j")
    return interchange(f, "i", "jb")


# -- the same bits ---------------------------------------------------------------------------------


@settings(max_examples=examples(25), deadline=None)
@given(m=SIZE, n=SIZE, k=SIZE, rows=SIZE, columns=SIZE)
def test_tiling_keeps_the_bits(m, n, k, rows, columns):
    f = split(split(product(), "i", rows, "ib", "i"), "j", columns, "jb", "j")
    f = interchange(f, "i", "jb")
    assert run(f, m, n, k) == run(product(), m, n, k)


@settings(max_examples=examples(25), deadline=None)
@given(m=SIZE, n=SIZE, k=SIZE, tile=SIZE)
def test_run_time_tiles_keep_the_bits(m, n, k, tile):
    f = split(product(), "i", "mc", "ib", "i")
    assert run(f, m, n, k, mc=tile) == run(product(), m, n, k)


@settings(max_examples=examples(25), deadline=None)
@given(m=SIZE, n=SIZE, k=SIZE, rows=SIZE, columns=SIZE)
def test_whole_tiles_store_only_what_is_there(m, n, k, rows, columns):
    f = cover(cover(product(), "i", rows, "ib", "i"), "j", columns, "jb", "j")
    assert run(interchange(f, "i", "jb"), m, n, k) == run(product(), m, n, k)


@settings(max_examples=examples(25), deadline=None)
@given(m=SIZE, n=SIZE, k=SIZE, groups=st.sampled_from([1, 2, 4]))
def test_a_tiles_layout_does_not_matter(m, n, k, groups):
    """A sum hoisted out of two nests one after the other, in a tile whose dimensions are split."""
    f = hoist(fission(tiled(), ("i", "j"), "c", "total"), "c", ("i", "j"), "select")
    f = hoist(
        fission(split(f, "k", 3, "ks", "kk"), ("i", "j"), "ks", "acc", suffix="_add"),
        "ks",
        ("i", "j"),
    )
    f = hoist(f, "kk", ("i", "j"), "there")
    for loop in [o["name"] for o in loops(f) if o["name"].startswith("j") and o["name"] != "jb"]:
        f = split(f, loop, groups, f"h{loop}", loop)
    for sums in ("acc", "total"):
        f = permute_dimensions(split_dimension(f, sums, 1, groups), sums, (1, 2, 0))
    assert run(f, m, n, k) == run(product(), m, n, k)


@settings(max_examples=examples(25), deadline=None)
@given(m=SIZE, n=SIZE, k=st.integers(0, 9), start=st.sampled_from(["store", "select"]))
def test_hoisting_a_sum_keeps_the_bits(m, n, k, start):
    f = split(split(never_empty(product(), "c"), "i", 2, "ib", "i"), "j", 3, "jb", "j")
    f = interchange(f, "i", "jb")
    f = hoist(fission(f, ("i", "j"), "c", "total"), "c", ("i", "j"), start)
    assert "requires" not in f.attributes
    assert find_loop(f, "c") in find_loop(f, "jb").regions[0].ops
    assert run(f, m, n, k) == run(product(), m, n, k)


def in_slabs(terms: int = 3) -> Function:
    """The tiled product, whose slabs of so many terms (0: one, without a loop) are copied to
    shared memory."""
    f = hoist(fission(tiled(), ("i", "j"), "c", "total"), "c", ("i", "j"), "select")
    if not terms:
        f = hoist(fission(f, ("i", "j"), "k", "acc", suffix="_add"), "k", ("i", "j"), "store")
        return stage(
            stage(f, "a", "k", ("i",), "a_slab", (4,), space="shared"),
            "b",
            "k",
            ("j",),
            "b_slab",
            (4,),
            space="shared",
        )
    f = fission(split(f, "k", 3, "ks", "kk"), ("i", "j"), "ks", "acc", suffix="_add")
    f = hoist(f, "ks", ("i", "j"), "store")
    for operand, along in (("a", "i"), ("b", "j")):
        slab = f"{operand}_slab"
        f = stage(f, operand, "ks", ("kk", along), slab, (3, 4), space="shared")
        f = round_up(f, f"kk_{slab}")
    return f


@settings(max_examples=examples(25), deadline=None)
@given(
    m=SIZE,
    n=SIZE,
    k=st.integers(0, 13),
    asynchronous=st.booleans(),
    terms=st.sampled_from([0, 3]),
)
def test_double_buffers_keep_the_bits(m, n, k, asynchronous, terms):
    """The slab after the last one of a chunk is the first one of the next chunk.  Without slabs
    the inner loop begins where the chunk does."""
    loops_ = ("c", "ks" if terms else "k")
    f = double_buffer(in_slabs(terms), loops_, ("a_slab", "b_slab"), asynchronous)
    halves = [op.result.type.shape for op in f.body.walk() if op.kind == "kernel.alloc"]
    assert halves.count((2, 3, 4) if terms else (2, 4)) == 2
    marks = [op for op in f.body.walk() if op.get("asynchronous")]
    assert len(marks) == (4 if asynchronous else 0)  # of each operand, the first slab and the next
    assert run(f, m, n, k) == run(product(), m, n, k)


@settings(max_examples=examples(25), deadline=None)
@given(h=SIZE, w=SIZE, trips=st.integers(0, 3))
def test_held_quotients_are_those_of_each_iteration(h, w, trips):
    """A row of y: the element of x at (quotient, remainder) of its number by w, the quotient."""
    kb = KernelBuilder("quotients")
    x = kb.buffer("x", ("h", "w"), "f32", strides=("w", 1))
    y = kb.buffer("y", (4, 2), "f32", strides=(2, 1))
    h_, w_, n = kb.size("h"), kb.size("w"), kb.size("n")
    vector = {"loop": "vector"}
    with (
        kb.loop("again", 0, n),
        kb.loop("i", 0, 2, **vector) as i,
        kb.loop("j", 0, 2, **vector) as j,
    ):
        number = kb.add(kb.mul(i, 2), j)
        at = kb.min(number, kb.sub(kb.mul(h_, w_), 1))
        row, column = kb.floordiv(at, w_), kb.mod(at, w_)
        kb.store(kb.load(x, row, column), y, number, 0)
        kb.store(kb.cast(row, "f32"), y, number, 1)
    f = kb.function()
    held = hold_quotients(f, "i", "again")
    inside = [op.kind for op in find_loop(held, "again").walk()]
    assert "kernel.floordiv" not in inside and "kernel.mod" not in inside
    x_ = np.random.default_rng(h * 10 + w).standard_normal((h, w)).astype(np.float32)
    made = []
    for each in (f, held):
        verify(each)
        made.append(np.zeros((4, 2), np.float32))
        interpret(each, [x_, made[-1]], [h, w, trips])
    assert made[0].tobytes() == made[1].tobytes()


@settings(max_examples=examples(25), deadline=None)
@given(m=SIZE, n=SIZE, k=SIZE, factor=st.integers(1, 5))
def test_unrolling_a_sum_keeps_its_order(m, n, k, factor):
    kb = KernelBuilder("sum")
    x = kb.buffer("x", ("n",), "f32", strides=(1,))
    y = kb.buffer("y", (1,), "f32")
    size = kb.size("n")
    with kb.loop("k", 0, size, init=[kb.number(0.0, "f32")]) as (i, acc):
        kb.carry(kb.add(acc, kb.load(x, i)))
    kb.store(kb.results[0], y, 0)
    plain = kb.function()
    data = np.random.default_rng(k).standard_normal(m * n).astype(np.float32)
    results = []
    for f in (plain, unroll_by(plain, "k", factor)):
        verify(f)
        out = np.zeros(1, np.float32)
        interpret(f, [data, out], [data.size])
        results.append(out.tobytes())
    assert results[0] == results[1]


@settings(max_examples=examples(25), deadline=None)
@given(m=SIZE, n=SIZE, k=st.integers(0, 9), chunk=st.integers(1, 4), factor=st.integers(2, 4))
def test_jammed_iterations_keep_the_bits_and_load_once_what_they_share(m, n, k, chunk, factor):
    plain = mark(product(chunk), "j", "vector")
    jammed = jam(plain, "j", factor)
    verify(jammed)
    random = np.random.default_rng(k)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    results = []
    for f in (plain, jammed):
        c = np.zeros((m, n), np.float32)
        interpret(f, [a, b, c], [m, n, k])
        results.append(c.tobytes())
    assert results[0] == results[1]
    (row,) = (op for op in loops(jammed) if For.of(op).name == "j")
    loads = [access(op)[0].name for op in row.walk() if op.kind == "kernel.load"]
    assert loads == ["a", *["b"] * factor]


def test_iterations_that_differ_inside_are_not_jammed():
    with pytest.raises(Refused, match="iterations of k are sequential"):
        jam(product(), "k", 2)
    triangle = KernelBuilder("triangle")
    y = triangle.buffer("y", ("n", "n"), "i64", strides=("n", 1))
    n = triangle.size("n")
    with triangle.loop("i", 0, n, loop="vector") as i, triangle.loop("j", 0, i) as j:
        triangle.store(triangle.cast(j, "i64"), y, i, j)
    with pytest.raises(Refused, match="the bounds of j depend on i"):
        jam(triangle.function(), "i", 2)


@settings(max_examples=examples(25), deadline=None)
@given(r=SIZE, n=st.integers(1, 40), width=st.sampled_from([2, 4, 8]))
def test_vectors_keep_the_bits(r, n, width):
    x = np.random.default_rng(n).standard_normal((r, n)).astype(np.float32)
    y = np.zeros_like(x)
    interpret(vectorise(scale(), "i", width), [x, y], [r, n])
    assert np.array_equal(y, 2 * x)


@settings(max_examples=examples(25), deadline=None)
@given(h=SIZE, w=SIZE)
def test_merged_loops_divide_and_then_count(h, w):
    kb = KernelBuilder("grid")
    y = kb.buffer("y", ("h", "w"), "i64", strides=("w", 1))
    rows, columns = kb.size("h"), kb.size("w")
    with kb.loop("i", 0, rows, loop="vector") as i, kb.loop("j", 0, columns, loop="vector") as j:
        kb.store(kb.cast(kb.add(kb.mul(i, 100), j), "i64"), y, i, j)
    f = mark(split(merge(kb.function(), "i", "j", "p"), "p", 4, "pb", "p"), "p", "sequential")
    counted = carry_division(f, "p")
    assert len(find_loop(counted, "p").operands) == 5  # quotient and remainder are carried
    want = np.arange(h)[:, None] * 100 + np.arange(w)
    for g in (f, counted):
        verify(g)
        got = np.full((h, w), -1, np.int64)
        interpret(g, [got], [h, w])
        assert np.array_equal(got, want)


@settings(max_examples=examples(20), deadline=None)
@given(n=st.integers(1, 8), k=st.integers(1, 11))
def test_transposing_copies_pad_with_zeros(n, k):
    kb = KernelBuilder("copy")
    x = kb.buffer("x", ("n", "k"), "f32", strides=("k", 1))
    y = kb.buffer("y", (16, 8), "f32")
    columns, terms = kb.size("n"), kb.size("k")
    panel = kb.alloc((16, 8), "f32", name="panel")
    with kb.loop("t", 0, terms, loop="vector") as t, kb.loop("j", 0, columns, loop="vector") as j:
        kb.store(kb.load(x, j, t), panel, t, j)
    with kb.loop("out", 0, terms) as t, kb.loop("lane", 0, 8) as j:
        kb.store(kb.load(panel, t, j), y, t, j)
    f = transpose_copy(kb.function(), "t", "j", 4, 8)
    verify(f)
    data = np.random.default_rng(n).standard_normal((n, k)).astype(np.float32)
    got = np.zeros((16, 8), np.float32)
    interpret(f, [data, got], [n, k])
    want = np.zeros((k, 8), np.float32)
    want[:, :n] = data.T
    assert np.array_equal(got[:k], want)


def test_a_register_tile_in_steps():
    """Unroll and jam by hand: hoist the sum out of a tile, unroll it, keep it in values."""
    f = split(split(product(), "i", 2, "ib", "ii"), "j", 4, "jb", "jj")
    f = interchange(f, "ii", "jb")
    f = fission(f, ("ii", "jj"), "c", "total")
    f = hoist(never_empty(f, "c"), "c", ("ii", "jj"))
    f = stage(f, "a", "c", ("ii", ("k",)), "rows", (2, 4))
    for name in ("ii_rows", "ii_init"):
        f = round_up(f, name)
    assert run(f, 5, 7, 9) == run(product(), 5, 7, 9)


def test_outlined_kernels_are_equal_where_they_do_the_same():
    f = split(product(), "i", 2, "ib", "ii")
    caller, core = outline(f, "ii", "rows")
    assert run(caller, 5, 7, 9, {core.name: core}) == run(product(), 5, 7, 9)
    other = split(product(), "i", 3, "ib", "ii")
    assert outline(other, "ii", "rows")[1].name == core.name  # the bound is passed


def test_small_steps_keep_the_bits():
    plain = run(product(), 3, 5, 9)
    for f in (
        lift(product()),
        share_loads(product()),
        never_empty(product(), "c"),
        unit_loop(product(), "j", "one"),
        mark(product(), "j", "sequential"),
    ):
        assert run(f, 3, 5, 9) == plain


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "attempt"),
    [
        ("2 loops named|0 loops named", lambda: split(product(), "nowhere", 2, "a", "b")),
        ("does not step by 1", lambda: split(product(), "c", 2, "a", "b")),
        ("carries values", lambda: interchange(product(), "j", "c")),
        ("depend on row", lambda: interchange(scale("ragged"), "row", "i")),
        ("sequential", lambda: vectorise(scale("ordered"), "i", 4)),
        ("sequential", lambda: mark(scale("ordered"), "i", "vector")),
        ("not constants", lambda: unroll(scale(), "i")),
        ("stores to y", lambda: round_up(scale(), "i", 8)),
        ("not private to a thread", lambda: fission(product(), ("i", "j"), "c", "t")),
        ("k is not directly in j", lambda: hoist(product(), "k", ("i", "j"))),
        ("carries values", lambda: merge(product(), "i", "c", "p")),
        ("no register buffer", lambda: promote(product(), "acc")),
        ("0 branches", lambda: unswitch(scale(), "row")),
        (
            "does not start from the contents of t",
            lambda: hoist(fission(tiled(), ("i", "j"), "c", "t"), "c", ("i", "j"), "there"),
        ),
        ("starts from another value", lambda: never_empty(product(start=-0.0), "c")),
        ("0 private buffers", lambda: split_dimension(product(), "tile", 0, 2)),
        ("no quotients", lambda: hold_quotients(in_slabs(), "i_a_slab", "c")),
        ("not directly in each other", lambda: double_buffer(in_slabs(), ("ib", "ks"), (), True)),
        ("carries values", lambda: double_buffer(product(), ("c",), (), True)),
        (
            "used outside of the loop",
            lambda: double_buffer(in_slabs(), ("c", "ks"), ("a_slab", "total"), True),
        ),
        ("not read at stride one", lambda: vectorise(scale("strided"), "i", 4)),
    ],
)
def test_refusals_say_why(reason, attempt):
    with pytest.raises(Refused, match=reason):
        attempt()


def test_staging_needs_all_loops_that_the_operand_varies_with():
    f = interchange(split(product(), "i", 2, "ib", "ii"), "ii", "j")
    with pytest.raises(Refused, match="also varies"):
        stage(f, "a", "j", (("k",),), "rows", (4,))


def test_a_transformation_leaves_its_input_alone():
    f = product()
    before = [op.kind for op in f.body.walk()]
    split(f, "i", 2, "ib", "i")
    assert [op.kind for op in f.body.walk()] == before


@pytest.mark.parametrize(("along", "axis"), [(False, 0), (True, 1)])
def test_copies_prefetch_what_they_read_next(along, axis):
    """Rows ahead, or elements ahead in the row: an index beyond the end is only a hint."""
    kb = KernelBuilder("copy")
    x, y = (kb.buffer(name, ("m", "n"), "f32", strides=("n", 1)) for name in "xy")
    m, n = kb.size("m"), kb.size("n")
    with kb.loop("i", 0, m, loop="parallel") as i, kb.loop("j", 0, n, loop="vector") as j:
        kb.store(kb.load(x, i, j), y, i, j)
    made = prefetch_ahead(vectorise(kb.function(), "j", 4), 2, along)
    verify(made)
    (hint,) = (op for op in made.body.walk() if op.kind == "kernel.prefetch")
    (load,) = (op for op in made.body.walk() if op.kind == "kernel.load")
    moved = [h is not p for h, p in zip(hint.operands[1:], load.operands[1:], strict=False)]
    assert moved == [axis == 0, axis == 1]
    assert producers(made)[hint.operands[1 + axis]].kind == "kernel.add"
    given = np.arange(15, dtype=np.float32)
    copied = np.zeros(15, np.float32)
    interpret(made, [given, copied], [3, 5])
    assert copied.tobytes() == given.tobytes()
