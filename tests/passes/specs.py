"""A pass as a specification: run it, compare with the program expected, check the numbers."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Sequence

import numpy as np

from core_compiler.debug.bits import same_bits
from core_compiler.debug.check import Checker
from core_compiler.debug.evaluate import Evaluator, Values
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Compilation
from core_compiler.driver.legality import levels
from core_compiler.ir import Module, Op, Rewrite, Value
from core_compiler.ir.parser import parse
from core_compiler.ir.rewriter import Budget
from core_compiler.ir.text import print_module
from core_compiler.ir.verifier import verify
from core_compiler.passes.base import Pass, PassContext
from core_compiler.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.simplify_shapes import SimplifyShapes
from tests.passes.programs import inputs, program


def apply(pass_: Pass, module: Module, limit: int | None = None, target=None, facts=None):
    """(module after, rewrites): the pass alone, the result verified."""
    context = PassContext(target=target, budget=Budget(limit), facts={} if facts is None else facts)
    after = pass_.run(module, context)
    assert_valid(after)
    return after, context.rewrites


def assert_valid(module: Module) -> None:
    errors = verify(module, levels())
    assert not errors, f"{errors[0]}\n{print_module(module)}"


def live(module: Module) -> Module:
    """Main without dead ops, in one order and without names: what two equal programs share."""
    makers = module.main.body.producers()
    ops: list[Op] = []
    seen: set[Op] = set()

    def visit(value: Value) -> None:
        op = makers.get(value)
        if op is None or op in seen:
            return
        seen.add(op)
        for operand in op.uses():
            visit(operand)
        ops.append(op)

    for value in module.main.outputs:
        visit(value)
    fresh = {v: Value(v.type) for op in ops for v in op.results}
    renamed = [
        op.substitute(fresh).with_(results=tuple(fresh[v] for v in op.results)) for op in ops
    ]
    outputs = tuple(fresh.get(v, v) for v in module.main.outputs)
    return module.with_main(module.main.body.with_(ops=tuple(renamed), outputs=outputs))


def assert_same_program(got: Module, wanted: Module) -> None:
    got_text, wanted_text = (print_module(live(m)) for m in (got, wanted))
    if got_text != wanted_text:
        lines = difflib.unified_diff(
            wanted_text.splitlines(), got_text.splitlines(), "expected", "got", lineterm=""
        )
        raise AssertionError("\n".join(lines))


def simplified(module: Module) -> Module:
    """The module with its views and equal ops merged: what two programs share that move data in
    different steps."""
    for pass_ in (FoldConstants(), SimplifyShapes(), EliminateCommonSubexpressions()):
        module, _ = apply(pass_, module)
    return module


def body_text(module: Module) -> list[str]:
    """The lines of main's ops, unindented."""
    text = print_module(module)
    main = text[text.index("^bb0") :]
    return [line.strip() for line in main.splitlines()[1:] if line.startswith("    ")]


def outputs(module: Module, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Main's results by the references."""
    values = Values(
        Evaluator(module.weights), dict(zip(module.main.arguments, arrays, strict=True))
    )
    values.learn(module.main.body.ops)
    return [values[v] for v in module.main.outputs]


def assert_same_results(before: Module, after: Module, special: bool = True) -> None:
    for seed in (0, 1):
        arrays = inputs(before, seed, special)
        for a, b in zip(outputs(before, arrays), outputs(after, arrays), strict=True):
            assert same_bits(a, b)


def check(before: Module, after: Module, rewrites: Sequence[Rewrite], exact: bool, special=False):
    """Check every rewrite on real tensors; the records."""
    records = Checker(before, inputs(before, 0, special)).stage(rewrites, exact, before, after)
    bad = [r for r in records if r.verdict not in ("bitwise", "within")]
    assert not bad, f"{bad[0].verdict}: {bad[0].rewrite.rule}: {bad[0].note}"
    return records


def root_of(module: Module) -> Op:
    """The op that makes main's first result."""
    return module.main.body.producers()[module.main.outputs[0]]


def rules_fired(rewrites: Sequence[Rewrite]) -> list[str]:
    return [r.rule for r in rewrites]


def module_of(arguments: str, body: str):
    """A module from main's arguments and the lines of its body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return parse(
        f'module {{\n  "core.func"() ({{\n  ^bb0({arguments}):\n{lines}\n'
        '  }) {level = "tensor", sym_name = "main"} : () -> ()\n}\n'
    )


def becomes(pass_: Pass, arguments: str, before: str, after: str, rules: list[str]) -> None:
    """``before`` -> ``after`` line by line, by just these rewrites, with the bits kept."""
    module = module_of(arguments, before)
    made, rewrites = apply(pass_, module)
    assert rules_fired(rewrites) == rules
    assert body_text(made) == body_text(module_of(arguments, after))
    assert_same_results(module, made)
    if not rules:
        assert made is module


def reach(pass_: str, build: Callable, *types: str, target: str = "cpu") -> Compilation:
    """A compile of ``program(build, *types)`` whose next pass is ``pass_``."""
    made = compilation.start(program(build, *types), target)
    while made.next is not None and made.next.pass_.name() != pass_:
        made.step()
    assert made.next is not None, f"no {pass_} in the pipeline of {target}"
    return made


def kinds(module: Module) -> list[str]:
    """The kinds of main's ops without constants, those of a group or a launch in brackets."""
    found = []
    for op in module.main.body.ops:
        inner = [o.kind.split(".")[1] for r in op.regions for o in r.ops]
        name = op.kind.split(".")[1]
        if op.kind != "core.constant":
            found.append(f"{name}({' '.join(inner)})" if inner else name)
    return found
