"""Loops over slices of tensors, for ``torch``'s scan and ONNX's Scan and Loop.

Each becomes a ``core.while`` over (iteration number, state, stacked results), which slices its
inputs and writes slices of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from core_compiler.ir import Block, Value, tensor
from core_compiler.ops.builder import Builder


@dataclass(frozen=True)
class Stream:
    """A tensor that each iteration reads one slice of along ``axis``.

    ``backwards``: the last slice comes first.
    """

    value: Value
    axis: int = 0
    backwards: bool = False


def loop_over(
    b: Builder,
    steps: int,
    state: Sequence[Value],
    streams: Sequence[Stream],
    body: Callable[[Value, Sequence[Value], Sequence[Value]], Block],
    backwards: Sequence[bool] = (),
) -> tuple[list[Value], list[Value]]:
    """Emit a loop; return the last state and the other outputs stacked along a first axis.

    ``body(number, state, parts)`` returns the ops of an iteration and its outputs, the next state
    first; ``number`` is i64 and counts from 0.  ``backwards`` states for each other output whether
    it is stacked from the end.
    """
    number = Value(tensor((), "i64"))
    given = [Value(v.type, v.name) for v in state]
    head, tail = Builder(b.weights, b.origin), Builder(b.weights, b.origin)
    from_end: dict[Builder, Value] = {}

    def place(builder: Builder, back: bool) -> Value:
        if not back:
            return number
        if builder not in from_end:
            from_end[builder] = builder.sub(builder.constant(np.int64(steps - 1)), number)
        return from_end[builder]

    parts = []
    for stream in streams:
        shape, axis = stream.value.type.shape, stream.axis
        starts = _starts(head, place(head, stream.backwards), axis, len(shape))
        sizes = tuple(1 if a == axis else n for a, n in enumerate(shape))
        cut = head.dynamic_slice(stream.value, *starts, sizes=sizes)
        parts.append(head.reshape(cut, shape=(*shape[:axis], *shape[axis + 1 :])))
    inner = body(number, given, parts)
    made = inner.outputs[len(state) :]
    stacks = [Value(tensor((steps, *v.type.shape), v.type.dtype), v.name) for v in made]
    ends = backwards or [False] * len(made)
    filled = []
    for value, stack, back in zip(made, stacks, ends, strict=True):
        part = tail.reshape(value, shape=(1, *value.type.shape))
        starts = _starts(tail, place(tail, back), 0, stack.type.rank)
        filled.append(tail.dynamic_update_slice(stack, part, *starts))
    after = tail.add(number, tail.constant(np.int64(1)))
    region = Block(
        (number, *given, *stacks),
        (*head.ops, *inner.ops, *tail.ops),
        (after, *inner.outputs[: len(state)], *filled),
    )
    tested = tuple(Value(v.type) for v in region.arguments)
    test = Builder(b.weights, b.origin)
    more = test.lt(tested[0], test.constant(np.int64(steps)))
    empty = [b.expand(b.constant(0, v.type.dtype), v.type.shape) for v in stacks]
    results = b.op(
        "core.while",
        (b.constant(np.int64(0)), *state, *empty),
        regions=(Block(tested, tuple(test.ops), (more,)), region),
    )
    found = list(results[1:]) if isinstance(results, tuple) else []
    return found[: len(state)], found[len(state) :]


def _starts(b: Builder, place: Value, axis: int, rank: int) -> list[Value]:
    zero = [b.constant(np.int64(0))] if rank > 1 else []
    return [place if a == axis else zero[0] for a in range(rank)]
