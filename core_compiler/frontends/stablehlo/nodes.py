"""Execution of a StableHLO program op by op, which reports every tensor.

XLA compiles each op through JAX.  Calls are inlined as in the importer, so that the ops have the
importer's order; a loop, a branch or a reduction is one op with its regions.  Equal ops are
compiled once.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends.stablehlo import polymorphic
from core_compiler.frontends.stablehlo.reading import (
    array_of,
    functions_of,
    model_function,
    parsed,
    symbol,
    type_of,
)
from core_compiler.ir.framework import InF64, Iteration, NodeCallback, Nodes, RunNodes, StandIns
from core_compiler.support.arrays import widened

#: Ops that are replaced by the body of a function, and the attribute that names it.
INLINED_CALLS = {"func.call": "callee", "call": "callee", "stablehlo.composite": "decomposition"}
RETURNS = frozenset({"func.return", "stablehlo.return", "chlo.return", "return"})
#: Ops that depend on the bits of a dtype, draw random numbers or call a library, which have no
#: meaning in f64.
_BIT_DEPENDENT_OPS = frozenset(
    {
        "stablehlo.bitcast_convert",
        "stablehlo.reduce_precision",
        "stablehlo.rng",
        "stablehlo.rng_bit_generator",
        "stablehlo.custom_call",
    }
)
#: A float dtype in the type of a tensor.
_FLOAT = re.compile(r"(?<=[x<])(?:f32|f16|bf16)(?=[,>])")
#: The number of iterations that are reported at the start and end of a loop; a longer loop is
#: executed as a whole.
_REPORTED_ITERATIONS, _MAX_ITERATIONS = 6, 4096
#: A function's name in a printed op.
_SYMBOL = re.compile(r"@\"?([\w.$-]+)")
#: The size in bytes above which a constant is read directly: printing, compiling and executing it
#: is slow.
_READ_DIRECTLY_ABOVE = 1 << 20


def run_file(
    path: Path,
    names: Sequence[str],
    inputs: Sequence[np.ndarray],
    report: NodeCallback,
    stand_ins: StandIns | None = None,
) -> dict[int, np.ndarray]:
    """Run the program in a file; see :func:`run_nodes`."""
    return run_nodes(path.read_bytes(), {}, names, inputs, report, stand_ins)


def run_nodes(
    program: str | bytes,
    weights: Mapping[int, np.ndarray],
    names: Sequence[str],
    inputs: Sequence[np.ndarray],
    report: NodeCallback,
    stand_ins: StandIns | None = None,
) -> dict[int, np.ndarray]:
    """Execute a program on arrays for its inputs; ``report`` receives the tensors of its ops.

    ``names`` are the names of the ops in order.  ``weights`` are arrays for the other arguments of
    the program's function, by position.  Return the results by position, without those of ops that
    XLA cannot execute separately; with ``stand_ins`` nothing.
    """
    with _on_the_cpu(), parsed(program, "the program") as module:  # JAX silences its libraries
        functions = functions_of(module)
        (block,) = model_function(functions, "the program").regions[0].blocks
        own = iter(inputs)
        given = [weights[i] if i in weights else next(own) for i in range(len(block.arguments))]
        made = _Run(functions, iter(names), report, stand_ins).block(block, given)
    if stand_ins is not None:
        return {}
    return {place: array for place, array in enumerate(made) if array is not None}


def with_results(nodes: Nodes | None, framework: str, own: Callable[..., tuple]) -> Nodes | None:
    """Return ``nodes`` with the results of ``own``, the model called in ``framework`` itself.

    This reveals parts of the model that are missing in its program.
    """
    if nodes is None:
        return None
    return replace(nodes, framework=framework, run=partial(_run_both, nodes.run, own))


def _run_both(
    run: RunNodes,
    own: Callable[..., tuple],
    inputs: Sequence[np.ndarray],
    report: NodeCallback,
    stand_ins: StandIns | None = None,
) -> dict[int, np.ndarray]:
    run(inputs, report, stand_ins)
    if stand_ins is not None:
        return {}
    return dict(enumerate(own(*inputs)))


class _NotSeparable(Exception):
    """XLA cannot execute a part of a loop separately."""


class _Run:
    """The state of an execution.

    An array is None if an op could not be executed.
    """

    def __init__(
        self,
        functions: Mapping[str, Any],
        names: Iterator[str],
        report: NodeCallback,
        stand_ins: StandIns | None,
    ):
        self.functions, self.names, self.report = functions, names, report
        self.stand_ins = stand_ins
        self._compiled: dict[str, Callable] = {}
        #: Arrays that ``report`` did not accept.
        self._rejected: dict[int, np.ndarray] = {}

    def block(self, block: Any, given: Sequence[np.ndarray | None]) -> list[np.ndarray | None]:
        """Return the values that a function's block returns."""
        env: dict[Any, np.ndarray | None] = dict(zip(block.arguments, given, strict=True))
        operations = [each.operation for each in block.operations]
        reads = [[*operation.operands, *_captured(operation)] for operation in operations]
        last = {v: at for at, read in enumerate(reads) for v in read}
        for at, (operation, read) in enumerate(zip(operations, reads, strict=True)):
            arrays = [env[v] for v in read]
            if operation.name in RETURNS:
                return arrays
            env.update(zip(operation.results, self._run_operation(operation, arrays), strict=True))
            for value in (*read, *operation.results):
                if last.get(value, -1) <= at:
                    env.pop(value, None)
        return []

    def _run_operation(self, operation: Any, arrays: Sequence[Any]) -> list[np.ndarray | None]:
        if operation.name in INLINED_CALLS:
            named = operation.attributes[INLINED_CALLS[operation.name]].value
            (body,) = self.functions[named].regions[0].blocks
            return self.block(body, arrays)
        name = next(self.names)
        if self.stand_ins is not None:
            chosen = self.stand_ins.arrays(name)
            if chosen is not None:
                if self.stand_ins.executes(name):
                    self._execute_and_report(name, operation, arrays)
                return list(chosen)
            if operation.regions:
                return [None] * len(operation.results)
            return self._execute(operation, arrays)[0]
        return self._execute_and_report(name, operation, arrays)

    def _execute_and_report(
        self, name: str, operation: Any, arrays: Sequence[Any]
    ) -> list[np.ndarray | None]:
        made, in_f64 = self._execute(operation, arrays)
        iterations: list[Iteration] = []
        if operation.name == "stablehlo.while" and all(a is not None for a in made):
            with suppress(_NotSeparable):
                iterations, final_state = self._iterations(operation, arrays)
                made = made if final_state is None else final_state
        accepted = self.report(name, made, in_f64, iterations)
        for array, is_accepted in zip(made, accepted, strict=False):
            if array is not None and not is_accepted:
                self._rejected[id(array)] = array
        return made

    def _execute(
        self, operation: Any, arrays: Sequence[Any]
    ) -> tuple[list[np.ndarray | None], InF64]:
        nothing: list[np.ndarray | None] = [None] * len(operation.results)
        if any(array is None for array in arrays):
            return nothing, lambda: None
        if operation.name == "stablehlo.constant":
            array = _large(operation)
            if array is not None:
                return [array], lambda: None
        text, types = (
            _single_op_program(operation, self.functions),
            [v.type for v in operation.results],
        )
        made = self.run(text, types, arrays)
        if made is None:
            return nothing, lambda: None
        is_reported = not any(id(array) in self._rejected for array in arrays)
        wide = is_reported and operation.name not in _BIT_DEPENDENT_OPS and _FLOAT.search(text)
        return list(made), partial(self.run, text, types, arrays, True) if wide else lambda: None

    def _iterations(
        self, loop: Any, arrays: Sequence[np.ndarray]
    ) -> tuple[list[Iteration], list[np.ndarray | None] | None]:
        """Return the first and last iterations of a loop, and its results.

        Nothing is returned for a loop that is too long to execute step by step.
        """
        count, (test, body) = len(loop.results), (_Region(self, loop, n) for n in (0, 1))
        state, captured = list(arrays[:count]), list(arrays[count:])
        first: list[Iteration] = []
        last: deque[Iteration] = deque(maxlen=2 * _REPORTED_ITERATIONS)
        for number in range(1, _MAX_ITERATIONS + 1):
            condition = test(number, state, captured)
            (first if number <= _REPORTED_ITERATIONS else last).append(condition)
            if not condition.results[0]:
                return [*first, *last], list(state)
            step = body(number, state, captured)
            (first if number <= _REPORTED_ITERATIONS else last).append(step)
            state = list(step.results)
        return [], None

    def run(
        self, text: str, types: Sequence[Any], arrays: Sequence[np.ndarray], wide: bool = False
    ) -> list[np.ndarray] | None:
        """Return the results, of ``types``, of a program; None if XLA does not support an op.

        ``wide``: with f64 for every float; then also None if the program cannot be rewritten
        (numbers given by their bits).
        """
        if wide:
            text, arrays = _FLOAT.sub("f64", text), list(map(widened, arrays))
        try:
            if text not in self._compiled:
                kinds: list[Any] = [type_of(kind) for kind in types]
                self._compiled[text] = compiled(
                    text,
                    [
                        (k.shape, np.dtype("f8") if wide and k.dtype.is_float else k.dtype.numpy)
                        for k in kinds
                    ],
                )
            return list(map(np.asarray, self._compiled[text](*arrays)))
        except Exception:  # any exception of XLA and MLIR
            return None


class _Region:
    """A region of a loop as a separate program."""

    def __init__(self, run: _Run, loop: Any, number: int):
        (block,) = loop.regions[number].blocks
        self._run, self._number = run, number
        self._types = [v.type for v in list(block.operations)[-1].operation.operands]
        captured = _captured(loop)

        def fill(given: Sequence[Any]) -> list[Any]:
            values = dict(zip((*block.arguments, *captured), given, strict=True))
            for each in block.operations:
                if each.operation.name in RETURNS:
                    break
                copy = _clone_with_operands(each.operation, values)
                values.update(zip(each.operation.results, copy.results, strict=True))
            return [values[v] for v in each.operation.operands]

        read = [v.type for v in (*block.arguments, *captured)]
        self._text = _build_program(loop, read, self._types, fill, run.functions)
        self._floats = bool(_FLOAT.search(self._text))

    def __call__(
        self, number: int, state: Sequence[np.ndarray], captured: Sequence[np.ndarray]
    ) -> Iteration:
        arrays = [*state, *captured]
        made = self._run.run(self._text, self._types, arrays)
        if made is None:
            raise _NotSeparable
        wide = partial(self._run.run, self._text, self._types, arrays, True)
        return Iteration(
            self._number, number, list(state), made, wide if self._floats else lambda: None
        )


def _large(constant: Any) -> np.ndarray | None:
    """Return the array of a constant that should not be compiled."""
    kind = type_of(constant.results[0].type)
    size = kind.elements * kind.dtype.numpy.itemsize
    attribute = constant.attributes["value"]
    return array_of(attribute) if size > _READ_DIRECTLY_ABOVE and not attribute.is_splat else None


# -- one op ----------------------------------------------------------------------------------------


def _captured(operation: Any) -> list[Any]:
    """Return the outer values that an op's regions use, each once."""
    made: set[Any] = set()
    read: dict[Any, None] = {}

    def walk(operation: Any) -> None:
        for region in operation.regions:
            for block in region.blocks:
                made.update(block.arguments)
                for each in block.operations:
                    read.update(dict.fromkeys(each.operation.operands))
                    made.update(each.operation.results)
                    walk(each.operation)

    walk(operation)
    return [value for value in read if value not in made]


def _single_op_program(operation: Any, functions: Mapping[str, Any]) -> str:
    """Return a program of one op; its function takes the operands, then the captured values."""
    read = [*operation.operands, *_captured(operation)]

    def fill(given: Sequence[Any]) -> list[Any]:
        return list(_clone_with_operands(operation, dict(zip(read, given, strict=True))).results)

    return _build_program(
        operation, [v.type for v in read], [v.type for v in operation.results], fill, functions
    )


def _build_program(
    operation: Any,
    read: Sequence[Any],
    made: Sequence[Any],
    fill: Callable[[Sequence[Any]], list[Any]],
    functions: Mapping[str, Any],
) -> str:
    """Return a program whose function maps values of the types ``read`` to those of ``made``.

    ``fill`` emits the body.  The program includes the ``functions`` that the operation names.
    """
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    with operation.context, ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function: Any = func.FuncOp("main", (list(read), list(made)))
            entry = function.add_entry_block()
        with ir.InsertionPoint(entry):
            func.ReturnOp(fill(list(entry.arguments)))
        with ir.InsertionPoint(module.body):
            for name in _referenced_functions(operation, functions):
                functions[name].operation.clone()
    return str(module.operation.get_asm(enable_debug_info=False))


def _clone_with_operands(operation: Any, values: Mapping[Any, Any]) -> Any:
    """Return a copy of an op, at the current insertion point, that uses other ``values``."""
    copy = operation.clone()
    _replace_operands(copy, values)
    return copy


def _referenced_functions(operation: Any, functions: Mapping[str, Any]) -> list[str]:
    """Return the functions that an op refers to, directly or through one of them."""
    found: dict[str, None] = {}
    pending = [operation]
    while pending:
        for name in _SYMBOL.findall(str(pending.pop())):
            if name in functions and name not in found:
                found[name] = None
                pending.append(functions[name].operation)
    return list(found)


def _replace_operands(operation: Any, values: Mapping[Any, Any]) -> None:
    """Replace the operands of an op and of those in its regions by other values."""
    for index, value in enumerate(operation.operands):
        if value in values:
            operation.operands[index] = values[value]
    for region in operation.regions:
        for block in region.blocks:
            for each in block.operations:
                _replace_operands(each.operation, values)


# -- XLA -------------------------------------------------------------------------------------------


@contextmanager
def _on_the_cpu() -> Iterator[None]:
    """Use the declared dtypes and the device that our values are compared with in this context."""
    import jax

    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield


def on_arrays(path: Path) -> Callable[..., tuple[np.ndarray, ...]]:
    """Return a function of arrays that runs the program in a file by XLA; it returns a tuple."""
    made: dict[tuple, Callable] = {}

    def run(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        key = tuple((a.shape, a.dtype) for a in arrays)
        with _on_the_cpu():
            if key not in made:
                made[key] = _whole(path, arrays)
            return tuple(map(np.asarray, made[key](*arrays)))

    return run


def _whole(path: Path, arrays: Sequence[np.ndarray]) -> Callable:
    """Return the function of a program with its open sizes bound by ``arrays``."""
    with parsed(path.read_bytes(), str(path)) as module:
        functions = functions_of(module)
        function = model_function(functions, str(path))
        polymorphic.bind(module, function, str(path), arrays, {})
        results: list[Any] = [type_of(kind) for kind in function.type.results]
        function.attributes["sym_name"] = type(function.attributes["sym_name"]).get(
            "main", module.context
        )
        text = str(module.operation.get_asm(enable_debug_info=False))
    return compiled(text, [(k.shape, k.dtype.numpy) for k in results])


def compiled(text: str, results: Sequence[tuple[tuple[int, ...], np.dtype]]) -> Callable:
    """Compile a program's function by XLA: from arrays to a list of arrays.

    ``results`` are their shapes and dtypes.
    """
    import jax

    kinds = tuple((tuple(shape), np.dtype(kind)) for shape, kind in results)
    return jax.jit(lambda *given: _program().bind(*given, text=text, kinds=kinds))


@cache
def _program() -> Any:
    """Return a primitive of JAX that is a StableHLO program."""
    from jax.core import ShapedArray
    from jax.extend.core import Primitive
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import func

    program = Primitive("stablehlo_program")
    program.multiple_results = True

    @program.def_abstract_eval
    def kinds_of(*_given: Any, text: str, kinds: Sequence) -> list[Any]:
        return [ShapedArray(shape, kind) for shape, kind in kinds]

    def lower(context: Any, *given: Any, text: str, kinds: Sequence) -> Any:
        module = ir.Module.parse(text)
        main: Any = next(o for o in module.body.operations if symbol(o) == "main")
        results = list(main.type.results)
        name = mlir.merge_mlir_modules(context.module_context.module, "program", module)
        return func.CallOp(results, ir.FlatSymbolRefAttr.get(name), list(given)).results

    mlir.register_lowering(program, lower)
    return program
