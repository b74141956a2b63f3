"""Translation of every node in the graph of an ``ExportedProgram``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import isfunction, signature
from typing import Any

import numpy as np

from core_compiler.frontends.base import Unsupported
from core_compiler.frontends.loops import Stream, loop_over
from core_compiler.frontends.pytorch.aliasing import is_in_place
from core_compiler.frontends.pytorch.aten import (
    Complex,
    Context,
    Crashed,
    Misfit,
    NotSupported,
    Refused,
    leaves,
    lookup_complex,
)
from core_compiler.frontends.pytorch.decompositions import (
    definition,
    has_translation,
    lookup,
    tensors_of,
)
from core_compiler.frontends.pytorch.origins import describe, identifier, owner_of
from core_compiler.frontends.pytorch.sized import RUN_TIME_SIZE_HANDLERS
from core_compiler.frontends.pytorch.symbols import Symbols, is_symbolic
from core_compiler.frontends.pytorch.tensors import (
    borrow_memory,
    dtype_of,
    element_of,
    memory_key,
    to_numpy,
)
from core_compiler.frontends.pytorch.transforms import public_name
from core_compiler.frontends.run_time_sizes import (
    RunTimeNumber,
    RunTimeSizes,
    UnsupportedRunTimeSize,
)
from core_compiler.frontends.state import State
from core_compiler.ir import (
    Block,
    Dense,
    FrontendNode,
    Origin,
    Resource,
    Value,
    WeightStore,
    tensor,
)
from core_compiler.ops.base import TypeRuleError
from core_compiler.ops.positions import Access
from core_compiler.support.errors import UserError

#: Ops that only assert or annotate and do not affect values.
IGNORED = frozenset(
    {
        "aten._assert_tensor_metadata.default",
        "aten._assert_async.msg",
        "aten._assert_scalar.default",
        "aten.sym_constrain_range_for_size.default",
        "aten.sym_constrain_range.default",
        "aten._assert_async.default",
    }
)

#: Torch's ops with graphs as arguments that have a method of :class:`Walker`.
CONTROL_FLOW = frozenset({"cond", "while_loop", "scan"})
#: Ops that change a setting for a subgraph without affecting its values.
AUTOCAST = "wrap_with_autocast"
WRAPPERS = frozenset({"wrap_with_set_grad_enabled", AUTOCAST})
#: The maximum nesting of decompositions.
MAX_DEPTH = 8

#: Errors of Python's, not of the compiler's own, that code for a node may raise.
PYTHON_ERRORS = (TypeError, KeyError, ValueError, IndexError, AttributeError, ArithmeticError)

#: The result of an unsupported op whose type is unknown.
UNKNOWN = object()
#: Outputs of a program that are its state, by the name of their kind.
_STATE = frozenset({"BUFFER_MUTATION", "PARAMETER_MUTATION"})


class Walker:
    """A traversal of the graph.

    ``env`` maps fx nodes to values, tuples of values or Python numbers.
    """

    def __init__(self, program, weights: WeightStore, symbols: Symbols):
        self.program, self.weights, self.symbols = program, weights, symbols
        self.env: dict[Any, Any] = {}
        #: The results of each node of the model's own graph, by its name.
        self.nodes: dict[str, list[Value | None]] = {}
        #: Maps each part of a complex tensor to the other one.
        self.parts: dict[Value, Value] = {}
        self.arguments: list[Value] = []
        self.outputs: list[Value] = []
        self.output_names: list[str] = []
        self.ops: list = []
        #: The ops for which torch requires positions to be in range.
        self.accesses: list[Access] = []
        #: The final values of the inputs that the program writes into, by name.
        self.written: dict[str, Value] = {}
        #: The buffers and parameters that the program changes, by name.
        self.state = State()
        self.unsupported: list[Unsupported] = []
        #: Incorrect translations that were replaced by torch's decompositions.
        self.replaced_translations: list[Unsupported] = []
        #: Whether the current graph is inside torch.autocast.
        self.autocast = False
        self.sizes = RunTimeSizes()
        #: Stored tensors that are used, by name; None for those that are assembled from parts.
        self.stored: dict[str, Dense | Resource | None] = {}
        #: Parameters by the memory of their tensor.
        self.tied: dict[tuple, Value] = {}
        self.counts: dict[str, Value] = {}  # of data-dependent symbols
        #: The nodes whose decompositions are being translated, the model's own first.
        self.decomposing: list[FrontendNode] = []
        #: Whether an op was rejected intentionally.
        self.rejects_intentionally = False

    def walk(self) -> None:
        states = {**self.program.state_dict, **self.program.constants}
        specs = {
            s.arg.name: s
            for s in self.program.graph_signature.input_specs
            if hasattr(s.arg, "name")
        }
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, specs.get(node.name), states)
            elif node.op == "output":
                self._output(node)
            else:
                self._translate_node(node, self.program.graph_module)
                made = leaves(self.env.get(node))
                self.nodes[node.name] = [v for leaf in made for v in _comparable_values(leaf)]
                self.parts.update(
                    pair
                    for leaf in made
                    if isinstance(leaf, Complex)
                    for pair in ((leaf.real, leaf.imag), (leaf.imag, leaf.real))
                )

    def _translate_node(self, node, owner) -> None:
        """Translate a node of ``owner``'s graph that is neither a placeholder nor the output."""
        if node.op == "call_function":
            self._call(node)
            return
        held = owner
        for part in str(node.target).split("."):
            held = getattr(held, part)
        if not hasattr(held, "dtype"):  # a branch, a part of a loop, a description of arguments
            self.env[node] = held
        else:
            self._constant(node, str(node.target), held)

    def _placeholder(self, node, spec, states: Mapping[str, Any]) -> None:
        kind = spec.kind.name if spec is not None else "USER_INPUT"
        if kind in ("PARAMETER", "BUFFER") and spec.target in self._changed():
            array = self._initial_state(spec.target, states[spec.target])
            self.env[node] = self.state.add_state(spec.target, array, identifier(spec.target))
            return
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            held = states[spec.target]
            frozen = kind == "PARAMETER" and not held.requires_grad
            self._constant(node, spec.target, held, "frozen" if frozen else kind.lower())
            return
        value = node.meta.get("val")
        if kind != "USER_INPUT" or not hasattr(value, "shape"):
            if spec is not None and hasattr(spec.arg, "value"):
                self.env[node] = spec.arg.value
            else:
                self.env[node] = self.symbols.number(value)
            return
        try:
            argument = Value(self._type(value), node.name)
        except NotSupported:
            raise UserError(
                f"input {node.name} has unsupported type {value.dtype}",
                node.name,
                "pass real numbers: complex and quantised tensors are not supported",
            ) from None
        self.arguments.append(argument)
        self.env[node] = argument

    def _changed(self) -> set[str]:
        """Return the buffers and parameters that the program writes back."""
        return {
            s.target for s in self.program.graph_signature.output_specs if s.kind.name in _STATE
        }

    def _initial_state(self, target: str, held) -> np.ndarray:
        """Return the initial value of a state."""
        try:
            return to_numpy(held).copy()
        except (KeyError, RuntimeError, TypeError):
            raise UserError(
                f"the model writes into {target}, a tensor of unsupported type {held.dtype} or "
                f"layout {held.layout}",
                target,
                "store it as a dense tensor of real numbers",
            ) from None

    def _constant(self, node, target: str, held, kind: str = "constant") -> None:
        if not node.users:
            return
        memory = memory_key(held)
        if kind == "parameter" and memory in self.tied:  # one parameter under two names
            self.env[node] = self.tied[memory]
            return
        about = FrontendNode(target, kind, scope=owner_of(target))
        # Defined in the model's own code; its origin is that of its first user.
        if kind == "constant_tensor":
            reader = describe(next(iter(node.users)))
            about = replace(reader, name=target, kind=kind)
        origin = Origin.root(about)
        builder = Context(self.weights, origin, node, self.symbols, self.sizes)
        if held.dtype.is_complex:
            parts = (builder.constant(to_numpy(part)) for part in (held.real, held.imag))
            self.env[node] = Complex(*parts)
            self.stored[target] = None
            self.ops += builder.ops
            return
        try:
            array, check = borrow_memory(target, held)
        except (KeyError, RuntimeError, TypeError):
            raise UserError(
                f"{target} has unsupported type {held.dtype} or layout {held.layout}",
                target,
                "store it as a dense tensor of real numbers",
            ) from None
        self.env[node] = builder.constant(array, name=identifier(target))
        if kind == "parameter":
            self.tied[memory] = self.env[node]
        self.stored[target] = kept = builder.ops[-1]["value"]
        if check is not None and isinstance(kept, Resource):
            self.weights.watch(kept.digest, check)
        self.ops += builder.ops

    def _call(self, node) -> None:
        target = node.target
        target = target.__name__ if isfunction(target) else str(target)
        if target in IGNORED:
            return
        if is_symbolic(node.meta.get("val")):
            self.env[node] = self._number(node.meta["val"])
            return
        op_name = public_name(node, target)
        described = self.decomposing[0] if self.decomposing else describe(node)
        context = Context(self.weights, Origin.root(described), node, self.symbols, self.sizes)
        try:
            arguments = self._read(node.args)
            keywords = self._read(dict(node.kwargs))
            if any(part is UNKNOWN for part in leaves((arguments, keywords))) and has_translation(
                target
            ):
                self.env[node] = self._placeholder_result(node)  # its operands have been reported
                return
            made = self._translate(target, context, arguments, keywords, node)
            self.ops += context.ops
            self.accesses += context.accesses
        except Refused as reason:
            self.unsupported.append(Unsupported(op_name, str(reason), described))
            self.rejects_intentionally = True
            made = self._placeholder_result(node)
        except (NotSupported, TypeRuleError) as reason:
            # Under autocast torch converts the operands of an op, which its node alone does not
            # show.
            mismatch = isinstance(reason, Misfit | TypeRuleError) and not self.autocast
            crashed = isinstance(reason, Crashed) and not self.autocast
            gap = Unsupported(op_name, str(reason), described, mismatch, crashed)
            made = self._translate_decomposed(node, gap)
        except PYTHON_ERRORS as error:
            made = self._translate_decomposed(
                node, Unsupported(op_name, _argument_error(error), described)
            )
        self.env[node] = made
        if is_in_place(node):
            self.env[node.args[0]] = made

    def _translate_decomposed(self, node, gap: Unsupported):
        """Translate torch's decomposition of a node; without one the node is a gap."""
        kept, gaps = len(self.ops), len(self.unsupported)
        graph = definition(node) if len(self.decomposing) < MAX_DEPTH else None
        if graph is not None:
            self.decomposing.append(gap.node)
            try:
                made = self._inline_graph(graph, [self.env[n] for n in tensors_of(node)])
                self._compare(made, node.meta.get("val"), gap.kind)
            except NotSupported:
                self.unsupported.append(gap)
            finally:
                self.decomposing.pop()
            if len(self.unsupported) == gaps:
                self.replaced_translations += [gap] if gap.wrong else []
                return made
        del self.ops[kept:], self.unsupported[gaps:]
        self.unsupported.append(gap)
        return self._placeholder_result(node)

    def _inline_graph(self, graph_module, given: Sequence):
        """Return the results of a graph that is inlined with ``given`` as its inputs."""
        inputs = iter(given)
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                self.env[node] = next(inputs)
            elif node.op == "output":
                return self._read(node.args[0])
            else:
                self._translate_node(node, graph_module)
        raise NotSupported("its graph has no output")

    def _translate(self, target: str, context, arguments, keywords, node):
        if target.startswith("<built-in function getitem"):
            return arguments[0][arguments[1]]
        if target in CONTROL_FLOW:
            if any(map(self._sized, leaves((arguments, keywords)))):
                raise NotSupported("an input has or is a size that depends on data")
            made = getattr(self, f"_{target}")(context, *arguments, **keywords)
            self._compare(made, node.meta.get("val"), target)
            return made
        if target in WRAPPERS:
            place = next(i for i, given in enumerate(arguments) if hasattr(given, "graph"))
            outer, self.autocast = self.autocast, self.autocast or target == AUTOCAST
            try:
                made = self._inline_graph(arguments[place], arguments[place + 1 :])
            finally:
                self.autocast = outer
            return tuple(made) if isinstance(made, list) else made
        of_complex = lookup_complex(target, (arguments, keywords), node.meta.get("val"))
        handler = of_complex or lookup(target)
        if handler is None:
            raise NotSupported("no translation")
        for part in leaves((arguments, keywords)):
            if is_symbolic(part):
                self.symbols.number(part)  # raises: a size in the graph was bound when it was read
        if handler not in RUN_TIME_SIZE_HANDLERS and any(
            map(self._sized, leaves((arguments, keywords)))
        ):
            raise NotSupported("an input has or is a size that depends on data")
        made = _call(handler, context, arguments, keywords)
        self._bind(made, node.meta.get("val"))
        self._compare(made, node.meta.get("val"), target)
        return made

    def _cond(self, context, condition, then, other, operands=()):
        """Translate ``torch.cond``; both branches use their operands directly."""
        if not isinstance(condition, Value):
            condition = context.constant(np.asarray(bool(condition)))
        regions = [self._region(graph, operands) for graph in (then, other)]
        made = context.op("core.if", (context.reshape(condition, shape=()),), regions=regions)
        return made if isinstance(made, tuple) else (made,)

    def _while_loop(self, context, condition, body, carried, more=()):
        """Translate ``torch.while_loop``, which carries tensors; others are used directly."""
        if not all(isinstance(x, Value) for x in carried):
            raise NotSupported("it carries a Python number; use a tensor")
        regions = []
        for graph in (condition, body):
            arguments = tuple(Value(x.type) for x in carried)
            block = self._region(graph, (*arguments, *more))
            regions.append(block.with_(arguments=arguments))
        made = context.op("core.while", carried, regions=regions)
        return made if isinstance(made, tuple) else (made,)

    def _scan(self, context, body, state, streams, more=()):
        """Translate ``torch.scan`` over the first axis; other operands are used directly."""
        steps = streams[0].type.shape[0]
        ends, stacks = loop_over(
            context,
            steps,
            state,
            [Stream(x) for x in streams],
            lambda number, given, parts: self._region(body, (*given, *parts, *more)),
        )
        return (*ends, *stacks)

    def _region(self, graph_module, given: Sequence) -> Block:
        """Return a nested graph as a block; its inputs are ``given``."""
        outer, self.ops = self.ops, []
        try:
            made = self._inline_graph(graph_module, given)
            outputs = tuple(made) if isinstance(made, list | tuple) else (made,)
            if not all(isinstance(v, Value) for v in outputs):
                raise NotSupported("a branch or loop returns a value that is not a tensor")
            if any(map(self._sized, outputs)):
                raise NotSupported("a branch or loop returns a tensor whose size depends on data")
            return Block((), tuple(self.ops), outputs)
        finally:
            self.ops = outer

    def _sized(self, part) -> bool:
        if isinstance(part, Complex):
            return self._sized(part.real) or self._sized(part.imag)
        return isinstance(part, RunTimeNumber) or (
            isinstance(part, Value) and bool(self.sizes.of(part))
        )

    def _bind(self, made, expected) -> None:
        """Bind torch's symbols for sizes that this op's data determine: maximum and count."""
        pairs = zip(made, expected, strict=False) if isinstance(made, tuple) else [(made, expected)]
        for value, meta in pairs:
            for axis, count in self.sizes.of(value).items() if isinstance(value, Value) else ():
                size = meta.shape[axis]
                if is_symbolic(size) and size.node.expr.is_Symbol:
                    name = str(size.node.expr)
                    if name not in self.symbols.sizes:
                        self.symbols.largest[name] = value.type.shape[axis]
                        self.counts[name] = count

    def _compare(self, made, expected, target: str) -> None:
        """Check that results have torch's shape and dtype, to detect incorrect translations."""
        pairs = zip(made, expected, strict=False) if isinstance(made, tuple) else [(made, expected)]
        for value, meta in pairs:
            if isinstance(value, Complex) and meta.dtype.is_complex:
                value, kind = value.real, element_of(meta.dtype)
                wanted = tensor([self.symbols.number(d) for d in meta.shape], kind)
            elif isinstance(value, Value | Complex) and hasattr(meta, "shape"):
                wanted = self._type(meta)
            else:
                continue
            if isinstance(value, Complex):
                raise Misfit(f"expected a result of {wanted}, got complex numbers")
            if value.type.shape != wanted.shape or value.type.dtype is not wanted.dtype:
                raise Misfit(f"expected a result of {wanted}, got {value.type}")

    def _placeholder_result(self, node):
        """Return a placeholder result, so that the traversal finds every unsupported op.

        It is a value of torch's type, or :data:`UNKNOWN` if that is unsupported.
        """
        value = node.meta.get("val")
        if isinstance(value, list | tuple):
            return tuple(self._placeholder_value(v) for v in value)
        return self._placeholder_value(value)

    def _number(self, value):
        """Return a symbolic number bound, or unchanged if it depends on data.

        Only the users of a data-dependent number are rejected.
        """
        try:
            number = self.symbols.number(value)
        except NotSupported:
            return value
        if self.symbols.depends_on_data(value):
            return RunTimeNumber(int(number), self.counts.get(str(value.node.expr)))
        return number

    def _placeholder_value(self, meta):
        if not hasattr(meta, "shape"):
            return meta
        try:
            return Value(self._type(meta))
        except NotSupported:
            return UNKNOWN

    def _type(self, meta):
        """Return the type of a fake tensor with symbols bound; NotSupported for unknown dtypes."""
        try:
            kind = dtype_of(meta.dtype)
        except KeyError:
            raise NotSupported(f"elements of type {meta.dtype}") from None
        return tensor([self.symbols.number(d) for d in meta.shape], kind)

    def _read(self, argument):
        if isinstance(argument, list | tuple):
            return type(argument)(self._read(a) for a in argument)
        if isinstance(argument, dict):
            return {k: self._read(v) for k, v in argument.items()}
        if type(argument).__name__ == "Node":
            return self.env[argument]
        return argument

    def _output(self, node) -> None:
        specs = self.program.graph_signature.output_specs
        values = self._read(node.args[0])
        for spec, value, source in zip(specs, values, node.args[0], strict=True):
            if spec.kind.name in _STATE and isinstance(value, Value):
                self.state.set_next(spec.target, value)
            if spec.kind.name == "USER_INPUT_MUTATION" and isinstance(value, Value):
                self.written[spec.target] = value
            if spec.kind.name != "USER_OUTPUT" or source is None:
                continue
            if not isinstance(value, bool | int | float | Value):
                if not self.unsupported:
                    reason = "not a tensor, or a result that the op's translation omits"
                    if isinstance(value, Complex):
                        reason = "complex numbers; return torch.view_as_real of them"
                    gap = Unsupported(f"result {source}", reason, describe(source))
                    self.unsupported.append(gap)
                continue
            if not isinstance(value, Value):
                origin = Origin.synthetic("import", "a constant output")
                context = Context(self.weights, origin, node, self.symbols, self.sizes)
                value = context.constant(np.asarray(value))
                self.ops += context.ops
            self.outputs.append(value)
            self.output_names.append(getattr(source, "name", f"output{len(self.output_names)}"))


def _call(translation: Callable, context: Context, arguments: Sequence, keywords: Mapping):
    """Return the results of a translation.

    Raises:
        NotSupported: the translation does not have these arguments or sizes.
        Crashed: it fails on them. Torch's decomposition would hide that the translation is wrong.
    """
    try:
        signature(translation).bind(context, *arguments, **keywords)
    except TypeError as error:
        raise NotSupported(_argument_error(error)) from None
    try:
        return translation(context, *arguments, **keywords)
    except UnsupportedRunTimeSize as reason:
        raise NotSupported(str(reason)) from None
    except PYTHON_ERRORS as error:
        raise Crashed(_argument_error(error)) from error


def _argument_error(error: Exception) -> str:
    return f"its arguments are not supported: {type(error).__name__} {error}"[:160]


def _comparable_values(made: Any) -> tuple[Value | None, ...]:
    """Return the comparable values of a leaf of a node's result: both parts of a complex tensor."""
    if isinstance(made, Complex):
        return made.real, made.imag
    return (made if isinstance(made, Value) else None,)
