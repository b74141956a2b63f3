"""Legality per level: the ops and types allowed in functions, checked after each pass."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import core_compiler.ops  # noqa: F401  (fills the registry)
from core_compiler.ir import (
    BufferType,
    DType,
    IndexType,
    OpaqueType,
    TensorType,
    VectorType,
    attributes_key,
)
from core_compiler.ir import target as target_level
from core_compiler.ir.core import Op
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.ir.verifier import LevelRules
from core_compiler.kernel_ir.ops import KERNEL_OPS
from core_compiler.ops.base import REGISTRY, TypeRuleError, infer_op
from core_compiler.support.errors import InternalError

#: Ops of main after bufferize; ``launch`` and ``group`` keep their tensor region.
TARGET_OPS = frozenset(declared.kind for declared in target_level.KINDS)


def levels(target=None) -> dict[str, LevelRules]:
    """Return the rules of each level, by name, and those of ``target`` for its own functions."""
    rules = dict(_levels())
    for level, shared in _levels().items() if target is not None else ():
        kinds = target.legal(level)
        if kinds is not None:
            rules[f"{level}@{target.name}"] = replace(shared, kinds=frozenset(kinds))
    return rules


@lru_cache(maxsize=1)
def _levels() -> dict[str, LevelRules]:
    tensor_ops = frozenset(REGISTRY) | {"core.group"}
    return {
        "tensor": LevelRules(tensor_ops | {target_level.LAUNCH}, (TensorType,), type_complaint),
        "target": LevelRules(tensor_ops | TARGET_OPS, (TensorType, BufferType), type_complaint),
        "kernel": LevelRules(
            frozenset(KERNEL_OPS), (BufferType, DType, IndexType, VectorType), lambda op: None
        ),
        "onnx": LevelRules(None, (TensorType, OpaqueType), _onnx_complaint),
    }


def _onnx_complaint(op: Op) -> str | None:
    from core_compiler.onnx_level.legality import find_error  # onnx is imported on first use

    return find_error(op)


def type_complaint(op: Op) -> str | None:
    """Return the error of an op by its own type rule, or None.

    Layouts are only checked for constants, whose bytes are fixed.
    """
    if op.kind in MEANING_IN_REGION and len(op.regions) != 1:
        return f"{op.kind} has {len(op.regions)} regions, expected one"
    if op.kind not in REGISTRY or op.kind == "core.group":
        return None
    if op.regions:
        return _complaint(op)
    # Types and attributes are values, so equal ops of a network's many equal layers are checked
    # once.
    key = (
        op.kind,
        tuple(v.type for v in op.operands),
        attributes_key(op.attributes.items()),
        tuple(v.type for v in op.results),
    )
    if key not in _JUDGED:
        if len(_JUDGED) > _MOST:
            _JUDGED.clear()
        _JUDGED[key] = _complaint(op)
    return _JUDGED[key]


_JUDGED: dict[tuple, str | None] = {}
_MOST = 100_000


def _complaint(op: Op) -> str | None:
    try:
        expected = infer_op(op)
    except (TypeRuleError, InternalError) as error:
        return str(error)
    got = [v.type for v in op.results]
    if len(got) != len(expected):
        return f"{op.kind} has {len(expected)} results, got {len(got)}"
    for want, actual in zip(expected, got, strict=True):
        if (
            not isinstance(actual, TensorType)
            or want.shape != actual.shape
            or want.dtype is not actual.dtype
        ):
            return f"{op.kind} returns {want}, but its result has type {actual}"
    if op.kind == "core.constant" and got[0].order is not None:
        return f"the bytes of a constant are row-major, but its result has type {got[0]}"
    return None
