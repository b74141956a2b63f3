"""The verifier: the invariants of every module, whatever pass created it.

It checks SSA (each value defined once, before its uses, also across regions), legality of kinds and
types per level, attributes, aliases, and each op's own type rule, which the caller passes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from core_compiler.ir.attributes import Dense, check_attribute
from core_compiler.ir.core import Block, Function, Module, Op, Value
from core_compiler.ir.events import ERROR, Diagnostic
from core_compiler.ir.text import print_op
from core_compiler.ir.types import Type

#: Returns the error of an op, or None.
TypeRuleCheck = Callable[[Op], str | None]


@dataclass(frozen=True)
class LevelRules:
    """The legal op kinds (None: any), types of values and type rules of a level."""

    kinds: frozenset[str] | None = None
    types: tuple[type[Type], ...] = (Type,)
    type_rule: TypeRuleCheck = lambda op: None


def verify(module: Module, level_rules: Mapping[str, LevelRules]) -> list[Diagnostic]:
    """Return all errors of ``module``, in program order; empty if it is valid.

    ``level_rules`` maps a level to its rules; ``kernel@name`` are those of functions whose
    attribute ``target`` is ``name``, if that target has its own.
    """
    found: list[Diagnostic] = []
    for name, function in module.functions.items():
        if name != function.name:
            message = f"function @{function.name} is registered as @{name}"
            found.append(Diagnostic(ERROR, message, function.name))
        own = f"{function.level}@{function.attributes.get('target', '')}"
        rules = level_rules.get(own) or level_rules.get(function.level)
        if rules is None:
            message = f"no rules for level {function.level!r} (known: {', '.join(level_rules)})"
            found.append(Diagnostic(ERROR, message, function.name))
        else:
            found += _FunctionVerifier(function, rules).run()
    if "main" not in module.functions:
        found.append(Diagnostic(ERROR, "function @main not found"))
    return found


def where_of(op: Op | None) -> str:
    """Return ``file:line`` of the op's first model line; empty if its origin has none."""
    if op is None or op.origin is None:
        return ""
    return next((f"{n.file}:{n.line}" for n in op.origin.nodes() if n.file), "")


class _FunctionVerifier:
    def __init__(self, function: Function, rules: LevelRules):
        self._function, self._rules = function, rules
        self._found: list[Diagnostic] = []
        #: Every value defined so far, and whether it is visible at this point.
        self._visible: dict[Value, bool] = {}

    def run(self) -> list[Diagnostic]:
        for message in bad_attributes(self._function.attributes):
            self._report(None, message)
        for message in bad_aliases(self._function):
            self._report(None, message)
        self._block(self._function.body, None)
        return self._found

    def _report(self, op: Op | None, message: str) -> None:
        if op is not None:
            message = f"{message}, in {_shown(op)}"
        self._found.append(Diagnostic(ERROR, message, self._function.name, op, where_of(op)))

    def _block(self, block: Block, owner: Op | None) -> None:
        self._define(block.arguments, owner)
        for op in block.ops:
            self._op(op)
        for value in block.outputs:
            self._use(value, owner, "is returned")
        for value in (*block.arguments, *(v for op in block.ops for v in op.results)):
            self._visible[value] = False

    def _op(self, op: Op) -> None:
        for value in op.operands:
            self._use(value, op, "is used")
        for region in op.regions:
            self._block(region, op)
        self._define(op.results, op)
        rules = self._rules
        level = self._function.level
        if rules.kinds is not None and op.kind not in rules.kinds:
            self._report(op, f"{op.kind} is not legal at level {level}")
        wrong = list(bad_attributes(op.attributes))
        for message in wrong:
            self._report(op, message)
        if not wrong and (problem := rules.type_rule(op)):
            self._report(op, problem)

    def _use(self, value: Value, op: Op | None, how: str) -> None:
        if self._visible.get(value):
            return
        if value in self._visible:
            self._report(op, f"{_name(value)} {how} outside the region that defines it")
        else:
            self._report(op, f"{_name(value)} {how} before it is defined")

    def _define(self, values: tuple[Value, ...], op: Op | None) -> None:
        for value in values:
            if value in self._visible:
                self._report(op, f"{_name(value)} is defined twice")
            self._visible[value] = True
            if not isinstance(value.type, self._rules.types):
                legal = f"type {value.type} is not legal at level {self._function.level}"
                self._report(op, f"{_name(value)}: {legal}")


def bad_attributes(attributes: Mapping[str, object]) -> Iterator[str]:
    """Yield the errors of attributes: names, kinds of value, constants with wrong byte counts."""
    for name, value in attributes.items():
        if not isinstance(name, str) or not name:
            yield f"{name!r} is not an attribute name"
        try:
            check_attribute(value)
        except TypeError as problem:
            yield f"attribute {name}: {problem}"
        if isinstance(value, Dense) and len(value.data) != value.type.bytes:
            yield f"attribute {name}: {len(value.data)} bytes for {value.type}"


def bad_aliases(function: Function) -> Iterator[str]:
    """Yield the errors of ``aliases = ((result, argument), ...)``.

    Each result and each argument may occur once, with equal types (a donated argument's memory is
    the result's).
    """
    aliases = function.attributes.get("aliases", ())
    fine = isinstance(aliases, tuple) and all(
        isinstance(p, tuple) and len(p) == 2 and all(type(i) is int for i in p) for p in aliases
    )
    if not fine or not isinstance(aliases, tuple):
        yield f"aliases must be (result, argument) pairs, got {aliases!r}"
        return
    results: set[int] = set()
    arguments: set[int] = set()
    for pair in aliases:
        result, argument = cast("tuple[int, int]", pair)
        if not 0 <= result < len(function.outputs):
            yield f"aliases name result {result} of {len(function.outputs)}"
        elif not 0 <= argument < len(function.arguments):
            yield f"aliases name argument {argument} of {len(function.arguments)}"
        elif function.outputs[result].type is not function.arguments[argument].type:
            types = function.outputs[result].type, function.arguments[argument].type
            yield f"result {result} is {types[0]}, its aliased argument {argument} is {types[1]}"
        if result in results or argument in arguments:
            yield f"result {result} or argument {argument} is aliased twice"
        results.add(result)
        arguments.add(argument)


def _shown(op: Op) -> str:
    try:
        return print_op(op)
    except (TypeError, ValueError):  # malformed attributes
        return repr(op)


def _name(value: Value) -> str:
    return f"%{value.name}" if value.name else f"a value of type {value.type}"
