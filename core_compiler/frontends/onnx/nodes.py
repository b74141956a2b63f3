"""Execution of an ONNX model by onnxruntime, which reports every tensor of its graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends.onnx.one_node import NodeEvaluator, as_array, as_value
from core_compiler.frontends.onnx.reading import read_model
from core_compiler.ir.framework import NodeCallback, StandIns

#: The session option with the folder of external data for a model passed as bytes.
_FOLDER = "session.model_external_initializers_file_folder_path"

#: Ops whose f64 kernels in onnxruntime have an f32 scale.
_SCALED_IN_F32 = frozenset({"Attention", "DFT"})
#: Ops that onnxruntime computes differently on some operands.
_DIFFERENT = frozenset({"MeanVarianceNormalization"})

#: Ops that have the lowest finite number for a window of negative infinities.
_MAX_POOLS = frozenset({"MaxPool", "GlobalMaxPool"})


def in_f32(model: Any) -> dict[str, float]:
    """Return the tensors produced by such kernels, with the relative error of their constants."""
    nodes = (node for node in model.graph.node if node.op_type in _SCALED_IN_F32)
    return {name: 2.0**-24 for node in nodes for name in node.output}


def undefined(model: Any) -> set[str]:
    """Return the tensors of nodes that onnxruntime computes differently on some operands.

    ``core_compiler.frontends.coverage.DISAGREE`` says how.
    """
    nodes = (node for node in model.graph.node if node.op_type in _DIFFERENT)
    return {name for node in nodes for name in node.output}


def not_at_infinity(model: Any) -> set[str]:
    """Return the tensors that onnxruntime computes differently from an infinity (``DISAGREE``)."""
    nodes = (
        n
        for n in model.graph.node
        if n.op_type in _MAX_POOLS or (n.op_type == "Clip" and len(list(filter(None, n.input))) < 3)
    )
    return {name for node in nodes for name in node.output}


def run_file(
    path: Path,
    names: Sequence[str],
    inputs: Sequence[np.ndarray],
    report: NodeCallback,
    stand_ins: StandIns | None = None,
) -> dict[int, np.ndarray]:
    """Run the model in a file; see :func:`run_nodes`."""
    return run_nodes(read_model(path), path.parent, names, inputs, report, stand_ins)


def run_nodes(
    model: Any,
    folder: Any,
    names: Sequence[str],
    inputs: Sequence[np.ndarray],
    report: NodeCallback,
    stand_ins: StandIns | None = None,
) -> dict[int, np.ndarray]:
    """Run a ``ModelProto`` without optimisation on arrays for its inputs, in their order.

    ``report`` receives the tensors ``names``, which nodes of its graph produce.  ``folder`` is the
    location of its external data.  Return the model's results by position, up to the first that is
    not a tensor; with ``stand_ins`` nothing.
    """
    import onnx
    import onnxruntime

    if stand_ins is not None:
        _run_each(model, folder, inputs, report, stand_ins)
        return {}
    full_model = onnx.ModelProto()
    full_model.CopyFrom(model)
    outputs = [o.name for o in full_model.graph.output]
    existing = set(outputs)
    full_model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in existing)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    if isinstance(folder, Path):
        options.add_session_config_entry(_FOLDER, str(folder.absolute()))
    session = onnxruntime.InferenceSession(
        full_model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = zip((i.name for i in session.get_inputs()), inputs, strict=True)
    feeds = dict(given)
    as_values = {n: as_value(np.asarray(a)) for n, a in feeds.items()}
    kinds = {o.name: o.type for o in session.get_outputs()}
    requested = [*names, *(n for n in outputs if n not in set(names))]
    results = session.run_with_ort_values(requested, as_values)
    found = {n: as_array(value, kinds[n]) for n, value in zip(requested, results, strict=True)}
    made = {n: found[n] for n in names}
    evaluator = NodeEvaluator(model, folder, {**feeds, **made})
    for name, array in made.items():
        if not any(report(name, [array], partial(evaluator.in_f64, name))):
            evaluator.rejected.add(name)
    tensors = takewhile(lambda n: kinds[n].startswith("tensor"), outputs)
    arrays = ((place, found[n]) for place, n in enumerate(tensors))
    return {place: array for place, array in arrays if array is not None}


def _run_each(
    model: Any, folder: Any, inputs: Sequence[np.ndarray], report: NodeCallback, stand_ins: StandIns
) -> None:
    """Execute the nodes that ``stand_ins`` asks for, each in a session of its own."""
    stored = {t.name for t in model.graph.initializer}
    own = (i.name for i in model.graph.input if i.name not in stored)
    known: dict[str, Any] = dict(zip(own, inputs, strict=False))
    evaluator = NodeEvaluator(model, folder, known)
    for node in model.graph.node:
        names = [name for name in node.output if name]
        wanted = [name for name in names if stand_ins.executes(name)]
        made = evaluator.made(node) if wanted else {}
        for name in made.keys() & set(wanted):
            report(name, [made[name]], partial(evaluator.in_f64, name))
        for name in names:
            chosen = stand_ins.arrays(name)
            if chosen is not None:
                known[name] = chosen[0]
