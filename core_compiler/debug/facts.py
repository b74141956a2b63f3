"""Independent checks of what passes leave for those after them: what they ensure of the ops, and
the schedules with what belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from core_compiler.ir import Block, Module, Op, Value, attributes_key
from core_compiler.ir.core import structure_key
from core_compiler.kernel_ir.verifier import KernelError, verify
from core_compiler.lowering.element_expressions import CannotLower
from core_compiler.lowering.lower import lower_group
from core_compiler.passes.base import CONTROL_FLOW, makes_nothing
from core_compiler.passes.decompose import not_composite
from core_compiler.passes.grouping import GROUP, is_free_view, make_group
from core_compiler.passes.layouts import Order, normal
from core_compiler.passes.outline_kernels import LAUNCH


def _needs_a_kernel(op: Op) -> bool:
    return op.kind not in (LAUNCH, "core.constant", *CONTROL_FLOW) and not is_free_view(op)


#: What a pass may ensure of the ops of main -> which ops there are none of then, but for what the
#: target executes whole.
NONE_OF: Mapping[str, Callable[[Op], bool]] = {
    "no_branches": lambda op: op.kind == "core.if",
    "no_composites": lambda op: not_composite(op) is None,
    "kernels": _needs_a_kernel,
}


def broken(module: Module, ensures: Collection[str], target: Any) -> list[str]:
    """The ops that there should be none of after a pass that ``ensures`` so, one line each."""
    unwanted = [NONE_OF[fact] for fact in ensures if fact in NONE_OF]
    return [
        f"{op.kind} is left, which the pass should have lowered"
        for op in (_ops(module.main.body) if unwanted else ())
        if any(test(op) for test in unwanted) and not (target is not None and target.claims(op))
    ]


def _ops(block: Block) -> Iterator[Op]:
    """The ops of a block and of the loops and branches in it."""
    for op in block.ops:
        yield op
        for region in op.regions if op.kind in CONTROL_FLOW else ():
            yield from _ops(region)


def malformed(before: Module, module: Module) -> list[str]:
    """What is wrong with kernels that a pass has made or changed, one line each: arguments, types,
    reads before definitions, places that several iterations of a parallel loop store to; launches
    that it made of kernels that are not there.  Kernels in ops of a target's own are its own to
    verify."""
    known = set(before.main.body.ops)
    made = (op["kernel"] for op in module.main.body.ops if op.kind == LAUNCH and op not in known)
    absent = dict.fromkeys(name for name in made if name not in module.functions)
    wrong = [f"the module has no kernel {name}, which it launches" for name in absent]
    for name, function in module.functions.items():
        own = function.level != "kernel" or "target" in function.attributes
        if own or before.functions.get(name) is function:
            continue
        try:
            verify(function)
        except KernelError as error:
            wrong.append(str(error))
    return wrong


#: Ops that read another's elements where they lie.  (One that moves them is in a launch, where
#: there are launches; `layouts.is_free_view`, which says so, is what is checked here.)
_VIEWS = ("core.transpose", "core.reshape")


def not_constants(before: Module, module: Module) -> list[str]:
    """The launches that a pass has made and that give a kernel a computed value for what it takes
    for a constant of the model (`kernels.schedules.library`: laid out beforehand), one line each.
    Launches that are given memory are held to those before them."""
    known = set(_ops(before.main.body))
    constant: set[Value] = set()
    wrong = []
    for op in _ops(module.main.body):
        if op.kind == "core.constant" or (op.kind in _VIEWS and op.operands[0] in constant):
            constant.update(op.results)
        elif op.kind == LAUNCH and op.results and op not in known:
            wrong += [
                f"kernel {op['kernel']} is launched with {value.name or 'a value'}, which is "
                "computed, for a constant of the model"
                for value in _taken_for_constants(op, module) if value not in constant
            ]  # fmt: skip
    return wrong


def _taken_for_constants(launch: Op, module: Module) -> list[Value]:
    """The operands or results of a launch that its kernel takes for constants."""
    kernel = module.functions.get(launch["kernel"])
    buffers = [a for a in launch["arguments"] if a[0] != "size"]
    found = (buffers[place] for place in kernel.attributes.get("constants", ())) if kernel else ()
    return [(launch.operands if kind == "operand" else launch.results)[n] for kind, n in found]


def relaid(before: Module, module: Module) -> list[str]:
    """The loops that a pass leaves carrying a value in another order of its elements than their
    regions read it in, one line each: memory is carried byte by byte."""
    had = set(_relaid(before))
    return [complaint for complaint in _relaid(module) if complaint not in had]


def _relaid(module: Module) -> list[str]:
    return [
        f"a loop carries a {value.type}, and its region reads it as {argument.type}"
        for op in _ops(module.main.body) if op.kind == "core.while"
        for carried, region in (*((op.operands, r) for r in op.regions),
                                (op.regions[1].outputs, op.regions[1]))
        for value, argument in zip(carried, region.arguments, strict=True)
        if _order(value) != _order(argument)
    ]  # fmt: skip


def _order(value: Value) -> Order:
    return normal(value.type.order, value.type.shape)


def unlowerable(before: Module, module: Module, target: Any) -> list[str]:
    """The groups of main that a pass has made and that no kernel can be made of, one line each; of
    equal ones the first is tried."""
    known = set(before.main.body.ops) if before.main.level == module.main.level else set()
    tried: set[tuple] = set()
    wrong = []
    for op in module.main.body.ops:
        if op.kind != GROUP or op in known or (target is not None and target.claims(op)):
            continue
        if makes_nothing(op):  # becomes constants, not a kernel
            continue
        key = _shape_of(op.regions[0])
        if key in tried:
            continue
        tried.add(key)
        try:
            lower_group(op)
        except CannotLower as error:
            if not _falls_alone(op):
                wrong.append(f"no kernel can be made of a group: {error}")
        except Exception as error:
            if not _falls_alone(op):
                wrong.append(f"lowering a group raises {type(error).__name__}: {error}")
    return wrong


def _falls_alone(group: Op) -> bool:
    """Whether lowering falls over a single op of the group too, or takes none of them: then it is
    no fault of the group, and the pass that lowers it will raise."""
    taken = False
    for op in group.regions[0].ops:
        try:
            lower_group(make_group((op,), op.results))
        except CannotLower:
            continue
        except Exception:
            return True
        taken = True
    return not taken


def _shape_of(block: Block) -> tuple:
    """What a group's kernel is made of: kinds, attributes, types, and who reads what."""
    numbers: dict[Value, int] = {}

    def number(value: Value) -> tuple[int, Any]:
        return numbers.setdefault(value, len(numbers)), value.type

    return (
        *map(number, block.arguments),
        *((op.kind, attributes_key(op.attributes.items()), tuple(map(number, op.operands)),
           tuple(map(number, op.results)), tuple(map(_shape_of, op.regions)))
          for op in block.ops),
        *map(number, block.outputs),
    )  # fmt: skip


def misfits(module: Module, facts: Mapping[str, Any]) -> list[str]:
    """What is missing or not what the schedules say, one line each: the schedule of a kernel that
    is launched, the kernels that it invokes, those that pack constants for it."""
    schedules, packers = facts.get("schedules", {}), facts.get("packers", {})
    wrong = []
    launched = (op["kernel"] for op in module.main.body.ops if op.kind == LAUNCH)
    for name in dict.fromkeys(launched):
        scheduled = schedules.get(name)
        if scheduled is None:
            wrong.append(f"kernel {name} is launched and has no schedule")
            continue
        expected = {name: scheduled.function, **scheduled.cores}
        for place, pack in scheduled.launch.pack.items() if scheduled.launch is not None else ():
            packer = packers.get((name, place))
            if packer is None:
                wrong.append(f"nothing packs buffer {place} of kernel {name}")
            else:
                expected[packer] = pack
        for own, function in expected.items():
            there = module.functions.get(own)
            if there is None:
                wrong.append(f"the module has no kernel {own}, which kernel {name} needs")
            elif there is not function and _key(there) != _key(function):
                wrong.append(f"kernel {own} is not what the schedule of kernel {name} made")
    return wrong


def _key(function: Any) -> str:
    return structure_key(Module({"kernel": function.with_(name="kernel")}))
