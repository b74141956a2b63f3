"""Chain kernels: a product, programs of its rows and a product of those become one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from typing_extensions import override

from core_compiler.ir import Block, Function, Module, Op, Rewriter, Value
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.ir.target import (
    ALLOC,
    CONSTANT,
    COPY,
    LAUNCH,
    VIEW,
    Launch,
    View,
    buffers_written,
)
from core_compiler.passes.base import Pass
from core_compiler.passes.find_lifetimes import memory_owners
from core_compiler.passes.grouping import GROUP
from core_compiler.passes.outline_kernels import is_exchange, name_words, unused_name
from core_compiler.scheduling.schedules import chain
from core_compiler.scheduling.schedules.chain_parts import Chain, Part
from core_compiler.scheduling.schedules.steps import Scheduled
from core_compiler.scheduling.transforms import Refused

#: The families of the parts' kernels, in words.
_FAMILIES = {"contraction": "a product", "rows": "a program of rows"}
#: What may be between the launches of a chain.
_HARMLESS = frozenset({ALLOC, VIEW, CONSTANT, COPY, LAUNCH})


@dataclass(frozen=True)
class ChainKernels(Pass):
    """Join the launches of attention: scores, their softmax, and the sum of the values by it.

    Each work item computes a block of rows from the first to the last, so that the scores, which
    grow with the square of a sequence, are never in memory as a whole.  Every element is computed
    as before: the bits are the same.
    """

    half = "implementation"
    requires = frozenset({"buffers", "schedules"})
    refusal_arity = 1

    @override
    def run(self, module, context):
        library = _Library(module, dict(context.facts["schedules"]))

        def edit(rw):
            for op in tuple(rw.ops):
                found = _Launches.of(op, rw, module) if op in rw else None
                if not isinstance(found, _Launches):
                    continue
                try:
                    made = library.launch(found)
                except Refused as reason:
                    context.note("note", f"launches of attention stay apart: {reason}", op)
                    continue
                last = found.launches[-1]
                kernel = Launch.of(made).kernel
                rw.replace(found.ops, made, rule="rows stay on the chip", note=kernel, at=last)

        module = context.rewrite(module, edit, level="target")
        if not library.names:
            return module
        used = context.facts["schedules"] = library.used_in(module)
        return module.with_(functions=library.functions(module, used))

    @override
    def refusal(self, ops, context):
        found = _Launches.of(ops[0], context.rewriter, context.module)
        return found if isinstance(found, Refusal) else None


@dataclass(frozen=True)
class _Launches:
    """The launches of a chain, with the buffers between them and their allocations and views."""

    launches: tuple[Op, ...]
    between: tuple[tuple[Value, Value], ...]
    others: tuple[Op, ...]

    @property
    def ops(self) -> tuple[Op, ...]:
        return (*self.others, *self.launches)

    @property
    def inner(self) -> set[Value]:
        """The buffers between the launches."""
        return {v for pair in self.between for v in pair}

    @staticmethod
    def of(op: Op, rw: Rewriter, module: Module) -> _Launches | Refusal:
        """Return the chain that begins with ``op``, or why there is none."""
        refused = _of_family(op, "contraction", module)
        launches: list[Op] = [op]
        between: list[tuple[Value, Value]] = []
        others: list[Op] = []
        while refused is None:
            found = _next(launches[-1], rw)
            if isinstance(found, Refusal):
                return found
            reader, written, read, more = found
            launches.append(reader)
            between.append((written, read))
            others += more
            if len(launches) > 2 and _of_family(reader, "contraction", module) is None:
                break
            refused = _of_family(reader, "rows", module)
        if refused is not None:
            return refused
        made = _Launches(tuple(launches), tuple(between), tuple(others))
        return made._disturbed(rw) or made

    def _disturbed(self, rw: Rewriter) -> Refusal | None:
        """Return a refusal if what a launch reads is written between it and the last one."""
        ops = list(rw.ops)
        owners = memory_owners(ops)
        inner = self.inner
        read: set[Value] = set()
        for op in ops[ops.index(self.launches[0]) : ops.index(self.launches[-1])]:
            if op in self.launches:
                read |= {owners.get(v, v) for v in Launch.of(op).read if v not in inner}
            elif op.kind not in _HARMLESS or (op.kind == VIEW and View.of(op).takes is not None):
                return refuse("one block", "{0} is between the launches", op)
            elif op.kind in (LAUNCH, COPY) and not read.isdisjoint(
                owners.get(v, v) for v in buffers_written(op)
            ):
                return refuse("undisturbed", "{0} writes what {1} reads", op, self.launches[0])
        return None


def _of_family(op: Op, family: str, module: Module) -> Refusal | None:
    """Return a refusal unless ``op`` launches a kernel of a family, for itself."""
    launch = Launch.match(op)
    if launch is None or launch.kernel not in module.functions:
        return refuse("a launch", "{0} is none", op)
    if launch.over or op.get("target") or is_exchange(op) or len(launch.written) != 1:
        return refuse("a launch alone", "{0} is executed in another way", op)
    if module.functions[launch.kernel].attributes.get("family") != family:
        return refuse(_FAMILIES[family], "{0} is none", op)
    return None


def _next(op: Op, rw: Rewriter) -> tuple[Op, Value, Value, list[Op]] | Refusal:
    """Return the only reader of what a launch writes, the buffers at both ends, and ops between."""
    (written,) = Launch.of(op).written
    owner = rw.producer(written)
    if owner is None or owner.kind != ALLOC:
        return refuse("memory of its own", "{0} writes other memory", op)
    value, others = written, [owner]
    while True:
        users = [user for user in rw.users(value) if user is not op]
        if len(users) != 1:
            return refuse("one reader", "{0} has {1} readers", op, len(users))
        (user,) = users
        if user.kind != VIEW or View.of(user).takes is not None:
            break
        others.append(user)
        value = user.result
    if user.kind != LAUNCH or list(Launch.of(user).read).count(value) != 1:
        return refuse("a launch", "{0} is none", user)
    return user, written, value, others


@dataclass
class _Library:
    """The kernels of chains, each once for equal parts."""

    module: Module
    schedules: dict[str, Scheduled]
    names: dict[tuple, str] = field(default_factory=dict)

    def launch(self, found: _Launches) -> Op:
        """Return the one launch; raise :class:`Refused` if the kernels cannot be joined."""
        parts = []
        for number, op in enumerate(found.launches):
            launch = Launch.of(op)
            written = found.between[number][0] if number < len(found.between) else None
            read = found.between[number - 1][1] if number else None
            places = [None if v is None else launch.buffers.index(v) for v in (read, written)]
            parts.append(Part(self.schedules[launch.kernel], launch.sizes, *places))
        region = _region(found)
        given = dict.fromkeys(v for op in found.launches for v in Launch.of(op).read)
        reads = tuple(v for v in given if v not in found.inner)
        results = Launch.of(found.launches[-1]).written
        made = Chain.of(parts)
        arguments = []
        for number, place in made.arguments:
            value = Launch.of(found.launches[number]).buffers[place]
            kind, values = ("result", results) if value in results else ("operand", reads)
            arguments.append((kind, values.index(value)))
        arguments += [("size", made.value(name)) for name in made.sizes]
        attributes = {
            "kernel": self._kernel(made, found, region),
            "arguments": tuple(arguments),
            "reads": len(reads),
            "writes": len(results),
        }
        return Op(LAUNCH, (*reads, *results), (), attributes, (region,))

    def _kernel(self, made: Chain, found: _Launches, region: Block) -> str:
        key = tuple(
            (Launch.of(op).kernel, *part.between)
            for op, part in zip(found.launches, made.parts, strict=True)
        )
        if key not in self.names:
            group = Op(GROUP, region.arguments, region.outputs, {}, (region,))
            used = self.schedules.keys() | self.module.functions.keys()
            name = unused_name("_".join(name_words(group)), used)
            self.schedules[name] = chain.schedule(name, made)
            self.names[key] = name
        return self.names[key]

    def used_in(self, module: Module) -> dict[str, Scheduled]:
        """Return the schedules of the kernels that a module launches."""
        used = {Launch.of(op).kernel for op in module.main.body.ops if op.kind == LAUNCH}
        return {name: s for name, s in self.schedules.items() if name in used}

    def functions(self, module: Module, used: Mapping[str, Scheduled]) -> dict[str, Function]:
        """Return a module's functions with the joined kernels, without those not ``used``."""
        known, schedules = module.functions, self.schedules
        kept = {n: f for n, f in known.items() if n in used or n not in schedules}
        return kept | {name: scheduled.function for name, scheduled in used.items()}


def _region(found: _Launches) -> Block:
    """Return what the launches compute together, as one block."""
    arguments: dict[Value, Value] = {}
    known: dict[Value, Value] = {}
    ops: list[Op] = []
    outputs: tuple[Value, ...] = ()
    for number, op in enumerate(found.launches):
        (block,), launch = op.regions, Launch.of(op)
        renamed: dict[Value, Value] = {}
        for argument, value in zip(block.arguments, launch.read, strict=True):
            inside = known.get(value)
            if inside is None:
                inside = arguments.setdefault(value, argument)
            if inside.type != argument.type:  # a view between the launches
                if inside.type.order is not None or argument.type.order is not None:
                    raise Refused("a value between the launches is not row-major")
                shape = {"shape": argument.type.shape}
                ops.append(Op("core.reshape", (inside,), (argument,), shape))
                inside = argument
            renamed[argument] = inside
        ops += [o.substitute(renamed) for o in block.ops]
        outputs = tuple(renamed.get(v, v) for v in block.outputs)
        if number < len(found.between):
            known[found.between[number][1]] = outputs[0]
    return Block(tuple(arguments.values()), tuple(ops), outputs)
