"""Bufferize: values become buffers and views; the one place where copies are inserted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core_compiler.errors import InternalError
from core_compiler.ir import Block, BufferType, Op, Value, buffer
from core_compiler.ir.conversion import Conversion
from core_compiler.ir.types import ordered_strides, row_major
from core_compiler.passes.base import Pass
from core_compiler.passes.layouts import is_free_view
from core_compiler.passes.outline_kernels import LAUNCH

INPUT, OUTPUT, CONSTANT = "target.input", "target.output", "target.constant"
ALLOC, VIEW, COPY = "target.alloc", "target.view", "target.copy"
#: ``loop`` names the buffers that a loop carries and begins it, ``test`` leaves it where its flag
#: is false, ``repeat`` goes back to the op after ``loop``; the three share a number.
LOOP, TEST, REPEAT = "target.loop", "target.test", "target.repeat"


def buffer_type(kind) -> BufferType:
    """The buffer of a tensor: dense, with its axes in memory as its layout says."""
    return buffer(kind.shape, kind.dtype, ordered_strides(kind.shape, kind.order))


@dataclass(frozen=True)
class Bufferize(Pass):
    """Gives every value memory: inputs, constants and results as buffers, reshapes and transposes
    as views, launches that write the buffers they are given.  A loop is a stretch of the same list,
    which the device repeats; what it carries lies in buffers of its own.

    After this pass ops declare what they read and write.  A result that is an input, a constant or
    in another result's memory is copied, and the copy says why.
    """

    half = "implementation"
    mandatory = True
    requires = frozenset({"kernels", "values"})
    ensures = frozenset({"buffers"})
    ends = frozenset({"values"})

    def run(self, module, context):
        work = _Bufferizer(Conversion(module.main.body, context.rewrites))
        return module.with_function(module.main.with_(body=work.run(), level="target"))


class _Bufferizer:
    """One walk over main; ``held`` maps a tensor value to its buffer, ``root`` a buffer to the
    op whose memory it is."""

    def __init__(self, out: Conversion):
        self.out = out
        self.held: dict[Value, Value] = {}
        self.root: dict[Value, Op] = {}
        self.loops = 0

    def run(self) -> Block:
        block = self.out.block
        for index, argument in enumerate(block.arguments):
            buffer_ = self._hold(argument)
            op = Op(INPUT, (argument,), (buffer_,), {"index": index})
            self._own(op, None, {argument: buffer_}, "an input's memory", "the caller's array")
        for op in block.ops:
            self._op(op)
        return self.out.finish(self._outputs(block.outputs))

    def _hold(self, value: Value) -> Value:
        self.held[value] = Value(buffer_type(value.type), value.name)
        return self.held[value]

    def _own(self, op: Op, old: Op | None, values, rule: str, reason: str = "") -> None:
        self.root[op.result] = op
        self.out.answer(old, [op], values, rule=rule, reason=reason)

    def _op(self, op: Op) -> None:
        if op.kind == "core.constant":
            buffer_ = self._hold(op.result)
            new = Op(CONSTANT, (), (buffer_,), {"value": op["value"]})
            self._own(new, op, {op.result: buffer_}, "a constant's memory")
        elif is_free_view(op):
            source = self.held[op.operands[0]]
            buffer_ = self._hold(op.result)
            self.root[buffer_] = self.root[source]
            self.out.answer(op, [Op(VIEW, (source,), (buffer_,))], {op.result: buffer_},
                            rule=f"{op.kind.split('.')[1]} is a view")  # fmt: skip
        elif op.kind == LAUNCH:
            self._launch(op)
        elif op.kind == "core.while":
            self._loop(op)
        else:
            raise InternalError(f"{op.kind} reached bufferize: it should be inside a kernel")

    def _launch(self, op: Op) -> None:
        buffers = [self._hold(v) for v in op.results]
        allocs = [Op(ALLOC, (), (b,)) for b in buffers]
        self.root.update(zip(buffers, allocs, strict=True))
        operands = (*(self.held[v] for v in op.operands), *buffers)
        attributes = {**op.attributes, "reads": len(op.operands), "writes": len(buffers)}
        launch = Op(LAUNCH, operands, (), attributes, op.regions)
        self.out.answer(op, [*allocs, launch], dict(zip(op.results, buffers, strict=True)),
                        rule="a launch writes its buffers")  # fmt: skip

    def _loop(self, op: Op) -> None:
        number = {"loop": self.loops}
        self.loops += 1
        carried = [self._hold(v) for v in op.results]
        allocs = [Op(ALLOC, (), (b,)) for b in carried]
        self.root.update(zip(carried, allocs, strict=True))
        first = [Op(COPY, (self.held[v], b), (), {"reason": "the loop begins with it"})
                 for v, b in zip(op.operands, carried, strict=True)]  # fmt: skip
        self.out.answer(op, [*allocs, *first, Op(LOOP, carried, (), number)],
                        dict(zip(op.results, carried, strict=True)),
                        rule="a loop carries its values in memory")  # fmt: skip
        condition, body = op.regions
        self._region(condition, carried)
        test = Op(TEST, (self.held[condition.outputs[0]],), (), number)
        self.out.answer(None, [test], rule="leave a loop", reason="the loop's condition is asked")
        self._region(body, carried)
        self._carry(body.outputs, carried)
        self.out.answer(None, [Op(REPEAT, carried, (), number)], rule="repeat a loop",
                        reason="the loop's body ends")  # fmt: skip

    def _region(self, region: Block, carried: Sequence[Value]) -> None:
        self.held.update(zip(region.arguments, carried, strict=True))
        for op in region.ops:
            self._op(op)

    def _carry(self, outputs: Sequence[Value], carried: Sequence[Value]) -> None:
        """Copy what a body made to where the next iteration finds it, as if all at once."""
        taken = {self.root[b] for b in carried}
        ops: list[Op] = []
        moves = []
        for value, to in zip(outputs, carried, strict=True):
            source = self.held[value]
            if source is to:
                continue
            if self.root[source] in taken:  # the copies that follow would overwrite it
                kept = Value(buffer(value.type.shape, value.type.dtype), value.name)
                why = {"reason": "its place is written next"}
                ops += [Op(ALLOC, (), (kept,)), Op(COPY, (source, kept), (), why)]
                source = kept
            moves.append(Op(COPY, (source, to), (), {"reason": "the next iteration reads it"}))
        if moves:
            self.out.answer(None, [*ops, *moves], rule="carry values to the next iteration",
                            reason="the loop's body ends")  # fmt: skip

    def _outputs(self, outputs: tuple[Value, ...]) -> tuple[Value, ...]:
        taken: set[Op] = set()
        results = []
        for index, value in enumerate(outputs):
            source = self.held[value]
            owner = self.root[source]
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
                self.root[copy] = owner
                move = Op(COPY, (source, copy), (), {"reason": reason})
                self.out.answer(
                    None, [owner, move], {source: copy}, rule="copy a result", reason=reason
                )
                source = copy
            taken.add(owner)
            result = Value(value.type, value.name)
            self.out.answer(None, [Op(OUTPUT, (source,), (result,), {"index": index})],
                            {source: result}, rule="a result's memory",
                            reason="the caller receives it")  # fmt: skip
            results.append(result)
        return tuple(results)
