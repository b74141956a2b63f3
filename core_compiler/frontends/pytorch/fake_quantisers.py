"""Modules of quantisation-aware training, made ready for an export."""

from __future__ import annotations

from typing import Any

from core_compiler.support.errors import UserError


def prepare(module: Any, where: str) -> None:
    """Give observers of channels their first ranges, as torch does in the first call.

    Torch enlarges their empty buffers inside an op, which an export does not follow. An infinite
    range means the same as an empty one. Raise UserError for observers in Python, whose conditions
    on tensors an export does not follow.
    """
    import torch

    for name, part in module.named_modules():
        kinds = _kinds(part)
        if "FusedMovingAvgObsFakeQuantize" not in kinds:
            if "FakeQuantize" in kinds:
                raise UserError(
                    f"module {name} ({type(part).__name__}) observes ranges with conditions in "
                    "Python, which an export does not follow",
                    where,
                    "use FusedMovingAvgObsFakeQuantize, as get_default_qat_qconfig() does",
                )
            continue
        observer, observed = part.activation_post_process, _observed(module, name)
        if not part.is_per_channel or observer.min_val.numel() or observed is None:
            continue
        count = observed.shape[part.ch_axis]
        observer.min_val.resize_(count).fill_(torch.inf)
        observer.max_val.resize_(count).fill_(-torch.inf)
        part.scale.resize_(count).fill_(1)
        part.zero_point.resize_(count).zero_()


def _kinds(part: Any) -> list[str]:
    """Return the names of a module's classes in torch.ao.quantization and torchao.pt2e."""
    libraries = ("torch", "torchao")
    classes = type(part).__mro__
    return [cls.__name__ for cls in classes if cls.__module__.partition(".")[0] in libraries]


def _observed(module: Any, name: str) -> Any:
    """Return a tensor like the one that the fake quantiser of this name is called with, or None."""
    import torch

    parent = module.get_submodule(name.rpartition(".")[0])
    own = name.rpartition(".")[2]
    if isinstance(parent, torch.fx.GraphModule):
        calls = (node.args[0] for node in parent.graph.nodes if node.target == own)
        return next((x.meta.get("val") for x in calls if isinstance(x, torch.fx.Node)), None)
    return getattr(parent, "weight", None) if own == "weight_fake_quant" else None
