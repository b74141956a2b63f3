"""Launch parameters of a kernel, evaluated for given sizes: work items, scratch memory.

The work items of a kernel are the iterations of its outermost parallel loops (on a GPU: the blocks
of its grid): a perfect nest (only index arithmetic and allocations between the levels) whose bounds
are independent of each other. A kernel without parallel loops is one item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from core_compiler.ir import BufferType, Function, Op, Value
from core_compiler.ir.types import INDEX
from core_compiler.kernel_ir.ops import DISTRIBUTED, definition, is_pure
from core_compiler.kernel_ir.views import Constant, For, Invoke, loop_kind
from core_compiler.support.errors import InternalError

#: Alignment of scratch buffers, in bytes.
ALIGN = 64


def parallel_nest(function: Function) -> list[Op]:
    """Return the outermost parallel loops, outermost first; [] if the function is one work item."""
    block, nest = function.body, []
    ivs: set[Value] = set()
    while True:
        acting = [op for op in block.ops if not is_pure(op) and op.kind != "kernel.alloc"]
        if len(acting) != 1 or acting[0].kind != "kernel.for":
            break
        (loop,) = acting
        if loop_kind(loop) not in DISTRIBUTED or _depends(For.of(loop).bounds, ivs, block):
            break
        nest.append(loop)
        block = loop.regions[0]
        ivs |= {block.arguments[0]}
        ivs |= {v for op in block.ops if ivs & set(op.operands) for v in op.results}
    return nest


def _depends(values, ivs: set[Value], block) -> bool:
    reached = set(ivs)
    for op in block.ops:
        if reached & set(op.operands):
            reached.update(op.results)
    return any(v in reached for v in values)


def index_arguments(function: Function) -> list[Value]:
    return [v for v in function.arguments if v.type is INDEX]


def buffer_arguments(function: Function) -> list[Value]:
    return [v for v in function.arguments if isinstance(v.type, BufferType)]


def callees(function: Function) -> tuple[str, ...]:
    """Return the kernels that a kernel invokes, in order of first use.

    Their addresses follow its index arguments in the argument block of a launch.
    """
    names = (Invoke.of(op).callee for op in function.body.walk() if op.kind == "kernel.invoke")
    return tuple(dict.fromkeys(names))


def work_items(function: Function, sizes: Sequence[int]) -> int:
    """Return the number of work items of a launch with these index arguments (at least 0)."""
    return LaunchNeeds(function).work_items(sizes)


def scratch_bytes(
    function: Function, sizes: Sequence[int], functions: Mapping[str, Function] | None = None
) -> int:
    """Return the scratch bytes of each thread, including those of invoked kernels."""
    return LaunchNeeds(function, functions).scratch_bytes(sizes)


class LaunchNeeds:
    """The needs of a kernel's launches, for many sizes."""

    def __init__(self, function: Function, functions: Mapping[str, Function] | None = None):
        self._arguments = index_arguments(function)
        self._nest = parallel_nest(function)
        self._scratch = scratch_allocations(function)
        invoked = [] if functions is None else [functions[name] for name in callees(function)]
        self._deepest = max((_static_scratch(each, functions) for each in invoked), default=0)
        #: The index ops outside of loops, also inside the parallel nest: result, meaning, operands.
        self._steps: list[tuple[Value, Callable[..., int], tuple[Value, ...]]] = []
        self._constants: dict[Value, int] = {}
        known = set(self._arguments)
        for block in (function.body, *(loop.regions[0] for loop in self._nest)):
            for op in block.ops:
                evaluate = definition(op).on_indices
                if op.kind == "kernel.constant" and op.result.type is INDEX:
                    self._constants[op.result] = Constant.of(op).index
                elif evaluate is not None and known.issuperset(op.operands):
                    self._steps.append((op.result, evaluate, op.operands))
                else:
                    continue
                known.add(op.result)
        self._last: tuple[tuple[int, ...], dict[Value, int]] | None = None

    def _indices(self, sizes: Sequence[int]) -> dict[Value, int]:
        """Return the values of those ops."""
        key = tuple(map(int, sizes))
        if self._last is None or self._last[0] != key:
            env = dict(zip(self._arguments, key, strict=True)) | self._constants
            for result, evaluate, operands in self._steps:
                env[result] = evaluate(*(env[v] for v in operands))
            self._last = key, env
        return self._last[1]

    def work_items(self, sizes: Sequence[int]) -> int:
        total = 1
        for loop in self._nest:
            env = self._indices(sizes)
            lower, upper, step = (env[v] for v in For.of(loop).bounds)
            total *= max(0, -(-(upper - lower) // step))
        return total

    def scratch_bytes(self, sizes: Sequence[int]) -> int:
        if not self._scratch:
            return self._deepest
        env = self._indices(sizes)
        return sum(_allocated_bytes(op, env) for op in self._scratch) + self._deepest


def _static_scratch(function: Function, functions) -> int:
    """Return the scratch bytes of an invoked kernel, whose allocations have static shapes."""
    own = 0
    for op in scratch_allocations(function):
        if op.operands:
            raise InternalError(f"{function.name} is invoked and allocates a run-time size")
        own += _allocated_bytes(op, {})
    invoked = [
        _static_scratch(functions[Invoke.of(op).callee], functions)
        for op in function.body.walk()
        if op.kind == "kernel.invoke"
    ]
    return own + max(invoked, default=0)


def scratch_allocations(function: Function) -> list[Op]:
    """Return the scratch buffers of a kernel in program order, in which they are laid out."""
    return [
        op
        for op in function.body.walk()
        if op.kind == "kernel.alloc" and op.result.type.space == "scratch"
    ]


def _allocated_bytes(op: Op, env: Mapping[Value, int]) -> int:
    sizes = iter(op.operands)
    kind = op.result.type
    elements = prod(env[next(sizes)] if isinstance(d, str) else d for d in kind.shape)
    return -(-max(elements, 0) * kind.dtype.bytes // ALIGN) * ALIGN
