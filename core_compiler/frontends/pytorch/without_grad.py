"""Parts of a program under ``no_grad``, and detached values, in a program that is trained."""

from __future__ import annotations

from collections.abc import Iterator

from core_compiler.frontends.pytorch.aliasing import is_in_place, may_alias, packet
from core_compiler.frontends.pytorch.origins import describe
from core_compiler.support.errors import UserError


def detach_no_grad_inputs(program, where: str) -> None:
    """Detach the inputs of parts under ``no_grad``, which are inlined later.

    Torch's functionalisation and the walker inline these parts, which loses the information that
    they stop gradients.  Their results are not detached: they may write into buffers that are read
    later.  Raise UserError for a write into a tensor that propagates gradients, see
    :func:`_reject_hidden_writes`.
    """
    _reject_hidden_writes(program, where)
    for module in program.graph_module.modules():
        for _, inner in _no_grad_calls(module) if hasattr(module, "graph") else ():
            _detach_arguments(inner.graph)
            inner.recompile()


def _no_grad_calls(module) -> Iterator[tuple]:
    """Yield the calls of a graph that run a part under ``no_grad``, each with that part."""
    for node in module.graph.nodes:
        if "wrap_with_set_grad_enabled" in str(node.target) and node.args[0] is False:
            yield node, module.get_submodule(node.args[1].target)


def _detach_arguments(graph) -> None:
    import torch

    given = [node for node in graph.nodes if node.op == "placeholder"]
    with graph.inserting_after(given[-1] if given else None):
        for node in given:
            if not isinstance(node.meta.get("val"), torch.Tensor):
                continue
            detached = graph.call_function(torch.ops.aten.detach.default, (node,))
            detached.meta = dict(node.meta)
            node.replace_all_uses_with(detached, lambda user, own=detached: user is not own)


def _reject_hidden_writes(program, where: str) -> None:
    """Raise UserError for hidden writes into a tensor that depends on parameters.

    These are writes under ``no_grad`` or through ``detach``: torch continues with the new values
    but propagates gradients as if nothing had been written, which the import cannot represent.
    """
    module = program.graph_module
    tracked = _tracked(module.graph)
    for node in module.graph.nodes:
        if is_in_place(node):
            root, detached = _memory_root(node.args[0])
            if detached and root in tracked:
                raise _hidden_write_error(node, where)
    for call, part in _no_grad_calls(module):
        outer = dict(
            zip((n for n in part.graph.nodes if n.op == "placeholder"), call.args[2:], strict=False)
        )
        for node in part.graph.nodes:
            inner = _memory_root(node.args[0])[0] if is_in_place(node) else None
            given = outer.get(inner)
            if given is not None and _memory_root(given)[0] in tracked:
                raise _hidden_write_error(node, where)


def _hidden_write_error(node, where: str) -> UserError:
    described = describe(node)
    return UserError(
        f"{packet(node)} writes under no_grad into a tensor that gradients flow through",
        f"{described.file}:{described.line}" if described.file else where,
        "write x = x + (new - x).detach(), which propagates gradients as torch does, or compute a "
        "new tensor",
    )


def _memory_root(node) -> tuple:
    """Return the tensor whose memory holds a node's result, and whether it was detached."""
    detached = False
    while node.op == "call_function" and node.args and (is_in_place(node) or may_alias(node)):
        if not hasattr(node.args[0], "op"):
            break
        detached = detached or packet(node) == "detach"
        node = node.args[0]
    return node, detached


def _tracked(graph) -> set:
    """Return the nodes that depend on a parameter by a path that is not detached."""
    found = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            if getattr(value, "requires_grad", False):
                found.add(node)
        elif packet(node) != "detach" and not (
            "wrap_with_set_grad_enabled" in str(node.target) and node.args[0] is False
        ):
            kind = getattr(value, "dtype", None)
            if (kind is None or kind.is_floating_point or kind.is_complex) and any(
                source in found for source in node.all_input_nodes
            ):
                found.add(node)
    return found
