"""Inlining of local functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from typing_extensions import override

from core_compiler.ir import Function, Module, Op, Value
from core_compiler.ir.rewriter import RewriteLimit
from core_compiler.ir.verifier import where_of
from core_compiler.onnx_level.dialect import LEVEL, NOTHING, domain_and_type, function_name
from core_compiler.onnx_level.inline import expand_call, reuse_results
from core_compiler.onnx_level.legality import find_error
from core_compiler.onnx_level.passes.convert_version import converted
from core_compiler.passes.base import Pass
from core_compiler.support.errors import UserError

#: The maximum number of nodes after inlining: functions may call functions.
NODES = 500_000


@dataclass(frozen=True)
class InlineFunctions(Pass):
    """Replace calls of the model's own functions by their bodies."""

    half = "source"
    requires = frozenset({"onnx_nodes"})

    @override
    def run(self, module, context):
        functions = {n: f for n, f in module.functions.items() if n != "main"}
        if not functions:
            return module
        _check_recursion(functions)
        opsets = dict(module.main.attributes["opsets"])
        made, foreign = 0, set()

        def edit(rewriter):
            nonlocal made
            work = list(rewriter.ops)
            while work:
                call = work.pop()
                function = functions.get(function_name(call))
                if function is None:
                    continue
                _check_call(call, function)
                ops, values = expand_call(function, call)
                _check_body(call, ops, values)
                made += len(ops)
                if made > NODES:
                    raise UserError(
                        f"the functions expand to more than {NODES} nodes",
                        "inline",
                        "the model is damaged; export it again",
                    )
                ops, mapping = reuse_results(call, values, ops)
                work += rewriter.replace(call, ops, mapping, rule=f"inline {function.name}")
                own = dict(function.attributes["opsets"])
                if own.get("", opsets.get("")) != opsets.get(""):
                    foreign.add(function.name)
                for domain, version in own.items():
                    opsets.setdefault(domain, version)

        main = Module({"main": module.main}, module.weights, module.symbols)
        main = context.rewrite(main, edit, LEVEL)
        while (
            any(function_name(op) in functions for op in main.walk()) and context.budget.left != 0
        ):
            main = context.rewrite(main, edit, LEVEL)  # calls within subgraphs of bodies
        if foreign:  # bodies of another version
            main, unsupported = converted(main, opsets[""], context)
            if unsupported:
                op, reason = unsupported[0]
                raise UserError(
                    f"{domain_and_type(op)[1]} in a function: {reason}",
                    sorted(foreign)[0],
                    "export the model with one version of ONNX",
                )
        facts = {**main.main.attributes, "opsets": tuple(sorted(opsets.items()))}
        left = {function_name(op) for op in main.walk()} & functions.keys()
        kept = functions if left else {}
        module = module.with_(functions={"main": main.main, **kept})
        inlined = main.main.with_(attributes=facts)
        return context.with_function(module, inlined, rule="versions of a function's ops")


def _check_call(call: Op, function: Function) -> None:
    """Raise UserError if a call has more inputs or outputs than its function."""
    for what, given, own in (
        ("takes", call.operands, function.arguments),
        ("returns", call.results, function.outputs),
    ):
        if len(given) > len(own):
            raise UserError(
                f"function {function.name} {what} {len(own)} tensors, a call names {len(given)}",
                where_of(call) or "inline_functions",
                "the file is damaged; export it again",
            )


def _check_body(call: Op, body: Sequence[Op], values: Sequence[Value]) -> None:
    """Raise UserError if the arguments of a call are invalid for the nodes that use them.

    Also raise it if a result is an input that the call omits.
    """
    inner = (op for each in body for op in each.walk())
    problem = next((found for op in inner if (found := find_error(op))), None)
    if problem is None and any(v.type is NOTHING for v in values[: len(call.results)]):
        problem = "a result is an omitted input"
    if problem:
        raise UserError(
            f"{problem}, in a call of {function_name(call)}",
            where_of(call) or "inline_functions",
            "the file is damaged; export it again",
        )


def _check_recursion(functions: Mapping[str, Function]) -> None:
    """Raise UserError if a function calls itself, directly or indirectly."""
    done: set[str] = set()

    def visit(name: str, callers: tuple[str, ...]) -> None:
        if name in callers:
            raise UserError(
                f"function {name} calls itself",
                "inline_functions",
                "the file is damaged; export it again",
            )
        if name in done:
            return
        for op in functions[name].body.walk():
            if function_name(op) in functions:
                visit(function_name(op), (*callers, name))
        done.add(name)

    for name in functions:
        with suppress(RewriteLimit):
            visit(name, ())
