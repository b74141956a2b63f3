"""The exported program around a graph: its weights by name, and its signature."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from core_compiler.exporters.pt2 import dtypes
from core_compiler.exporters.pt2.table import Node

if TYPE_CHECKING:
    from core_compiler.exporters.pt2.exporter import Exporter


#: The kinds of a program's inputs that are constants, in the order in which it takes them, and the
#: prefixes of their placeholders.
_PREFIXES = {"PARAMETER": "p", "BUFFER": "b", "CONSTANT_TENSOR": "c"}
#: The statistics of batch norms, which are buffers of floats.
_STATISTICS = ("running_mean", "running_var")


def _kind(array: np.ndarray, name: str) -> str:
    """Return what a constant is: training changes the named floats, apart from statistics."""
    if not name:
        return "CONSTANT_TENSOR"
    is_statistic = name.rpartition(".")[2] in _STATISTICS
    is_float = dtypes.dtype(array.dtype).is_float
    return "PARAMETER" if is_float and not is_statistic else "BUFFER"


@dataclass(frozen=True)
class Weight:
    """A constant; ``kind`` and ``name`` are those of the program's input for it."""

    name: str
    kind: str
    node: Node
    tensor: Any


class Weights:
    """The constants of a program, each once."""

    def __init__(self, exporter: Exporter):
        self._exporter = exporter
        self._held: dict[Any, Weight] = {}
        self._taken: set[str] = set()
        torch = exporter.torch
        self._module = torch.fx.GraphModule({}, torch.fx.Graph())

    def node(self, array: np.ndarray, name: str = "", key: Any = None) -> Node:
        """Return the placeholder of a constant; ``key`` identifies the contents of a named one."""
        if key is None:
            key = (array.dtype, array.shape, array.tobytes())
        held = self._held.get((name, key))
        if held is None:
            held = self._held[name, key] = self._made(array, name)
        return held.node

    def _made(self, array: np.ndarray, name: str) -> Weight:
        dtype, kind = dtypes.dtype(array.dtype), _kind(array, name)
        chosen = self._free(name or "constant")
        placeholder = f"{_PREFIXES[kind]}_{chosen.replace('.', '_')}"
        node = self._exporter.placeholder(placeholder, array.shape, dtype)
        return Weight(chosen, kind, node, dtypes.to_tensor(array))

    def _free(self, name: str) -> str:
        """Return a name with which a module can store a tensor."""
        parts = re.sub(r"[^A-Za-z0-9_.]", "_", name).split(".")
        name = ".".join(filter(None, parts)) or "constant"
        count, found = 0, name
        while not self._is_free(found):
            count += 1
            found = f"{name}_{count}"
        self._taken.add(found)
        return found

    def _is_free(self, name: str) -> bool:
        """Return whether a name is neither taken, nor the path of a module, nor its attribute."""
        parts = name.split(".")
        paths = {".".join(parts[: n + 1]) for n in range(len(parts))}
        is_path = any(other.startswith(f"{name}.") for other in self._taken)
        is_attribute = any(hasattr(self._module, part) for part in parts)
        return not (is_path or is_attribute or paths & self._taken)

    def used(self) -> list[Weight]:
        """Return the constants that nodes read; remove the placeholders of the others."""
        graph, found = self._exporter.graph, []
        for held in self._held.values():
            if held.node.users:
                found.append(held)
            else:
                graph.erase_node(held.node)
        return found


def legal(name: str) -> str:
    """Return a name that torch's generated code can have, or that torch makes legal itself."""
    return "self_" if name == "self" else name


def assemble(
    exporter: Exporter,
    weights: Weights,
    arguments: Sequence[Node],
    results: Sequence[Node],
    outputs: Sequence[str],
) -> Any:
    """Return the ``ExportedProgram`` of a graph whose results are not yet returned."""
    graph = exporter.graph
    graph.output(tuple(results))
    graph.eliminate_dead_code()
    for node, name in zip(results, outputs, strict=True):
        if node.op != "placeholder":
            node._rename(legal(name))
    held = sorted(weights.used(), key=lambda w: [*_PREFIXES].index(w.kind))
    for node in reversed([*(w.node for w in held), *arguments]):
        first = next(iter(graph.nodes))
        if first is not node:
            first.prepend(node)
    state = {w.name: _stored(w) for w in held if w.kind != "CONSTANT_TENSOR"}
    return _program(graph, held, arguments, results, state)


def _stored(weight: Weight) -> Any:
    import torch

    is_parameter = weight.kind == "PARAMETER"
    return torch.nn.Parameter(weight.tensor, requires_grad=False) if is_parameter else weight.tensor


def _program(
    graph: Any,
    weights: Sequence[Weight],
    arguments: Sequence[Node],
    results: Sequence[Node],
    state: dict[str, Any],
) -> Any:
    import torch
    from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
    from torch.export import graph_signature as signatures
    from torch.utils._pytree import tree_structure

    def tensors(nodes: Sequence[Node]) -> list[Any]:
        return [signatures.TensorArgument(name=n.name) for n in nodes]

    of_inputs = [
        signatures.InputSpec(
            kind=signatures.InputKind[w.kind],
            arg=signatures.TensorArgument(name=w.node.name),
            target=w.name,
            persistent=True if w.kind == "BUFFER" else None,
        )
        for w in weights
    ]
    of_inputs += [
        signatures.InputSpec(kind=signatures.InputKind.USER_INPUT, arg=a, target=None)
        for a in tensors(arguments)
    ]
    of_outputs = [
        signatures.OutputSpec(kind=signatures.OutputKind.USER_OUTPUT, arg=a, target=None)
        for a in tensors(results)
    ]
    returned = 0 if len(results) == 1 else (0,) * len(results)
    call = ModuleCallSignature(
        inputs=tensors(arguments),
        outputs=tensors(results),
        in_spec=tree_structure(((0,) * len(arguments), {})),
        out_spec=tree_structure(returned),
        forward_arg_names=[n.name for n in arguments],
    )
    return ExportedProgram(
        root=torch.nn.Module(),
        graph=graph,
        graph_signature=signatures.ExportGraphSignature(of_inputs, of_outputs),
        state_dict=state,
        range_constraints={},
        module_call_graph=[ModuleCallEntry(fqn="", signature=call)],
        constants={w.name: w.tensor for w in weights if w.name not in state},
    )
