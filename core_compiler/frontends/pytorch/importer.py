"""From an ``ExportedProgram`` to a module: walks the graph, keeps origins, collects what is missing."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from core_compiler.errors import UserError
from core_compiler.frontends.base import Imported, Unsupported, read_sources, refuse
from core_compiler.frontends.pytorch.aten import TABLE, Context, NotSupported
from core_compiler.frontends.pytorch.tensors import dtype_of, to_numpy
from core_compiler.ir import Block, FrontendNode, Function, Module, Origin, Value, WeightStore, tensor
from core_compiler.ops.base import TypeRuleError

#: Ops that only assert or annotate: they have no effect on values.
IGNORED = frozenset({
    "aten._assert_tensor_metadata.default", "aten._assert_async.msg", "aten._assert_scalar.default",
    "aten.sym_constrain_range_for_size.default", "aten.sym_constrain_range.default",
    "aten._assert_async.default",
})  # fmt: skip

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n?(?P<text>[^\n]*)')


def import_module(module, inputs: Sequence, *, name: str = "model") -> Imported:
    """Export a live ``nn.Module`` on example ``inputs`` (tensors, in order) and import it."""
    import torch

    try:
        with torch.no_grad():
            program = torch.export.export(module, tuple(inputs), strict=False)
    except Exception as error:
        raise UserError(
            f"torch.export failed: {_first_line(error)}", name,
            "make the module exportable (see torch.export's documentation), or export it to ONNX",
        ) from error  # fmt: skip
    return import_exported(program, name=name)


def import_exported(program, *, name: str = "model") -> Imported:
    """Import a ``torch.export.ExportedProgram``; UserError names all unsupported ops at once."""
    import torch

    program = _functional(program)
    walker = _Walker(program, WeightStore())
    walker.walk()
    if walker.unsupported:
        raise refuse(walker.unsupported, name)
    block = Block(tuple(walker.arguments), tuple(walker.ops), tuple(walker.outputs))
    module = Module({"main": Function("main", block)}, walker.weights)
    files = [n.file for op in block.ops for n in op.origin.nodes() if n.file and not _is_library(n.file)]
    return Imported(
        module,
        tuple(v.name or f"input{i}" for i, v in enumerate(walker.arguments)),
        tuple(walker.output_names),
        read_sources(files),
        {"frontend": "pytorch", "torch": torch.__version__},
    )


def _functional(program):
    """The program without in-place ops on views (torch functionalises); others are handled here."""
    views = {"view", "transpose", "permute", "select", "slice", "expand", "unsqueeze", "squeeze",
             "reshape", "t", "narrow", "diagonal", "unbind", "split", "chunk", "as_strided", "detach"}  # fmt: skip

    def base(node):
        return str(node.target).split(".")[1] if node.op == "call_function" else ""

    for node in program.graph.nodes:
        packet = base(node)
        if packet.endswith("_") and not packet.startswith("_") and node.args:
            target = node.args[0]
            if target.op == "placeholder" or base(target) in views:
                return program.run_decompositions({})
            if any(base(user) in views for user in target.users):
                return program.run_decompositions({})
    return program


class _Walker:
    """One walk over the graph; ``env`` maps fx nodes to values, tuples of values or Python numbers."""

    def __init__(self, program, weights: WeightStore):
        self.program, self.weights = program, weights
        self.env: dict[Any, Any] = {}
        self.arguments: list[Value] = []
        self.outputs: list[Value] = []
        self.output_names: list[str] = []
        self.ops: list = []
        self.unsupported: list[Unsupported] = []

    def walk(self) -> None:
        states = {**self.program.state_dict, **self.program.constants}
        specs = {s.arg.name: s for s in self.program.graph_signature.input_specs if hasattr(s.arg, "name")}
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, specs.get(node.name), states)
            elif node.op == "get_attr":
                self._constant(node, str(node.target), getattr(self.program.graph_module, node.target))
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                self._output(node)

    def _placeholder(self, node, spec, states: Mapping[str, Any]) -> None:
        kind = spec.kind.name if spec is not None else "USER_INPUT"
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            self._constant(node, spec.target, states[spec.target])
            return
        value = node.meta.get("val")
        if kind != "USER_INPUT" or not hasattr(value, "shape"):
            if spec is not None and hasattr(spec.arg, "value"):
                self.env[node] = spec.arg.value
            else:
                self.env[node] = value
            return
        argument = Value(tensor([_size(d) for d in value.shape], dtype_of(value.dtype)), node.name)
        self.arguments.append(argument)
        self.env[node] = argument

    def _constant(self, node, target: str, held) -> None:
        if not node.users:
            return
        origin = Origin.root(FrontendNode(target, "parameter", scope=_path(target)))
        builder = Context(self.weights, origin, node)
        self.env[node] = builder.constant(to_numpy(held), name=_identifier(target))
        self.ops += builder.ops

    def _call(self, node) -> None:
        target = str(node.target)
        if target in IGNORED:
            return
        described = describe(node)
        context = Context(self.weights, Origin.root(described), node)
        try:
            arguments = self._read(node.args)
            keywords = self._read(dict(node.kwargs))
            made = self._translate(target, context, arguments, keywords, node)
        except (NotSupported, TypeRuleError) as reason:
            self.unsupported.append(Unsupported(target, str(reason), described))
            made = self._stand_in(node)
        self.ops += context.ops
        self.env[node] = made
        packet = target.split(".")[1] if "." in target else target
        if packet.endswith("_") and not packet.startswith("_") and node.args:
            self.env[node.args[0]] = made

    def _translate(self, target: str, context, arguments, keywords, node):
        if target.startswith("<built-in function getitem"):
            return arguments[0][arguments[1]]
        parts = target.split(".")
        if parts[0] not in ("aten", "prims"):
            raise NotSupported("no translation")
        packet = parts[1].rstrip("_") if not parts[1].startswith("_") else parts[1]
        handler = TABLE.get(".".join([packet, *parts[2:]])) or TABLE.get(packet)
        if handler is None:
            raise NotSupported("no translation")
        made = handler(context, *arguments, **keywords)
        self._compare(made, node.meta.get("val"), target)
        return made

    @staticmethod
    def _compare(made, expected, target: str) -> None:
        """What we made must have torch's own shape and dtype: a wrong translation stops here."""
        pairs = zip(made, expected, strict=False) if isinstance(made, tuple) else [(made, expected)]
        for value, meta in pairs:
            if isinstance(value, Value) and hasattr(meta, "shape"):
                shape = tuple(_size(d) for d in meta.shape)
                if value.type.shape != shape or value.type.dtype is not dtype_of(meta.dtype):
                    raise NotSupported(
                        f"our form gives {value.type}, torch {tuple(meta.shape)} {meta.dtype}"
                    )

    def _stand_in(self, node):
        """A placeholder result, so that the walk goes on and finds every unsupported op."""
        value = node.meta.get("val")
        if isinstance(value, list | tuple):
            return tuple(Value(tensor([_size(d) for d in v.shape], dtype_of(v.dtype))) for v in value)
        if hasattr(value, "shape"):
            return Value(tensor([_size(d) for d in value.shape], dtype_of(value.dtype)))
        return value

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
            if spec.kind.name != "USER_OUTPUT" or value is None:
                continue
            if not isinstance(value, Value):
                context = Context(self.weights, Origin.synthetic("import", "a constant output"), node)
                value = context.constant(np.asarray(value))
                self.ops += context.ops
            self.outputs.append(value)
            self.output_names.append(getattr(source, "name", f"output{len(self.output_names)}"))


def describe(node) -> FrontendNode:
    """File, line, module path and stack of an fx node; the innermost frame of the user's own code."""
    trace = node.meta.get("stack_trace") or ""
    frames = tuple(
        (m["file"], int(m["line"]), m["function"].strip(), m["text"].strip())
        for m in _FRAME.finditer(trace)
    )
    own = [f for f in frames if not _is_library(f[0])] or list(frames)
    file, line = (own[-1][0], own[-1][1]) if own else ("", 0)
    modules = node.meta.get("nn_module_stack") or {}
    path = [entry[0] for entry in modules.values() if entry[0]]
    scope = _path(path[-1], keep_last=True) if path else ""
    return FrontendNode(node.name, str(node.target), file, line, scope, frames)


def _path(dotted: str, keep_last: bool = False) -> str:
    """``layer.0.conv.weight`` -> ``layer/0/conv`` (the module that owns a parameter)."""
    parts = dotted.split(".")
    return "/".join(parts if keep_last else parts[:-1])


def _is_library(file: str) -> bool:
    return "/torch/" in file or "\\torch\\" in file


def _size(d) -> int | str:
    return int(d) if isinstance(d, int) else str(d)


def _identifier(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]", "_", name)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
