"""``torch.export`` of a live module, with what a forward pass may do and torch's own export would
refuse or lose: writes through ``.data``, buffers that are replaced, caches as results."""

from __future__ import annotations

import inspect
import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any

from core_compiler.frontends.pytorch.attributes import told
from core_compiler.frontends.pytorch.caches import register_caches
from core_compiler.frontends.pytorch.cumulative import averages_on_tensors
from core_compiler.frontends.pytorch.origins import is_library
from core_compiler.frontends.pytorch.own_gradients import refused
from core_compiler.support.errors import UserError, raised_at

_FIX = "make the module exportable (see torch.export's documentation), or export it to ONNX"
#: What torch's messages on exports say of its own parts -> what the user can do about it.
_KNOWN = {
    "fake tensor in the exported program": (
        "forward computes a tensor in a way that it cannot trace, such as torch.func",
        "compute it with plain tensor operations",
    ),
    "not a known type": ("", "return tensors, or tuples, lists and dictionaries of them"),
    "This pytree flattening function should be applied to DynamicCache": (
        "forward returns a cache that transformers cannot export",
        "set use_cache=False",
    ),
}


#: Words of torch's messages that speak of its own machinery.
_INTERNAL = re.compile(
    r"Fake|Functional[TM]|Prox[yi]|torch\._|functorch|has no attribute 'constant'"
)


def exported(module: Any, inputs: Sequence, name: str, training: bool) -> Any:
    """The ``ExportedProgram`` of a module on example inputs; UserError with the model's own line
    where torch cannot export it."""
    import torch

    register_caches()
    # Torch prints what it had traced where it fails; a model's own prints are no answers of ours.
    said = io.StringIO()
    noted = refused() if training else nullcontext()
    depth = _functorch_depth()
    try:
        with (told(module), averages_on_tensors(module), torch.set_grad_enabled(training),
              redirect_stdout(said), redirect_stderr(said), noted, _followed()):  # fmt: skip
            program = torch.export.export(module, tuple(inputs), strict=False)
    except UserError:
        raise
    except Exception as error:
        raise _refusal(error, module, name) from error
    finally:
        _leave_functorch(depth)
    sys.stderr.write(said.getvalue())
    return program


def _refusal(error: Exception, module: Any, name: str) -> UserError:
    text = raised_at(error)
    where = name
    if f"{type(error).__name__} at " not in text:  # torch fails after the trace: no line of theirs
        where = _forward(module) or name
    for part, (what, fix) in _KNOWN.items():
        if part in str(error):
            return UserError(f"torch.export failed: {what or text}", where, fix)
    if _INTERNAL.search(text):
        place = re.search(r" at (\S+:\d+): ", text)
        return UserError(
            "torch.export cannot trace this line", place[1] if place else where,
            "write it with plain tensor operations, or export the model to ONNX",
        )  # fmt: skip
    return UserError(f"torch.export failed: {text}", where, _FIX)


def _forward(module: Any) -> str:
    """Where a module's forward method is written."""
    try:
        method = type(module).forward
        return f"{inspect.getsourcefile(method)}:{inspect.getsourcelines(method)[1]}"
    except (OSError, TypeError):
        return ""


@contextmanager
def _followed() -> Iterator[None]:
    """Within it ``tensor.data`` in a model's code is ``tensor.detach()``, which an export follows
    (writes into it are writes into the tensor), an assignment to ``.data`` is refused, and a buffer
    takes a copy of what is assigned to it, which an export takes for a computed value."""
    import torch

    kind: Any = torch.Tensor
    inherited = kind.data
    nn_module = torch.nn.modules.module.__file__

    def read(tensor):
        own = not is_library(sys._getframe(1).f_code.co_filename)
        return tensor.detach() if own else inherited.__get__(tensor)

    def assign(tensor, value):
        frame = sys._getframe(1)
        if not is_library(frame.f_code.co_filename):
            raise UserError(
                "forward replaces a tensor's memory (tensor.data = ...), which torch.export "
                "cannot represent", f"{frame.f_code.co_filename}:{frame.f_lineno}",
                "write into the tensor instead: tensor.data.copy_(value)",
            )  # fmt: skip
        inherited.__set__(tensor, value)

    def copied(module, name, buffer):
        frame = sys._getframe(1)  # of nn.Module, called where the attribute is set
        while frame.f_back is not None and frame.f_code.co_filename == nn_module:
            frame = frame.f_back
        own = not is_library(frame.f_code.co_filename)
        known = own and module._buffers.get(name) is not None
        return buffer.clone() if known and isinstance(buffer, torch.Tensor) else buffer

    hook = torch.nn.modules.module.register_module_buffer_registration_hook(copied)
    own = "data" in vars(kind)
    kind.data = property(read, assign)
    try:
        yield
    finally:
        if own:
            kind.data = inherited
        else:
            del kind.data
        hook.remove()


def _functorch_depth() -> int | None:
    import torch

    return torch._C._functorch.maybe_current_level()


def _leave_functorch(depth: int | None) -> None:
    """Leave the transforms (vmap, grad) that a failed export has entered and not left: all of
    torch would go on inside them."""
    import torch

    while (now := torch._C._functorch.maybe_current_level()) is not None and now != depth:
        torch._C._functorch.pop_dynamic_layer_stack()
