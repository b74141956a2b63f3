"""Control flow of ONNX: If, Loop and Scan.

A condition or trip count that is known is resolved at import: the branch is inlined, a short loop
is unrolled.  Otherwise they become ``core.if`` and ``core.while``.
"""

from __future__ import annotations

import numpy as np

from core_compiler.frontends.loops import Stream, loop_over
from core_compiler.frontends.onnx.table import NotSupported, axis_of, onnx_op
from core_compiler.ir import Block, Value, tensor
from core_compiler.ops.builder import Builder
from core_compiler.ops.evaluation import constant_array

BRANCHES = "then_branch", "else_branch"
#: The maximum trip count of an unrolled loop.
UNROLLED = 1024


@onnx_op("If")
def if_(b, condition):
    known = b.known(condition)
    if known is not None:
        return _taken(b, known)
    scalar = b.reshape(condition, shape=()) if condition.type.rank else condition
    b.importer.take(b)
    branches = None
    if all(o.type.HasField("tensor_type") for n in BRANCHES for o in b.attr(n).output):
        branches = [b.importer.region(b.attr(n), []) for n in BRANCHES]
        types = [[v.type for v in branch.outputs] for branch in branches]
    if branches is None or types[0] != types[1]:
        return _taken(
            b, b.const(condition, "the condition of branches whose results differ in shape")
        )
    return b.op("core.if", (scalar,), regions=branches)


def _taken(b, condition: np.ndarray) -> tuple:
    """Inline the branch of a known condition."""
    graph = b.attr(BRANCHES[0] if bool(condition.reshape(())) else BRANCHES[1])
    return tuple(b.importer.subgraph(graph, []))


@onnx_op("Loop")
def loop(b, trips=None, condition=None, *carried):
    body = b.attr("body")
    # The number of collected results is a shape, so the inputs that it depends on are bound.
    several = any(not isinstance(value, Value) for value in carried)
    known = b.const if several or b.node.output[len(carried) :] else b.known
    count = None if trips is None else known(trips)
    go = True if condition is None else known(condition)
    if count is not None and go is not None:
        steps = int(count.reshape(())) if bool(np.asarray(go).reshape(())) else 0
        if steps <= UNROLLED:
            made = _unrolled(b, body, steps, carried)
            if made is not None:
                return made
        elif b.node.output[len(carried) :]:
            return _counted(b, body, steps, carried)
    return _while(b, body, trips, condition, carried)


def _counted(b, body, steps: int, carried):
    """Emit a long loop that collects results; its own condition must not end it early."""
    if not all(isinstance(v, Value) for v in carried):
        raise NotSupported(
            f"a loop of {steps} steps that carries a sequence (at most {UNROLLED} are unrolled)"
        )
    b.importer.take(b)
    yes = b.constant(np.bool_(True))

    def step(number, given, parts):
        region = b.importer.region(body, [number, yes, *given])
        go = region.outputs[0]
        maker = region.producers().get(go)
        known = (
            maker is not None
            and maker.kind == "core.constant"
            and (bool(constant_array(maker, b.weights).all()))
        )
        if go is not yes and not known:
            raise NotSupported(
                f"a loop of up to {steps} steps with scan outputs and a condition "
                "that may end it early"
            )
        if [v.type for v in region.outputs[1 : 1 + len(given)]] != [v.type for v in given]:
            raise NotSupported("a loop whose carried values change shape")
        return region.with_(outputs=region.outputs[1:])

    ends, stacks = loop_over(b, steps, carried, [], step)
    return (*ends, *stacks)


def _unrolled(b, body, steps: int, carried):
    """Unroll the loop; return None, without emitting ops, if a condition in the body is unknown."""
    importer = b.importer
    importer.take(b)
    kept, state = len(importer.ops), list(carried)
    collected: list[list[Value]] = [[] for _ in body.output[1 + len(carried) :]]
    for step in range(steps):
        number, yes = b.constant(np.int64(step)), b.constant(np.bool_(True))
        importer.take(b)
        go, *rest = importer.subgraph(body, [number, yes, *state])
        known = b.known(go)
        if known is None:
            del importer.ops[kept:]
            return None
        state = rest[: len(carried)]
        for column, value in zip(collected, rest[len(carried) :], strict=True):
            column.append(value)
        if not bool(known.reshape(())):
            break
    return (*state, *(_stacked(b, c, 0) for c in collected))


def _stacked(b, parts: list[Value], axis: int) -> Value:
    if not parts:
        raise NotSupported("a loop of zero steps with scan outputs")
    shape = parts[0].type.shape
    if any(p.type.shape != shape for p in parts):
        raise NotSupported("scan outputs of different shapes")
    lifted = [b.reshape(p, shape=(*shape[:axis], 1, *shape[axis:])) for p in parts]
    return b.concat(*lifted, axis=axis)


def _while(b, body, trips, condition, carried):
    """Emit a loop with an unknown end: ``core.while`` over (step, condition, carried values)."""
    if body.output[1 + len(carried) :]:
        raise NotSupported("a loop with scan outputs and an unknown trip count")
    if b.node.output and not carried:
        raise NotSupported("a loop without carried values")
    if not all(isinstance(v, Value) for v in carried):
        raise NotSupported("a loop that carries a sequence and is not unrolled")
    scalar = tensor((), "i64")
    start = [
        b.constant(np.int64(0)),
        _scalar(b, condition) if condition is not None else b.constant(np.bool_(True)),
        *carried,
    ]
    limit = _scalar(b, trips) if trips is not None else None
    b.importer.take(b)

    def arguments():
        return [Value(scalar), Value(tensor((), "i1")), *(Value(v.type) for v in carried)]

    tested = arguments()
    test = Builder(b.weights, b.origin)
    more = tested[1] if limit is None else test.and_(tested[1], test.lt(tested[0], limit))
    inner = arguments()
    region = b.importer.region(body, [inner[0], inner[1], *inner[2:]])
    tail = Builder(b.weights, b.origin)
    step = tail.add(inner[0], tail.constant(np.int64(1)))
    go = region.outputs[0]
    go = tail.reshape(go, shape=()) if go.type.rank else go
    block = Block(tuple(inner), (*region.ops, *tail.ops), (step, go, *region.outputs[1:]))
    if [v.type for v in block.outputs[2:]] != [v.type for v in carried]:
        raise NotSupported("a loop whose carried values change shape")
    condition_block = Block(tuple(tested), tuple(test.ops), (more,))
    made = b.op("core.while", start, regions=(condition_block, block))
    return tuple(made[2:])


def _scalar(b, x: Value) -> Value:
    return b.reshape(x, shape=()) if x.type.rank else x


@onnx_op("Scan")
def scan(b, *operands):
    body, count = b.attr("body"), int(b.attr("num_scan_inputs"))
    if not 0 < count <= len(operands):
        raise NotSupported(f"expected 1 to {len(operands)} scanned inputs, got {count}")
    states, streams = list(operands[: len(operands) - count]), operands[len(operands) - count :]
    if b.opset < 9:
        raise NotSupported("Scan before opset 9")
    axes = b.attr("scan_input_axes") or [0] * count
    backwards = b.attr("scan_input_directions") or [0] * count
    axes = [axis_of(a, s.type.rank) for a, s in zip(axes, streams, strict=True)]
    steps = streams[0].type.shape[axes[0]]
    results = len(body.output) - len(states)
    out_axes = b.attr("scan_output_axes") or [0] * results
    out_back = b.attr("scan_output_directions") or [0] * results
    if steps > UNROLLED:
        return _long_scan(b, body, steps, states, streams, axes, backwards, out_axes, out_back)
    collected: list[list[Value]] = [[] for _ in range(results)]
    for step in range(steps):
        parts = []
        for stream, axis, back in zip(streams, axes, backwards, strict=True):
            place = steps - 1 - step if back else step
            shape = tuple(d for i, d in enumerate(stream.type.shape) if i != axis)
            parts.append(b.reshape(b.cut(stream, axis, place, place + 1), shape=shape))
        b.importer.take(b)
        made = b.importer.subgraph(body, [*states, *parts])
        states = made[: len(states)]
        for column, value in zip(collected, made[len(states) :], strict=True):
            column.append(value)
    stacks = [
        _stacked(b, column[::-1] if back else column, axis_of(axis, column[0].type.rank + 1))
        for column, axis, back in zip(collected, out_axes, out_back, strict=True)
    ]
    return (*states, *stacks)


def _long_scan(b, body, steps, states, streams, axes, backwards, out_axes, out_back):
    """Emit a scan as a loop."""
    b.importer.take(b)

    def step(number, given, parts):
        region = b.importer.region(body, [*given, *parts])
        if [v.type for v in region.outputs[: len(given)]] != [v.type for v in given]:
            raise NotSupported("a scan whose state changes shape")
        return region

    given = [Stream(*row) for row in zip(streams, axes, map(bool, backwards), strict=True)]
    ends, stacks = loop_over(b, steps, states, given, step, [bool(x) for x in out_back])
    made = []
    for stack, axis in zip(stacks, out_axes, strict=True):
        place, rest = axis_of(axis, stack.type.rank), list(range(1, stack.type.rank))
        order = (*rest[:place], 0, *rest[place:])
        made.append(b.transpose(stack, permutation=order) if place else stack)
    return (*ends, *made)
