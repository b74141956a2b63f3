"""Linking: a planned module, its schedules and its machine code become a program of plain data."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_compiler.errors import InternalError
from core_compiler.ir import Module, Op, Value
from core_compiler.ir.attributes import Dense
from core_compiler.ir.weights import array_digest
from core_compiler.kernels.abi import scratch_bytes, work_items
from core_compiler.ops.base import cost
from core_compiler.runtime.program import (
    BUILTIN, Argument, Constant, KernelRef, Launch, Program, Ref,
)  # fmt: skip

COPY_CHUNK = 1 << 16


class Linker:
    """One walk over main; ``place`` maps a buffer value to where its bytes are."""

    def __init__(self, module: Module, facts: Mapping[str, Any], name: str):
        self.module, self.facts, self.name = module, facts, name
        self.schedules = facts["schedules"]
        self.compiled = facts["compiled"]
        self.functions = dict(module.functions)
        self.place: dict[Value, Ref] = {}
        self.constants: dict[str, tuple[int, Constant]] = {}
        self.arrays: dict[str, Any] = {}
        self.launches: list[Launch] = []
        self.launch_ops: list[Op] = []
        self.prepack: list[Launch] = []
        self.packed: dict[tuple, int] = {}
        self.packed_bytes: list[int] = []
        self.builtins: set[str] = set()
        self.arena = 0

    def link(self, threads: int) -> Program:
        self.threads = threads
        body = self.module.main.body
        for op in body.ops:
            getattr(self, "_" + op.kind.split(".")[1])(op)
        inputs = tuple(_argument(v, i, "input") for i, v in enumerate(body.arguments))
        outputs = tuple(_argument(v, i, "output") for i, v in enumerate(body.outputs))
        used = dict.fromkeys(launch.kernel for launch in (*self.prepack, *self.launches))
        kernels = tuple(
            KernelRef(k, BUILTIN, k) if k in self.builtins else self.compiled[k].ref for k in used
        )
        return Program(
            self.name, inputs, outputs, kernels, tuple(self.launches), self.arena,
            tuple(c for _, c in self.constants.values()), tuple(self.packed_bytes),
            tuple(self.prepack),
        )  # fmt: skip

    # -- one method an op ------------------------------------------------------------------------

    def _input(self, op: Op) -> None:
        self.place[op.result] = Ref("input", op["index"])

    def _constant(self, op: Op) -> None:
        value = op["value"]
        digest = array_digest(value.array()) if isinstance(value, Dense) else value.digest
        if digest not in self.constants:
            kind = value.type
            self.constants[digest] = len(self.constants), Constant(digest, kind.dtype.name, kind.shape)
            self.arrays[digest] = value.array() if isinstance(value, Dense) else self.module.weights[digest]
        self.place[op.result] = Ref("constant", self.constants[digest][0])

    def _alloc(self, op: Op) -> None:
        if "output" in op.attributes:
            self.place[op.result] = Ref("output", op["output"])
            return
        offset = op["offset"]
        self.arena = max(self.arena, offset + op["size"])
        self.place[op.result] = Ref("arena", 0, offset)

    def _view(self, op: Op) -> None:
        self.place[op.result] = self.place[op.operands[0]]

    def _output(self, op: Op) -> None:
        place = self.place[op.operands[0]]
        if place != Ref("output", op["index"]):
            raise InternalError(f"result {op['index']} lies at {place}")

    def _copy(self, op: Op) -> None:
        source, to = op.operands
        size = to.type.bytes
        self.builtins.add("cw_copy")
        self.launches.append(Launch(
            "copy", "cw_copy", (self.place[to], self.place[source]), (size,),
            max(1, -(-size // COPY_CHUNK)), bytes=2 * size,
        ))  # fmt: skip
        self.launch_ops.append(op)

    def _launch(self, op: Op) -> None:
        name = op["kernel"]
        scheduled = self.schedules[name]
        reads = op["reads"]
        buffers, sizes = {}, []
        names = [v.name for v in scheduled.steps[0].function.arguments]
        for (kind, number), argument in zip(op["arguments"], names, strict=True):
            if kind == "size":
                sizes.append(number)
            else:
                value = op.operands[number if kind == "operand" else reads + number]
                buffers[argument] = (value, self.place[value])
        self._emit(op, scheduled, buffers, sizes)

    def _emit(self, op: Op, scheduled, buffers, sizes) -> None:
        function = scheduled.function
        refs = tuple(place for _, place in buffers.values())
        flops, moved = launch_cost(op)
        self.launches.append(Launch(
            op["kernel"], op["kernel"], refs, tuple(sizes), work_items(function, sizes),
            scratch_bytes(function, sizes, self.functions), 0, flops, moved,
        ))  # fmt: skip
        self.launch_ops.append(op)


def launch_cost(op: Op) -> tuple[int, int]:
    """Flops of a launch, and the bytes it must read and write at least once."""
    flops = sum(cost(o).flops for o in op.regions[0].ops if o.kind != "core.constant")
    moved = sum(v.type.bytes for v in dict.fromkeys(op.operands))
    return flops, moved


def _argument(value: Value, index: int, what: str) -> Argument:
    return Argument(value.name or f"{what}{index}", value.type.dtype.name, value.type.shape)
