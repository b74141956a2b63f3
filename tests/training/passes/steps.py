"""Small training steps: a main with the roles of its arguments and results, of no framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core_compiler.ir import Function, Module, Value, WeightStore
from core_compiler.ir.target import LAUNCH
from core_compiler.ops import Builder
from core_compiler.passes.base import PassContext
from core_compiler.passes.outline_kernels import OutlineKernels
from core_compiler.training.graph.roles import Roles
from tests.passes import specs
from tests.passes.programs import block_of, tensor_type


def step(build: Callable, arguments: Sequence[str], results: Sequence[str]) -> Module:
    """The step whose main is ``build(builder, *arguments)``.

    An argument is ``role name: type`` (``parameter w: 3x4xf32``), that of a slot ``slot m of w:
    3x4xf32``. A result is ``loss``, ``metric``, ``scaled``, ``finite``, ``gradient w``, ``next w``
    or ``next m of w``.
    """
    rows, values, places = [], [], {}
    for text in arguments:
        label, _, kind = text.partition(": ")
        role, _, own = label.partition(" ")
        name, _, of = own.partition(" of ")
        places[own] = len(rows)
        rows.append((role, name, places[of] if of else -1))
        values.append(Value(tensor_type(kind), name))
    builder = Builder(WeightStore())
    made = build(builder, *values)
    outputs = (made,) if isinstance(made, Value) else tuple(made)
    spelled = [text.partition(" ") for text in results]
    held = [(role, places[own] if own else -1) for role, _, own in spelled]
    function = Function("main", block_of(values, builder.ops, outputs))
    rowed = list(zip(held, outputs, strict=True))
    function = Roles(tuple(rows), ()).applied(function, rowed)
    return Module({"main": function}, builder.weights)


def outlined(build: Callable, arguments: Sequence[str], results: Sequence[str]) -> Module:
    """The step with a launch for each of its ops, in the order in which they were built."""
    made = OutlineKernels().run(step(build, arguments, results), PassContext())
    specs.assert_valid(made)
    return made


def launched(module: Module) -> str:
    """The ops that main's launches compute, in order."""
    launches = [op for op in module.main.body.ops if op.kind == LAUNCH]
    return " ".join(o.kind.split(".")[1] for op in launches for o in op.regions[0].ops)


def noted(pass_, module: Module) -> list[tuple[str, str]]:
    """What a pass tells the user of: ``(severity, message)``."""
    context = PassContext()
    pass_.run(module, context)
    return [(n.severity, n.message) for n in context.notes]
