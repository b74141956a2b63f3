"""Gradients defined by a module's own Python code, which an export does not include."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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

    def followed(cls: Any, made: Any, operands: tuple) -> Any:
        """Return the result of a function on its operands, with a gradient that is followed."""
        if passes_through(cls, len(operands)) and _are_alike(made, operands[0]):
            return _through(made, operands[0])
        seen.append((f"{cls.__name__} defines its own backward pass", _caller()))
        return made

    def applied(cls, *args, **kwargs):
        made = apply.__get__(None, cls)(*args, **kwargs)
        is_known = cls in known or cls.__module__.partition(".")[0] == "torch"
        return made if is_known else followed(cls, made, args)

    def hooked(self, *args, **kwargs):
        location = _caller()
        if location:
            seen.append(("a tensor has a hook on its gradient", location))
        return hook(self, *args, **kwargs)

    # A bound `apply` may have been stored before, so that the functions themselves are replaced:
    # torch looks them up in each call.
    known = {cls: cls.__dict__.get("forward") for cls in _functions(function)}
    replaced = {cls: _with_gradient(cls, followed) for cls in known}
    for cls, forward in replaced.items():
        cls.forward = staticmethod(forward)
    function.apply, tensor.register_hook = classmethod(applied), hooked
    try:
        yield
    finally:
        function.apply, tensor.register_hook = apply, hook
        for cls, forward in known.items():
            if forward is None:
                del cls.forward
            else:
                cls.forward = forward
    if seen:
        reason, location = seen[0]
        raise UserError(
            f"{reason}, which a training step does not run", location or "the model", _FIX
        )


def _functions(base: Any) -> Iterator[Any]:
    """Yield the subclasses of ``autograd.Function`` that torch does not define itself."""
    for cls in base.__subclasses__():
        if cls.__module__.partition(".")[0] != "torch":
            yield cls
        yield from _functions(cls)


def _with_gradient(cls: Any, followed: Callable[[Any, Any, tuple], Any]) -> Callable[..., Any]:
    """Return the forward pass of a function, its result ``followed``."""
    import torch

    forward = cls.forward
    has_context = cls.setup_context is torch.autograd.Function.setup_context

    def called(*args, **kwargs):
        return followed(cls, forward(*args, **kwargs), args[1:] if has_context else args)

    return called


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

    with _disable_current_modes():
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
    """Return the line of the model that calls; "" if the framework does."""
    own = (__file__, sys.modules["torch.autograd.function"].__file__)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in own:
        frame = frame.f_back
    file = frame.f_code.co_filename
    return "" if is_library(file) else f"{file}:{frame.f_lineno}"
