"""Single nodes of ONNX's own test suite, several in one graph: the attributes and forms that nobody
here thought of."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.conformance.outcomes import passed

#: Nodes in one graph.
EACH = 12
#: The opset of cases that onnxruntime does not know in their own, and the first that is read here
#: in all forms.
NEWEST, OLDEST = 21, 9
#: Cases that onnxruntime computes otherwise than the suite: a length that is no whole number.
_OTHERWISE = frozenset(
    {
        "test_resize_downsample_scales_cubic_align_corners",
        "test_resize_downsample_scales_linear_align_corners",
    }
)
#: Inputs that are read when a model is imported.
_READ = frozenset({"roi", "scales"})


def models(names: Sequence[str] = ()) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Name and model of each graph (``names``: of these)."""
    if names and not any(name.startswith("suite_") for name in names):
        return
    for opset, cases in sorted(_cases().items()):
        for place in range(0, len(cases), EACH):
            some = cases[place : place + EACH]
            name = f"suite_{opset}_{place // EACH}_{some[0].model.graph.node[0].op_type.lower()}"
            if not names or name in names:
                yield name, _joined(name, some)


@functools.cache
def _cases() -> dict[int, list[Any]]:
    """The cases that pass and that onnxruntime executes by the opset of their model, in the order
    of their op."""
    found: dict[int, list[Any]] = defaultdict(list)
    known = passed("onnx_nodes") - _OTHERWISE
    for case in _suite():
        if case.name in known and _runs(case):
            found[case.model.opset_import[0].version].append(case)
    return found


def _runs(case: Any) -> bool:
    """Whether onnxruntime executes a case; where it does not know its opset yet, it is made one of
    :data:`NEWEST`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    names = [value.name for value in case.model.graph.input]
    given = dict(zip(names, map(_as_array, case.data_sets[0][0]), strict=False))
    opset = case.model.opset_import[0]
    for version in (opset.version, NEWEST):
        opset.version = min(opset.version, version)
        try:
            session = onnxruntime.InferenceSession(case.model.SerializeToString(), options)
            session.run(None, given)
        except Exception:  # it has a dozen kinds of them for this
            continue
        return opset.version >= OLDEST
    return False


def _as_array(given: Any) -> np.ndarray:
    return numpy_helper.to_array(given) if isinstance(given, TensorProto) else np.asarray(given)


def _suite() -> list[Any]:
    """The cases of single nodes by op type, then by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        every = collect_testcases(None)  # type: ignore[arg-type]
    found = [case for case in every if len(case.model.graph.node) == 1 and _fits(case)]
    return sorted(found, key=lambda case: (case.model.graph.node[0].op_type, case.name))


def _fits(case: Any) -> bool:
    """Whether a case has tensors of numbers only."""
    model = case.model
    values = (*model.graph.input, *model.graph.output)
    kinds = [v.type.tensor_type.elem_type for v in values]
    return (
        len(model.opset_import) == 1
        and not model.functions
        and (
            all(v.type.HasField("tensor_type") for v in values) and TensorProto.STRING not in kinds
        )
    )


def _joined(name: str, cases: Sequence[Any]) -> onnx.ModelProto:
    """The cases side by side.  Floats are inputs, but for what is read at the import; all others
    are constants, as positions and sizes have to fit."""
    from onnx.compose import add_prefix_graph

    nodes, inputs, outputs, constants = [], [], [], []
    for number, case in enumerate(cases):
        graph = add_prefix_graph(case.model.graph, f"n{number}_")
        arrays = case.data_sets[0][0]
        nodes += graph.node
        constants += graph.initializer
        outputs += [helper.make_empty_tensor_value_info(o.name) for o in graph.output]
        for value, own, array in zip(graph.input, case.model.graph.input, arrays, strict=False):
            is_float = value.type.tensor_type.elem_type in (TensorProto.FLOAT, TensorProto.DOUBLE)
            if is_float and np.ndim(array) and own.name not in _READ:
                inputs.append(
                    helper.make_tensor_value_info(
                        value.name, value.type.tensor_type.elem_type, np.shape(array)
                    )
                )
            else:
                held = TensorProto()
                held.CopyFrom(
                    array
                    if isinstance(array, TensorProto)
                    else numpy_helper.from_array(_as_array(array))
                )
                held.name = value.name
                constants.append(held)
    model = cases[0].model
    return helper.make_model(
        helper.make_graph(nodes, name, inputs, outputs, constants),
        opset_imports=model.opset_import,
        ir_version=model.ir_version,
    )
