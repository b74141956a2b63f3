"""Which ops and values of two recordings are the same, and how that is known."""

from __future__ import annotations

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Options
from core_compiler.ir import Op
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.record.recorder import Recorder
from tests.passes.programs import program
from workbench.queries import matching
from workbench.queries.run import Run


def network(b, x, y):
    return b.add(b.exp(b.neg(x)), b.relu(b.mul(x, y)))


def nameless(module):
    """The ops of a module as another frontend would have named them: not at all."""
    return [op.with_(origin=None) for op in module.main.body.ops]


def found(same):
    return [(each.first.kind, each.second.kind, each.how) for each in same]


def recorded(path, edit=PipelineEdit(), build=network):
    """A compile until it has kernels."""
    recorder = Recorder(path)
    recorder.begin({"model": "small"})
    made = compilation.start(
        program(build, "8x4xf32", "8x4xf32"), "cpu", Options(edit=edit), observer=recorder
    )
    while made.stages[-1].name != "bufferize":
        made.step()
    recorder.end("finished")
    return Run(path)


def test_ops_of_the_same_nodes_are_recorded():
    one, two = (program(network, "8x4xf32", "8x4xf32") for _ in range(2))
    same = matching.same_ops(one.main.body.ops, two.main.body.ops)
    assert [(each.first, each.second) for each in same] == list(
        zip(one.main.body.ops, two.main.body.ops, strict=True)
    )
    assert {each.how for each in same} == {"recorded"}


def test_another_batch_size_is_the_same_program():
    one, two = program(network, *["8x4xf32"] * 2), program(network, *["2x4xf32"] * 2)
    assert {each.how for each in matching.same_values(one, two)} == {"recorded"}
    assert len(matching.same_values(one, two)) == 7


def test_without_nodes_structure_is_a_guess():
    one = program(network, "8x4xf32", "8x4xf32")

    def longer(b, x, y):
        return b.add(b.exp(b.neg(b.abs(x))), b.relu(b.mul(x, y)))

    two = program(longer, "8x4xf32", "8x4xf32")
    same = matching.same_ops(nameless(one), nameless(two))
    kinds = ["core.neg", "core.exp", "core.mul", "core.relu", "core.add"]
    assert found(same) == [(kind, kind, "guessed") for kind in kinds]
    assert len({each.second for each in same}) == len(same), "each op is in one match"


def test_a_node_that_gave_other_ops_matches_what_is_the_only_one_of_its_kind():
    module = program(network, "8x4xf32", "8x4xf32")
    node = module.main.body.ops[0].origin

    def of_node(*kinds: str) -> list[Op]:
        by_kind = {op.kind: op for op in module.main.body.ops}
        return [by_kind[f"core.{kind}"].with_(origin=node) for kind in kinds]

    same = matching.same_ops(of_node("neg", "exp", "mul", "exp"), of_node("exp", "mul", "relu"))
    assert found(same) == [
        ("core.exp", "core.exp", "guessed"),
        ("core.mul", "core.mul", "recorded"),
    ]


def test_values_of_two_pipelines_are_told_by_the_value_maps(tmp_path):
    """One fuses what the other leaves apart; what both keep carries the same imported values."""
    one = recorded(tmp_path / "one.run")
    two = recorded(tmp_path / "two.run", PipelineEdit(skip=("fuse_elementwise",)))
    stages = one.version.stages - 1, two.version.stages - 1
    same = matching.same_meaning(one, two, stages)
    carriers = {each.first: each.second for each in same}
    assert {each.how for each in same} == {"recorded"}
    ends = []
    for run, stage in zip((one, two), stages, strict=True):
        result = run.value_id(run.index(0).module.main.outputs[0])
        ends.append(run.recording.value(run.recording.carriers(stage).get(result, result)))
    assert carriers[ends[0]] is ends[1]
    one.close()
    two.close()


def test_carriers_follow_chains_of_value_maps(tmp_path):
    """x * 1 => x: the product is carried by x, through whatever replaced it later."""
    run = recorded(tmp_path / "x.run", build=lambda b, x, y: b.exp(b.mul(x, b.scalar_like(1, x))))
    first = run.index(0).module.main
    (product,) = [op.result for op in first.body.ops if op.kind == "core.mul"]
    last = run.version.stages - 2  # before buffers
    carrier = run.recording.carriers(last)[run.value_id(product)]
    assert run.recording.value(carrier) is first.arguments[0]
    assert run.recording.carriers(0) == {}
    run.close()
