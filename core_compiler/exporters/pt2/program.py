"""The exported program around a graph: its weights by name, and its signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from core_compiler.exporters.pt2 import dtypes
from core_compiler.exporters.pt2.table import Node

if TYPE_CHECKING:
    from core_compiler.exporters.pt2.exporter import Exporter


@dataclass(frozen=True)
class Weight:
    """A constant: ``name`` is that of the parameter or buffer, or one made for it."""

    name: str
    node: Node
    tensor: Any
    named: bool


class Weights:
    """The constants of a program, each once."""

    def __init__(self, exporter: Exporter):
        self._exporter = exporter
        self._held: dict[Any, Weight] = {}
        self._taken: set[str] = set()

    def node(self, array: np.ndarray, name: str = "", key: Any = None) -> Node:
        """Return the placeholder of a constant; ``key`` identifies the contents of a named one."""
        if key is None:
            key = (array.dtype, array.shape, array.tobytes())
        held = self._held.get((name, key))
        if held is None:
            held = self._held[name, key] = self._made(array, name)
        return held.node

    def _made(self, array: np.ndarray, name: str) -> Weight:
        exporter, kind = self._exporter, dtypes.dtype(array.dtype)
        chosen = self._free(name or "constant")
        node = exporter.placeholder(f"p_{chosen}".replace(".", "_"), array.shape, kind)
        return Weight(chosen, node, dtypes.to_tensor(array), bool(name))

    def _free(self, name: str) -> str:
        """Return a name that is neither taken nor the path of a module that contains another."""
        count, found = 0, name
        while not _is_free(found, self._taken):
            count += 1
            found = f"{name}_{count}"
        self._taken.add(found)
        return found

    def used(self) -> list[Weight]:
        """Return the constants that nodes read; remove the placeholders of the others."""
        graph, found = self._exporter.graph, []
        for held in self._held.values():
            if held.node.users:
                found.append(held)
            else:
                graph.erase_node(held.node)
        return found


def _is_free(name: str, taken: set[str]) -> bool:
    inside = any(other.startswith(f"{name}.") for other in taken)
    parts = name.split(".")
    return not inside and not any(".".join(parts[: n + 1]) in taken for n in range(len(parts)))


def assemble(
    exporter: Exporter,
    weights: Weights,
    arguments: Sequence[Node],
    results: Sequence[Node],
    outputs: Sequence[str],
) -> Any:
    """Return the ``ExportedProgram`` of a graph whose results are not yet returned."""
    graph, torch = exporter.graph, exporter.torch
    graph.output(tuple(results))
    graph.eliminate_dead_code()
    for node, name in zip(results, outputs, strict=True):
        if node.op != "placeholder":
            node._rename(name)
    held = sorted(weights.used(), key=lambda w: _ORDER.index(_kind(w)))
    for node in reversed([*(w.node for w in held), *arguments]):
        first = next(iter(graph.nodes))
        if first is not node:
            first.prepend(node)
    state = {
        w.name: torch.nn.Parameter(w.tensor, requires_grad=False)
        if _kind(w) == "PARAMETER"
        else w.tensor
        for w in held
        if w.named
    }
    return _program(graph, held, arguments, results, state)


#: The kinds of a program's inputs that are constants, in the order in which it takes them.
_ORDER = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")
#: The statistics of batch norms, which are buffers of floats.
_STATISTICS = ("running_mean", "running_var")


def _kind(held: Weight) -> str:
    """Return what a constant is: training changes the named floats, apart from statistics."""
    if not held.named:
        return "CONSTANT_TENSOR"
    is_statistic = held.name.rpartition(".")[2] in _STATISTICS
    return "PARAMETER" if held.tensor.is_floating_point() and not is_statistic else "BUFFER"


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
            kind=signatures.InputKind[_kind(w)],
            arg=signatures.TensorArgument(name=w.node.name),
            target=w.name,
            persistent=True if _kind(w) == "BUFFER" else None,
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
        constants={w.name: w.tensor for w in weights if not w.named},
    )
