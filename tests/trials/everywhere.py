"""One program by every road: compiled and executed, exported to ONNX and NumPy, and run there."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import core_compiler as cc


def arrays(values: Any) -> tuple[np.ndarray, ...]:
    """Tensors or arrays, one or several, as NumPy arrays."""
    values = values if isinstance(values, tuple | list) else (values,)
    return tuple(np.asarray(v.detach() if hasattr(v, "detach") else v) for v in values)


def run_onnx(path: Path, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results of onnxruntime, without rewrites of its own."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return tuple(session.run(None, dict(zip(names, inputs, strict=True))))


def run_numpy(path: Path, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return arrays(module.main(*inputs))


def same(made: Sequence[Any], wanted: Sequence[Any], rtol: float = 0.0, atol: float = 0.0) -> None:
    """Equal shapes, dtypes and numbers, NaN equal to NaN; integers exactly."""
    made, wanted = arrays(tuple(made)), arrays(tuple(wanted))
    assert [(a.shape, a.dtype) for a in made] == [(a.shape, a.dtype) for a in wanted]
    for one, other in zip(made, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, equal_nan=True)


def everywhere(
    model: Any,
    inputs: Sequence[Any],
    wanted: Sequence[Any],
    folder: Path,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    guards: Sequence[bool] = (True, False),
    formats: Sequence[str] = ("onnx", "py"),
    stages: Sequence[int] = (0,),
) -> cc.Compilation:
    """The compilation of ``model``, every rewrite of which was checked; its results, and those of
    its exports, are ``wanted``."""
    compiled = cc.compile(model, tuple(inputs), check=True)
    failed = [r for found in compiled.checks.values() for r in found if r.verdict == "failed"]
    assert not failed
    same(compiled(*inputs), wanted, rtol, atol)
    given = arrays(tuple(inputs))
    for stage in stages:
        if "onnx" in formats:
            for guarded in guards:
                path = folder / f"{stage}_{guarded}.onnx"
                compiled.stages[stage].export(path, guards=guarded)
                same(run_onnx(path, given), wanted, rtol, atol)
        if "py" in formats:
            path = folder / f"{stage}.py"
            compiled.stages[stage].export(path)
            same(run_numpy(path, given), wanted, rtol, atol)
    return compiled
