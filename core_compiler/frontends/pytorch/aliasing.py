"""In-place ops of ATen: the programs that need functionalisation before they are translated."""

from __future__ import annotations

import operator

from core_compiler.frontends.pytorch.origins import describe
from core_compiler.frontends.pytorch.silence import suppress_output
from core_compiler.frontends.pytorch.state_dict import overlap
from core_compiler.frontends.pytorch.tensors import memory_key
from core_compiler.frontends.pytorch.transforms import failed_at, is_transform
from core_compiler.support.errors import UserError, raised_at

#: Composite ops that always create a new tensor (others may return an argument itself).
ALWAYS_NEW = frozenset({
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "linear", "matmul",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "softmax", "log_softmax", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d",
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "silu", "gelu", "cat",
    "scaled_dot_product_attention", "embedding", "_assert_tensor_metadata",
})  # fmt: skip


def packet(node) -> str:
    """Return ``add_`` for a node that calls ``aten.add_.Tensor``; "" for other nodes."""
    parts = str(node.target).split(".")
    return parts[1] if node.op == "call_function" and len(parts) > 1 else ""


def is_in_place(node) -> bool:
    """Return whether the node writes into its first argument."""
    written = _written(node)
    return written[:1] == [True]


def _written(node) -> list[bool]:
    """Return for each argument in the node's schema whether the op writes into it."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    return [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]


def may_alias(node) -> bool:
    """Return whether a result of the node may share memory with an argument.

    The schema declares it for views; composite ops may return their argument without declaring it
    (``dropout`` in evaluation mode, ``type_as``).
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return True
    if any(r.alias_info is not None for r in schema.returns):
        return True
    import torch

    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        node.target.name(), "CompositeImplicitAutograd"
    )
    return bool(composite) and packet(node) not in ALWAYS_NEW


def functionalise(program, training: bool = False):
    """Return the program in a form in which in-place ops only write into unshared tensors.

    If that is not already the case, torch functionalises the program.  The walker then uses the
    result of an in-place op for its argument from there on.  ``training``: keep the points at which
    the program stops gradients.

    The same transform replaces weights of a tensor subclass (torchao's) by the tensors inside.
    """
    import torch

    graphs = [m.graph for m in program.graph_module.modules() if hasattr(m, "graph")]
    for graph in graphs:
        _expand_statistics_updates(graph)
    has_subclasses = any(map(_is_subclass, program.state_dict.values()))
    for node in (node for graph in graphs for node in graph.nodes):
        written = _written(node)
        if (
            has_subclasses
            or any(written[1:])
            or _updates_statistics(node)
            or is_transform(node)
            or (is_in_place(node) and not _is_simple_in_place(node))
        ):
            _drop_idle_dropout(program)
            _turn_written_into_state(program)
            _drop_duplicate_inputs(program)
            # `detach` is only kept while gradients are enabled.
            enabled = torch.set_grad_enabled(training or torch.is_grad_enabled())
            with enabled, suppress_output():
                try:
                    return program.run_decompositions({})
                except Exception as error:  # torch's own passes raise any exception
                    raise UserError(
                        f"torch cannot resolve the model's in-place writes: {raised_at(error)}",
                        failed_at(program, error),
                        "compute new tensors instead",
                    ) from error
    return program


def _is_subclass(held) -> bool:
    """Return whether a tensor is a wrapper of others, such as a quantised weight of torchao."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(held)


def _turn_written_into_state(program) -> None:
    """Turn the tensors that the program writes into state.

    Each tensor gets one name, at the position of its first input.  Constants become buffers,
    because torch's functionalisation refuses to change constants.  Raise UserError if a tensor
    partially shares memory with another one.
    """
    from torch.export.graph_signature import InputKind

    states = {**program.state_dict, **program.constants}
    specs = {s.arg.name: s for s in program.graph_signature.input_specs if hasattr(s.arg, "name")}
    given = {
        node: states[specs[node.name].target]
        for node in program.graph.nodes
        if node.op == "placeholder" and specs[node.name].target in states
    }
    given = {node: held for node, held in given.items() if hasattr(held, "dtype")}
    for writer in [node for node in given if is_written(node)]:
        written, target = given[writer], specs[writer.name].target
        others = [node for node in given if node is not writer and node.users]
        for node in others:
            if memory_key(given[node]) != memory_key(written) and overlap(given[node], written):
                place = describe(next(iter(writer.users)))
                raise UserError(
                    f"the model writes into {target}, which shares memory with "
                    f"{specs[node.name].target}",
                    f"{place.file}:{place.line}",
                    "copy one of them (tensor.clone())",
                )
        same = [n for n in given if memory_key(given[n]) == memory_key(written) and n.users]
        for node in same[1:]:
            node.replace_all_uses_with(same[0])
        first = specs[same[0].name]
        if first.kind is InputKind.CONSTANT_TENSOR:
            first.kind, first.persistent = InputKind.BUFFER, False
    program.graph_module.recompile()


def is_written(node) -> bool:
    """Return whether an op may write into the memory of a node's result under any name."""
    seen, left = {node}, [node]
    while left:
        held = left.pop()
        for user in held.users:
            if user.op != "call_function":
                continue
            schema = getattr(user.target, "_schema", None)
            if schema is None and any(map(_writes, _graphs_of(user))):
                return True
            writes = zip(_written(user), user.args, strict=False)
            if any(is_write and arg is held for is_write, arg in writes):
                return True
            if _updates_statistics(user) and held in user.args[3:5]:
                return True
            if may_alias(user) and user not in seen:
                seen.add(user)
                left.append(user)
    return False


def _graphs_of(node) -> list:
    """Return the graphs among the arguments of an op."""
    owner = node.graph.owning_module
    held = [a for a in node.args if getattr(a, "op", "") == "get_attr"]
    found = [getattr(owner, str(a.target), None) for a in held]
    return [module.graph for module in found if module is not None and hasattr(module, "graph")]


def _writes(graph) -> bool:
    return any(
        any(_written(n)) or _updates_statistics(n) or any(map(_writes, _graphs_of(n)))
        for n in graph.nodes
        if n.op == "call_function"
    )


def _expand_statistics_updates(graph) -> None:
    """Write out the updates of running statistics by instance normalisations.

    Their schema does not declare these writes.  The new value is the mean over the instances of
    each one's mean and unbiased variance.
    """
    import torch

    aten = torch.ops.aten
    for node in list(graph.nodes):
        if packet(node) != "instance_norm" or not all(node.args[i] for i in (3, 5)):
            continue
        x, mean, variance, momentum = *(node.args[i] for i in (0, 3, 4)), float(node.args[6])
        axes = list(range(2, x.meta["val"].dim()))
        with graph.inserting_before(node):
            held = graph.call_function(aten.detach.default, (x,))
            means = graph.call_function(aten.mean.dim, (held, axes))
            variances = graph.call_function(aten.var.correction, (held, axes), {"correction": 1})
            for running, each in ((mean, means), (variance, variances)):
                new = graph.call_function(aten.mean.dim, (each, [0]))
                graph.call_function(aten.mul_.Scalar, (running, 1 - momentum))
                graph.call_function(aten.add_.Tensor, (running, new), {"alpha": momentum})
        node.args = (*node.args[:3], None, None, *node.args[5:])


def _drop_idle_dropout(program) -> None:
    """Remove dropouts in evaluation mode from the program, where they have no effect.

    They return their argument itself, but torch's functionalisation takes their results for new
    tensors and loses writes through them.
    """
    for node in list(program.graph.nodes):
        if packet(node) in ("dropout", "feature_dropout", "alpha_dropout") and not node.args[2]:
            node.replace_all_uses_with(node.args[0])
            program.graph.erase_node(node)


def _drop_duplicate_inputs(program) -> None:
    """Remove unused inputs that duplicate another input under a second name.

    These are the tensors of a module that is registered twice; torch's functionalisation fails on
    them.
    """
    states = program.state_dict
    targets = {s.arg.name: s.target for s in program.graph_signature.input_specs if s.target}
    given = [
        n for n in program.graph.nodes if n.op == "placeholder" and targets.get(n.name) in states
    ]
    read = {memory_key(states[targets[node.name]]) for node in given if node.users}
    duplicates = [n for n in given if not n.users and memory_key(states[targets[n.name]]) in read]
    for node in duplicates:
        program.graph.erase_node(node)
    program.graph_module.recompile()
    erased = {node.name for node in duplicates}
    specs = program.graph_signature.input_specs
    specs[:] = [spec for spec in specs if getattr(spec.arg, "name", None) not in erased]


def _updates_statistics(node) -> bool:
    """Return whether a batch normalisation updates its running statistics.

    Its schema does not declare this.
    """
    if packet(node) != "batch_norm":
        return False
    statistics, training = node.args[3], node.args[5]
    return statistics is not None and bool(training)


def _is_simple_in_place(node) -> bool:
    return (
        packet(node).endswith("_") and packet(node)[0] != "_" and _is_unshared(node.args[0], node)
    )


def _is_one_result(node) -> bool:
    """Return whether the node is the only user of one of several new results (of topk...)."""
    if node.target is not operator.getitem:
        return False
    source, place = node.args
    taken_results = [
        user.args[1] if user.target is operator.getitem else None for user in source.users
    ]
    own = source.op == "call_function" and not may_alias(source)
    return own and None not in taken_results and taken_results.count(place) == 1


def _is_unshared(target, writer) -> bool:
    """Return whether ``target`` is a new tensor without views when ``writer`` writes into it."""
    if target.op != "call_function":
        return False
    if is_in_place(target):
        fresh = _is_unshared(target.args[0], target)
    else:
        fresh = not may_alias(target) or _is_one_result(target)
    others = (u for u in target.users if u is not writer and u.op != "output")
    return fresh and all(is_in_place(u) or not may_alias(u) for u in others)
