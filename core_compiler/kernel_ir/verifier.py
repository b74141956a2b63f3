"""The verifier of kernels: structure, dominance, types, allocations, disjoint parallel stores."""

from __future__ import annotations

from core_compiler.ir import Block, BufferType, Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.ops import CONCURRENT, KernelTypeError, access, result_types
from core_compiler.kernel_ir.views import For, loop_kind
from core_compiler.support.errors import InternalError


class KernelError(InternalError):
    """Raised for a malformed kernel; the message names the op and the violation."""


def verify(function: Function) -> None:
    """Raise :class:`KernelError` at the first op that violates a rule of the kernel level."""
    arguments = function.arguments
    kinds = [isinstance(v.type, BufferType) for v in arguments]
    if kinds != sorted(kinds, reverse=True) or any(
        not is_buffer and v.type is not INDEX for v, is_buffer in zip(arguments, kinds, strict=True)
    ):
        raise KernelError(f"{function.name}: arguments must be buffers, then indices")
    called = [v.name for v in arguments if v.name is not None]
    twice = next((name for name in called if called.count(name) > 1), None)
    if twice is not None:  # generated code uses these names
        raise KernelError(f"{function.name}: duplicate argument {twice!r}")
    names = {v.name for v in arguments if v.type is INDEX}
    for value in arguments:
        if isinstance(value.type, BufferType):
            _check_names(function, value, names)
            if isinstance(value.type.offset, int) and value.type.offset:
                # Generated code takes the pointer as that of the first element; a name is an
                # argument.
                raise KernelError(f"{function.name}: argument {value} has an offset")
    if function.outputs:
        raise KernelError(f"{function.name}: a kernel must return nothing")
    top = set(arguments) | {v for op in function.body.ops for v in op.results}
    _verify_block(function, function.body, set(), top, frozenset())


def _check_names(function: Function, value: Value, names: set) -> None:
    t = value.type
    for entry in (*t.shape, *t.strides, t.offset):
        if isinstance(entry, str) and entry not in names:
            raise KernelError(
                f"{function.name}: {value} uses {entry!r}, which is not an index argument"
            )


def _verify_block(
    function: Function, block: Block, visible: set, top: set, around: frozenset[str]
) -> None:
    """Verify a block; ``around`` are the names of the enclosing loops."""
    visible = visible | set(block.arguments)
    for op in block.ops:
        for operand in op.operands:
            if operand not in visible:
                raise KernelError(f"{function.name}: {op} reads {operand} before it is defined")
        _verify_op(function, op, top)
        inside = around
        if op.kind == "kernel.for" and op.get("name"):  # schedules find loops by name
            if For.of(op).name in around:
                raise KernelError(f"{function.name}: {op} is in a loop of the same name")
            inside = around | {For.of(op).name}
        for region in op.regions:
            _verify_block(function, region, visible, top, inside)
        visible |= set(op.results)
    for value in block.outputs:
        if value not in visible:
            raise KernelError(f"{function.name}: a region returns {value}, not defined in it")


def _verify_op(function: Function, op: Op, top: set) -> None:
    try:
        requested = [v.type for v in op.results]
        types = result_types(op.kind, [v.type for v in op.operands], op.attributes, requested)
    except KernelTypeError as error:
        raise KernelError(f"{function.name}: {error}") from None
    if list(types) != requested:
        raise KernelError(f"{function.name}: {op} should return {types}")
    if op.kind == "kernel.for":
        _verify_for(function, op)
    if op.kind == "kernel.if":
        _verify_if(function, op)
    if op.kind == "kernel.alloc" and not set(op.operands) <= top:
        raise KernelError(f"{function.name}: {op}: sizes must be computed at the top")
    if op.kind == "kernel.alloc" and op.result.type.offset != 0:
        raise KernelError(f"{function.name}: {op}: scratch memory must have no offset")


def _verify_for(function: Function, op: Op) -> None:
    (body,) = op.regions
    carried = [v.type for v in For.of(op).init]
    if not body.arguments or body.arguments[0].type is not INDEX:
        raise KernelError(f"{function.name}: {op}: the first region argument must be the index")
    if [v.type for v in body.arguments[1:]] != carried or [v.type for v in body.outputs] != carried:
        raise KernelError(f"{function.name}: {op}: carried types differ")
    if loop_kind(op) in CONCURRENT:
        if carried:
            raise KernelError(f"{function.name}: {op}: a {op['loop']} loop must not carry values")
        _verify_disjoint(function, op)


def _verify_if(function: Function, op: Op) -> None:
    requested = [v.type for v in op.results]
    if len(op.regions) != 2:
        raise KernelError(f"{function.name}: {op}: needs two regions")
    for region in op.regions:
        if region.arguments or [v.type for v in region.outputs] != requested:
            raise KernelError(f"{function.name}: {op}: regions must return {requested}")


def _verify_disjoint(function: Function, loop: Op) -> None:
    """Check that every parallel store to outer memory depends on the loop's index (best effort)."""
    (body,) = loop.regions
    depends = {body.arguments[0]}
    private = {v for op in body.walk() if op.kind == "kernel.alloc" for v in op.results}
    for op in body.walk():
        if op.kind == "kernel.for" and not depends.isdisjoint(For.of(op).bounds):
            depends.add(For.of(op).index)
        if op.kind == "kernel.for":  # carried values depend on the initial values
            pairs = zip(For.of(op).carried, For.of(op).init, strict=True)
            depends.update(inner for inner, start in pairs if start in depends)
        if not depends.isdisjoint(op.uses()):
            depends.update(op.results)
    guarded = {  # done by the iterations that a condition selects
        inner
        for op in body.walk()
        if op.kind == "kernel.if" and op.operands[0] in depends
        for inner in op.walk()
    }
    for op in body.walk():
        if op.kind == "kernel.store":
            target, indices = access(op)
            outer = target not in private and target.type.space == "dram"
            if outer and depends.isdisjoint(indices) and op not in guarded:
                raise KernelError(
                    f"{function.name}: iterations of {loop} all store to the same element: {op}"
                )
