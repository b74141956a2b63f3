"""The ONNX backend test suite (``onnx.backend.test``): single nodes, small and converted models.

The comparison is the suite's own (``Runner.assert_similar_outputs``) with its own tolerances.
Inputs that fix shapes (of Reshape, Slice, Range...) are bound at import to the case's values.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

from core_compiler.frontends.onnx import import_proto
from tests.conformance.outcomes import Case, Wrong, by_reference, installed

SUITE, LIBRARY = "onnx_nodes", "onnx"
#: (``real`` are the light models, which come with the package.)
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")


class CompilerBackend(Backend):
    """Our compiler as an ONNX backend; ``execute`` says on which path (reference by default)."""

    @classmethod
    def prepare(cls, model, device="CPU", execute=by_reference, folder=None, **_):
        return _Prepared(model, execute, folder)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class _Prepared(BackendRep):
    def __init__(self, model, execute, folder):
        self.model, self.execute, self.folder = model, execute, folder

    def run(self, inputs, **_):
        stored = {t.name for t in self.model.graph.initializer}
        names = [i.name for i in self.model.graph.input if i.name not in stored]
        given = dict(zip(names, inputs, strict=False))
        imported = import_proto(self.model, folder=self.folder, name="model", inputs=given)
        arrays = {}
        for name, value in given.items():
            several = isinstance(value, list)
            arrays |= {f"{name}[{i}]": v for i, v in enumerate(value)} if several else {name: value}
        made = self.execute(imported, [arrays[n] for n in imported.inputs])
        made = iter(imported.trimmed(made))
        counts = imported.facts["sequences"]
        return [
            [next(made) for _ in range(counts[o.name])] if o.name in counts else next(made)
            for o in self.model.graph.output
        ]


def cases(names: Collection[str] | None = None) -> Iterator[Case]:
    """The suite's cases, in its order: all, or those called ``names``."""
    wanted = None if names is None else frozenset(names)
    for test in tests():
        if wanted is None or test.name in wanted:
            yield Case(test.name, _runner(test))


def stems() -> list[str]:
    """What :func:`cases_of` has."""
    return [test.name for test in tests()]


def cases_of(chosen: Collection[str]) -> Iterator[Case]:
    return cases(chosen)


#: Op types whose cases are no part of the suite: strings and text, images, random numbers.
NO_PART = {
    **dict.fromkeys(("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch",
                     "TfIdfVectorizer", "LabelEncoder"), "text"),
    "ImageDecoder": "images",
    **dict.fromkeys(("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike",
                     "RandomUniform", "RandomUniformLike"), "random numbers"),
}  # fmt: skip


def left_out(name: str) -> str:
    """Why a case is not eligible; "" where it is: what is no part of the suite, and what ONNX's own
    reference evaluator does not pass."""
    (test,) = [test for test in tests() if test.name == name]
    if test.url:  # a model whose outputs come with it
        return ""
    model, sets = data(test)
    for node in model.graph.node:
        if node.domain == "ai.onnx.ml":
            return "ai.onnx.ml"
        if node.op_type in NO_PART:
            return NO_PART[node.op_type]
    strings = (*model.graph.input, *model.graph.output)
    if any(i.type.tensor_type.elem_type == onnx.TensorProto.STRING for i in strings):
        return "text"
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(model)
            for inputs, outputs in sets:
                stored = {t.name for t in model.graph.initializer}
                names = [i.name for i in model.graph.input if i.name not in stored]
                made = evaluator.run(None, dict(zip(names, inputs, strict=False)))
                Runner.assert_similar_outputs(list(outputs), list(made), test.rtol, test.atol)
    except Exception as error:
        return f"ONNX's reference evaluator does not pass it ({type(error).__name__})"
    return ""


def stem(name: str) -> str:
    """What a case shares with others of its samples: here each stands alone."""
    return name


@functools.cache
def tests() -> list:
    """The suite makes its cases when it is imported, which takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [test for kind in KINDS for test in load_model_tests(kind=kind)]


def _runner(test):
    def run(execute) -> None:
        model, sets = data(test)
        for inputs, outputs in sets:
            prepared = CompilerBackend.prepare(model, execute=execute)
            with np.errstate(all="ignore"):
                made = prepared.run(inputs)
            try:
                Runner.assert_similar_outputs(list(outputs), list(made), test.rtol, test.atol)
            except (AssertionError, TypeError, ValueError) as error:
                raise Wrong(_differs(outputs, made, error)) from None

    return run


def _differs(wanted, made, error) -> str:
    for i, (a, b) in enumerate(zip(wanted, made, strict=False)):
        if not isinstance(a, np.ndarray):
            continue
        b = np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {b.dtype}{b.shape}, wanted {a.dtype}{a.shape}"
        if a.dtype.kind == "f" and a.size:
            with np.errstate(all="ignore"):
                off = np.nanmax(np.abs(a.astype(np.float64) - b))
            return f"output {i} off by up to {off:.2g}"
    return str(error)


def data(test):
    """The model and its data sets, from memory or from the suite's folder."""
    if test.url:
        return _light(test)
    if test.data_sets is not None:
        return test.model, [tuple(map(_arrays, part)) for part in test.data_sets]
    folder = Path(test.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        sets.append(tuple(_read_all(data, model, kind) for kind in ("input", "output")))
    return model, sets


def _light(test):
    """A model of the package, with the inputs that the suite's runner makes for it."""
    path = Path(onnx.__file__).parents[1] / test.url
    model = onnx.load(path)
    stored = {t.name for t in model.graph.initializer}
    inputs = [
        Runner.generate_dummy_data(i, seed=0, name=test.model_name, random=False)
        for i in model.graph.input
        if i.name not in stored
    ]
    output = onnx.TensorProto.FromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
    return model, [(inputs, [numpy_helper.to_array(output)])]


def _arrays(values):
    values = [numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in values]
    return [np.asarray(v) if isinstance(v, np.generic) else v for v in values]


def _read_all(data: Path, model, kind: str):
    infos = list(model.graph.input if kind == "input" else model.graph.output)
    found = []
    for i in range(len(list(data.glob(f"{kind}_*.pb")))):
        proto = onnx.TensorProto()
        if i < len(infos) and not infos[i].type.HasField("tensor_type"):
            found.append(None)
            continue
        proto.ParseFromString((data / f"{kind}_{i}.pb").read_bytes())
        found.append(numpy_helper.to_array(proto))
    return found


def about() -> dict[str, str]:
    return {"suite": "onnx.backend.test", "library": LIBRARY, "kinds": ", ".join(KINDS)}


def versions() -> dict[str, str]:
    return installed(LIBRARY)
