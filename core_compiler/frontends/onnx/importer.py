"""Translation of a ``ModelProto`` to a module: one traversal, which collects all gaps.

Origins come from node names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends.base import Imported, Unsupported, unsupported_ops_error
from core_compiler.frontends.onnx import ops
from core_compiler.frontends.onnx.functions import definition, inlined, schema_with_function
from core_compiler.frontends.onnx.nodes import (
    in_f32,
    not_at_infinity,
    run_file,
    run_nodes,
    undefined,
)
from core_compiler.frontends.onnx.ops.elementwise import POINTWISE
from core_compiler.frontends.onnx.origins import LISTING, describe, listing, scope_of
from core_compiler.frontends.onnx.reading import (
    DOMAINS,
    dtype_of,
    external_files,
    need_rank,
    need_sound,
    need_unchanged,
    read_model,
    to_array,
    type_of,
)
from core_compiler.frontends.onnx.statistics import drop_unread_constants
from core_compiler.frontends.onnx.table import (
    EMPTY,
    TABLE,
    Context,
    EmptyOptional,
    GraphValue,
    NotSupported,
    TensorSequence,
)
from core_compiler.frontends.random_numbers import Draws
from core_compiler.frontends.run_time_sizes import RunTimeSizes, with_counts
from core_compiler.frontends.state import State
from core_compiler.ir import (
    Block,
    FrontendNode,
    Function,
    Module,
    Op,
    Origin,
    Value,
    WeightStore,
    tensor,
)
from core_compiler.ir.framework import Nodes
from core_compiler.ops.base import TypeRuleError
from core_compiler.ops.positions import Access, positions
from core_compiler.support.errors import CANNOT_HERE, UserError

__all__ = ["import_file", "import_proto", "ops"]

#: An example input: a tensor, a sequence of them, or None for an empty optional value.
Example = np.ndarray | Sequence[np.ndarray] | None
#: Ops that support sequences of tensors; loops only if they are unrolled.
SEQUENCE_OPS = frozenset(
    {
        "ConcatFromSequence",
        "Identity",
        "Loop",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "SequenceAt",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
    }
)
#: Ops whose translation does not depend on a data-dependent size of an operand.
RUN_TIME_SIZE_OPS = frozenset(
    {"ArgMax", "ArgMin", "Cast", "CastLike", "Clip", "Compress", "Concat", "Conv", "CumSum",
     "Dropout", "Elu", "Gather", "GatherND", "Gelu", "HardSigmoid", "Identity",
     "LayerNormalization", "LeakyRelu", "LogSoftmax", "MatMul", "Max", "MaxPool", "Mean",
     "Min", "NonZero", "Pow", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
     "ReduceL1", "ReduceL2", "ReduceSumSquare", "Reshape", "Shape", "Size", "Slice",
     "Softmax", "Squeeze", "Sum", "TopK", "Transpose", "Unsqueeze", "Where", *POINTWISE}
)  # fmt: skip
#: The oldest version of the default domain that is supported without conversion.
OLDEST_OPSET = 6
#: The maximum number of nodes of an import (including functions and unrolled loops).
MAX_NODES = 500_000


def import_file(
    path: Path | str,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, Example] | Sequence[Example] | None = None,
    training: bool = False,
) -> Imported:
    """Import a ``.onnx`` file; see :func:`import_proto`.

    Raise UserError for a damaged file, external data outside the folder, and unsupported ops (all
    of them at once).
    """
    path = Path(path)
    imported = import_proto(
        read_model(path),
        folder=path.parent,
        name=str(path),
        sizes=sizes,
        inputs=inputs,
        training=training,
    )
    assert imported.nodes is not None
    # The file is read again if its graph is run, so that its weights are not kept in memory twice.
    again = partial(run_file, path, list(imported.nodes.values))
    return replace(imported, nodes=replace(imported.nodes, run=again))


def import_proto(
    model,
    *,
    folder: Path | WeightStore | None = None,
    name: str = "model",
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, Example] | Sequence[Example] | None = None,
    origins: Mapping[str, Origin] | None = None,
    tensors: dict[str, Any] | None = None,
    ops_by_node: dict[str, Sequence[Op]] | None = None,
    training: bool = False,
) -> Imported:
    """Import a ``ModelProto``.

    ``folder``  the location of its external data, or the weight store that holds them.
    ``sizes``   symbolic dimension (or ``INPUT.AXIS``) -> size.
    ``inputs``  example inputs, by name or in order.  Their shapes also bind symbolic dimensions,
                and if a shape in the model depends on an input's values, these are used.
    ``origins`` the origins of nodes (and initializers), by name, from a preceding level; nodes
                without one are roots.
    ``tensors`` is filled with the result of each tensor of the graph, by name, ``ops_by_node`` with
    the
                ops of each of its nodes and initializers (those of a subgraph or a function belong
                to the node that holds or calls it).
    ``training`` import the model in training mode: batch normalisation uses the statistics of the
                batch, which update the running ones, which are state; dropout and other random ops
                draw from a seed and an iteration, which are state too.

    A sequence input becomes one argument for each tensor of its example (a list), named
    ``name[0]``, ``name[1]``...; an optional one without an example is empty.  Sequence results are
    named in the same way.  A dimension that neither ``sizes`` nor ``inputs`` binds is 1.
    ``facts["bound"]`` holds for each symbol its ``size`` and the range ``low`` to ``high`` (-1:
    unbounded) that the model allows; ``facts["bound_values"]`` the inputs whose values were used;
    ``facts["external_data"]`` the names of the data files; ``facts["sequences"]`` the number of
    tensors in a result that is a sequence.  A result with a data-dependent size has the largest
    possible size, and an additional result is the number of valid elements
    (:meth:`Imported.trimmed`).
    """
    need_sound(model, name)
    opsets = {o.domain: o.version for o in model.opset_import}
    opset = next((opsets[d] for d in DOMAINS if d in opsets), 0)
    if opset and opset < OLDEST_OPSET:
        need_unchanged(model, opset, OLDEST_OPSET, name)
        opset = OLDEST_OPSET
    examples = _by_name(model, inputs or {}, name)
    draws = Draws.of_training() if training else Draws()
    importer = Importer(
        model, opset or 18, folder, sizes or {}, examples, name, origins or {}, draws
    )
    try:
        importer.graph(model.graph)
    except UserError as error:
        where = error.where if error.where.startswith(name) else f"{name}: {error.where[:200]}"
        raise UserError(error.what[:400], where, error.fix, error.exit_code) from None
    except RecursionError:
        raise UserError(
            "functions or subgraphs are nested too deep",
            name,
            "inline the functions, and export the model again",
        ) from None
    except MemoryError:
        raise UserError(
            "the import needs more memory than this machine has",
            name,
            "check the sizes in the model",
            CANNOT_HERE,
        ) from None
    if importer.unsupported:
        raise unsupported_ops_error(importer.unsupported, name)
    if tensors is not None:
        tensors.update(importer.env)
    if ops_by_node is not None:
        ops_by_node.update(importer.ops_by_node)
    made = {n: importer.env.get(n) for node in model.graph.node for n in node.output if n}
    values = {n: (v,) for n, v in made.items() if isinstance(v, Value)}
    main = importer.main()
    facts: dict[str, Any] = {
        "frontend": "onnx",
        "opset": opset,
        "producer": f"{model.producer_name} {model.producer_version}",
        "bound": {s: {"size": n, "low": 0, "high": -1} for s, n in importer.bound.items()},
        "bound_values": importer.bound_values,
        "external_data": external_files(model),
        "sequences": importer.sequences,
        "run_time_sizes": importer.run_time_sizes,
        "state": len(importer.state.arrays),
    }
    return Imported(
        Module({"main": main}, importer.weights),
        tuple(v.name or "" for v in main.arguments),
        tuple(importer.result_names),
        {LISTING: listing(model.graph)},
        facts,
        importer.state.arrays,
        Nodes(
            "onnxruntime",
            values,
            partial(run_nodes, model, folder, list(values)),
            importer.dynamic_sizes.axes(),
            in_f32(model),
            undefined=undefined(model),
            not_at_infinity=not_at_infinity(model),
            siblings={n: node.output[0] for node in model.graph.node for n in node.output},
        ),
        positions=positions(
            main,
            len(importer.arguments),
            importer.accesses,
            importer.dynamic_sizes.of,
            importer.bound_inputs,
        ),
    )


def _by_name(model, inputs: Mapping[str, Example] | Sequence[Example], name: str):
    """Return example inputs by the names of the graph's inputs."""
    if isinstance(inputs, Mapping):
        return inputs
    stored = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in stored]
    if len(names) != len(inputs):
        raise UserError(
            f"expected {len(names)} inputs, got {len(inputs)}",
            name,
            f"pass {', '.join(names)[:200] or 'none'}",
        )
    return dict(zip(names, inputs, strict=True))


class Importer:
    """The state of an import.

    ``env`` maps tensor names to values, ``made`` values to their defining ops.
    """

    def __init__(self, model, opset: int, folder, sizes, inputs, name: str, origins, draws: Draws):
        self.model, self.opset, self.folder, self.name = model, opset, folder, name
        self.sizes, self.inputs, self.origins = dict(sizes), inputs, origins
        self.weights = folder if isinstance(folder, WeightStore) else WeightStore()
        self.bound: dict[str, int] = {}
        self.bound_values: dict[str, list] = {}
        self.env: dict[str, GraphValue] = {"": None}
        self.given: dict[Value, np.ndarray] = {}
        self.constants: dict[Value, np.ndarray] = {}
        self.bindings: dict[Value, np.ndarray] = {}
        self.made: dict[Value, Any] = {}
        self.arguments: list[Value] = []
        self.results: list[Value] = []
        self.result_names: list[str] = []
        self.sequences: dict[str, int] = {}
        self.dynamic_sizes = RunTimeSizes()
        self.run_time_sizes: dict[str, list[list[int]]] = {}
        self.ops: list = []
        #: The ops of each node and initializer of the main graph, by its name.
        self.ops_by_node: dict[str, Sequence[Op]] = {}
        #: Values that were taken from example inputs, and the node that needed them.
        self.bound_inputs: list[tuple[Value, np.ndarray, str]] = []
        #: The ops for which ONNX requires positions to be in range.
        self.accesses: list[Access] = []
        self.unsupported: list[Unsupported] = []
        #: Outputs that the translation of their node omits -> the error if one is used.
        self.missing_outputs: dict[str, Unsupported] = {}
        #: The random ops of the model, and the state that training changes besides parameters.
        self.draws, self.state = draws, State()
        #: Initializers that belong to the state: constant -> name of the state.
        self.running_statistics: dict[Value, str] = {}
        self.opsets = {o.domain: o.version for o in model.opset_import}
        self.functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.calls: list[tuple[str, str, str]] = []
        #: The number of operations used so far to compute shapes.
        self.folding_work = 0
        self._lines = self._nodes = self.regions = 0

    # -- the main graph ----------------------------------------------------------------------------

    def graph(self, graph) -> None:
        """Translate the main graph: inputs, initializers, nodes, outputs."""
        stored = {t.name for t in graph.initializer}
        if graph.sparse_initializer:
            raise UserError(
                "sparse weights are not supported", self.name, "store them as dense tensors"
            )
        for info in graph.input:
            if info.name not in stored:
                self._input(info)
        unknown = [size for size in self.sizes if size not in self.bound]
        if unknown:
            raise UserError(
                f"unknown size {unknown[0]!r}",
                self.name,
                f"sizes of the inputs: {', '.join(self.bound) or 'none'}",
            )
        for held in graph.initializer:
            before = len(self.ops)
            self._initializer(held)
            self.ops_by_node[held.name] = self.ops[before:]
        for node in graph.node:
            self._lines += 1
            before = len(self.ops)
            self.node(node)
            self.ops_by_node[node.name] = self.ops[before:]
        for info in graph.output:
            value = self.env.get(info.name)
            if value is None and info.name in self.missing_outputs:
                self.unsupported.append(self.missing_outputs.pop(info.name))
            if value is None and not self.unsupported:
                raise UserError(
                    f"no node produces output {info.name!r}",
                    self.name,
                    "the file is damaged; export it again",
                )
            if value is not None:
                self._result(info.name, value)

    def main(self) -> Function:
        """Return the function of the translated main graph."""
        own = len(self.results)
        if self.training:
            self.ops = [*drop_unread_constants(self), *self.state.count_iterations(self.draws)]
        after = self.state.results()
        self.result_names, self.results, self.run_time_sizes = with_counts(
            [*self.result_names, *after], [*self.results, *after.values()], self.dynamic_sizes
        )
        return self.state.function(self.arguments, self.ops, self.results, own)

    @property
    def training(self) -> bool:
        return bool(self.draws.given)

    def _result(self, name: str, value: Value | TensorSequence | EmptyOptional) -> None:
        if isinstance(value, Value):
            self.results.append(value)
            self.result_names.append(name)
            return
        held = value.tensors if isinstance(value, TensorSequence) else ()
        self.sequences[name] = len(held)
        self.results += held
        self.result_names += [f"{name}[{i}]" for i in range(len(held))]

    def _input(self, info) -> None:
        kind, example = info.type, self.inputs.get(info.name)
        if kind.HasField("optional_type"):
            if example is None:
                self.define(info.name, EMPTY)
                return
            kind = kind.optional_type.elem_type
        if kind.HasField("sequence_type"):
            if not isinstance(example, list | tuple):
                raise UserError(
                    f"input {info.name!r} is a sequence and needs an example",
                    self.name,
                    "pass a list of tensors as its example input",
                )
            # Its shape covers the tensors' common part.
            kind = kind.sequence_type.elem_type.tensor_type
            held = [
                self._argument(f"{info.name}[{i}]", kind, each.shape, each)
                for i, each in enumerate(example)
            ]
            self.define(info.name, TensorSequence(tuple(held)))
            return
        if not kind.HasField("tensor_type"):
            raise UserError(
                f"input {info.name!r} is not a dense tensor",
                self.name,
                "replace it: maps and sparse tensors are not supported",
            )
        if isinstance(example, list | tuple):
            raise UserError(
                f"input {info.name!r} takes a tensor, got a sequence", self.name, "pass an array"
            )
        shape = self._shape(info.name, kind.tensor_type, example)
        self.define(info.name, self._argument(info.name, kind.tensor_type, shape, example))

    def _argument(self, name: str, kind, shape: Sequence[int], example: Any) -> Value:
        element = dtype_of(kind.elem_type, f"input {name!r}")
        value = Value(tensor(shape, element), name)
        if example is not None:
            if example.dtype != element.numpy:
                raise UserError(
                    f"input {name!r} is {example.dtype}, expected {element}",
                    self.name,
                    "pass an array of the expected type",
                )
            self.given[value] = example
        self.arguments.append(value)
        return value

    def _shape(self, name: str, kind, example) -> list[int]:
        """Return the declared shape with symbols bound; check it against the example, if any."""
        if not kind.HasField("shape"):
            if example is None:
                raise UserError(f"input {name!r} has no shape", self.name, "pass example inputs")
            return list(example.shape)
        declared = list(kind.shape.dim)
        need_rank(len(declared), f"input {name!r}")
        if example is not None and example.ndim != len(declared):
            raise UserError(
                f"input {name!r} has rank {example.ndim}, expected {len(declared)}",
                self.name,
                "pass an array of the expected rank",
            )
        shape = []
        for axis, d in enumerate(declared):
            example_size = example.shape[axis] if example is not None else None
            if d.HasField("dim_value"):
                size = d.dim_value
            else:
                symbol = d.dim_param or f"{name}_{axis}"
                if f"{name}.{axis}" in self.sizes:
                    self.sizes[symbol] = self.sizes.pop(f"{name}.{axis}")
                size = self.bound.get(
                    symbol, self.sizes.get(symbol, example_size if example_size is not None else 1)
                )
                self.bound[symbol] = size = int(size)
            if size < 0:
                raise UserError(
                    f"input {name!r} has invalid size {size} on axis {axis}",
                    self.name,
                    "the file is damaged; export it again",
                )
            if example_size is not None and example_size != size:
                raise UserError(
                    f"input {name!r} has size {example_size} on axis {axis}, expected {size}",
                    self.name,
                    "pass inputs of the model's sizes",
                )
            shape.append(size)
        return shape

    def _initializer(self, held) -> None:
        self.define(held.name, self.stored(held.name, to_array(held, self.folder)))

    def stored(self, name: str, array: np.ndarray) -> Value:
        """Emit a constant for an initializer.

        One of rank 0 is a scalar in a formula (exporters lift those out of nodes), not a parameter.
        """
        kind = "initializer" if array.ndim else "constant"
        origin = self.origins.get(name) or Origin.root(
            FrontendNode(name, kind, LISTING, 0, scope_of(name))
        )
        builder = Context(origin, _NoAttributes, self)
        value = builder.constant(array, name=name)
        self.take(builder)
        return value

    # -- nodes -------------------------------------------------------------------------------------

    def define(self, name: str, value: Value | TensorSequence | EmptyOptional) -> None:
        """Define the name of ``value``; a name may only be defined once."""
        if self.env.get(name) is not None:
            raise UserError(
                f"tensor {name!r} is defined twice",
                self.name,
                "the file is damaged; export it again",
            )
        self.env[name] = value

    def take(self, builder: Context) -> None:
        """Append the ops of a context, once."""
        self.ops += builder.ops
        self.accesses += builder.accesses
        for op in builder.ops:
            for value in op.results:
                self.made[value] = op
        builder.ops, builder.accesses = [], []

    def node(self, node) -> None:
        """Translate one node into ops; record a gap and continue if it is unsupported."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise UserError(
                f"the model has more than {MAX_NODES} nodes",
                self.name,
                "make it smaller: unrolled loops and functions count too",
            )
        function = self.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            self._call(function, node)
            return
        frontend_node = describe(node, self._lines)
        key = node.op_type if node.domain in DOMAINS else f"{node.domain}::{node.op_type}"
        try:
            origin = self.origins.get(node.name) or Origin.root(frontend_node)
            context = Context(origin, node, self)
            handler = TABLE.get(key)
            if handler is None:
                function_body = self._function_body(node)
                if function_body is None:  # also reached by nodes behind other gaps
                    raise NotSupported("no translation")
                self._call(function_body, node)
                return
            inputs = [self._read(name) for name in node.input]
            if node.op_type not in SEQUENCE_OPS and _has_sequence(inputs):
                raise NotSupported("an input is a sequence of tensors")
            if node.op_type not in RUN_TIME_SIZE_OPS and self._sized(inputs):
                raise NotSupported("an input's size depends on data")
            made = handler(context, *inputs)
        except _MissingInput:
            return
        except (NotSupported, TypeRuleError, ValueError, UserError) as reason:
            text = reason.what if isinstance(reason, UserError) else str(reason)
            mismatch = isinstance(reason, TypeRuleError)
            line = " ".join(text.split())[:400]
            self.unsupported.append(Unsupported(key, line, frontend_node, mismatch))
            return
        except (TypeError, KeyError, IndexError, AttributeError, ArithmeticError) as error:
            text = f"it does not match the op's definition: {type(error).__name__} {error}"
            self.unsupported.append(Unsupported(key, text[:200], frontend_node))
            return
        self.take(context)
        made = made if isinstance(made, tuple | list) else (made,)
        for name, value in zip_longest(node.output, made[: len(node.output)]):
            if name and value is not None:
                self.define(name, value)
            elif name:
                self.missing_outputs[name] = Unsupported(
                    key, f"its output {name!r} is not supported", frontend_node
                )

    def _sized(self, values) -> bool:
        return any(isinstance(value, Value) and self.dynamic_sizes.of(value) for value in values)

    def _read(self, name: str) -> GraphValue:
        if name not in self.env:
            if name in self.missing_outputs:
                self.unsupported.append(self.missing_outputs.pop(name))
            if self.unsupported:
                raise _MissingInput
            raise UserError(
                f"tensor {name!r} is used before it is defined",
                self.name,
                "sort the nodes; if the file is damaged, export it again",
            )
        return self.env[name]

    def _function_body(self, node):
        """Return ONNX's own function body of an op that has no translation."""
        opset = self.opset if node.domain in DOMAINS else self.opsets.get(node.domain, 1)
        schema = schema_with_function(node, opset)
        if schema is None:
            return None
        given = [self._read(name) for name in node.input]
        kinds = [
            type_of(v.tensors if isinstance(v, TensorSequence) else v)
            for v in given
            if not isinstance(v, EmptyOptional)
        ]
        made = definition(schema, node, kinds) if len(kinds) == len(given) else None
        if made is None:
            raise NotSupported("its ONNX function body does not cover these inputs")
        return made

    def _call(self, function, node) -> None:
        """Inline a function: its body with the call's tensors and attributes."""
        key = (node.domain, node.op_type, node.overload)
        if key in self.calls:
            raise UserError(
                f"function {node.op_type} calls itself",
                self.name,
                "the file is damaged; export it again",
            )
        for what, given, own in (
            ("takes", node.input, function.input),
            ("returns", node.output, function.output),
        ):
            if len(given) > len(own):
                raise UserError(
                    f"function {node.op_type} {what} {len(own)} tensors, a call names {len(given)}",
                    self.name,
                    "the file is damaged; export it again",
                )
        self.calls.append(key)
        outer, opset = self.env, self.opset
        own = {o.domain: o.version for o in function.opset_import}
        self.opset = next((own[d] for d in DOMAINS if d in own), opset)
        self.env = {"": None, **dict.fromkeys(function.input)}
        self.env |= {i: outer.get(n) for i, n in zip(function.input, node.input, strict=False)}
        for part in inlined(function, node):
            self.node(part)
        inner, self.env, self.opset = self.env, outer, opset
        self.calls.pop()
        for name, own in zip(node.output, function.output, strict=False):
            value = inner.get(own)
            if name and value is not None:
                self.define(name, value)

    def subgraph(self, graph, arguments: list[Value]) -> list[Value]:
        """Inline a graph attribute, its inputs bound to ``arguments``; return its outputs.

        The body can use the outer tensors.  Raise NotSupported if a node in it has no translation.
        """
        outer, gaps = self.env, len(self.unsupported)
        self.env = dict(outer)
        own = [i.name for i in graph.input]
        made = [t.name for t in graph.initializer] + [n for p in graph.node for n in p.output]
        for name in (*own, *made):
            if name:
                self.env.pop(name, None)
        self.env |= dict(zip(own, arguments, strict=True))
        for held in graph.initializer:
            self._initializer(held)
        for node in graph.node:
            self.node(node)
        inner, self.env = self.env, outer
        if len(self.unsupported) > gaps:
            raise _MissingInput
        results: list[Any] = []
        for output in graph.output:
            value = inner.get(output.name)
            if value is None:
                raise NotSupported(f"no node produces output {output.name!r} of a subgraph")
            results.append(value)
        return results

    def region(self, graph, arguments: list[Value]) -> Block:
        """Translate a graph attribute as a region, with separate ops."""
        outer, self.ops = self.ops, []
        self.regions += 1
        try:
            outputs = self.subgraph(graph, arguments)
            if _has_sequence(outputs):
                raise NotSupported("a branch or loop returns a sequence of tensors")
            if self._sized(outputs):
                raise NotSupported("a branch or loop returns a tensor whose size depends on data")
            return Block(tuple(arguments), tuple(self.ops), tuple(outputs))
        finally:
            self.ops = outer
            self.regions -= 1


def _has_sequence(inputs) -> bool:
    return any(isinstance(value, TensorSequence | EmptyOptional) for value in inputs)


class _MissingInput(NotSupported):
    """An input of an unsupported node: only the first gap is reported."""


class _NoAttributes:
    """A node without attributes, for initializers."""

    attribute = ()
