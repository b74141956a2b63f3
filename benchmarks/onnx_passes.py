"""Passes from ONNX to ONNX beside onnxscript's optimizer: nodes, seconds, and what changes.

    python -m benchmarks.onnx_passes [MODEL ...] [-o benchmarks/results/onnx-passes.json]

The models are the light ones of the ONNX suite with random weights and the exported sample models
(``light:NAME`` and ``sample:NAME``; default: all).  Both begin with the model in memory and end
with one; each is timed once in turn, three times over, and the smallest time counts.  Errors are
those of onnxruntime without its own rewrites, before and after, of the largest value of a tensor.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from core_compiler.onnx_level.passes import transformations
from core_compiler.onnx_level.read import read, read_file
from core_compiler.onnx_level.write import write
from core_compiler.passes.base import PassContext

TIMES = 3


def main() -> None:
    from sample_models.catalogue import CATALOGUE
    from tests.conformance import light_models

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = [f"light:{n}" for n in light_models.NAMES] + [f"sample:{n}" for n in CATALOGUE]
    parser.add_argument("models", nargs="*", default=every)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    rows = []
    for name in given.models:
        rows.append(_row(name))
        print(" ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    found = {
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": {n: version(n) for n in ("onnx", "onnxscript", "onnxruntime")},
        "models": rows,
    }
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")


def _row(name: str) -> dict[str, Any]:
    model, inputs = _model(name)
    want = _run(model, inputs)
    best: dict[str, float] = {}
    made: dict[str, onnx.ModelProto] = {}
    for _ in range(TIMES):
        for who, function in (("ours", _ours), ("onnxscript", _theirs)):
            copy = onnx.ModelProto.FromString(model.SerializeToString())
            began = time.perf_counter()
            made[who] = function(copy)
            spent = time.perf_counter() - began
            best[who] = min(best.get(who, spent), spent)
    onnx.checker.check_model(made["ours"])
    return {
        "model": name,
        "nodes": len(model.graph.node),
        **{f"{who}_nodes": len(m.graph.node) for who, m in made.items()},
        **{f"{who}_seconds": round(s, 3) for who, s in best.items()},
        **{f"{who}_error": _error(want, _run(m, inputs)) for who, m in made.items()},
    }


def _model(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    kind, _, short = name.partition(":")
    if kind == "light":
        from tests.conformance import light_models

        model = light_models.random_model(short)
        return model, light_models.random_inputs(model)
    from sample_models.catalogue import build
    from sample_models.export import export_onnx

    model = write(read_file(export_onnx(short)))  # with its weights inside
    names = [i.name for i in model.graph.input]
    arrays = [np.asarray(t) for t in build(short).example_inputs]
    return model, dict(zip(names, arrays, strict=True))


def _ours(model: onnx.ModelProto) -> onnx.ModelProto:
    module = read(model)
    for each in transformations():
        module = each.run(module, PassContext())
    return write(module)


def _theirs(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnxscript import optimizer

    optimize: Callable[..., Any] = optimizer.optimize
    return optimize(model)


def _run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def _error(old: list[np.ndarray], new: list[np.ndarray]) -> float:
    worst = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(old, new, strict=True))
    return float(f"{worst:.2g}")


if __name__ == "__main__":
    main()
