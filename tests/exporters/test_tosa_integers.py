"""TOSA's integer profile against Arm's reference model: the same bits, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest

from core_compiler.ir import Block, Function, Module, Value, WeightStore, dtype, tensor
from core_compiler.ops import Builder, evaluate_block, typed
from core_compiler.support.errors import UserError
from tests.exporters.iree import text_of
from tests.exporters.tosa_reference import needs_tosa, run

KINDS = ("i8", "ui8", "i16", "i32")
#: The most tensors of a concatenation in TOSA's level 8K.
LIST = 64


def drawn(rng: np.random.Generator, shape: Sequence[int], kind: str) -> np.ndarray:
    """Integers of the whole range, with its ends and the numbers about 0 among them."""
    limits = np.iinfo(dtype(kind).numpy)
    made = rng.integers(limits.min, limits.max, shape, endpoint=True)
    small = rng.integers(-3, 3, shape, endpoint=True).clip(limits.min)
    ends = rng.choice([limits.min, limits.min + 1, limits.max - 1, limits.max], shape)
    which = rng.integers(0, 4, shape)
    made = np.where(which == 0, small, np.where(which == 1, ends, made))
    return made.astype(dtype(kind).numpy)


def program(arrays: Sequence[np.ndarray], body: Callable) -> Module:
    """A function of arguments like the arrays; ``body(builder, *values)`` returns its results."""
    arguments = tuple(Value(tensor(a.shape, dtype(a.dtype))) for a in arrays)
    weights = WeightStore()
    builder = Builder(weights)
    made = body(builder, *arguments)
    outputs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    block = Block(arguments, tuple(builder.ops), outputs)
    return Module({"main": Function("main", block)}, weights)


def text(module: Module) -> str:
    return text_of(module, "tosa", integer_only=True)


def differing(
    module: Module, arrays: Sequence[np.ndarray], folder, extensions: str = ""
) -> list[int]:
    """The numbers of the results in which the reference model differs from our reference."""
    wanted = evaluate_block(module.main.body, list(arrays), module.weights)
    found = run(text(module), arrays, folder, extensions)
    return [
        place
        for place, (g, w) in enumerate(zip(found, wanted, strict=True))
        if g.shape != w.shape or g.tobytes() != w.tobytes()
    ]


def joined(b: Builder, values: Sequence[Value]) -> list[Value]:
    """Rows of one dtype concatenated, as many as TOSA allows."""
    by_kind: dict[str, list[Value]] = {}
    for value in values:
        row = b.reshape(value, shape=(value.type.elements,))
        by_kind.setdefault(value.type.dtype.name, []).append(row)
    return [
        b.concat(*rows[start : start + LIST], axis=0)
        for rows in by_kind.values()
        for start in range(0, len(rows), LIST)
    ]


# -- rescales --------------------------------------------------------------------------------------


def factors(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Multipliers of all sizes, and shifts."""
    bits = rng.integers(1, 31, count, endpoint=True)
    multiplier = rng.integers(0, (np.int64(1) << bits) - 1, endpoint=True)
    ends = rng.choice([0, 1, 1 << 30, (1 << 31) - 1], count)
    multiplier = np.where(rng.integers(0, 8, count) == 0, ends, multiplier)
    return multiplier.astype(np.int32), rng.integers(2, 62, count, endpoint=True).astype(np.int8)


def a_rescale(rng: np.random.Generator, source: str, made: str) -> Callable:
    """A rescale of an array of 4 x 8, along an axis or not."""
    axis = rng.choice([None, 0, 1])
    multiplier, shift = factors(rng, 1 if axis is None else (4, 8)[axis])
    if axis is None:
        multiplier, shift = multiplier.reshape(()), shift.reshape(())
    zeros = [int(drawn(rng, (), kind)) if dtype(kind).bits == 8 else 0 for kind in (source, made)]
    double = bool(rng.integers(0, 2))

    def emit(b: Builder, x: Value) -> Value:
        held = b.constant(multiplier), b.constant(shift)
        options = {"input_zero": zeros[0], "output_zero": zeros[1], "double_round": double}
        return b.rescale(x, *held, dtype=made, axis=None if axis is None else int(axis), **options)

    return emit


def supported(x: np.ndarray, emit: Callable) -> bool:
    """Whether a rescale can be exported: not where results may be near the ends of i32, or where
    the factors of some channels, which are rounded once, are too large beside those rounded twice.
    """
    module = program([x], emit)
    op = typed.Rescale.of(module.main.body.ops[-1])
    mixed = op.double_round and op.axis is not None and x.dtype == np.int32
    if not mixed and op.dtype.name != "i32":
        return True
    try:
        text(module)
    except UserError as problem:
        found = problem.what
    else:
        return True
    if "whose results may exceed" in found:
        ends = [np.full_like(x, end) for end in (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)]
        made = [evaluate_block(module.main.body, [end])[0] for end in ends]
        largest = max(np.abs(a.astype(np.int64)).max() for a in made)
        assert mixed or largest >= (1 << 29) - 1
        return False
    raise AssertionError(found)


@needs_tosa
def test_rescales_have_the_same_bits(tmp_path):
    rng = np.random.default_rng(2000)
    arrays = [drawn(rng, (4, 8), kind) for kind in KINDS]
    chosen: list[tuple[int, Callable]] = []
    refused = 0
    # Each has 1, 4 or 8 factors: 2,000 and more in all.
    for source, made in product(range(len(KINDS)), KINDS):
        for _ in range(40):
            emit = a_rescale(rng, KINDS[source], made)
            if supported(arrays[source], emit):
                chosen.append((source, emit))
            else:
                refused += 1
    assert len(chosen) >= 500 and refused > 0

    def body(b, *values):
        return joined(b, [emit(b, values[source]) for source, emit in chosen])

    assert differing(program(arrays, body), arrays, tmp_path, "doubleround,int16") == []


# -- tables ----------------------------------------------------------------------------------------


@needs_tosa
def test_tables_have_the_same_bits(tmp_path):
    rng = np.random.default_rng(256)
    every = [np.arange(-128, 128, dtype=np.int8), np.arange(256, dtype=np.uint8)]
    every.append(np.arange(-(1 << 15), 1 << 15, dtype=np.int16))
    entries = [drawn(rng, (256,), kind) for kind in ("i8", "i8", "ui8")]
    wide = [np.sort(drawn(rng, (513,), "i16") // 2), drawn(rng, (513,), "i16") // 2]

    def body(b, signed, unsigned, words):
        bytes_ = [b.table(x, b.constant(e)) for x in (signed, unsigned) for e in entries]
        return [*bytes_, *(b.table(words, b.constant(e)) for e in wide)]

    assert differing(program(every, body), every, tmp_path, "int16") == []


def test_a_table_that_is_too_steep_is_refused():
    """TOSA interpolates between entries that differ by 16 bits."""
    x = np.zeros(4, np.int16)
    steep = np.zeros(513, np.int16)
    steep[1:] = 1
    assert '"tosa.table"' in text(program([x], lambda b, x: b.table(x, b.constant(steep))))
    steep[7:9] = -(1 << 15), (1 << 15) - 1
    with pytest.raises(UserError, match="a table whose entries differ"):
        text(program([x], lambda b, x: b.table(x, b.constant(steep))))


# -- products --------------------------------------------------------------------------------------


def centred(b: Builder, x: Value, zero: int) -> Value:
    """Bytes less their zero point, in i32."""
    wide = b.cast(x, dtype="i32")
    return b.sub(wide, b.scalar_like(zero, wide)) if zero else wide


def biased(b: Builder, made: Value, rng: np.random.Generator, axis: int) -> Value:
    shape = [made.type.shape[axis] if a == axis else 1 for a in range(made.type.rank)]
    bias = b.constant(rng.integers(-(1 << 20), 1 << 20, shape).astype(np.int32))
    return b.add(made, b.expand(bias, made.type.shape))


def windows(*rows: tuple[int, ...], groups: int = 1) -> dict:
    """Strides, padding before and after, and dilations of a convolution."""
    return {
        **dict(zip(("strides", "low", "high", "dilations"), rows, strict=True)),
        "groups": groups,
    }


#: Shapes of images and weights, and how they are convolved.
CONVOLUTIONS = [
    ((2, 3, 7, 6), (4, 3, 3, 3), windows((1, 1), (1, 1), (1, 1), (1, 1))),
    ((1, 3, 9, 8), (4, 3, 3, 2), windows((2, 3), (1, 0), (0, 2), (1, 1))),
    ((1, 3, 9, 9), (4, 3, 3, 3), windows((2, 1), (2, 1), (1, 3), (2, 3))),
    ((1, 3, 8, 8), (4, 3, 2, 2), windows((3, 3), (-1, 0), (0, -2), (1, 1))),
    ((1, 8, 4, 4), (5, 8, 1, 1), windows((2, 2), (0, 0), (0, 0), (1, 1))),
    ((1, 4, 6, 6), (4, 1, 3, 3), windows((1, 2), (1, 1), (1, 1), (1, 1), groups=4)),
    ((2, 4, 6, 6), (12, 1, 3, 3), windows((1, 1), (1, 1), (0, 1), (2, 1), groups=4)),
    ((1, 6, 5, 5), (4, 3, 3, 3), windows((1, 1), (1, 1), (1, 1), (1, 1), groups=2)),
    ((2, 3, 9), (4, 3, 3), windows((2,), (1,), (1,), (1,))),
    ((1, 4, 9), (8, 1, 3), windows((1,), (1,), (2,), (1,), groups=4)),
    ((1, 2, 4, 5, 4), (3, 2, 2, 2, 3), windows((1, 2, 1), (1, 0, 1), (0, 1, 1), (1, 1, 1))),
]
#: Dtypes of both operands and their zero points.
ZEROS = [
    ("i8", -128, "i8", 0),
    ("i8", 127, "i8", -5),
    ("ui8", 128, "i8", 0),
    ("ui8", 0, "ui8", 255),
]


@needs_tosa
def test_convolutions_have_the_same_bits(tmp_path):
    rng = np.random.default_rng(7)
    cases = [(c, ZEROS[place % len(ZEROS)]) for place, c in enumerate(CONVOLUTIONS * 2)]
    cases += [(CONVOLUTIONS[place], zeros) for place in (2, 6, 7) for zeros in ZEROS]
    arrays = [drawn(rng, image, zeros[0]) for (image, _, _), zeros in cases]

    def body(b, *images):
        made = []
        for place, x in enumerate(images):
            (_, window, options), (_, zero, kind, zero_w) = cases[place]
            w = b.constant(drawn(rng, window, kind))
            y = b.conv(centred(b, x, zero), centred(b, w, zero_w), **options)
            made.append(biased(b, y, rng, 1) if place % 3 else y)
        return made

    module = program(arrays, body)
    assert differing(module, arrays, tmp_path) == []
    written = text(module)
    assert '"tosa.depthwise_conv2d"' in written and '"tosa.conv3d"' in written
    assert '"tosa.mul"' not in written  # none by its taps


@needs_tosa
def test_matrix_products_have_the_same_bits(tmp_path):
    rng = np.random.default_rng(8)
    arrays = [drawn(rng, (3, 5, 4), "i8"), drawn(rng, (3, 4, 6), "ui8"), drawn(rng, (5, 9), "i8")]

    def body(b, x, y, rows):
        w = b.constant(drawn(rng, (9, 7), "i8"))
        whole = b.matmul(centred(b, rows, -128), centred(b, w, 0))
        return [
            b.matmul(centred(b, x, 3), centred(b, y, 200)),
            b.matmul(centred(b, x, 0), centred(b, y, 0)),
            whole,
            biased(b, whole, rng, 1),
            biased(b, b.matmul(centred(b, rows, 5), centred(b, w, 9)), rng, 1),
        ]

    module = program(arrays, body)
    assert differing(module, arrays, tmp_path) == []
    assert '"tosa.add"' not in text(module)  # both biases are those of convolutions


@needs_tosa
def test_transposed_convolutions_have_the_same_bits(tmp_path):
    rng = np.random.default_rng(9)
    x = drawn(rng, (1, 3, 4, 5), "i8")

    def body(b, x):
        w = b.constant(drawn(rng, (3, 4, 3, 2), "i8"))
        options = {**windows((2, 1), (1, 0), (1, 1), (1, 1)), "output_padding": (1, 0)}
        return biased(b, b.conv_transpose(centred(b, x, -7), centred(b, w, 0), **options), rng, 1)

    module = program([x], body)
    assert differing(module, [x], tmp_path) == []
    assert '"tosa.transpose_conv2d"' in text(module)


def test_zero_points_that_tosa_does_not_have_stay_in_the_product():
    """Zero points that are no bytes, or of each channel: integers of 32 bits, by taps."""
    rng = np.random.default_rng(10)
    x, w = drawn(rng, (1, 3, 5, 5), "i8"), drawn(rng, (4, 3, 3, 3), "i8")

    def far(b, x):
        return b.conv(centred(b, x, 300), centred(b, b.constant(w), 0), **CONVOLUTIONS[0][2])

    def each(b, x):
        held = b.constant(np.arange(4, dtype=np.int32))
        wide = b.cast(b.constant(w), dtype="i32")
        zeros = b.broadcast(held, shape=w.shape, dims=(0,))
        return b.conv(centred(b, x, 3), b.sub(wide, zeros), **CONVOLUTIONS[0][2])

    for body in (far, each):
        assert '"tosa.conv2d"' not in text(program([x], body))


# -- everything else -------------------------------------------------------------------------------


@needs_tosa
def test_other_ops_have_the_same_bits(tmp_path):
    rng = np.random.default_rng(11)
    small = (-(1 << 14), 1 << 14)
    arrays = [
        *(rng.integers(*small, (2, 3, 4, 5)).astype(np.int32) for _ in range(2)),
        *(drawn(rng, (2, 3, 6, 7), "i8") for _ in range(2)),
        drawn(rng, (2, 3, 6, 7), "i16"),
    ]

    def body(b, x, y, p, q, word):
        window = {"window": (3, 2), "strides": (2, 1), "low": (1, 0), "high": (1, 1)}
        whole = b.cast(p, dtype="i32")
        return [
            *(b.add(x, y), b.sub(x, y), b.mul(x, y), b.max(x, y), b.min(x, y), b.neg(x), b.abs(x)),
            *(b.reduce_sum(x, axes=axes) for axes in ((2, 3), (1,), (0, 3), (0, 1, 2, 3))),
            *(b.clamp(v, low=-100, high=77) for v in (p, word)),
            b.clamp(p, low=5),
            *(b.max_pool(v, **window, dilations=(1, 1)) for v in (p, b.bitcast(p, dtype="ui8"))),
            *(b.concat(p, q, axis=axis) for axis in (0, 1, 3)),
            b.slice(p, starts=(0, 1, 1, 0), limits=(2, 3, 6, 7), strides=(1, 1, 2, 3)),
            b.transpose(p, permutation=(3, 0, 2, 1)),
            b.reshape(p, shape=(6, 42)),
            b.pad(p, b.constant(-7, "i8"), low=(0, 1, 0, 2), high=(1, 0, 0, 1), interior=(0,) * 4),
            b.reverse(p, axes=(1, 3)),
            b.sub(whole, b.scalar_like(-128, whole)),
            *(b.max(p, q), b.min(p, q), b.and_(p, q), b.xor(p, q)),
        ]

    assert differing(program(arrays, body), arrays, tmp_path, "int16") == []


# -- transposes that are moved ---------------------------------------------------------------------


def _any_op(rng: np.random.Generator, b: Builder, x: Value) -> Value:
    """An op on integers of i32 of rank 4, many of which a transpose moves through."""
    shape, axis = x.type.shape, int(rng.integers(4))
    which = rng.integers(10)
    if which < 3:
        return b.transpose(x, permutation=tuple(map(int, rng.permutation(4))))
    if which == 3:
        row = rng.integers(-9, 9, [shape[a] if a == axis else 1 for a in range(4)])
        return b.add(x, b.expand(b.constant(row.astype(np.int32)), shape))
    if which == 4:
        return b.sub(
            x, b.transpose(b.transpose(x, permutation=(0, 2, 3, 1)), permutation=(0, 3, 1, 2))
        )
    if which == 5:
        return b.concat(x, b.neg(x), axis=axis) if shape[axis] < 7 else b.neg(x)
    if which == 6:
        low, high = rng.integers(0, 2, 4), rng.integers(0, 2, 4)
        edges = {"low": tuple(map(int, low)), "high": tuple(map(int, high)), "interior": (0,) * 4}
        return b.pad(x, b.constant(3, "i32"), **edges)
    if which == 7:
        starts = [int(rng.integers(0, max(1, n - 1))) for n in shape]
        return b.slice(x, starts=tuple(starts), limits=shape, strides=(1,) * 4)
    if which == 8:
        summed = b.reduce_sum(x, axes=(axis,))
        kept = [n for a, n in enumerate(shape) if a != axis]
        return b.reshape(summed, shape=(*kept, 1))
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, shape[axis]).astype(np.int32)
    shift = rng.integers(32, 35, shape[axis]).astype(np.int8)
    return b.rescale(x, b.constant(multiplier), b.constant(shift), dtype="i32", axis=axis)


@needs_tosa
@pytest.mark.parametrize("seed", range(4))
def test_ops_between_transposes_have_the_same_bits(seed, tmp_path):
    rng = np.random.default_rng(seed)
    x = rng.integers(-99, 99, (2, 3, 4, 5)).astype(np.int32)

    def body(b, x):
        made = []
        for _ in range(25):
            value, seen = x, []
            for _ in range(8):
                value = _any_op(rng, b, value)
                seen.append(value)
            made += [value, seen[int(rng.integers(len(seen)))]]
        return [b.add(v, b.scalar_like(place, v)) for place, v in enumerate(made)]

    assert differing(program([x], body), [x], tmp_path) == []


def test_transposes_around_convolutions_cancel():
    """Only those at the model's ends are left."""
    rng = np.random.default_rng(12)
    x = drawn(rng, (1, 4, 6, 6), "i8")

    def body(b, x):
        skip = None
        for _ in range(3):
            w = b.constant(drawn(rng, (4, 4, 3, 3), "i8"))
            options = windows((1, 1), (1, 1), (1, 1), (1, 1))
            y = biased(b, b.conv(centred(b, x, 3), centred(b, w, 0), **options), rng, 1)
            multiplier = b.constant(np.full(4, 1 << 30, np.int32))
            shift = b.constant(np.arange(35, 39, dtype=np.int8))
            y = b.rescale(y, multiplier, shift, dtype="i8", axis=1)
            skip = x = b.clamp(y if skip is None else b.max(y, skip), low=-100)
        return x

    found = text(program([x], body))
    assert found.count('"tosa.transpose"') == 2 and found.count('"tosa.conv2d"') == 3
