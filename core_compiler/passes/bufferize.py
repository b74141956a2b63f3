"""Bufferize: values become buffers and views.  All copies are inserted here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Block, BufferType, Op, Value, buffer
from core_compiler.ir.conversion import Conversion
from core_compiler.ir.target import (
    ALLOC,
    CONSTANT,
    COPY,
    INPUT,
    LAUNCH,
    LOOP,
    OUTPUT,
    OVER,
    REPEAT,
    TAKES,
    TEST,
    VIEW,
)
from core_compiler.ir.types import ordered_strides, row_major
from core_compiler.ops import typed
from core_compiler.passes.base import Pass
from core_compiler.passes.layouts import is_free_view
from core_compiler.support.errors import InternalError


def buffer_type(kind) -> BufferType:
    """Return the dense buffer type of a tensor, with its axes in the order of its layout."""
    return buffer(kind.shape, kind.dtype, ordered_strides(kind.shape, kind.order))


@dataclass(frozen=True)
class Bufferize(Pass):
    """Give every value memory: inputs, constants and results as buffers, reshapes and transposes
    as views, launches that write the buffers they are given.

    A loop is a stretch of the same list that the device repeats; loop-carried values lie in buffers
    of their own.  A result that keeps most of an operand, and the initial values of a loop, reuse
    memory that is not read later.  After this pass ops declare their reads and writes.  A result
    that is an input, a constant or in another result's memory is copied, and the copy says why.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"kernels", "values"})
    ensures = frozenset({"buffers"})
    invalidates = frozenset({"values"})

    @override
    def run(self, module, context):
        work = _Bufferizer(Conversion(module.main.body, context.rewrites))
        return module.with_function(module.main.with_(body=work.run(), level="target"))


class _Bufferizer:
    """A single walk over main; ``buffer_of`` maps tensor values to buffers.

    ``owners`` maps a buffer to the op that owns its memory.
    """

    def __init__(self, out: Conversion):
        self.out = out
        self.buffer_of: dict[Value, Value] = {}
        self.owners: dict[Value, Op] = {}
        self.loops = 0
        #: Maps each tensor value to its contents: itself, or the value that it is a view of.
        self.contents: dict[Value, Value] = {}
        #: Maps contents to the last op of the current block that reads them, for those whose memory
        #: the block may release: its own values, and those that its loop carries.
        self.last_readers: dict[Value, Op | None] = {}

    def run(self) -> Block:
        block = self.out.block
        for index, argument in enumerate(block.arguments):
            buffer_ = self._add_buffer(argument)
            op = Op(INPUT, (argument,), (buffer_,), {"index": index})
            self._own(op, None, {argument: buffer_}, "an input's memory", "the caller's array")
        self._bufferize_block(block, ())
        return self.out.finish(self._outputs(block.outputs))

    def _bufferize_block(self, block: Block, carried: Sequence[Value]) -> None:
        """Process the ops of a block, which may free memory of its own and ``carried`` values."""
        around, self.last_readers = self.last_readers, {}
        for op in block.ops:
            if is_free_view(op):
                self.contents[op.result] = self._contents_of(op.operands[0])
        ops = self._readers_first(block)
        for value in (*carried, *(v for op in block.ops for v in op.results)):
            self.last_readers[self._contents_of(value)] = None
        for op in ops:
            self._read(op.uses(), op)
        self._read(block.outputs, None)
        for op in ops:
            self._bufferize_op(op)
        self.last_readers = around

    def _contents_of(self, value: Value) -> Value:
        return self.contents.get(value, value)

    def _readers_first(self, block: Block) -> list[Op]:
        """Return the ops of a block with readers before partial writes of the same operand.

        Unless an op needs the results of the write sooner.
        """
        ops = list(block.ops)
        partial = [op for op in ops if OVER in op.attributes]
        uses = {op: {self._contents_of(v) for v in op.uses()} for op in ops if partial}
        for op in partial:
            given = {self._contents_of(op.operands[number]) for _, number in op[OVER]}
            made = {self._contents_of(v) for v in op.results}
            at = end = ops.index(op)
            for index in range(at + 1, len(ops)):
                if not made.isdisjoint(uses[ops[index]]):
                    break
                if not given.isdisjoint(uses[ops[index]]):
                    end = index
            ops[at : end + 1] = [*ops[at + 1 : end + 1], op]
        return ops

    def _read(self, values: Sequence[Value], op: Op | None) -> None:
        for value in values:
            content = self._contents_of(value)
            if content in self.last_readers:
                self.last_readers[content] = op

    def _may_take(self, value: Value, op: Op) -> bool:
        """Return whether the memory of ``value`` is free after its reader ``op``."""
        content = self._contents_of(value)
        read = (*op.operands, *(v for region in op.regions for v in region.free_values()))
        once = sum(self._contents_of(v) is content for v in read) == 1
        return (
            once
            and self.last_readers.get(content) is op
            and self.owners[self.buffer_of[value]].kind == ALLOC
        )

    def _add_buffer(self, value: Value) -> Value:
        self.buffer_of[value] = Value(buffer_type(value.type), value.name)
        return self.buffer_of[value]

    def _own(self, op: Op, old: Op | None, values, rule: str, reason: str = "") -> None:
        self.owners[op.result] = op
        self.out.replace(old, [op], values, rule=rule, reason=reason)

    def _bufferize_op(self, op: Op) -> None:
        if op.kind == "core.constant":
            buffer_ = self._add_buffer(op.result)
            new = Op(CONSTANT, (), (buffer_,), {"value": typed.Constant.of(op).value})
            self._own(new, op, {op.result: buffer_}, "a constant's memory")
        elif is_free_view(op):
            source = self.buffer_of[op.operands[0]]
            buffer_ = self._add_buffer(op.result)
            self.owners[buffer_] = self.owners[source]
            self.out.replace(
                op,
                [Op(VIEW, (source,), (buffer_,))],
                {op.result: buffer_},
                rule=f"{op.kind.split('.')[1]} is a view",
            )
        elif op.kind == LAUNCH:
            self._launch(op)
        elif op.kind == "core.while":
            self._loop(op)
        else:
            raise InternalError(f"{op.kind} reached bufferize: expected it inside a kernel")

    def _launch(self, op: Op) -> None:
        buffers = [self._add_buffer(v) for v in op.results]
        over = {result: op.operands[number] for result, number in op.get(OVER, ())}
        before: list[Op] = []
        for place, buffer_ in enumerate(buffers):
            if place in over:
                before += self._initialise(
                    over[place], buffer_, op, "the launch writes a part of it"
                )
            else:
                before.append(Op(ALLOC, (), (buffer_,)))
                self.owners[buffer_] = before[-1]
        operands = (*(self.buffer_of[v] for v in op.operands), *buffers)
        attributes = {**op.attributes, "reads": len(op.operands), "writes": len(buffers)}
        launch = Op(LAUNCH, operands, (), attributes, op.regions)
        self.out.replace(
            op,
            [*before, launch],
            dict(zip(op.results, buffers, strict=True)),
            rule="a launch writes its buffers",
        )

    def _initialise(self, value: Value, buffer_: Value, op: Op, reason: str) -> list[Op]:
        """Return the ops that make ``buffer_`` hold ``value`` when ``op`` begins.

        The buffer reuses the value's memory, or gets a copy.
        """
        source = self.buffer_of[value]
        if source.type == buffer_.type and self._may_take(value, op):
            self.owners[buffer_] = self.owners[source]
            return [Op(VIEW, (source,), (buffer_,), {TAKES: reason})]
        self.owners[buffer_] = alloc = Op(ALLOC, (), (buffer_,))
        return [alloc, Op(COPY, (source, buffer_), (), {"reason": reason})]

    def _loop(self, op: Op) -> None:
        number, trips = {"loop": self.loops}, typed.While.of(op).trips
        self.loops += 1
        carried = [self._add_buffer(v) for v in op.results]
        first = [
            made
            for v, b in zip(op.operands, carried, strict=True)
            for made in self._initialise(v, b, op, "the loop begins with it")
        ]
        begin = number if trips is None else {**number, "trips": trips}
        self.out.replace(
            op,
            [*first, Op(LOOP, carried, (), begin)],
            dict(zip(op.results, carried, strict=True)),
            rule="a loop carries its values in memory",
        )
        condition, body = op.regions
        if trips is None:
            self.buffer_of.update(zip(condition.arguments, carried, strict=True))
            self._bufferize_block(condition, ())  # the body reads the carried values after it
            test = Op(TEST, (self.buffer_of[condition.outputs[0]],), (), number)
            self.out.replace(
                None, [test], rule="leave a loop", reason="the loop's condition is tested"
            )
        self.buffer_of.update(zip(body.arguments, carried, strict=True))
        self._bufferize_block(body, body.arguments)
        self._carry(body.outputs, carried)
        self.out.replace(
            None,
            [Op(REPEAT, carried, (), number)],
            rule="repeat a loop",
            reason="the loop's body ends",
        )

    def _carry(self, outputs: Sequence[Value], carried: Sequence[Value]) -> None:
        """Copy the results of a body to where the next iteration reads them, as if all at once."""
        taken = {self.owners[b] for b in carried}
        ops: list[Op] = []
        moves = []
        for value, to in zip(outputs, carried, strict=True):
            source = self.buffer_of[value]
            if self.owners[source] is self.owners[to] and source.type == to.type:
                continue  # it is already there
            if self.owners[source] in taken:  # the copies that follow would overwrite it
                kept = Value(buffer(value.type.shape, value.type.dtype), value.name)
                why = {"reason": "its place is written next"}
                ops += [Op(ALLOC, (), (kept,)), Op(COPY, (source, kept), (), why)]
                source = kept
            moves.append(Op(COPY, (source, to), (), {"reason": "the next iteration reads it"}))
        if moves:
            self.out.replace(
                None,
                [*ops, *moves],
                rule="carry values to the next iteration",
                reason="the loop's body ends",
            )

    def _outputs(self, outputs: tuple[Value, ...]) -> tuple[Value, ...]:
        taken: set[Op] = set()
        results = []
        for index, value in enumerate(outputs):
            source = self.buffer_of[value]
            owner = self.owners[source]
            reason = ""
            if owner.kind != ALLOC:
                reason = f"the result is {'an input' if owner.kind == INPUT else 'a constant'}"
            elif owner in taken:
                reason = "another result has this memory"
            elif source.type.strides != row_major(source.type.shape):
                reason = "the result is laid out otherwise in memory"
            if reason:
                copy = Value(buffer(value.type.shape, value.type.dtype), value.name)
                owner = Op(ALLOC, (), (copy,))
                self.owners[copy] = owner
                move = Op(COPY, (source, copy), (), {"reason": reason})
                self.out.replace(
                    None, [owner, move], {source: copy}, rule="copy a result", reason=reason
                )
                source = copy
            taken.add(owner)
            result = Value(value.type, value.name)
            self.out.replace(
                None,
                [Op(OUTPUT, (source,), (result,), {"index": index})],
                {source: result},
                rule="a result's memory",
                reason="the caller receives it",
            )
            results.append(result)
        return tuple(results)
