"""Gradients defined by a module's own Python code, which an export does not include."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from core_compiler.frontends.pytorch.origins import is_library
from core_compiler.support.errors import UserError

_FIX = (
    "write the forward pass so that its derivative is the one you need: x + (new - x).detach() "
    "has the value of new and the gradient of x"
)


def refuse_hooks(module: Any, where: str) -> None:
    """Raise UserError if a hook of a module or of a parameter would change gradients."""
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise UserError(
                f"module {name or '(the model)'} has a backward hook, which a training "
                "step does not run",
                where,
                "remove it before compiling",
            )
    for name, held in module.named_parameters():
        if held._backward_hooks or getattr(held, "_post_accumulate_grad_hooks", None):
            raise UserError(
                f"parameter {name} has a hook on its gradient, which a training step does not run",
                where,
                "remove it before compiling",
            )


@contextmanager
def reject_custom_gradients() -> Iterator[None]:
    """Reject custom gradients during the export of a model for training.

    User code in this context that applies an ``autograd.Function`` or hooks a tensor is recorded; a
    UserError at the end names the first occurrence. Straight-through estimators are none: their
    gradient is that of their operand.
    """
    import torch

    function: Any = torch.autograd.Function
    tensor: Any = torch.Tensor
    apply, hook = function.__dict__["apply"], tensor.register_hook
    seen: list[tuple[str, str]] = []

    def applied(cls, *args, **kwargs):
        made = apply.__get__(None, cls)(*args, **kwargs)
        if cls.__module__.partition(".")[0] == "torch":
            return made
        if not kwargs and passes_through(cls, len(args)) and _are_alike(made, args[0]):
            return _through(made, args[0])
        seen.append((f"{cls.__name__} defines its own backward pass", _caller()))
        return made

    def hooked(self, *args, **kwargs):
        location = _caller()
        if location:
            seen.append(("a tensor has a hook on its gradient", location))
        return hook(self, *args, **kwargs)

    function.apply, tensor.register_hook = classmethod(applied), hooked
    try:
        yield
    finally:
        function.apply, tensor.register_hook = apply, hook
    if seen:
        reason, location = seen[0]
        raise UserError(
            f"{reason}, which a training step does not run", location or "the model", _FIX
        )


class _Nothing:
    """A context in which a forward pass saved nothing."""

    def __init__(self, operands: int):
        self.needs_input_grad = (True,) * operands


def passes_through(cls: Any, operands: int) -> bool:
    """Return whether the backward pass of an ``autograd.Function`` is the identity.

    That is: of nothing that its forward pass saved, to its first operand, and None to the others.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch.no_grad():
        given = torch.tensor([0.0, -0.0, 1.5, -3e38, 3e38, 1e-40, torch.inf, -torch.inf, torch.nan])
        try:
            first, *others = _tuple(cls.backward(_Nothing(operands), given))
        except Exception:  # it reads what the forward pass saved, or refuses
            return False
        if len(others) != operands - 1 or any(other is not None for other in others):
            return False
        return first is given or (
            isinstance(first, torch.Tensor)
            and first.dtype == given.dtype
            and first.numpy().tobytes() == given.numpy().tobytes()
        )


def _tuple(found: Any) -> tuple:
    return found if isinstance(found, tuple) else (found,)


def _are_alike(made: Any, x: Any) -> bool:
    import torch

    both = isinstance(made, torch.Tensor) and isinstance(x, torch.Tensor)
    return both and made.shape == x.shape and made.dtype == x.dtype and x.is_floating_point()


def _through(made: Any, x: Any) -> Any:
    """Return ``made``, every bit of it, with the gradient of ``x`` where that is finite."""
    import torch

    held = made.detach()
    return torch.where(torch.isfinite(x), held - (x.detach() - x), held)


def _caller() -> str:
    """Return the line that called this function's caller; "" if it belongs to the framework."""
    frame = sys._getframe(2)
    file = frame.f_code.co_filename
    return "" if is_library(file) else f"{file}:{frame.f_lineno}"
