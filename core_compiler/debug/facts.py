"""Independent checks of the facts that passes leave for later ones.

These are the properties that they ensure of the ops, and the schedules with what belongs to them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from core_compiler.ir import Block, Module, Op, Value, attributes_key
from core_compiler.ir.core import structure_key
from core_compiler.ir.target import LAUNCH, Launch
from core_compiler.kernel_ir.verifier import KernelError, verify
from core_compiler.lowering.element_expressions import CannotLower
from core_compiler.lowering.lower import lower_group
from core_compiler.passes.base import CONTROL_FLOW, has_only_empty_results
from core_compiler.passes.decompose import not_composite
from core_compiler.passes.grouping import GROUP, is_free_view, make_group
from core_compiler.passes.layouts import Order, normal


def _needs_a_kernel(op: Op) -> bool:
    return op.kind not in (LAUNCH, "core.constant", *CONTROL_FLOW) and not is_free_view(op)


#: Maps a property that a pass may ensure of main to the ops that must not occur then, except those
#: that the target executes whole.
NONE_OF: Mapping[str, Callable[[Op], bool]] = {
    "no_branches": lambda op: op.kind == "core.if",
    "no_composites": lambda op: not_composite(op) is None,
    "kernels": _needs_a_kernel,
}


def unfulfilled(module: Module, ensures: Collection[str], target: Any) -> list[str]:
    """Return the ops that must not occur after a pass that ``ensures`` this, one line each."""
    unwanted = [NONE_OF[fact] for fact in ensures if fact in NONE_OF]
    return [
        f"{op.kind} remains, which the pass should have lowered"
        for op in (_ops(module.main.body) if unwanted else ())
        if any(test(op) for test in unwanted) and not (target is not None and target.claims(op))
    ]


def _ops(block: Block) -> Iterator[Op]:
    """Yield the ops of a block, including those in loops and branches."""
    for op in block.ops:
        yield op
        for region in op.regions if op.kind in CONTROL_FLOW else ():
            yield from _ops(region)


def malformed(before: Module, module: Module) -> list[str]:
    """Return the errors of kernels that a pass has made or changed, one line each.

    They concern arguments, types, reads before definitions, elements that several iterations of a
    parallel loop store to, and launches of missing kernels.  A target verifies the kernels in its
    own ops itself.
    """
    known = set(before.main.body.ops)
    made = (
        Launch.of(op).kernel for op in module.main.body.ops if op.kind == LAUNCH and op not in known
    )
    absent = dict.fromkeys(name for name in made if name not in module.functions)
    wrong = [f"launched kernel {name} is missing from the module" for name in absent]
    for name, function in module.functions.items():
        own = function.level != "kernel" or "target" in function.attributes
        if own or before.functions.get(name) is function:
            continue
        try:
            verify(function)
        except KernelError as error:
            wrong.append(str(error))
    return wrong


#: Ops that may be free views.  (One that moves elements is in a launch once there are launches;
#: `layouts.is_free_view`, which decides that, is what is checked here.)
_VIEWS = ("core.transpose", "core.reshape")


def not_constants(before: Module, module: Module) -> list[str]:
    """Return the launches that pass a computed value as a kernel's constant, one line each.

    Such operands are constants of the model that are packed in advance
    (`kernels.schedules.library`). Only launches that the pass has made are checked; launches on
    memory are compared with those before.
    """
    known = set(_ops(before.main.body))
    constant: set[Value] = set()
    wrong = []
    for op in _ops(module.main.body):
        if op.kind == "core.constant" or (op.kind in _VIEWS and op.operands[0] in constant):
            constant.update(op.results)
        elif op.kind == LAUNCH and op.results and op not in known:
            wrong += [
                f"kernel {Launch.of(op).kernel} takes a constant of the model, but is launched "
                f"with {value.name or 'a value'}, which is computed"
                for value in _treated_as_constants(op, module)
                if value not in constant
            ]
    return wrong


def _treated_as_constants(launch: Op, module: Module) -> list[Value]:
    """Return the operands or results of a launch that its kernel treats as constants."""
    kernel = module.functions.get(Launch.of(launch).kernel)
    buffers = Launch.of(launch).buffers
    return [buffers[i] for i in kernel.attributes.get("constants", ())] if kernel else []


def layout_mismatches(before: Module, module: Module) -> list[str]:
    """Return the loops that carry a value in another layout than their regions read, one line each.

    Memory is carried byte by byte.
    """
    earlier = set(_layout_mismatches(before))
    return [complaint for complaint in _layout_mismatches(module) if complaint not in earlier]


def _layout_mismatches(module: Module) -> list[str]:
    return [
        f"a loop carries a {value.type}, but its region reads it as {argument.type}"
        for op in _ops(module.main.body)
        if op.kind == "core.while"
        for carried, region in (
            *((op.operands, r) for r in op.regions),
            (op.regions[1].outputs, op.regions[1]),
        )
        for value, argument in zip(carried, region.arguments, strict=True)
        if _order(value) != _order(argument)
    ]


def _order(value: Value) -> Order:
    return normal(value.type.order, value.type.shape)


def unlowerable(before: Module, module: Module, target: Any) -> list[str]:
    """Return the groups of main made by a pass that cannot be lowered to a kernel, one line each.

    Of equal groups, the first is tried.
    """
    known = set(before.main.body.ops) if before.main.level == module.main.level else set()
    tried: set[tuple] = set()
    wrong = []
    for op in module.main.body.ops:
        if op.kind != GROUP or op in known or (target is not None and target.claims(op)):
            continue
        if has_only_empty_results(op):  # becomes constants, not a kernel
            continue
        key = _shape_of(op.regions[0])
        if key in tried:
            continue
        tried.add(key)
        try:
            lower_group(op)
        except CannotLower as error:
            if not _fails_by_itself(op):
                wrong.append(f"a group cannot be lowered to a kernel: {error}")
        except Exception as error:
            if not _fails_by_itself(op):
                wrong.append(f"lowering a group raises {type(error).__name__}: {error}")
    return wrong


def _fails_by_itself(group: Op) -> bool:
    """Return whether lowering also fails for a single op of the group, or supports none of them.

    Then the grouping is not at fault, and the pass that lowers it will raise.
    """
    lowered = False
    for op in group.regions[0].ops:
        try:
            lower_group(make_group((op,), op.results))
        except CannotLower:
            continue
        except Exception:
            return True
        lowered = True
    return not lowered


def _shape_of(block: Block) -> tuple:
    """Return what determines a group's kernel: kinds, attributes, types, and uses."""
    numbers: dict[Value, int] = {}

    def number(value: Value) -> tuple[int, Any]:
        return numbers.setdefault(value, len(numbers)), value.type

    return (
        *map(number, block.arguments),
        *(
            (
                op.kind,
                attributes_key(op.attributes.items()),
                tuple(map(number, op.operands)),
                tuple(map(number, op.results)),
                tuple(map(_shape_of, op.regions)),
            )
            for op in block.ops
        ),
        *map(number, block.outputs),
    )


def schedule_errors(module: Module, facts: Mapping[str, Any]) -> list[str]:
    """Return missing or inconsistent facts of schedules, one line each.

    A launched kernel needs its schedule, the kernels that it invokes, and those that pack its
    constants.
    """
    schedules, packers = facts.get("schedules", {}), facts.get("packers", {})
    wrong = []
    launched = (Launch.of(op).kernel for op in module.main.body.ops if op.kind == LAUNCH)
    for name in dict.fromkeys(launched):
        scheduled = schedules.get(name)
        if scheduled is None:
            wrong.append(f"launched kernel {name} has no schedule")
            continue
        expected = {name: scheduled.function, **scheduled.cores}
        for index, pack in scheduled.launch.pack.items() if scheduled.launch is not None else ():
            packer = packers.get((name, index))
            if packer is None:
                wrong.append(f"buffer {index} of kernel {name} has no packing kernel")
            else:
                expected[packer] = pack
        for needed, function in expected.items():
            actual = module.functions.get(needed)
            if actual is None:
                wrong.append(
                    f"kernel {needed}, which kernel {name} needs, is missing from the module"
                )
            elif actual is not function and _key(actual) != _key(function):
                wrong.append(
                    f"kernel {needed} differs from the result of the schedule of kernel {name}"
                )
    return wrong


def _key(function: Any) -> str:
    return structure_key(Module({"kernel": function.with_(name="kernel")}))
