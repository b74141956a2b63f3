"""The ONNX suite's models of single nodes, run at level ``onnx``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from core_compiler.ir import Module
from core_compiler.onnx_level.evaluate import ABSENT_ARRAY, Held, evaluate
from core_compiler.onnx_level.read import read
from core_compiler.passes.base import Pass, PassContext
from core_compiler.support.errors import InternalError, UserError
from tests.conformance.onnx_nodes import tests

#: Tensor types of 16 bits and less: their results are compared as such.
_NARROW = 5e-2


@cache
def models() -> dict[str, Any]:
    """The cases of the suite that have a model of the default domain, by name."""
    found = {}
    for case in tests():
        if case.url:  # a whole model
            continue
        model = case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")
        if {o.domain for o in model.opset_import} <= {"", "ai.onnx"}:
            found[case.name] = (case, model)
    return found


def a_case_each() -> list[str]:
    """One case for every op type."""
    first: dict[str, str] = {}
    for name, (_, model) in models().items():
        for node in model.graph.node:
            first.setdefault(node.op_type, name)
    return sorted(set(first.values()))


def inputs(name: str) -> list[Any] | None:
    """A case's inputs; None where it has none."""
    case, _ = models()[name]
    if not case.data_sets:
        return None
    return [_value(each) for each in case.data_sets[0][0]]


def _value(given: Any) -> Any:
    if isinstance(given, list):
        return Held(map(_value, given))
    if given is None:
        return ABSENT_ARRAY
    return (
        numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else (np.asarray(given))
    )


def run(module: Module, arrays: Sequence[Any]) -> list[Any]:
    """The outputs of a module of level ``onnx``, node by node."""
    values: dict[Any, Any] = dict(zip(module.main.arguments, arrays, strict=True))
    for op in module.main.body.ops:
        given = [values[v] for v in op.operands]
        made = evaluate(op, given, module.weights, values, module.functions)
        values.update(zip(op.results, made, strict=True))
    return [values[v] for v in module.main.outputs]


def applied(module: Module, *passes: Pass) -> Module:
    for each in passes:
        module = each.run(module, PassContext())
    return module


def evaluable(names: Sequence[str]) -> Iterator[tuple[str, Module, list[Any], list[Any]]]:
    """Name, module, inputs and outputs of the cases whose ops all have a translation here."""
    for name in names:
        given = inputs(name)
        if given is None:
            continue
        try:
            module = read(models()[name][1])
            yield name, module, given, run(module, given)
        except (UserError, InternalError, KeyError):
            continue


def differ(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Whether results differ by more than two ways to round."""
    for a, b in zip(old, new, strict=True):
        if isinstance(a, Held):
            if len(a) != len(b) or differ(a, b):
                return True
            continue
        wide = a.dtype.kind in "biu" or a.dtype.itemsize > 2
        near = 1e-5 if wide else _NARROW
        if (
            a.shape != b.shape
            or a.dtype != b.dtype
            or not np.allclose(
                a.astype(np.float64),
                b.astype(np.float64),
                rtol=near,
                atol=near / 10,
                equal_nan=True,
            )
        ):
            return True
    return False


def invalid(module: Module, original) -> str:
    """What ONNX's checker says against a module, where it says nothing against the original."""
    from core_compiler.onnx_level.write import write

    try:
        onnx.checker.check_model(write(module), full_check=True)
    except Exception as problem:
        try:
            onnx.checker.check_model(original, full_check=True)
        except Exception:
            return ""
        return str(problem)[:200]
    return ""
