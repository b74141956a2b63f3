"""Torch's own decompositions, for ops (and forms of ops) that have no translation here.

Only those are decomposed: an op that has a translation keeps its name, and with it its meaning, its
source line and the possibility that a target recognises it.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

from core_compiler.frontends.pytorch.aliasing import is_in_place
from core_compiler.frontends.pytorch.aten import TABLE
from core_compiler.frontends.pytorch.aten.complex_numbers import COMPLEX
from core_compiler.frontends.pytorch.silence import suppress_output


def lookup(target: str):
    """Return the translation of an op by its name (``aten.add_.Tensor``), or None."""
    parts = target.split(".")
    if parts[0] not in ("aten", "prims") or len(parts) < 2:
        return TABLE.get(".".join(parts[:2]))  # a library's own op, by its full name
    packet = parts[1] if parts[1].startswith("_") else parts[1].rstrip("_")
    return TABLE.get(".".join([packet, *parts[2:]])) or TABLE.get(packet)


def has_translation(target: str) -> bool:
    """Return whether an op has a translation, even if only for complex numbers."""
    packet = target.removeprefix("aten.").partition(".")[0]
    return lookup(target) is not None or packet in COMPLEX


def decompose(program, rejected: Collection[str]):
    """Decompose every op without a translation, and those in ``rejected``, by torch's rules.

    ``rejected`` are the names of ops that a translation rejected.  Return None if torch has no rule
    for them.
    """
    table = {
        op: rule
        for op, rule in _decomposition_table().items()
        if str(op) in rejected or (not has_translation(str(op)) and not _is_inert(op))
    }
    if not any(str(op) in rejected for op in table):
        return None
    try:
        with suppress_output():
            return program.run_decompositions(table)
    except Exception:  # a decomposition that does not trace: the op stays unsupported
        return None


def definition(node) -> Any:
    """Return the graph of torch's decomposition of a node, for inputs like the node's own.

    It is a ``GraphModule`` that takes the node's tensors, in order.  None if torch has no
    decomposition, or if it cannot be traced.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    rule = _decomposition_table().get(node.target)
    if rule is None:
        return None
    leaves, shape = pytree.tree_flatten((node.args, dict(node.kwargs)))
    leaves = [leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else leaf for leaf in leaves]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]

    def call(*given):
        rest = iter(given)
        filled = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, shape)
        return rule(*args, **kwargs)

    mode = next((t.fake_mode for t in tensors if hasattr(t, "fake_mode")), nullcontext())
    try:
        with suppress_output(), mode, torch.no_grad():
            graph = make_fx(call)(*tensors)
            # It is traced again if it writes: functionalisation of the composite does not detect
            # writes of its C++ implementation.
            if any(node.op == "call_function" and is_in_place(node) for node in graph.graph.nodes):
                graph = make_fx(torch.func.functionalize(graph))(*tensors)
            return graph
    except Exception:  # raised by a rule for unknown inputs
        return None


def tensors_of(node) -> list[Any]:
    """Return the tensor arguments of a node, in the order in which its definition takes them."""
    import torch

    return [
        n
        for n in _nodes((node.args, dict(node.kwargs)))
        if isinstance(n.meta.get("val"), torch.Tensor)
    ]


def _nodes(held: Any) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(held) if isinstance(leaf, torch.fx.Node)]


def decomposable(op: Any) -> bool:
    """Return whether torch has a decomposition of an op."""
    return op in _decomposition_table()


def _is_inert(op: Any) -> bool:
    return str(op).startswith(("aten._assert", "aten.sym_"))


def _decomposition_table() -> dict[Any, Any]:
    """Return all of torch's decompositions: the core table, additional ones, and composite ops."""
    import torch

    return _table_of(len(torch._C._dispatch_get_all_op_names()))


@lru_cache(maxsize=1)
def _table_of(ops: int) -> dict[Any, Any]:
    """Return the decompositions while torch has so many ``ops``: libraries add theirs."""
    import torch
    from torch._decomp import decomposition_table

    table = dict(torch.export.default_decompositions().items())
    for op, rule in decomposition_table.items():
        if isinstance(op, torch._ops.OpOverload):
            table.setdefault(op, rule)
    return table
