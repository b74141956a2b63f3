"""A compile that begins at level ``onnx``: stepped, checked, recorded and edited like any other."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import core_compiler as cc
from core_compiler.debug.bisect import bisect
from core_compiler.debug.check import summary
from core_compiler.driver.legality import levels
from core_compiler.onnx_level.passes import rewrite_nodes, transformations
from core_compiler.onnx_level.passes.convert_version import ConvertVersion
from core_compiler.onnx_level.read import read, read_file
from core_compiler.onnx_level.write import save, write
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.record import Recording
from core_compiler.support.errors import UserError
from sample_models.export import export_onnx
from tests.conformance import light_models
from tests.frontends.onnx_models import F, I, model_of
from tests.onnx_level.suite import applied
from workbench.commands.cli import main

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

PIXELS = np.random.default_rng(0).standard_normal((1, 1, 8, 8)).astype(np.float32)


def _run(model: onnx.ModelProto | str, given: dict) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    held = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(held, options, providers=["CPUExecutionProvider"])
    return session.run(None, given)


def _error(old: list[np.ndarray], new: list[np.ndarray]) -> float:
    """The largest difference, of the largest value of its tensor."""
    return max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(old, new, strict=True))


@pytest.fixture(scope="module")
def digits() -> str:
    return str(export_onnx("digits-cnn"))


@pytest.mark.slow
def test_every_rewrite_is_checked_from_the_graph_on(digits: str) -> None:
    made = cc.compile(digits, [PIXELS], check=True, frontend="onnx-passes")
    assert made.stages[0].module.main.level == "onnx"
    assert [s.name for s in made.stages[1:12]] == [
        "inline_functions",
        "infer_shapes",
        "fold_nodes",
        "simplify_control_flow",
        "convert_version",
        "rewrite_nodes",
        "fold_nodes#2",
        "clean_initializers",
        "eliminate_dead_nodes",
        "infer_shapes#2",
        "import_onnx",
    ]
    verdicts = {c.verdict for checks in made.checks.values() for c in checks}
    assert verdicts == {"bitwise", "within"}
    assert made.stages[11].module.main.level == "tensor"
    plain = cc.compile(digits, [PIXELS])
    (ours,), (other,), (theirs,) = made(PIXELS), plain(PIXELS), _run(digits, {"pixels": PIXELS})
    assert _error([theirs], [ours]) < 1e-5
    assert _error([theirs], [other]) < 1e-5


def _normalised() -> onnx.ModelProto:
    """A convolution and a normalisation behind it, with statistics like those of trained ones."""
    draw = np.random.default_rng(1)
    held = {
        "w": draw.standard_normal((4, 3, 3, 3)),
        "s": draw.uniform(0.5, 2, 4),
        "b": draw.standard_normal(4),
        "m": draw.standard_normal(4),
        "v": draw.uniform(0.5, 2, 4),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"]),
    ]
    weights = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in held.items()]
    return model_of(nodes, [("x", F, (1, 3, 6, 6))], [("y", F, None)], weights)


@pytest.mark.parametrize("epsilon", [True, False], ids=["right", "without its epsilon"])
def test_results_of_the_graph_are_judged_in_f64(epsilon: bool, monkeypatch) -> None:
    """Folded without its epsilon, a normalisation stays within the rule's own tolerance."""

    folded = rewrite_nodes._folded

    def wrong(b, m):
        norm = m.root.with_(attributes={**m.root.attributes, "epsilon": 0.0})
        return folded(b, replace(m, ops=[norm, *m.ops[1:]]))

    rules = [
        replace(r, rewrite=wrong) if r.rewrite is folded and not epsilon else r
        for r in rewrite_nodes.RULES
    ]
    monkeypatch.setattr(rewrite_nodes, "RULES", tuple(rules))
    x = np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)
    made = cc.compile(_normalised(), [x], check=True, frontend="onnx-passes", finish=False)
    while made.module.main.level != "tensor":
        made.step()
    found = [c for checks in made.checks.values() for c in checks]
    (rule,) = [c for c in found if c.rewrite and c.rewrite.rule.startswith("BatchNormalization")]
    assert rule.worst_error < rule.rewrite.tolerance
    assert not [c for c in found if c.verdict == "unchecked"]
    failed = [c for c in found if c.verdict == "failed"]
    assert failed == ([] if epsilon else [rule])
    assert epsilon or "differs in f64 too" in rule.note


@pytest.mark.slow
def test_skipping_the_passes_gives_the_plain_import(digits: str) -> None:
    """Bit for bit the same program: the import of the graph as it stands is the import."""
    edit = PipelineEdit(skip=tuple(dict.fromkeys(p.name() for p in transformations())))
    made = cc.compile(digits, [PIXELS], frontend="onnx-passes", edit=edit)
    plain = cc.compile(digits, [PIXELS])
    assert made.identity == plain.identity
    assert made(PIXELS)[0].tobytes() == plain(PIXELS)[0].tobytes()


@pytest.mark.slow
def test_where_an_op_came_from_reaches_through_the_level(digits: str) -> None:
    made = cc.compile(digits, [PIXELS], frontend="onnx-passes")
    for op in made.stages[11].module.main.body.ops:
        assert op.origin is not None
        assert op.origin.is_explained()
    folded = [op for op in made.stages[11].module.main.body.ops if op.kind == "core.conv"]
    rules = folded[0].origin.rules()
    assert rules[0] == "import Conv"
    assert "BatchNormalization(Conv(x)) => Conv(x)" in rules
    assert {n.kind for n in folded[0].origin.nodes()} >= {"Conv", "BatchNormalization"}


def test_open_sizes_are_those_of_the_inputs() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    model = model_of([node], [("x", F, ("n", 3))], [("y", F, ("n", 3))])
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    for frontend in (None, "onnx-passes"):
        made = cc.compile(model, [x], frontend=frontend)
        assert made(x)[0].tobytes() == np.maximum(x, 0).tobytes()
    sized = PipelineEdit(options={"import_onnx": {"sizes": "n=7"}})
    made = cc.compile(model, frontend="onnx-passes", edit=sized)
    assert made.module.main.arguments[0].type.shape == (7, 3)
    with pytest.raises(UserError, match="expected name=number, got 'n is 7'"):
        cc.compile(
            model,
            frontend="onnx-passes",
            edit=PipelineEdit(options={"import_onnx": {"sizes": "n is 7"}}),
        )


def test_results_whose_size_depends_on_data_are_cut() -> None:
    model = model_of(
        [helper.make_node("NonZero", ["x"], ["y"])], [("x", F, (2, 3))], [("y", I, (2, "n"))]
    )
    x = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
    (found,) = cc.compile(model, [x], frontend="onnx-passes")(x)
    np.testing.assert_array_equal(found, np.array(np.nonzero(x)))


@pytest.fixture(scope="module")
def nonzero(tmp_path_factory) -> str:
    """Values of which nobody knows the type, and a result whose size depends on data."""
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("NonZero", ["h"], ["n"]),
        helper.make_node("Transpose", ["n"], ["y"]),
    ]
    path = tmp_path_factory.mktemp("sizes") / "nonzero.onnx"
    onnx.save(model_of(nodes, [("x", F, (2, 3))], [("y", I, ("n", 2))]), path)
    return str(path)


def test_sizes_that_depend_on_data_are_checked_for_what_counts(nonzero: str) -> None:
    x = np.array([[0, 1, 0], [2, -1, 3]], np.float32)
    made = cc.compile(nonzero, [x], check=True, frontend="onnx-passes")
    assert {c.verdict for c in made.checks[11]} == {"bitwise"}
    assert summary(made.checks)["failed"] == 0
    begun = cc.compile(nonzero, [x], frontend="onnx-passes", finish=False)
    assert bisect(begun, [x], levels=levels(begun.target)) is None


def test_values_of_which_nobody_knows_the_size_are_left_out_of_the_memory(
    nonzero: str, tmp_path: Path, capsys
) -> None:
    recording = str(cc.compile(nonzero, frontend="onnx-passes").record(tmp_path / "nz.run"))
    assert main(["show", recording, "memory", "--ask", "passes", "--json"]) == 0
    peaks = {row["pass"]: row["bytes"] for row in json.loads(capsys.readouterr().out)["answer"]}
    assert peaks["import"] == 0 < peaks["infer_shapes"] <= peaks["import_onnx"]
    assert main(["export", recording, "--tables", "csv", "-o", str(tmp_path / "tables")]) == 0


def test_an_input_without_a_shape_takes_that_of_its_example() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], [("x", F, None)], [("y", F, None)])
    made = cc.compile(model, [np.float32([[1, -2]])], frontend="onnx-passes")
    assert made(np.float32([[1, -2]]))[0].tolist() == [[1, 0]]
    with pytest.raises(UserError, match="input 'x' is int32, expected f32"):
        cc.compile(model, [np.int32([3])], frontend="onnx-passes")


@pytest.mark.parametrize("frontend", ["onnx", "onnx-passes"])
def test_run_tells_results_whose_size_depends_on_data(nonzero: str, frontend: str, capsys) -> None:
    assert main(["run", nonzero, "--frontend", frontend, "--against", "onnxruntime"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"on cpu: y int64\[\d, 2\]\n", told)
    assert "worst relative error 0," in told


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("model", "frontend", "said"),
    [
        (lambda x: x, "onnx-passes", "is not an ONNX model"),
        ("digits", "onnx-graph", "unknown frontend"),
        ("nowhere.onnx", "onnx-passes", "file not found"),
    ],
)
def test_what_is_no_graph_is_refused(model, frontend: str, said: str, digits: str) -> None:
    with pytest.raises(UserError, match=said):
        cc.compile(digits if model == "digits" else model, [PIXELS], frontend=frontend)


def test_an_op_without_translation_is_said_when_it_is_imported() -> None:
    """The passes before work: the graph is seen, and written, though we cannot compile it."""
    nodes = [
        helper.make_node("Identity", ["x"], ["h"]),
        helper.make_node("Mystery", ["h"], ["y"], domain="elsewhere", name="odd"),
    ]
    model = model_of(
        nodes, [("x", F, (2,))], [("y", F, (2,))], opsets=[helper.make_opsetid("elsewhere", 1)]
    )
    made = cc.compile(model, [np.ones(2, np.float32)], frontend="onnx-passes", finish=False)
    while made.next is not None and made.next.label != "import_onnx":
        made.step()
    assert [n.op_type for n in write(made.module).graph.node] == ["Mystery"]
    with pytest.raises(UserError, match=r"elsewhere::Mystery"):
        made.finish()


# -- recorded, from the command line ---------------------------------------------------------------


@pytest.mark.slow
def test_a_recording_holds_the_level(tmp_path: Path, capsys, digits: str) -> None:
    target = tmp_path / "digits.run"
    assert main(["compile", "digits-cnn", "--frontend", "onnx-passes", "--check", "-o", str(target),
                 "--set", "convert_version.to=21", "--json"]) == 0  # fmt: skip
    told = json.loads(capsys.readouterr().out)
    assert told["checks"]["failed"] == 0
    with Recording.open(target) as opened:
        stages = opened.stages()
        assert [s.half for s in stages[1:12]] == ["source"] * 11
        assert dict(opened.module(5).main.attributes["opsets"])[""] == 21
        assert opened.module(4).main.level == "onnx"
        assert any("=>" in step.rewrite.rule for step in opened.rewrites(5))


def test_a_version_that_cannot_be_is_one_line(capsys) -> None:
    code = main(
        ["compile", "digits-cnn", "--frontend", "onnx-passes", "--set", "convert_version.to=3"]
    )
    assert code == 2
    assert "choose 7 to" in capsys.readouterr().err


# -- written out, beside onnxruntime ---------------------------------------------------------------


def _out_and_back(model, given: dict, tmp_path: Path, versions=(17,)) -> tuple[float, int, int]:
    """The worst difference after the passes and after each version; nodes before and after."""
    want = _run(model, given)
    module = read_file(model) if isinstance(model, str) else read(model)
    made = applied(module, *transformations())
    worst, path = 0.0, tmp_path / "made.onnx"
    for each in (made, *(applied(module, ConvertVersion(v)) for v in versions)):
        save(each, path)
        onnx.checker.check_model(str(path), full_check=True)
        worst = max(worst, _error(want, _run(str(path), given)))
    return (
        worst,
        len(write(module, weights=False).graph.node),
        len(write(made, weights=False).graph.node),
    )


def test_a_small_model_in_onnxruntime_before_and_after(digits: str, tmp_path: Path) -> None:
    worst, before, after = _out_and_back(digits, {"pixels": PIXELS}, tmp_path, (17, 22))
    assert worst < 1e-5
    assert after < before


@pytest.mark.slow
@pytest.mark.parametrize("name", light_models.NAMES)
def test_a_light_model_in_onnxruntime_before_and_after(name: str, tmp_path: Path) -> None:
    """Opset 9 with random weights: through the passes, to 23, to 17."""
    model = light_models.random_model(name)
    worst, before, after = _out_and_back(
        model, light_models.random_inputs(model), tmp_path, (23, 17)
    )
    assert worst < 1e-5
    assert after <= before


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "digits-mlp",
        "resnet18",
        "resnet50",
        "mobilenet-v2",
        "bert-base",
        "gpt2",
        "gpt2-decode",
        "vit-b16",
        "llama-4l",
    ],
)
def test_a_sample_model_in_onnxruntime_before_and_after(name: str, tmp_path: Path) -> None:
    from sample_models.catalogue import build

    path = str(export_onnx(name))
    proto = onnx.load(path, load_external_data=False)
    held = {t.name for t in proto.graph.initializer}
    names = [i.name for i in proto.graph.input if i.name not in held]
    arrays = [np.asarray(t) for t in build(name).example_inputs]
    given = dict(zip(names, arrays, strict=True))
    worst, before, after = _out_and_back(path, given, tmp_path, (22, 17))
    assert worst < 1e-5
    assert after < before


@pytest.mark.slow
@pytest.mark.parametrize("name", light_models.NAMES)
def test_round_trip_of_versions(name: str) -> None:
    """9 to the newest to 17: each valid, and of the last what onnxruntime computes."""
    model = light_models.random_model(name)
    given = light_models.random_inputs(model)
    newest = applied(read(model), ConvertVersion(28))
    onnx.checker.check_model(write(newest), full_check=True)
    back = write(applied(newest, ConvertVersion(17)))
    onnx.checker.check_model(back, full_check=True)
    assert _error(_run(model, given), _run(back, given)) < 1e-5


def test_initializers_that_are_inputs_too_are_told_apart(tmp_path: Path) -> None:
    held = numpy_helper.from_array(np.ones(2, np.float32), "w")
    model = model_of(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [("x", F, (2,)), ("w", F, (2,))],
        [("y", F, (2,))],
        [held],
    )
    made = write(read(model))
    assert [i.name for i in made.graph.input] == ["x", "w"]
    (y,) = cc.compile(model, [np.ones(2, np.float32)], frontend="onnx-passes")(np.ones(2, "f"))
    np.testing.assert_array_equal(y, [2, 2])


def test_a_file_that_cannot_be_imported_is_transformed_and_written(tmp_path: Path, capsys) -> None:
    """The command line steps through its graph as far as it goes, and says what stops it."""
    nodes = [
        helper.make_node("Identity", ["x"], ["h"]),
        helper.make_node("Mystery", ["h"], ["y"], domain="elsewhere"),
    ]
    model = model_of(
        nodes,
        [("x", F, ("n", 2))],
        [("y", F, ("n", 2))],
        opsets=[helper.make_opsetid("elsewhere", 1)],
    )
    path, made = tmp_path / "odd.onnx", tmp_path / "made.onnx"
    onnx.save(model, path)
    assert main(["export", str(path), "--frontend", "onnx-passes", "-o", str(made)]) == 0
    assert [n.op_type for n in onnx.load(made).graph.node] == ["Mystery"]
    assert main(["compile", str(path), "--frontend", "onnx-passes"]) == 2
    assert "elsewhere::Mystery" in capsys.readouterr().err
    assert main(["compile", str(path), "--frontend", "onnx-passes", "--check"]) == 2
    assert "cannot check the model" in capsys.readouterr().err
