"""The same model in another framework, to compare values and speed with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from core_compiler.support.arrays import to_torch
from core_compiler.support.errors import UserError, raised_at, raised_inside
from workbench.model.models import Model, load, need

if TYPE_CHECKING:
    from core_compiler.debug.framework import Compared

#: The frameworks that a model can be compared with.
PEERS = ("torch", "torch.compile", "onnxruntime", "jax", "keras", "tensorflow")

#: The framework whose nodes an import has, by the frontend that read the model.
FRAMEWORK_OF_FRONTEND = {
    "torch": "torch",
    "onnx": "onnxruntime",
    "jax": "jax",
    "stablehlo": "jax",
    "keras": "keras",
    "tensorflow": "tensorflow",
}


def peer(model: Model, framework: str, threads: int = 0) -> Callable[..., tuple[np.ndarray, ...]]:
    """Return the same model in another framework, as a function of NumPy arrays.

    It has its own state, if any.

    ``framework``: one of :data:`PEERS`. UserError if the model cannot run there, or the framework
    is not installed.
    """
    found = _peer(model, framework, threads)
    own = len(model.inputs) - len(model.imported.state)
    return (lambda *arrays: found(*arrays[:own])) if model.imported.state else found


def values(model: Model, framework: str) -> Callable[..., Compared]:
    """Return a function that compares each value of the model's import with ``framework``'s own.

    Its argument is a progress callback (done, total). Only the framework that a model comes from
    has the nodes of its import (:data:`FRAMEWORK_OF_FRONTEND`; a program of StableHLO is JAX's).
    UserError for others, and if it is not installed.
    """
    own_framework = FRAMEWORK_OF_FRONTEND.get(model.spec.frontend)
    if framework not in PEERS:
        raise UserError(
            f"unknown framework {framework!r}", "--against", f"choose one of {', '.join(PEERS)}"
        )
    if framework != own_framework:
        fix = (
            f"use --against {own_framework}"
            if own_framework
            else "compare outputs with workbench run --against"
        )
        raise UserError(
            f"comparing each value with {framework} is not supported for models "
            f"imported by {model.spec.frontend}",
            model.spec.text,
            fix,
        )
    need(framework, "peers" if framework == "onnxruntime" else framework)

    def run(progress: Callable[[int, int], None]) -> Compared:
        from core_compiler.debug.framework import compare

        with_nodes = model if model.imported.nodes is not None else load(model.spec, cache=False)
        nodes = with_nodes.imported.nodes
        assert nodes is not None
        module, own = model.imported.module, len(model.inputs) - len(model.imported.state)
        copies = [np.array(a) for a in model.inputs]
        return compare(module, copies, nodes, own, with_nodes.imported.module, progress)

    return wrap_errors(run, framework, model.spec.text)


def _peer(model: Model, framework: str, threads: int) -> Callable[..., tuple[np.ndarray, ...]]:
    if framework in ("torch", "torch.compile"):
        return _torch_peer(model, framework == "torch.compile", threads)
    if framework == "onnxruntime":
        return _onnxruntime_peer(model, threads)
    if framework in ("jax", "keras", "tensorflow"):
        return wrap_errors(_own_peer(model, framework), framework, model.spec.text)
    raise UserError(
        f"unknown framework {framework!r}", "--against", f"choose one of {', '.join(PEERS)}"
    )


def _own_peer(model: Model, framework: str):
    """Return the model in the framework that it came from."""
    if model.spec.frontend == framework and model.live is not None:
        return model.live
    if model.spec.kind == "stablehlo" and framework == "jax":
        need("jax", "jax")
        from core_compiler.frontends.stablehlo.nodes import on_arrays as program

        return program(Path(model.spec.text))
    if model.spec.kind == framework == "keras":  # imported from the cache
        from core_compiler.frontends.keras import on_arrays, read_file

        return on_arrays(read_file(Path(model.spec.text), trust=model.spec.trust))
    raise UserError(
        f"{framework} can only run its own models",
        model.spec.text,
        "compare with torch or onnxruntime",
    )


def _torch_peer(model: Model, compiled: bool, threads: int):
    need("torch", "torch")
    import torch

    spec = model.spec
    if spec.kind == "sample":
        from sample_models.catalogue import build

        module: Any = build(spec.text, **spec.sizes).module
    elif spec.kind == "function" and spec.frontend == "torch":
        module = model.live
    elif spec.kind == "pt2":
        from core_compiler.frontends.pytorch.archive import read_pt2

        module = read_pt2(Path(spec.text), trust=spec.trust).module()
    else:
        fix = f"use --against {'onnxruntime' if spec.kind == 'onnx' else spec.frontend}"
        raise UserError("torch cannot run this model", spec.text, fix)
    return torch_function(
        torch.compile(module) if compiled else module,
        threads,
        spec.text,
        _state(module) if model.imported.state else {},
        model.live is not None,
    )


def torch_function(
    module: Any,
    threads: int,
    where: str,
    state: Mapping[str, Any] = MappingProxyType({}),
    quiet: bool = False,
) -> Callable[..., tuple[np.ndarray, ...]]:
    """Return a torch module as a function of NumPy arrays.

    Its ``state`` is the same before every call. ``quiet``: what it prints goes to standard error.
    """
    import torch

    if threads:
        torch.set_num_threads(threads)
    initial = {name: tensor.detach().clone() for name, tensor in state.items()}
    from core_compiler.frontends.pytorch.tensors import to_numpy

    def run(*arrays):
        with torch.no_grad():
            for name, tensor in state.items():  # values written by an earlier call must not persist
                tensor.copy_(initial[name])
            made = module(*map(to_torch, arrays))
        leaves = torch.utils._pytree.tree_leaves(made)
        return tuple(to_numpy(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))

    def run_quietly(*arrays):
        with redirect_stdout(sys.stderr):  # standard output is for answers
            return run(*arrays)

    return wrap_errors(run_quietly if quiet else run, "torch", where)


def _state(module) -> dict[str, Any]:
    """Return the tensors that a torch module holds, by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _onnxruntime_peer(model: Model, threads: int):
    spec = model.spec
    if spec.kind == "sample":
        from sample_models.export import export_onnx

        path = export_onnx(spec.text, **spec.sizes)
    elif spec.kind == "onnx":
        path = Path(spec.text)
    else:
        raise UserError("onnxruntime needs an .onnx file", spec.text, "use --against torch")
    return onnxruntime_function(path, threads, spec.text)


def onnxruntime_function(
    path: Path, threads: int, where: str
) -> Callable[..., tuple[np.ndarray, ...]]:
    """Return an ``.onnx`` file in onnxruntime as a function of NumPy arrays."""
    need("onnxruntime", "peers")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if threads:
        options.intra_op_num_threads = threads
    options.log_severity_level = 3
    open_session = wrap_errors(onnxruntime.InferenceSession, "onnxruntime", where)
    session = open_session(str(path), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def run(*arrays):
        return tuple(session.run(None, dict(zip(names, arrays, strict=True))))

    return wrap_errors(run, "onnxruntime", where)


#: The folders in which frameworks are installed.
_PACKAGES = ("torch", "onnxruntime", "jax", "jaxlib", "keras", "tensorflow")


def wrap_errors(function: Callable, framework: str, where: str) -> Callable:
    """Wrap ``function`` so that exceptions of the framework become a UserError.

    Exceptions of our own ops on the framework's values are a finding, with exit code 1.
    """

    def wrapped(*arguments, **keywords):
        try:
            return function(*arguments, **keywords)
        except UserError:
            raise
        except Exception as error:
            our_package = raised_inside(error, *_PACKAGES)
            if our_package:
                raise UserError(
                    f"the compiler's ops raised {raised_at(error)} ({our_package}) on values of "
                    f"{framework}",
                    where,
                    "report it with the model",
                    1,
                ) from error
            raise UserError(
                f"{framework} cannot run this model: {raised_at(error)}",
                where,
                "compare with another framework",
            ) from error

    return wrapped
