"""Public names for torch's internals in a program (``torch.func`` transforms, nested graphs).

Messages use them because the internal names mean nothing to the author of a model.
"""

from __future__ import annotations

from typing import Any

from core_compiler.frontends.pytorch.origins import describe, is_library
from core_compiler.support.errors import UserError

#: Names of nodes that ``torch.func`` leaves in a program -> the function that created them.
_TRANSFORMS = {
    "lazy_load_decompositions": "torch.vmap",
    "_vmap_increment_nesting": "torch.vmap",
    "_vmap_decrement_nesting": "torch.vmap",
    "_add_batch_dim": "torch.vmap",
    "_remove_batch_dim": "torch.vmap",
    **dict.fromkeys(
        (
            "_jvp_increment_nesting",
            "_jvp_decrement_nesting",
            "_enter_dual_level",
            "_exit_dual_level",
            "_make_dual",
            "_unpack_dual",
            "aten._make_dual.default",
            "aten._unpack_dual.default",
        ),
        "torch.func.jvp",
    ),
    "_unwrap_for_grad": "torch.func.grad",
}
#: Torch's names of ops with graphs as arguments -> the function in a model's code.
_HIGHER_ORDER_NAMES = {
    "cond": "torch.cond",
    "while_loop": "torch.while_loop",
    "scan": "torch.scan",
    "tag_activation_checkpoint": "torch.utils.checkpoint",
    "wrap_with_autocast": "torch.autocast",
    "wrap_activation_checkpoint": "torch.utils.checkpoint",
    "wrap_with_set_grad_enabled": "torch.set_grad_enabled",
    "map_impl": "torch.map",
    "associative_scan": "torch.associative_scan",
    "flex_attention": "torch.nn.attention.flex_attention",
    "autograd_function_apply": "a torch.autograd.Function",
    "custom_function_call": "a torch.autograd.Function",
    "invoke_subgraph": "torch.compiler.nested_compile_region",
    "out_dtype": "torch.out_dtype",
    "call_torchbind": "a method of a TorchScript object",
    "triton_kernel_wrapper_mutation": "a Triton kernel",
    "triton_kernel_wrapper_functional": "a Triton kernel",
    "wrap": "torch.compile",
    "strict_mode": "torch.compile",
    "hints_wrapper": "torch.compile",
    "print": "torch's print",
}


def public_name(node: Any, target: str) -> str:
    """Return the name of a node's op for messages.

    It is the name of an operator, or for torch's internals the function that a model calls.
    """
    if target in _TRANSFORMS:
        return _TRANSFORMS[target]
    if target in _HIGHER_ORDER_NAMES:
        return _HIGHER_ORDER_NAMES[target]
    if hasattr(node.target, "_schema"):  # an operator of aten or of a library
        return target
    module = str(getattr(node.target, "__module__", "") or "")
    internal = target.startswith("_") or "higher_order" in str(node.target)
    if internal or module.startswith("torch._"):
        return "a part of torch that torch.export does not resolve"
    return target


def is_transform(node: Any) -> bool:
    """Return whether a node belongs to a transform of ``torch.func`` (vmap, jvp).

    Torch resolves these into operators when it decomposes a program.
    """
    return node.op == "call_function" and (
        str(getattr(node.target, "__module__", "")) == "torch._functorch.predispatch"
    )


def refuse_without_values(program: Any, name: str) -> None:
    """Raise UserError if a tensor that the program stores has no values.

    Torch computed it during the export, within a transform, and only kept its type.
    """
    states = {**program.state_dict, **program.constants}
    targets = {
        s.arg.name: s.target
        for s in program.graph_signature.input_specs
        if s.target and hasattr(s.arg, "name")
    }
    for node in program.graph.nodes:
        held = states.get(targets.get(node.name)) if node.op == "placeholder" else None
        if held is None or _has_values(held):
            continue
        if str(targets[node.name]).startswith("lifted"):
            raise UserError(
                "torch.export does not trace a derivative inside forward "
                "(torch.func.grad, vjp, jacrev)",
                _line_of_reader(program, node) or name,
                "write the derivative out, or compute it with torch.autograd.grad",
            )
        raise UserError(
            f"{targets[node.name]} has no values (device meta)",
            name,
            "load the model's weights before compiling",
        )


def _has_values(held: Any) -> bool:
    if not hasattr(held, "is_meta"):  # not a tensor
        return True
    if held.is_meta or hasattr(held, "fake_mode"):
        return False
    try:
        return str(held.layout) != "torch.strided" or held.untyped_storage() is not None
    except RuntimeError:  # a tensor within a transform wraps one that no longer exists
        return False


def _line_of_reader(program: Any, node: Any) -> str:
    """Return the model's line that uses a node's result; "" if torch did not record it."""
    graphs = [m.graph for m in program.graph_module.modules() if hasattr(m, "graph")]
    for reader in (*node.users, *(each for graph in graphs for each in graph.nodes)):
        described = describe(reader)
        if described.file and not is_library(described.file):
            return f"{described.file}:{described.line}"
    return ""


def failed_at(program: Any, error: BaseException) -> str:
    """Return the line of the node at which torch's interpreter failed; "" if unknown."""
    lines = [line for text in str(error).splitlines() if "While executing %" in (line := text)]
    wanted = lines[0].partition("%")[2].partition(" ")[0] if lines else ""
    for module in program.graph_module.modules():
        for node in module.graph.nodes if hasattr(module, "graph") else ():
            described = describe(node) if node.name == wanted else None
            if described is not None and described.file:
                return f"{described.file}:{described.line}"
    return ""
