"""An ONNX model executed by onnxruntime, every tensor of its graph told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core_compiler.frontends.onnx.reading import read_model
from core_compiler.ir.framework import TellNode

#: Tells the session where a model that is given as bytes has its external data.
_FOLDER = "session.model_external_initializers_file_folder_path"


def run_file(
    path: Path, names: Sequence[str], inputs: Sequence[np.ndarray], tell: TellNode
) -> None:
    """:func:`run_nodes` of the model in a file."""
    run_nodes(read_model(path), path.parent, names, inputs, tell)


def run_nodes(
    model: Any, folder: Any, names: Sequence[str], inputs: Sequence[np.ndarray], tell: TellNode
) -> None:
    """Run a ``ModelProto``, as it is written (no optimisation), on arrays for its inputs in their
    order; ``tell`` hears the tensors called ``names``, which nodes of its graph make.  ``folder``:
    where its external data lie."""
    import onnx
    import onnxruntime

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    there = {o.name for o in whole.graph.output}
    whole.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in there)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    if isinstance(folder, Path):
        options.add_session_config_entry(_FOLDER, str(folder.absolute()))
    session = onnxruntime.InferenceSession(
        whole.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = zip((i.name for i in session.get_inputs()), inputs, strict=True)
    for name, made in zip(names, session.run(list(names), dict(given)), strict=True):
        tell(name, [made if isinstance(made, np.ndarray) else None])
