"""Translation of a StableHLO program to a module: one traversal, with inlined calls.

All unsupported ops are reported together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np

from core_compiler.frontends.base import (
    Imported,
    Unsupported,
    read_sources,
    unique_names,
    unsupported_ops_error,
)
from core_compiler.frontends.stablehlo import ops, polymorphic
from core_compiler.frontends.stablehlo.nodes import INLINED_CALLS, RETURNS, run_nodes
from core_compiler.frontends.stablehlo.origins import LISTING, Origins
from core_compiler.frontends.stablehlo.reading import (
    OPS,
    REWRITE_FIX,
    NotSupported,
    attribute_of,
    functions_of,
    model_function,
    parsed,
    python_of,
    symbol,
    type_of,
)
from core_compiler.frontends.stablehlo.regions import signature
from core_compiler.frontends.stablehlo.table import TABLE, Context
from core_compiler.ir import (
    Block,
    FrontendNode,
    Function,
    Module,
    Origin,
    Value,
    WeightStore,
)
from core_compiler.ir.framework import Nodes
from core_compiler.ops.base import TypeRuleError
from core_compiler.support.errors import UserError

__all__ = ["import_program", "ops"]


def import_program(
    program: str | bytes,
    *,
    name: str = "program",
    inputs: Sequence[np.ndarray] | None = None,
    sizes: Mapping[str, int] | None = None,
    read_files: bool = False,
    inputs_named: Sequence[str] = (),
    outputs_named: Sequence[str] = (),
    weights: Mapping[int, tuple[str, np.ndarray]] | None = None,
    op_lines: Mapping[str, tuple[str, int]] | None = None,
    statistics: Collection[str] = (),
) -> Imported:
    """Import trusted StableHLO text or bytecode.

    MLIR parses the program in this process, so a damaged program can crash it.

    ``inputs``      example inputs in order: their sizes bind those that the program leaves open.
    ``sizes``       sizes of open dimensions by name: ``input`` and axis, as ``x_0``; the default
                    is 1.
    ``read_files``  read the Python files that the locations name, for the source view.
    ``inputs_named``, ``outputs_named``  names instead of the program's own.
    ``weights``     arguments by position, each with a name: they become constants of the module
                    instead of arguments (``inputs_named`` names the others); those named in
                    ``statistics`` are not parameters that training changes.
    ``op_lines``      file and line of ops by the path that their location names.

    The function ``main``, or the only public one, is the model.  Raise UserError for text that MLIR
    rejects, for open dimensions that cannot be bound, and for unsupported ops (all of them).
    """
    with parsed(program, name) as module, _converting_errors(name):
        importer = Importer(module, name, isinstance(program, str), op_lines or {})
        importer.statistics = frozenset(statistics)
        function = model_function(importer.functions, name)
        bound = polymorphic.bind(module, function, name, inputs or (), sizes or {})
        executed = _bytecode(module) if bound else program
        try:
            importer.main(inputs_named, outputs_named, weights or {})
        except NotSupported as problem:
            if not importer.unsupported:
                raise UserError(
                    str(problem), name, "the program is damaged; " + REWRITE_FIX
                ) from None
    if importer.unsupported:
        raise unsupported_ops_error(importer.unsupported, name)
    body = Block(tuple(importer.arguments), tuple(importer.ops), tuple(importer.results))
    files = read_sources([n for n in importer.files if n != LISTING]) if read_files else {}
    listing = program if isinstance(program, str) else "\n".join(importer.lines) + "\n"
    facts: dict[str, Any] = {"frontend": "stablehlo", "bound": bound}
    arrays = {place: array for place, (_, array) in (weights or {}).items()}
    nodes = Nodes(
        "jax",
        importer.nodes,
        partial(run_nodes, executed, arrays, list(importer.nodes)),
        undefined={n for n in importer.nodes if n.startswith(_PARTIAL_OPS)},
    )
    return Imported(
        Module({"main": Function("main", body)}, importer.weights),
        tuple(v.name or "" for v in importer.arguments),
        tuple(importer.result_names),
        {LISTING: listing, **files},
        facts,
        nodes=nodes,
    )


def _bytecode(module: Any) -> bytes:
    held = BytesIO()
    module.operation.write_bytecode(held)
    return held.getvalue()


@contextmanager
def _converting_errors(name: str) -> Iterator[None]:
    """Raise UserError for errors that only occur during the traversal of a program."""
    try:
        yield
    except RecursionError:
        raise UserError(
            "regions or calls are nested too deep",
            name,
            "inline the functions, and write the program again",
        ) from None
    except (RuntimeError, UnicodeDecodeError) as problem:
        if isinstance(problem, RuntimeError) and "conversion error" not in str(problem):
            raise  # only the bindings raise this, for text in bytecode
        raise UserError("a name in the program is not valid UTF-8", name, REWRITE_FIX) from None


#: Nodes that are not defined on all operands: factorisations and solutions of singular matrices.
_PARTIAL_OPS = ("custom_call", "triangular_solve", "cholesky")


class Importer:
    """The state of an import.

    ``env`` maps the program's values to ours, ``made`` ours to their defining ops.
    """

    def __init__(self, module: Any, name: str, text: bool, op_lines: Mapping[str, tuple[str, int]]):
        self.module, self.name = module, name
        self.weights = WeightStore()
        self.statistics: frozenset[str] = frozenset()
        self.env: dict[Any, Value] = {}
        self.made: dict[Value, Any] = {}
        self.arguments: list[Value] = []
        self.results: list[Value] = []
        self.result_names: list[str] = []
        self.ops: list = []
        self.unsupported: list[Unsupported] = []
        self.files: dict[str, None] = {}
        self.functions = functions_of(module)
        self.calls: list[str] = []
        self.lines: list[str] = []
        self.shape: tuple | None = None
        self._kept_modules: list[Any] = []
        self._expanded_node: FrontendNode | None = None
        self._callers: list[FrontendNode] = []
        self._origins, self._text = Origins(op_lines), text
        #: The results of each op that is executed by itself (`nodes`), by the node's name.
        self.nodes: dict[str, tuple[Value, ...]] = {}
        self._nesting = 0

    # -- functions -------------------------------------------------------------------------------

    def main(
        self,
        inputs_named: Sequence[str],
        outputs_named: Sequence[str],
        weights: Mapping[int, tuple[str, np.ndarray]],
    ) -> None:
        """Translate the model's function: its arguments, its body, its results."""
        function = model_function(self.functions, self.name)
        block = self._entry(function)
        for position, (name, array) in weights.items():
            self.env[block.arguments[position]] = self._weight(name, array)
        own = [v for i, v in enumerate(block.arguments) if i not in weights]
        names = unique_names(
            [
                _name_at(inputs_named, i) or _name_in(str(argument.location)) or f"input{i}"
                for i, argument in enumerate(own)
            ]
        )
        for argument, name in zip(own, names, strict=True):
            try:
                value = Value(type_of(argument.type), name)
            except NotSupported as problem:
                fix = "use real numbers and known sizes"
                raise UserError(f"unsupported input {name!r}: {problem}", self.name, fix) from None
            self.arguments.append(value)
            self.env[argument] = value
        self.results = self._block(block)
        result_facts = _dictionaries(function, "res_attrs", len(self.results))
        self.result_names = unique_names(
            [
                _name_at(outputs_named, i) or _result_name(facts, i)
                for i, facts in enumerate(result_facts)
            ]
        )

    def _weight(self, name: str, array: np.ndarray) -> Value:
        """Return a constant that replaces an argument of the function."""
        scope = "/".join(name.split("/")[:-1])
        kind = "buffer" if name in self.statistics else "parameter"
        context = Context(Origin.root(FrontendNode(name, kind, scope=scope)), None, self)
        value = context.constant(array, name=name)
        self.take(context)
        return value

    def _entry(self, function: Any) -> Any:
        blocks = list(function.regions[0].blocks)
        if len(blocks) != 1:
            raise NotSupported(f"expected one block in {symbol(function)}, got {len(blocks)}")
        return blocks[0]

    def call(self, name: str, operands: Sequence[Value], node: FrontendNode) -> list[Value]:
        """Inline the body of a function for the call at ``node``."""
        function = self.functions.get(name)
        if function is None:
            raise NotSupported(f"unknown function {name!r}")
        if name in self.calls:
            raise NotSupported(f"function {name!r} calls itself")
        self.calls.append(name)
        self._callers.append(node)
        try:
            block = self._entry(function)
            self.env.update(zip(block.arguments, operands, strict=True))
            return self._block(block)
        finally:
            self.calls.pop()
            self._callers.pop()

    def comparison(self, name: str) -> str | None:
        """Return the direction in which a function compares its first two arguments.

        None if the function does anything else.
        """
        rows = signature(self.functions[name].regions[0]) if name in self.functions else ()
        if len(rows) == 2 and rows[0][0] == "compare" and rows[0][2] == (0, 1):
            return rows[0][1]
        return None

    def inline_block(
        self, module: Any, block: Any, operands: Sequence[Value], node: FrontendNode
    ) -> tuple[Value, ...]:
        """Inline a block of another module for the op at ``node``.

        ``module`` is kept alive as long as its values.
        """
        self._kept_modules.append(module)
        outer, self._expanded_node = self._expanded_node, node
        self._nesting += 1
        try:
            self.env.update(zip(block.arguments, operands, strict=True))
            return tuple(self._block(block))
        finally:
            self._expanded_node = outer
            self._nesting -= 1

    # -- blocks and ops --------------------------------------------------------------------------

    def region(self, region: Any, arguments: Sequence[Value]) -> Block:
        """Translate a region to a block over ``arguments``, with separate ops.

        The region may use outer values.
        """
        (inner,) = region.blocks
        outer, self.ops = self.ops, []
        self._nesting += 1
        try:
            self.env.update(zip(inner.arguments, arguments, strict=True))
            outputs = self._block(inner)
            return Block(tuple(arguments), tuple(self.ops), tuple(outputs))
        finally:
            self.ops = outer
            self._nesting -= 1

    def lifted(self, region: Any, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Inline a region of scalars on tensors of one shape, element by element."""
        (inner,) = region.blocks
        outer, self.shape = self.shape, arguments[0].type.shape
        self._nesting += 1
        try:
            self.env.update(zip(inner.arguments, arguments, strict=True))
            return tuple(self._lift(value) for value in self._block(inner))
        finally:
            self.shape = outer
            self._nesting -= 1

    def _lift(self, value: Value) -> Value:
        """Broadcast a value from outside a lifted region to the shape of its elements."""
        if self.shape is None or value.type.shape == self.shape:
            return value
        context = Context(_origin_of(self.made.get(value)), None, self)
        made = context.expand(value, self.shape)
        self.take(context)
        return made

    def _block(self, block: Any) -> list[Value]:
        """Translate the ops of a block; return the values that it returns."""
        for each in block.operations:
            operation = each.operation
            if operation.name in RETURNS:
                missing = [v for v in operation.operands if v not in self.env]
                if missing and not self.unsupported:
                    raise UserError(
                        "no op produces a result of the program", self.name, REWRITE_FIX
                    )
                if missing:
                    raise _Missing
                return [self.env[v] for v in operation.operands]
            self._operation(operation)
        raise NotSupported("a block without a return")

    def _operation(self, operation: Any) -> None:
        if len(self.lines) >= OPS:
            raise UserError(
                f"the program has more than {OPS} ops",
                self.name,
                "make it smaller: calls count too",
            )
        kind = operation.name
        self.lines.append(_line(operation))
        line = 0 if self._text else len(self.lines)
        node = self._expanded_node or self._origins.describe(
            kind,
            str(operation.location),
            line,
            self.calls,
            self._callers[-1] if self._callers else None,
        )
        if any(value not in self.env for value in operation.operands):
            return  # a gap came first: only the first is reported
        self.files[node.file] = None
        context = Context(Origin.root(node), operation, self)
        try:
            handler = TABLE.get(kind) or ops.composed(context)
            if self.shape is not None and kind not in ops.LIFTED:
                raise NotSupported("inside the body of a reduction, a scatter or a sort")
            given = [self._lift(self.env[value]) for value in operation.operands]
            made = handler(context, *given)
            made = tuple(made) if isinstance(made, tuple | list) else (made,)
            _check_types(made, operation, self.shape)
        except _Missing:
            return
        except (NotSupported, TypeRuleError, ValueError) as problem:
            narrow = "" if isinstance(problem, NotSupported) else self._narrow(operation)
            mismatch = isinstance(problem, TypeRuleError) and not narrow
            text = narrow or " ".join(str(problem).split())[:400]
            self.unsupported.append(Unsupported(kind, text, node, mismatch))
            return
        except (TypeError, KeyError, IndexError, AttributeError, ArithmeticError) as problem:
            message = f"it does not match the op's definition: {type(problem).__name__} {problem}"
            text = self._narrow(operation) or message
            self.unsupported.append(Unsupported(kind, " ".join(text.split())[:200], node))
            return
        self.take(context)
        self.env.update(zip(operation.results, made, strict=True))
        if not self._nesting and kind not in INLINED_CALLS:
            self.nodes[node.name] = made

    def _narrow(self, operation: Any) -> str:
        """Return advice for an op on integers below a byte, which are only stored and converted."""
        kinds = (self.env[value].type.dtype for value in operation.operands)
        found = next((k for k in kinds if k.kind in ("int", "uint") and k.bits < 8), None)
        return (
            f"it computes in {found}: convert to 8 bits first, and back afterwards" if found else ""
        )

    def take(self, builder: Context) -> None:
        """Append the ops of a context, once."""
        self.ops += builder.ops
        for op in builder.ops:
            for value in op.results:
                self.made[value] = op
        builder.ops = []


class _Missing(NotSupported):
    """An operand of an unsupported op: only the first gap is reported."""


def _origin_of(op: Any) -> Origin:
    return op.origin if op is not None else Origin.synthetic("import", "an argument, repeated")


def _check_types(made: Sequence[Value], operation: Any, lifted: tuple | None) -> None:
    """Raise NotSupported if our results do not have the types that the program declares.

    Scalar types are broadcast to a shape if they are ``lifted``.
    """
    for value, declared in zip(made, operation.results, strict=True):
        wanted = type_of(declared.type)
        if lifted is not None and value.type.dtype is wanted.dtype:
            continue
        if (value.type.shape, value.type.dtype) != (wanted.shape, wanted.dtype):
            raise NotSupported(f"expected a result of {wanted}, got {value.type}")


def _line(operation: Any) -> str:
    """Return one line that shows an op in the listing."""
    kinds = ", ".join(str(value.type) for value in operation.operands)
    results = ", ".join(str(value.type) for value in operation.results)
    return f"{operation.name} ({kinds}) -> ({results})"


def _dictionaries(function: Any, name: str, count: int) -> list[Mapping[str, Any]]:
    """Return the attributes of a function's arguments or results, each as a mapping."""
    held = attribute_of(function, name)
    if held is None:
        return [{}] * count
    return [{each.name: each.attr for each in one} for one in held]


def _result_name(facts: Mapping[str, Any], index: int) -> str:
    """Return JAX's own name of a result (``result['loss']``), or its number."""
    info = facts.get("jax.result_info")
    name = None if info is None else python_of(info)
    return name if isinstance(name, str) and name else f"output{index}"


def _name_in(location: str) -> str:
    """Return the name in an argument's location: JAX's path in the arguments' tree."""
    return location[5:-2] if location.startswith('loc("') and location.endswith('")') else ""


def _name_at(names: Sequence[str], index: int) -> str:
    return names[index] if index < len(names) else ""
