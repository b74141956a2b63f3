"""A torch program executed by torch itself, node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core_compiler.arrays import to_torch
from core_compiler.frontends.pytorch.tensors import to_numpy
from core_compiler.ir.framework import TellNode


def run_nodes(program, inputs: Sequence[np.ndarray], tell: TellNode) -> None:
    """Run an ``ExportedProgram`` on arrays for its user inputs; ``tell`` hears the tensors of each
    of its nodes.  Buffers that the program changes are copies."""
    import torch
    from torch.utils import _pytree as pytree

    class Telling(torch.fx.Interpreter):
        def run_node(self, node):
            made = super().run_node(node)
            if node.op == "call_function":
                tell(node.name, [_array(leaf) for leaf in pytree.tree_leaves(made)])
            return made

    with torch.no_grad():
        Telling(program.graph_module).run(*_arguments(program, inputs))


def _arguments(program, inputs: Sequence[np.ndarray]) -> list[Any]:
    """What the placeholders of the program's graph stand for."""
    states = {**program.state_dict, **program.constants}
    signature = program.graph_signature.input_specs
    specs = {s.arg.name: s for s in signature if hasattr(s.arg, "name")}
    given, found = iter(inputs), []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        spec: Any = specs.get(node.name)
        kind = "USER_INPUT" if spec is None else spec.kind.name
        if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            held = states[spec.target]
            found.append(held.clone() if kind == "BUFFER" else held)
        elif hasattr(node.meta.get("val"), "shape"):
            found.append(to_torch(next(given)))
        else:
            found.append(getattr(spec.arg, "value", node.meta.get("val")))
    return found


def _array(leaf: Any) -> np.ndarray | None:
    """A tensor as an array that is read before the next node runs; None for anything else."""
    import torch

    if not isinstance(leaf, torch.Tensor):
        return None
    try:
        return to_numpy(leaf)
    except (KeyError, RuntimeError, TypeError):  # complex, sparse, quantised
        return None
