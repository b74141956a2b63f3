"""``torch.export`` of a live module, with support for more forward passes.

Torch's own export would reject or lose writes through ``.data``, replaced buffers, and caches as
results.
"""

from __future__ import annotations

import inspect
import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import Any

from core_compiler.frontends.pytorch import fake_quantisers
from core_compiler.frontends.pytorch.attributes import warn_of_attribute_changes
from core_compiler.frontends.pytorch.caches import register_caches
from core_compiler.frontends.pytorch.cumulative import averages_on_tensors
from core_compiler.frontends.pytorch.flex_attention import flex_attention_on_tensors
from core_compiler.frontends.pytorch.origins import is_library
from core_compiler.frontends.pytorch.own_gradients import reject_custom_gradients
from core_compiler.support.errors import UserError, raised_at

_FIX = "make the module exportable (see torch.export's documentation), or export it to ONNX"
#: Internals in torch's export messages -> advice to the user.
_KNOWN_MESSAGES = {
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


#: Terms in torch's messages that refer to its internals.
_INTERNAL = re.compile(
    r"Fake|Functional[TM]|Prox[yi]|torch\._|functorch|has no attribute 'constant'"
)


def export_module(module: Any, inputs: Sequence, name: str, training: bool) -> Any:
    """Return the ``ExportedProgram`` of a module on example inputs.

    Raise UserError with the model's own line if torch cannot export it.
    """
    import torch

    register_caches()
    fake_quantisers.prepare(module, name)
    # Torch prints the traced program if it fails, and the output of a model's own prints must not
    # be mixed with ours.
    output = io.StringIO()
    gradient_check = reject_custom_gradients() if training else nullcontext()
    depth = _functorch_depth()
    try:
        with (
            warn_of_attribute_changes(module),
            averages_on_tensors(module),
            flex_attention_on_tensors(),
            torch.set_grad_enabled(training),
            redirect_stdout(output),
            redirect_stderr(output),
            gradient_check,
            _follow_data_writes(),
        ):
            program = torch.export.export(module, _told_apart(module, inputs), strict=False)
    except UserError:
        raise
    except Exception as error:
        raise _export_error(error, module, name) from error
    finally:
        _leave_functorch(depth)
    sys.stderr.write(output.getvalue())
    return program


def _told_apart(module: Any, inputs: Sequence) -> tuple:
    """Return the inputs with a copy of each tensor that is a second input, or state, as well.

    An export follows tensors by identity, so that it would read one input for both.
    """
    import torch

    seen = {id(held) for held in (*module.parameters(), *module.buffers())}

    def copied(held: Any) -> Any:
        if not isinstance(held, torch.Tensor):
            return held
        if id(held) in seen:
            return held.detach().clone().requires_grad_(held.requires_grad)
        seen.add(id(held))
        return held

    return torch.utils._pytree.tree_map(copied, tuple(inputs))


def _export_error(error: Exception, module: Any, name: str) -> UserError:
    text = raised_at(error)
    where = name
    # Torch fails after the trace, without a line of the model.
    if f"{type(error).__name__} at " not in text:
        where = _forward(module) or name
    for part, (what, fix) in _KNOWN_MESSAGES.items():
        if part in str(error):
            return UserError(f"torch.export failed: {what or text}", where, fix)
    if _INTERNAL.search(text):
        line = re.search(r" at (\S+:\d+): ", text)
        return UserError(
            "torch.export cannot trace this line",
            line[1] if line else where,
            "write it with plain tensor operations, or export the model to ONNX",
        )
    return UserError(f"torch.export failed: {text}", where, _FIX)


def _forward(module: Any) -> str:
    """Return the location of a module's forward method."""
    try:
        method = type(module).forward
        return f"{inspect.getsourcefile(method)}:{inspect.getsourcelines(method)[1]}"
    except (OSError, TypeError):
        return ""


@contextmanager
def _follow_data_writes() -> Iterator[None]:
    """Make writes through ``.data`` and replaced buffers visible to an export in this context.

    In a model's code, ``tensor.data`` becomes ``tensor.detach()``, whose writes an export follows,
    and an assignment to ``.data`` is rejected.  A buffer receives a copy of an assigned value,
    which an export takes for a computed value.
    """
    import torch

    kind: Any = torch.Tensor
    inherited = kind.data
    nn_module = torch.nn.modules.module.__file__

    def read(tensor):
        in_user_code = not is_library(sys._getframe(1).f_code.co_filename)
        return tensor.detach() if in_user_code else inherited.__get__(tensor)

    def assign(tensor, value):
        frame = sys._getframe(1)
        if not is_library(frame.f_code.co_filename):
            raise UserError(
                "forward replaces a tensor's memory (tensor.data = ...), which torch.export "
                "cannot represent",
                f"{frame.f_code.co_filename}:{frame.f_lineno}",
                "write into the tensor instead: tensor.data.copy_(value)",
            )
        inherited.__set__(tensor, value)

    def copied(module, name, buffer):
        frame = sys._getframe(1)  # nn.Module's, called where the attribute is set
        while frame.f_back is not None and frame.f_code.co_filename == nn_module:
            frame = frame.f_back
        in_user_code = not is_library(frame.f_code.co_filename)
        is_replaced = in_user_code and module._buffers.get(name) is not None
        return buffer.clone() if is_replaced and isinstance(buffer, torch.Tensor) else buffer

    hook = torch.nn.modules.module.register_module_buffer_registration_hook(copied)
    is_defined_here = "data" in vars(kind)
    kind.data = property(read, assign)
    try:
        yield
    finally:
        if is_defined_here:
            kind.data = inherited
        else:
            del kind.data
        hook.remove()


def _functorch_depth() -> int | None:
    import torch

    return torch._C._functorch.maybe_current_level()


def _leave_functorch(depth: int | None) -> None:
    """Leave the transforms (vmap, grad) that a failed export has left active.

    Otherwise they would apply to all further calls of torch.
    """
    import torch

    while (level := torch._C._functorch.maybe_current_level()) is not None and level != depth:
        torch._C._functorch.pop_dynamic_layer_stack()
