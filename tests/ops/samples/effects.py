"""Random numbers against Philox from its paper; ops with regions against plain Python."""

from __future__ import annotations

import math

import numpy as np

from core_compiler.ir import Block, Value, tensor
from core_compiler.ops import Builder
from tests.ops import philox
from tests.ops.samples.base import Sample, sample

SEED = 0x123456789ABCDEF0


def _random() -> list[Sample]:
    made = []
    for shape in ((7,), (3, 4, 5), ()):
        count = math.prod(shape)
        for stream, iteration in ((0, 0), (5, 3)):
            seed = np.uint64(SEED).reshape(())
            operands = (seed, np.uint32(iteration).reshape(())) if iteration else (seed,)
            key = (SEED, stream, iteration, count)
            label = f"{len(shape)}-{stream}"
            options = {"shape": shape, "stream": stream, "label": label}
            made += [
                sample("random_bits", *operands, exact=True, dtype="ui32", **options,
                       oracle=lambda *_, k=key, s=shape: philox.words(*k).reshape(s)),
                sample("random_uniform", *operands, exact=True, dtype="f32", **options,
                       oracle=lambda *_, k=key, s=shape: philox.uniform(philox.words(*k))
                       .reshape(s)),
                sample("random_normal", *operands, dtype="f32", slack=4, **options,
                       oracle=lambda *_, k=key, s=shape: philox.normal(*k).reshape(s)),
            ]  # fmt: skip
    for shard in (1, 3):  # its own rows of the whole batch's numbers, also inside a counter
        operands = tuple(np.array(n, np.int64) for n in (SEED, 2, shard))
        key, part = (SEED, 4, 2, 30 * (shard + 1)), slice(30 * shard, None)
        made += [
            sample("random_bits", *operands, exact=True, dtype="ui32", shape=(3, 10), stream=4,
                   label=f"shard{shard}",
                   oracle=lambda *_, k=key, p=part: philox.words(*k)[p].reshape(3, 10)),
            sample("random_normal", *operands, dtype="f32", slack=4, shape=(3, 10), stream=4,
                   label=f"shard{shard}",
                   oracle=lambda *_, k=key, p=part: philox.normal(*k)[p].reshape(3, 10)),
        ]  # fmt: skip
    operands = tuple(np.array(n, np.int64) for n in (SEED, 2, 0, 5))  # the sixth trip of a loop
    made.append(
        sample(
            "random_bits",
            *operands,
            exact=True,
            dtype="ui32",
            shape=(3, 5),
            stream=4,
            label="trip",
            oracle=lambda *_: philox.words(SEED, 4, 2, 15, trip=5).reshape(3, 5),
        ),
    )
    return made


def _collective() -> list[Sample]:
    """Alone: every shard holds the same."""
    x = np.linspace(-3, 5, 12, dtype=np.float32).reshape(3, 4)
    return [
        *(
            sample(
                "all_reduce",
                x,
                shards=n,
                exact=n in (1, 2, 4),
                label=f"{n}",
                oracle=lambda x, n=n: x * np.float32(n),
            )
            for n in (1, 2, 3, 4, 7)
        ),
        sample(
            "all_reduce", np.arange(6, dtype=np.int32), shards=5, exact=True, oracle=lambda x: x * 5
        ),
        sample("distribute", x, shards=4, exact=True, oracle=lambda x: x),
    ]


def block(types, body) -> Block:
    """A block of ``types`` whose outputs ``body(builder, *arguments)`` returns."""
    arguments = tuple(Value(tensor(*t)) for t in types)
    builder = Builder()
    outputs = body(builder, *arguments)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return Block(arguments, tuple(builder.ops), outputs)


COUNTER, VECTOR = ((), "i32"), ((4,), "f32")


def doubling():
    """Condition i < 5; body (i + 1, x + x)."""
    condition = block([COUNTER, VECTOR], lambda b, i, x: b.lt(i, b.scalar_like(5, i)))
    body = block([COUNTER, VECTOR], lambda b, i, x: (b.add(i, b.scalar_like(1, i)), b.add(x, x)))
    return condition, body


def _branches():
    return (
        block([VECTOR], lambda b, x: b.add(x, x)),
        block([VECTOR], lambda b, x: b.neg(x)),
    )


def _square():
    return (block([VECTOR], lambda b, x: b.mul(x, x)),)


def _regions() -> list[Sample]:
    x = np.array([1, -2, 3, 0.5], np.float32)

    def scalar(value, kind):
        return np.array(value, kind)

    loop = Sample(
        "core.while",
        (scalar(2, np.int32), x),
        lambda i, x: (np.int32(5), x * 8),
        exact=True,
        regions=doubling,
    )
    idle = Sample(
        "core.while",
        (scalar(9, np.int32), x),
        lambda i, x: (i, x),
        exact=True,
        regions=doubling,
        label="no-trip",
    )
    yes, no = (
        Sample(
            "core.if",
            (scalar(c, np.bool_), x),
            lambda c, x: x * 2 if c else -x,
            exact=True,
            regions=_branches,
            label=str(c),
        )
        for c in (True, False)
    )
    group = Sample("core.group", (x,), lambda x: x * x, exact=True, regions=_square)
    return [loop, idle, yes, no, group]


SAMPLES = [*_random(), *_collective(), *_regions()]
