"""Drawn attributes, shapes and corner values: onnxruntime computes what our reference does."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from core_compiler.driver.compilation import Options, start
from core_compiler.exporters.onnx import OLDEST, OPSET
from core_compiler.ir import Block, Function, Module, Value, WeightStore, dtype, tensor
from core_compiler.ops import Builder, TypeRuleError
from tests.examples import examples
from tests.exporters.onnx_runs import agrees, exported
from tests.passes.programs import inputs, programs

DIVIDING = ("div", "rem", "mod", "pow", "shl", "shr")
BINARY = (*DIVIDING, "add", "sub", "mul", "max", "min", "and", "or", "xor", "lt", "eq")
INTEGERS = ("i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64")
OPSETS = st.sampled_from((OLDEST, 18, 20, 21, 22, 23, 24, OPSET))
FEW = settings(max_examples=examples(40))

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
FULL = st.lists(st.integers(1, 4), max_size=4).map(tuple)
SEEDS = st.integers(0, 1 << 30)


def module_of(build: Callable, *arrays: np.ndarray) -> Module:
    """The module whose main is ``build(builder, *values)`` for arrays of these types."""
    arguments = tuple(Value(tensor(a.shape, a.dtype)) for a in arrays)
    builder = Builder(WeightStore())
    made = build(builder, *arguments)
    outputs = (made,) if isinstance(made, Value) else tuple(made)
    body = Block(arguments, tuple(builder.ops), outputs)
    return Module({"main": Function("main", body)}, builder.weights)


def same(build: Callable, *arrays: np.ndarray, opset: int = OPSET) -> None:
    agrees(module_of(build, *arrays), arrays, opset)


def whole(name: str, shape, seed: int, low: int | None = None, high: int | None = None):
    """Integers: over all of the dtype, small ones, and its ends; or from ``low`` to ``high``."""
    kind, random = dtype(name).numpy, np.random.default_rng(seed)
    limits = np.iinfo(kind)
    if low is not None:
        return random.integers(max(low, limits.min), high, shape, kind, endpoint=True)
    everywhere = random.integers(limits.min, limits.max, shape, kind, endpoint=True)
    small = random.integers(max(limits.min, -3), 70, shape).astype(kind)
    ends = random.choice(np.array([limits.min, limits.max, 0, 1, 2], kind), shape)
    choice = random.integers(0, 3, shape)
    return np.where(choice == 0, everywhere, np.where(choice == 1, small, ends)).astype(kind)


def few(shape, seed: int, *numbers: float) -> np.ndarray:
    """f32 of these numbers."""
    random = np.random.default_rng(seed)
    return random.choice(np.array(numbers, np.float32), shape).astype(np.float32)


# -- integers and casts ----------------------------------------------------------------------------


@FEW
@given(st.sampled_from(BINARY), st.sampled_from(INTEGERS), SEEDS, OPSETS)
@example("rem", "i64", 0, OLDEST)
@example("shr", "i8", 0, OLDEST)
@example("pow", "ui64", 0, 22)
def test_integers_wrap_and_divide_as_the_contract_says(kind, name, seed, opset):
    if kind in ("and", "or", "xor"):
        opset = max(opset, 18)
    a, b = whole(name, (200,), seed), whole(name, (200,), seed + 1)
    if name == "i64" and kind in ("max", "min"):  # onnxruntime compares these by 32 bits
        a, b = (np.where((v >= 1 << 31) & (v < 1 << 33), 7, v) for v in (a, b))
    same(
        lambda b_, x, y: getattr(b_, kind if kind not in ("and", "or") else f"{kind}_")(x, y),
        a,
        b,
        opset=opset,
    )


@FEW
@given(st.sampled_from(DIVIDING), st.sampled_from(INTEGERS), SEEDS)
def test_constant_operands_need_no_guards_where_they_are_harmless(kind, name, seed):
    constant = whole(name, (), seed)
    same(
        lambda b, x: getattr(b, kind)(x, b.scalar_like(constant.item(), x)),
        whole(name, (50,), seed + 1),
    )


def test_a_constant_exponent_may_have_the_shape_of_the_result():
    same(lambda b, x: b.pow(b.expand(x, (1, 1)), b.constant(np.full((1, 1), 3))), np.array(5))


FLOATS = [
    0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 127.5, 128, 255.9, -129, 65504, 65536,
    2147483520, 2147483648, -2147483648, 4294967296, 9.2e18, -9.3e18, 1.9e19,
]  # fmt: skip


@FEW
@given(st.sampled_from(("f64", "f32", "f16")), st.sampled_from((*INTEGERS, "i1")), OPSETS)
@pytest.mark.slow
def test_floats_saturate_to_integers(source, target, opset):
    with np.errstate(over="ignore"):
        x = np.array(FLOATS).astype(dtype(source).numpy)
    same(lambda b, v: b.cast(v, dtype=target), x, opset=opset)


@FEW
@given(st.sampled_from(INTEGERS), st.sampled_from((*INTEGERS, "f64", "f32", "i1")), SEEDS)
def test_integers_wrap_in_casts(source, target, seed):
    same(lambda b, v: b.cast(v, dtype=target), whole(source, (100,), seed))


# -- reductions, sorts -----------------------------------------------------------------------------


@FEW
@given(
    st.sampled_from(("reduce_sum", "reduce_prod", "reduce_and", "reduce_or")),
    st.sampled_from(INTEGERS),
    st.data(),
    SEEDS,
)
@pytest.mark.slow
def test_reductions_of_integers_wrap(kind, name, data, seed):
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)).map(sorted))
    same(lambda b, x: b.op(f"core.{kind}", (x,), axes=tuple(axes)), whole(name, shape, seed))


CORNERS = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)


@FEW
@given(
    st.sampled_from(("argmax", "argmin", "sort", "argsort", "topk", "reduce_max", "reduce_min")),
    st.booleans(),
    st.data(),
    SEEDS,
    OPSETS,
)
def test_nan_and_signed_zeros_have_their_places(kind, flag, data, seed, opset):
    axis = data.draw(st.integers(0, 2))
    x = few((3, 5, 4), seed, *(CORNERS if data.draw(st.booleans()) else CORNERS[:4]))
    options = {
        "argmax": {"axis": axis},
        "argmin": {"axis": axis},
        "sort": {"axis": axis, "descending": flag},
        "argsort": {"axis": axis, "descending": flag},
        "topk": {"axis": axis, "k": 2, "largest": flag},
        "reduce_max": {"axes": (axis,)},
        "reduce_min": {"axes": (axis,)},
    }[kind]
    same(lambda b, v: b.op(f"core.{kind}", (v,), **options), x, opset=opset)


@FEW
@given(
    st.sampled_from(("cumsum", "cumprod", "cummax", "cummin")),
    st.booleans(),
    st.booleans(),
    st.sampled_from((*INTEGERS[:7], "f32")),
    SEEDS,
    st.sampled_from((OLDEST, OPSET)),
)
def test_scans(kind, reverse, exclusive, name, seed, opset):
    x = few((2, 6, 2), seed, *CORNERS) if name == "f32" else whole(name, (2, 6, 2), seed, -9, 99)
    same(
        lambda b, v: b.op(f"core.{kind}", (v,), axis=1, reverse=reverse, exclusive=exclusive),
        x,
        opset=opset,
    )


# -- movement --------------------------------------------------------------------------------------


@FEW
@given(st.data(), SHAPES, st.sampled_from(("f32", "i64", "i1", "ui8")), OPSETS)
def test_pads_crop_and_part(data, shape, name, opset):
    def draw(low: int, high: int) -> list[int]:
        return [data.draw(st.integers(low, high)) for _ in shape]

    x = whole("i64", shape, 1, 0, 1).astype(dtype(name).numpy)
    options = {"low": draw(-4, 4), "high": draw(-4, 4), "interior": draw(0, 2)}
    try:
        module = module_of(lambda b, v: b.pad(v, b.constant(1, name), **options), x)
    except TypeRuleError:  # cropped to less than nothing
        assume(False)
    agrees(module, [x], opset)


@FEW
@given(st.data(), SHAPES, st.sampled_from(INTEGERS), SEEDS)
def test_boxes_at_run_time_places_are_clamped(data, shape, name, seed):
    sizes = tuple(data.draw(st.integers(0, n)) for n in shape)
    x = whole("i32", shape, seed)
    starts = [whole(name, (), seed + i) for i in range(len(shape))]
    same(lambda b, v, *s: b.dynamic_slice(v, *s, sizes=sizes), x, *starts)
    same(
        lambda b, v, u, *s: b.dynamic_update_slice(v, u, *s),
        x,
        whole("i32", sizes, seed + 9),
        *starts,
    )


def positions(name: str, shape, seed: int) -> np.ndarray:
    """Places on small axes, some out of range."""
    near = whole(name, shape, seed, -2, 5)
    far = np.random.default_rng(seed).integers(0, 4, shape) == 0
    return np.where(far, whole(name, shape, seed), near).astype(near.dtype)


@FEW
@given(st.data(), FULL.filter(len), st.sampled_from(INTEGERS), SEEDS)
def test_gathers_clamp(data, shape, name, seed):
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = whole("i32", shape, seed)
    rows = positions(name, tuple(data.draw(FULL))[:2], seed)
    same(lambda b, v, i: b.take(v, i, axis=axis), x, rows)
    box = [data.draw(st.integers(1, n)) for n in shape]
    box[axis] = data.draw(st.integers(1, 5))
    same(lambda b, v, i: b.take_along(v, i, axis=axis), x, positions(name, box, seed))
    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(0, len(shape) - batch))
    places = positions(name, (*shape[:batch], 3, depth), seed)
    same(lambda b, v, i: b.gather_nd(v, i, batch_dims=batch), x, places)


def test_exclusive_extremes_are_no_places():
    """They begin with the lowest number, or the greatest."""
    for kind in ("cummax", "cummin"):
        same(
            lambda b, x, k=kind: b.take(
                x, b.op(f"core.{k}", (b.argsort(x, axis=0),), axis=0, exclusive=True), axis=0
            ),
            few((5,), 1, 3.0, 1.0, 2.0),
        )


@FEW
@given(
    st.data(),
    FULL.filter(len),
    st.sampled_from(INTEGERS),
    SEEDS,
    st.sampled_from(("set", "add", "mul", "max", "min")),
    st.sampled_from((18, OPSET)),
)
def test_scatters_drop(data, shape, name, seed, mode, opset):
    axis = data.draw(st.integers(0, len(shape) - 1))
    numbers = (-2.0, 0.5, 3.0, np.nan) if mode in ("max", "min") else (-2.0, 1.0, 2.0)
    x = few(shape, seed, *numbers)
    box = [data.draw(st.integers(1, n)) for n in shape]
    box[axis] = data.draw(st.integers(1, 5))
    same(
        lambda b, v, i, u: b.scatter_along(v, i, u, axis=axis, mode=mode),
        x,
        positions(name, box, seed),
        few(box, seed + 1, *numbers),
        opset=opset,
    )
    depth = data.draw(st.integers(0, len(shape)))
    same(
        lambda b, v, i, u: b.scatter_nd(v, i, u, mode=mode),
        x,
        positions(name, (3, depth), seed),
        few((3, *shape[depth:]), seed + 2, *numbers),
        opset=opset,
    )


@FEW
@given(st.data(), FULL, SEEDS)
def test_broadcasts_wherever_they_are_read(data, shape, seed):
    """Before ops that broadcast themselves, before those that do not, and as a result."""
    kept = sorted(data.draw(st.sets(st.integers(0, max(len(shape) - 1, 0))))) if shape else []
    inner = tuple(data.draw(st.sampled_from((1, shape[a]))) for a in kept)
    x, y = few(inner, seed, 1.0, 2.0, -3.0), few(shape, seed + 1, 0.5, 4.0)

    def build(b, v, w):
        wide = b.broadcast(v, shape=shape, dims=tuple(kept))
        number = b.scalar_like(0.25, w)
        chosen = b.select(b.lt(wide, w), wide, number)
        again = b.broadcast(wide, shape=(2, *shape), dims=tuple(range(1, len(shape) + 1)))
        return b.add(wide, w), b.mul(wide, wide), b.neg(wide), chosen, again, number

    same(build, x, y)


# -- products and windows --------------------------------------------------------------------------


@st.composite
def contractions(draw):
    """(shapes, attributes) of a contract whose axes lie anyhow."""
    batch, summed = (draw(st.lists(st.integers(1, 3), max_size=2)) for _ in range(2))
    shapes, attributes = [], {}
    for side in "ab":
        free = draw(st.lists(st.integers(1, 3), max_size=2))
        axes = [
            *(("batch", i) for i in range(len(batch))),
            *(("contract", i) for i in range(len(summed))),
            *(("free", i) for i in range(len(free))),
        ]
        order = draw(st.permutations(axes))
        sizes = {"batch": batch, "contract": summed, "free": free}
        shapes.append(tuple(sizes[word][i] for word, i in order))
        for word, held in (("batch", batch), ("contract", summed)):
            attributes[f"{word}_{side}"] = tuple(order.index((word, i)) for i in range(len(held)))
    return shapes, attributes


@FEW
@given(contractions(), st.sampled_from(("f32", "f16", "bf16", "i8", "ui8", "i32", "i64")), SEEDS)
def test_contractions(case, name, seed):
    shapes, attributes = case
    operands = [
        whole("i64", s, seed + i, -9, 9).astype(dtype(name).numpy) for i, s in enumerate(shapes)
    ]
    same(lambda b, x, y: b.contract(x, y, **attributes), *operands)


@st.composite
def windows(draw, least: int):
    """(spatial sizes, window, strides, low, high, dilations)"""
    rank = draw(st.integers(1, 3))

    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    return (sizes(1, 7), sizes(1, 3), sizes(1, 3), sizes(least, 3), sizes(least, 3), sizes(1, 3))


@FEW
@given(windows(0), st.sampled_from(("f32", "i32", "ui8", "i64")), st.booleans(), SEEDS, OPSETS)
def test_pools(case, name, counted, seed, opset):
    spatial, *geometry = case
    x = whole("i64", (2, 2, *spatial), seed, -9, 9).astype(dtype(name).numpy)
    options = dict(zip(("window", "strides", "low", "high", "dilations"), geometry, strict=True))
    try:
        module = module_of(lambda b, v: b.max_pool(v, **options), x)
    except TypeRuleError:  # the window is larger than the image
        assume(False)
    agrees(module, [x], opset)
    if name == "f32":
        same(lambda b, v: b.avg_pool(v, count_padding=counted, **options), x, opset=opset)


@FEW
@given(windows(-2), st.sampled_from(("f32", "i8", "ui8")), st.booleans(), st.data(), SEEDS)
def test_convolutions(case, name, transposed, data, seed):
    spatial, window, strides, low, high, dilations = case
    groups = data.draw(st.integers(1, 2))
    shape = (2 * groups, 3, *window) if transposed else (3 * groups, 2, *window)
    low_end = 0 if name == "ui8" else -9
    x, w = (
        whole("i64", s, seed, low_end, 9).astype(dtype(name).numpy)
        for s in ((2, 2 * groups, *spatial), shape)
    )
    options = {
        "strides": strides,
        "low": low,
        "high": high,
        "dilations": dilations,
        "groups": groups,
    }
    if transposed:
        options["output_padding"] = tuple(
            data.draw(st.integers(0, max(s, d) - 1))
            for s, d in zip(strides, dilations, strict=True)
        )
    kind = "conv_transpose" if transposed else "conv"
    try:
        module = module_of(lambda b, *v: b.op(f"core.{kind}", v, **options), x, w)
    except TypeRuleError:
        assume(False)
    agrees(module, [x, w])


@pytest.mark.parametrize("name", ["f32", "i8", "i64"])
def test_a_convolution_of_no_channels_is_zero(name):
    x, w = np.ones((1, 0, 4), dtype(name).numpy), np.ones((3, 0, 2), dtype(name).numpy)
    options = {"strides": (1,), "low": (0,), "high": (0,), "dilations": (1,)}
    module = module_of(lambda b, v, u: b.conv(v, u, **options), x, w)
    assert [n.op_type for n in exported(module).graph.node if n.op_type.startswith("Conv")] == []
    agrees(module, [x, w])


@FEW
@given(
    st.lists(st.integers(1, 2), max_size=4),
    st.tuples(*(st.integers(1, 4) for _ in range(4))),
    st.sampled_from(("none", "bool", "float")),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("nan", "zero")),
    st.data(),
    SEEDS,
    st.sampled_from((OLDEST, 23, 24, OPSET)),
)
def test_attention(lead, sizes, kind, causal, known, empty_rows, data, seed, opset):
    """Any number of batch axes, masks of any shape that broadcasts, known or not, blind rows."""
    queries, keys, width, values = sizes
    random = np.random.default_rng(seed)
    operands = [
        random.standard_normal((*lead, *s)).astype(np.float32)
        for s in ((queries, width), (keys, width), (keys, values))
    ]
    if kind != "none":
        shape = [data.draw(st.sampled_from((1, n))) for n in (*lead, queries, keys)]
        shape = shape[data.draw(st.integers(0, len(shape))) :]
        seen = random.random(shape) < 0.7
        bias = np.where(seen, random.standard_normal(shape), -np.inf).astype(np.float32)
        operands.append(np.asarray(seen if kind == "bool" else bias))
    options = {"causal": causal, "empty_rows": empty_rows}

    def build(b, *v):
        mask = [b.constant(operands[3])] if known and kind != "none" else list(v[3:])
        return b.attention(*v[:3], *mask, **options)

    given = operands[:3] if known else operands
    same(build, *given, opset=opset)


@pytest.mark.parametrize("hidden", [-2.0, -1e9])
@pytest.mark.parametrize("kind", ["causal", "mask", "known mask", "bias"])
def test_attention_hides_by_a_number(kind, hidden):
    """A query that sees no key sees all alike; ONNX's own hides by -infinity."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    seen = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 0]], bool)
    options: dict = {"hidden": hidden, "causal": kind == "causal"}
    mask = {"mask": [seen], "bias": [np.where(seen, x[0, :, :3], -9)]}.get(kind, [])

    def build(b, v, *m):
        return b.attention(v, v, v, *([b.constant(seen)] if kind == "known mask" else m), **options)

    module = module_of(build, x, *mask)
    agrees(module, [x, *mask])
    if kind != "mask" or hidden > -1e4:  # a mask of which nothing is known may hide all of a row
        agrees(module, [x, *mask], guards=False)


def test_attention_that_hides_by_a_very_low_number_is_one_node_where_no_guard_is_asked_for():
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    module = module_of(lambda b, v: b.attention(v, v, v, causal=True, hidden=-1e9), x)
    kinds = [n.op_type for n in exported(module, guards=False).graph.node]
    assert "Attention" in kinds and "Softmax" not in kinds


# -- programs --------------------------------------------------------------------------------------


def last_tensor_stage(module: Module) -> Module:
    """The module before kernels are outlined."""
    made = start(module, "cpu", Options(threads=1))
    while made.next is not None and made.next.label != "outline_kernels":
        made.step()
    return made.module


@settings(max_examples=examples(40))
@given(programs(), st.booleans())
def test_programs_at_the_first_and_the_last_tensor_stage(module, last):
    assume(all(prod(v.type.shape) for v in module.main.arguments))
    arrays = inputs(module)
    agrees(last_tensor_stage(module) if last else module, arrays)
