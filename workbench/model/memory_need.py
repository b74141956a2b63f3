"""Estimation of whether a model fits in this machine's memory, before any large allocation."""

from __future__ import annotations

from math import prod
from pathlib import Path

from core_compiler.ir.attributes import Resource
from core_compiler.ir.core import Module
from core_compiler.ir.types import TensorType
from core_compiler.ops.traits import has_trait
from core_compiler.runtime.memory import require
from workbench.model import import_cache
from workbench.model.models import Model
from workbench.model.spec import Spec

#: Copies of the weights while a model is imported: the framework's, its export's, and ours.
IMPORT_COPIES = 3
_F32 = 4
_BYTES = {"f32": 4, "i64": 8}


def before_import(spec: Spec) -> None:
    """Raise UserError (exit code 3) if importing needs more memory than is free.

    Files count by their size (including external data), samples by the catalogue: weights grow
    with the square of ``width``, inputs with ``batch``.
    """
    require(import_bytes(spec), spec.text)


def import_bytes(spec: Spec) -> int:
    """Return a lower bound of the bytes that importing takes; 0 if nothing is known."""
    if spec.kind in ("onnx", "pt2"):
        return 2 * sum(p.stat().st_size for p in import_cache.model_files(Path(spec.text)))
    if spec.kind in ("ir", "stablehlo"):  # bytes, text and tokens
        return 4 * Path(spec.text).stat().st_size
    if spec.kind != "sample":
        return 0
    from sample_models.catalogue import check_sizes

    sizes = {"width": 1.0, "depth": None, "batch": 1, "seed": 0, **spec.sizes}
    entry = check_sizes(spec.text, **sizes)
    full = entry.depth if isinstance(entry.depth, int) else max(entry.depth)
    share = min(1.0, sizes["depth"] / full) if sizes["depth"] else 1.0
    weights = entry.parameters * _F32 * min(sizes["width"], sizes["width"] ** 2) * share
    inputs = sum(prod(i.shape) * _BYTES.get(i.dtype, 8) for i in entry.inputs)
    # Two sets of inputs, each as the framework's tensors and as arrays.
    return int(IMPORT_COPIES * weights + 4 * inputs * sizes["batch"] * _smaller(entry, sizes))


def _smaller(entry, sizes) -> float:
    """Return the ratio by which a sample's own sizes shrink its inputs."""
    share = 1.0
    for name, default in entry.sizes.items():
        if isinstance(default, int) and isinstance(sizes.get(name), int):
            share *= (sizes[name] / default) ** (2 if name == "image" else 1)
    return share


def before_compile(model: Model) -> None:
    """Raise UserError (exit code 3) if executing the model needs more memory than is free."""
    require(execute_bytes(model.imported.module), model.name)


def execute_bytes(module: Module) -> int:
    """Return a lower bound: the weights, the inputs and the tensors of the largest product.

    The exact need is known when memory is planned; loading the program checks again.
    """
    weights = {
        v.digest: v.type.bytes
        for op in module.walk()
        for v in op.attributes.values()
        if isinstance(v, Resource)
    }
    largest = max(
        (
            sum(_size(v) for v in (op.operands[0], *op.results))
            for op in module.walk()
            if has_trait(op, "contraction")
        ),
        default=0,
    )
    return sum(weights.values()) + largest + sum(map(_size, module.main.arguments))


def _size(value) -> int:
    kind = value.type
    return kind.bytes if isinstance(kind, TensorType) and kind.is_static else 0
