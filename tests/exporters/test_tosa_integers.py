"""TOSA's integer profile against Arm's reference model: the same bits, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from core_compiler.ir import Block, Value, dtype, tensor
from core_compiler.ops import Builder, evaluate_block, typed
from core_compiler.support.errors import UserError
from tests.exporters.iree import module_of, text_of
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


def program(arrays: Sequence[np.ndarray], body: Callable) -> Block:
    """A function of arguments like the arrays; ``body(builder, *values)`` returns its results."""
    arguments = tuple(Value(tensor(a.shape, dtype(a.dtype))) for a in arrays)
    builder = Builder()
    made = body(builder, *arguments)
    outputs = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    return Block(arguments, tuple(builder.ops), outputs)


def text(block: Block) -> str:
    return text_of(module_of(block), "tosa", integer_only=True)


def differing(
    block: Block, arrays: Sequence[np.ndarray], folder, extensions: str = ""
) -> list[int]:
    """The numbers of the results in which the reference model differs from our reference."""
    wanted = evaluate_block(block, list(arrays))
    found = run(text(block), arrays, folder, extensions)
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
    block = program([x], emit)
    op = typed.Rescale.of(block.ops[-1])
    mixed = op.double_round and op.axis is not None and x.dtype == np.int32
    if not mixed and op.dtype.name != "i32":
        return True
    try:
        text(block)
    except UserError as problem:
        found = problem.what
    else:
        return True
    if "whose results may exceed" in found:
        ends = [np.full_like(x, end) for end in (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)]
        largest = max(np.abs(evaluate_block(block, [e])[0].astype(np.int64)).max() for e in ends)
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
