"""Faults planted in the compiler itself, one of each kind that ``--check`` finds: as long as one of
these contexts is open, everything that this process compiles is wrong in its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import core_compiler.ops  # noqa: F401  (declares the ops)
from core_compiler.ir import Op
from core_compiler.ops.base import REGISTRY
from core_compiler.passes import plan_memory
from core_compiler.passes.canonicalise import Canonicalise
from core_compiler.passes.decompose import Decompose
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.outline_kernels import OutlineKernels
from core_compiler.scheduling.schedules.steps import Step
from core_compiler.targets.cpu import CPU
from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers.optimizers import SGD
from core_compiler.training.passes.apply_optimizer import ApplyOptimizer
from tests.debug.faults import EachOp, backwards, by_reciprocal, edited


@contextmanager
def after(kind: type, change: Callable[[Any, Any], Any]) -> Iterator[None]:
    """``change(module, context)`` is done to whatever a kind of pass has made."""
    run = kind.run
    with patch.object(kind, "run", lambda self, m, context: change(run(self, m, context), context)):
        yield


def where_it_can(function, change: Callable[[Op], list[Op] | None]):
    """``faults.edited``, of functions that have something to break."""
    try:
        return edited(function, change)
    except AssertionError:
        return function


# -- lowering, and what no event speaks of ---------------------------------------------------------


def _sine(op: Op) -> Op:
    return op.with_(kind="core.sin", origin=None) if op.kind == "core.tanh" else op


def lowering():
    """Decomposing takes tanh for sin, and says so in an event."""

    def edit(rewriter, op):
        if op.kind == "core.tanh":
            rewriter.replace(op, _sine(op), rule="lower core.tanh")

    return after(Decompose, lambda module, context: EachOp(edit).run(module, context))


def unlogged():
    """Canonicalising takes tanh for sin, without an event."""

    def edit(module, context):
        body = module.main.body
        return module.with_main(body.with_(ops=tuple(map(_sine, body.ops))))

    return after(Canonicalise, edit)


def raises_on_nodes():
    """A pass on the ONNX graph raises."""
    from core_compiler.onnx_level.passes.eliminate_dead_nodes import EliminateDeadNodes

    def edit(module, context):
        raise ZeroDivisionError("division by zero")

    return after(EliminateDeadNodes, edit)


# -- state -----------------------------------------------------------------------------------------


def state_not_written():
    """Eliminating dead code keeps what a state was where its next value should be."""

    def edit(module, context):
        main = module.main
        outputs = list(main.outputs)
        for result, argument in main.attributes.get("aliases", ()):
            outputs[result] = main.arguments[argument]
        return module.with_main(main.body.with_(outputs=tuple(outputs)))

    return after(EliminateDeadCode, edit)


def parameter_not_written():
    """The optimiser's pass forgets the first parameter that moves."""

    def edit(module, context):
        main, roles = module.main, Roles.of(module.main)
        place, (_, of) = next(
            (i, row)
            for i, row in enumerate(roles.results)
            if row[0] == "next" and roles.arguments[row[1]][0] == "parameter"
        )
        outputs = list(main.outputs)
        outputs[place] = main.arguments[of]
        return module.with_main(main.body.with_(outputs=tuple(outputs)))

    return after(ApplyOptimizer, edit)


# -- memory ----------------------------------------------------------------------------------------


@contextmanager
def overlap():
    """Every temporary lies at the beginning of the arena."""
    plan = plan_memory.plan

    def wrong(problem, planner):
        made = plan(problem, planner)
        return replace(made, offsets=(0,) * len(made.offsets))

    with (
        patch.object(plan_memory, "plan", wrong),
        patch.object(plan_memory, "verify", lambda made: []),
    ):
        yield


# -- kernels ---------------------------------------------------------------------------------------


def plain_loops():
    """Outlining writes a quotient as a product with the reciprocal."""

    def edit(module, context):
        for function in module.functions.values():
            if function.level == "kernel":
                module = module.with_function(where_it_can(function, by_reciprocal))
        return module

    return after(OutlineKernels, edit)


@contextmanager
def schedule(step: Callable = backwards):
    """A step of the schedule runs loops that carry a sum from their end."""
    right = CPU.schedule

    def wrong(self, kernel, options, launches=()):
        made = right(self, kernel, options, launches)
        function = where_it_can(made.function, step)
        if function is made.function:
            return made
        steps = (*made.steps, Step("unroll(k)", kernel.name, function))
        return replace(made, function=function, steps=steps)

    with patch.object(CPU, "schedule", wrong):
        yield


@contextmanager
def schedule_seen_late():
    """The same, where only machine code shows it: a place that no part of a launch has."""
    with schedule(), patch("core_compiler.debug.judge.check_schedules", lambda *given: iter(())):
        yield


@contextmanager
def machine_code():
    """Code generation writes a quotient as a product with the reciprocal."""
    right = CPU.compile

    def wrong(self, kernels, options, progress):
        broken = {name: where_it_can(f, by_reciprocal) for name, f in kernels.items()}
        return right(self, broken, options, progress)

    with patch.object(CPU, "compile", wrong):
        yield


# -- the linked program ----------------------------------------------------------------------------


@contextmanager
def linked():
    """The last launch of the program itself gets a wrong stride; single launches are right."""
    right = CPU.link

    def wrong(self, module, facts, options):
        program, arrays, ops = right(self, module, facts, options)
        if "program" in facts or not program.launches:
            return program, arrays, ops
        *others, last = program.launches
        moved = replace(last, indices=(*last.indices[:-1], last.indices[-1] - 1))
        return replace(program, launches=(*others, moved)), arrays, ops

    with patch.object(CPU, "link", wrong):
        yield


class _Leaves:
    """A program whose results are wrong in some of its calls."""

    def __init__(self, program, wrong):
        self.program, self.wrong, self.calls = program, wrong, 0

    def __getattr__(self, name):
        return getattr(self.program, name)

    def __call__(self, *arrays, **given):
        results = list(self.program(*arrays, **given))
        self.calls += 1
        if self.wrong(self.calls):
            results[0] = results[0] + np.ones_like(results[0])
        return tuple(results)


@contextmanager
def calls(wrong: Callable[[int], bool]):
    """Wrong in the calls (from 1) for which ``wrong`` holds; single launches are right."""
    link, load, made = CPU.link, CPU.load, []

    def linked_(self, module, facts, options):
        found = link(self, module, facts, options)
        if "program" not in facts:  # the program itself, not one that checks its launches
            made.append(found[0])
        return found

    def loaded(self, module, facts, threads=0):
        program = load(self, module, facts, threads)
        is_whole = any(facts["program"][0] is each for each in made)
        return _Leaves(program, wrong) if is_whole else program

    with patch.object(CPU, "link", linked_), patch.object(CPU, "load", loaded):
        yield


def first_call():
    """Right only once memory has been written before."""
    return calls(lambda call: call == 1)


def later_calls():
    """What is left of a call spoils the next."""
    return calls(lambda call: call > 1)


# -- training --------------------------------------------------------------------------------------


@contextmanager
def gradient(kind: str = "core.tanh"):
    """The rule of an op's gradient gives half of it."""
    held = REGISTRY[kind]
    right = held.gradient

    def wrong(b, op, given, wanted):
        made = right(b, op, given, wanted)
        return [v and b.mul(v, b.scalar_like(0.5, v)) for v in made]

    with _instead(held, "gradient", wrong):
        yield


@contextmanager
def _instead(held: Any, name: str, value: Any) -> Iterator[None]:
    right = getattr(held, name)
    object.__setattr__(held, name, value)  # it is frozen
    try:
        yield
    finally:
        object.__setattr__(held, name, right)


@contextmanager
def no_gradient(kind: str = "core.tanh"):
    """The rule of an op's gradient says that there is none for one of its operands."""
    with _instead(REGISTRY[kind], "gradient", lambda b, op, given, wanted: [None] * len(wanted)):
        yield


@contextmanager
def update():
    """The optimiser goes the other way."""
    right = SGD.update

    def wrong(self, parameter, gradient_, slots, numbers):
        return right(self, parameter, -gradient_, slots, numbers)

    with patch.object(SGD, "update", wrong):
        yield
