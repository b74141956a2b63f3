"""Why not?: every condition is provoked and named, and answers agree with what passes do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from core_compiler.debug.why_not import Answer, first_stage, summary, why_not
from core_compiler.driver import compilation
from core_compiler.driver.compilation import Compilation, Options
from core_compiler.driver.stage import Stage
from core_compiler.ir import FrontendNode, Module, Op, Origin
from core_compiler.ir.refusal import Refusal, refuse
from core_compiler.passes.base import CONTROL_FLOW, PassContext
from core_compiler.passes.fuse_elementwise import FuseElementwise
from core_compiler.passes.fuse_epilogues import FuseEpilogues
from core_compiler.passes.fuse_reductions import FuseReductions
from core_compiler.passes.grouping import GROUP, is_unit, members
from core_compiler.passes.inline_broadcasts import InlineBroadcasts
from core_compiler.pipelines.pipeline import PipelineEdit, Step
from core_compiler.record import Recording
from core_compiler.record.recorder import Recorder
from core_compiler.support.errors import UserError
from core_compiler.targets.cpu import CPU
from tests.examples import examples
from tests.passes.programs import program, programs

ROOT = Path(__file__).resolve().parents[2]
FUSIONS = ("fuse_elementwise", "fuse_epilogues", "fuse_reductions")


def compiled(module: Module, target=None, until: str = "outline_kernels", **edit) -> Compilation:
    """A compile of ``module`` up to (without) the pass ``until``."""
    options = Options(edit=PipelineEdit(**edit))
    made = compilation.start(module, target or CPU(), options)
    while made.next is not None and made.next.label != until:
        made.step()
    return made


def kind_of(made: Compilation, stage: int, kind: str, number: int = 0) -> Op:
    ops = [op for op in made.stages[stage].module.main.body.ops if op.kind == f"core.{kind}"]
    return ops[number]


def ask(build: Callable, types: Sequence[str], first: str, second: str, **more) -> list[Answer]:
    """The answers for two ops of the import, ``relu`` or ``relu:1`` for the second relu."""
    made = compiled(program(build, *types), **more)
    ops = []
    for text in (first, second):
        kind, _, number = text.partition(":")
        ops.append(kind_of(made, 0, kind, int(number or 0)))
    return why_not(made, 0, *ops)


def by_pass(answers: Sequence[Answer]) -> dict[str, Answer]:
    return {a.pass_label: a for a in answers}


def written(answer: Answer) -> str:
    """The source line that an answer points to, which must exist, with those after it."""
    file, _, line = answer.source.rpartition(":")
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[int(line) - 1 : int(line) + 5])


X, W = "4x6xf32", "6x5xf32"


def spread(b, row, shape=(4, 6), dims=(0,)):
    return b.broadcast(row, shape=shape, dims=dims)


def viewed_twice(b, x, w):
    y = b.reshape(b.matmul(x, w), shape=(2, 2, 5))
    return b.exp(y), b.tanh(y)


def both_ways(b, x):
    rows = b.sub(x, spread(b, b.reduce_max(x, axes=(1,))))
    return b.sub(rows, spread(b, b.reduce_max(x, axes=(0,)), dims=(1,)))


@dataclass(frozen=True)
class Case:
    build: Callable
    types: tuple[str, ...]
    first: str
    second: str
    pass_label: str
    condition: str
    says: str


CASES = (
    Case(lambda b, x, w: b.relu(b.matmul(x, w)), (X, W), "matmul", "relu", "fuse_elementwise",
         "elementwise ops", "(core.matmul) is a product or convolution"),
    Case(lambda b, x, w: b.reduce_sum(b.matmul(x, w), axes=(0,)), (X, W), "matmul", "reduce_sum",
         "fuse_epilogues", "a product and its epilogue", "(core.reduce_sum) is a reduction"),
    Case(lambda b, x, w: b.reduce_sum(b.matmul(x, w), axes=(0,)), (X, W), "matmul", "reduce_sum",
         "fuse_reductions", "reductions", "a row program has reductions and elementwise ops only"),
    Case(lambda b, x: b.sub(y := b.exp(x), spread(b, b.reduce_sum(y, axes=(1,)))), (X,), "exp",
         "sub", "fuse_elementwise", "no cycle", "(core.reduce_sum) is between them"),
    Case(lambda b, x: b.reduce_sum(
            b.sub(x, spread(b, b.reduce_max(x, axes=(1,)))), axes=(0,)), (X,), "reduce_max",
         "reduce_sum", "fuse_reductions", "loops side by side", "would run again inside each step"),
    Case(both_ways, (X,), "sub:1", "reduce_max:1", "fuse_reductions", "the same rows",
         "over axis [1] of 4x6"),
    Case(viewed_twice, (X, W), "matmul", "exp", "fuse_epilogues", "views read once",
         "is a free view in between with several readers"),
    Case(lambda b, x, w: (b.exp(x), b.tanh(x)), (X, W), "exp", "tanh", "fuse_elementwise",
         "producer and consumer", "both read %x, but neither depends on the other"),
    Case(lambda b, x, y: (b.exp(x), b.tanh(y)), ("4x4xf32", "4x4xf32"), "exp",
         "tanh", "fuse_elementwise", "producer and consumer", "do not depend on each other"),
    Case(lambda b, x, w: b.relu(b.reshape(b.matmul(x, w), shape=(20,))), (X, W), "reshape", "relu",
         "fuse_elementwise", "work for a kernel", "is a free view: it moves no data"),
    Case(lambda b, x, w: b.exp(b.sort(b.neg(x), axis=1)), (X, W), "sort", "exp",
         "fuse_elementwise", "elementwise ops", "(core.sort) is a kernel of its own"),
    Case(lambda b, x: b.add(b.matmul(b.exp(x), x), b.matmul(b.tanh(x), x)), ("4x4xf32",),
         "matmul", "matmul:1", "eliminate_common_subexpressions", "equal operands", "reads"),
    Case(lambda b, x: b.add(b.reduce_sum(x, axes=(0,)), b.reduce_sum(x, axes=(1,))), ("4x4xf32",),
         "reduce_sum", "reduce_sum:1", "eliminate_common_subexpressions", "equal attributes",
         "axes = [0]"),
    Case(lambda b, x: b.add(x, b.constant(np.arange(24, dtype=np.float32).reshape(4, 6))), (X,),
         "constant", "add", "inline_broadcasts", "copied ops",
         "not a constant of one element, iota or broadcast"),
    Case(lambda b, x: b.exp(b.add(x, b.constant(np.arange(24, dtype=np.float32).reshape(4, 6)))),
         (X,), "constant", "add", "fuse_elementwise", "work for a kernel", "is a constant"),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.pass_label}: {c.condition}: {c.says}")
def test_each_condition_is_named_with_its_facts_and_its_line(case):
    answer = by_pass(ask(case.build, case.types, case.first, case.second))[case.pass_label]
    assert (answer.outcome, answer.condition) == ("refused", case.condition), answer
    assert case.says in answer.sentence, answer.sentence
    assert "%?" not in answer.sentence and "{" not in answer.sentence
    assert (
        "refuse(" in written(answer)
        or "CannotLower(" in written(answer)
        or (answer.condition == "producer and consumer")
    )


def test_what_the_target_claims_is_left_alone_and_said():
    class Claiming(CPU):
        def claims(self, op):
            return op.kind == "core.tanh"

    found = by_pass(ask(lambda b, x: b.exp(b.tanh(x)), (X,), "tanh", "exp", target=Claiming()))
    assert found["fuse_elementwise"].condition == "not claimed"
    assert "the target executes %" in found["fuse_elementwise"].sentence


def test_a_pass_that_stopped_at_its_limit_says_so():
    def chain(b, x):
        return b.exp(b.tanh(b.neg(x)))

    found = by_pass(ask(chain, (X,), "tanh", "exp", limits={"fuse_elementwise": 1}))
    assert found["fuse_elementwise"].condition == "a rewrite left"
    found = by_pass(ask(chain, (X,), "neg", "tanh", limits={"fuse_elementwise": 1}))
    assert found["fuse_elementwise"].outcome == "fused"


def test_two_products_are_joined_by_no_rule():
    answers = ask(lambda b, x: b.matmul(b.matmul(x, x), x), ("4x4xf32",), "matmul", "matmul:1")
    assert {a.outcome for a in answers} == {"refused"}
    assert summary(answers).startswith("not fused: no pass handles this pair")
    assert set(FUSIONS) <= set(by_pass(answers))


def test_joined_ops_say_by_which_rule_and_where():
    answers = ask(lambda b, x, w: b.relu(b.matmul(x, w)), (X, W), "matmul", "relu")
    *_, last = answers
    assert (last.pass_label, last.outcome) == ("fuse_epilogues", "fused")
    assert last.rule == "epilogue on the output tile"
    assert "the group contains matmul" in last.sentence
    assert last.source.startswith("core_compiler/passes/fuse_epilogues.py:")
    assert summary(answers).startswith(f"fused by fuse_epilogues (stage {last.stage})")


def test_ops_on_the_way_are_named():
    answers = ask(lambda b, x: b.exp(b.reduce_sum(b.tanh(b.neg(x)), axes=(1,))), (X,), "neg", "exp")
    found = by_pass(answers)
    assert "goes through" in found["fuse_elementwise"].sentence
    assert "(core.reduce_sum) is a reduction" in found["fuse_elementwise"].sentence
    assert found["fuse_reductions"].outcome == "fused"


def test_members_of_a_group_are_followed_back_to_where_they_were_joined():
    made = compiled(program(lambda b, x, w: b.relu(b.exp(b.matmul(x, w))), X, W))
    last = len(made.stages) - 1
    (group,) = [op for op in made.module.main.body.ops if op.kind == GROUP]
    inside = {op.kind: op for op in members(group)}
    answers = why_not(made, last, inside["core.matmul"], inside["core.max"])
    assert [a.outcome for a in answers if a.pass_label == "fuse_epilogues"] == ["fused"]
    answers = why_not(made, last, inside["core.exp"], inside["core.max"])
    assert [a.outcome for a in answers] == ["fused"]
    assert answers[0].pass_label == "fuse_elementwise"
    (fused,) = [s.index for s in made.stages if s.name == "fuse_epilogues"]
    assert first_stage(made, inside["core.matmul"], group) == fused


# -- an op and a rule ------------------------------------------------------------------------------


def softmax(divisor):
    def build(b, x):
        e = b.exp(b.sub(x, spread(b, b.reduce_max(x, axes=(1,)))))
        return b.div(e, divisor(b, x, e))

    return build


def one(build, types, kind: str, rule: str, **more) -> list[Answer]:
    made = compiled(program(build, *types), **more)
    return why_not(made, 0, kind_of(made, 0, kind), rule=rule)


def test_a_rule_says_how_far_its_pattern_matched_and_what_did_not():
    build = softmax(lambda b, x, e: spread(b, b.reduce_max(e, axes=(1,))))
    for asked in ("div", "exp"):
        (answer,) = one(build, (X,), asked, "=> softmax(x)")[:1]
        assert answer.outcome == "refused"
        assert "matched div, exp, sub, broadcast, reduce_max" in answer.sentence
        assert "found core.reduce_max where the rule expects core.reduce_sum" in answer.sentence
        assert "Rule(" in written(answer)
        assert answer.source.startswith("core_compiler/passes/recompose/softmax.py:")


def test_a_rule_whose_check_refuses_says_the_check():
    def build(b, x):
        e = b.exp(b.sub(x, spread(b, b.reduce_max(x, axes=(1,)), (4, 4))))
        return b.div(e, spread(b, b.reduce_sum(e, axes=(0,)), (4, 4), (1,)))

    (answer,) = one(build, ("4x4xf32",), "div", "exp(x - max) / sum => softmax(x)")
    assert (answer.condition, answer.sentence) == (
        "check",
        "the reductions are over different axes",
    )
    assert "def " in written(answer)


def test_a_rule_that_fired_says_so():
    build = softmax(lambda b, x, e: spread(b, b.reduce_sum(e, axes=(1,))))
    (answer,) = [a for a in one(build, (X,), "exp", "=> softmax(x)") if a.outcome == "applied"]
    assert answer.pass_label == "recompose"
    assert "replaced %" in answer.sentence and "(core.softmax)" in answer.sentence


def normalised(b, x):
    data = np.linspace(-1, 1, 2 * 3 * 9, dtype=np.float32).reshape(2, 3, 3, 3)
    y = b.conv(
        x, b.constant(data), strides=(1, 1), low=(1, 1), high=(1, 1), dilations=(1, 1), groups=1
    )
    numbers = [b.constant(np.linspace(0.5, 2, 2, dtype=np.float32)) for _ in "sbmv"]
    return b.add(b.batch_norm(y, *numbers, axis=1, epsilon=1e-3), b.tanh(y))


def test_a_rule_that_wants_one_use_names_the_other():
    answers = ask(normalised, ("1x3x5x5xf32",), "conv", "batch_norm")
    (answer,) = [
        a
        for a in answers
        if a.pass_label == "fold_batch_norm" and a.rule.startswith("batch_norm(conv(x, w)) =>")
    ]
    assert answer.condition == "one use"
    assert "is also read by" in answer.sentence and "(core.tanh)" in answer.sentence
    assert {op["kind"] for op in answer.ops} >= {"core.conv", "core.batch_norm", "core.tanh"}


@pytest.mark.parametrize(
    ("rule", "kind", "condition", "says"),
    [
        ("fold_constants", "neg", "constant operands", "reads %x, which is not a constant"),
        ("decompose", "neg", "kinds to expand", "core.neg is not among the kinds to expand"),
        ("lower_composites", "neg", "composite", "has no decomposition"),
        ("eliminate_dead_code", "neg", "unused", "is read by"),
        ("-(-x) => x", "neg", "pattern", "found core.abs where the rule expects core.neg"),
        ("x * 1 => x", "neg", "pattern", "the rule applies to core.mul, not to %0 (core.neg)"),
    ],
)
def test_passes_and_rules_about_one_op(rule, kind, condition, says):
    def build(b, x):
        return b.exp(b.neg(b.abs(x)) if "(-x)" in rule else b.neg(x))

    answers = one(build, (X,), kind, rule)
    assert answers[0].condition == condition and says in answers[0].sentence, answers


def test_a_fusion_and_one_op_speak_of_each_neighbour():
    answers = one(lambda b, x, w: b.exp(b.matmul(b.tanh(x), w)), (X, W), "matmul", "epilogues")
    assert [a.outcome for a in answers] == ["applied", "refused"]
    assert "(core.tanh) is elementwise" in answers[1].sentence


# -- bad questions ---------------------------------------------------------------------------------


def test_bad_questions_are_one_clear_line():
    made = compiled(program(lambda b, x: b.exp(b.neg(x)), X))
    first, second = made.stages[0].module.main.body.ops
    stranger = program(lambda b, x: b.exp(x), X).main.body.ops[0]
    for problem, question in (
        ("stage 99 not found", lambda: why_not(made, 99, first, second)),
        ("op core.exp not found in stage 0", lambda: why_not(made, 0, first, stranger)),
        ("both ops are the same", lambda: why_not(made, 0, first, first)),
        ("unknown rule or pass 'fuze'", lambda: why_not(made, 0, first, rule="fuze")),
        ("ops of a compilation have no ids", lambda: first_stage(made, 3)),
        ("no stage contains both ops", lambda: first_stage(made, first, stranger)),
    ):
        with pytest.raises(UserError, match=problem):
            question()


def test_a_refusal_builds_no_text_until_it_is_read():
    class Loud:
        def __format__(self, what):
            raise AssertionError("somebody reads it")

    refused = refuse("a condition", "it is {0}", Loud())
    assert refused.condition == "a condition"
    assert refused.location.startswith("tests/debug/test_why_not.py:") or (
        Path(refused.location.rpartition(":")[0]).name == "test_why_not.py"
    )
    with pytest.raises(AssertionError, match="somebody reads it"):
        refused.sentence(str)
    assert Refusal("c", "{0} and {1}", (1, "two")).reason == "1 and two"


# -- answers agree with what passes do -------------------------------------------------------------


def fused(module: Module) -> list[Stage]:
    """The stages from ``module`` through the fusing passes, each op with an origin of its own."""
    body = module.main.body
    ops = tuple(
        op.with_(origin=Origin.root(FrontendNode(f"op_{n}", op.kind, "model.py", n, "")))
        for n, op in enumerate(body.ops)
    )
    stages = [Stage(0, "import", module.with_main(body.with_(ops=ops)))]
    for pass_ in (InlineBroadcasts(), FuseElementwise(), FuseEpilogues(), FuseReductions()):
        context = PassContext(target=CPU())
        after = pass_.run(stages[-1].module, context)
        stages.append(
            Stage(len(stages), pass_.name(), after, Step(pass_.name(), pass_), context.rewrites)
        )
    return stages


def homes(module: Module) -> dict[Origin, set[Op]]:
    """Of each origin: the groups (or ops) of main that hold an op of it."""
    found: dict[Origin, set[Op]] = {}
    for op in module.main.body.ops:
        for member in members(op):
            found.setdefault(member.origin, set()).add(op)
    return found


@settings(deadline=None, max_examples=examples(60))
@given(programs())
def test_joined_if_and_only_if_one_group_holds_both(module):
    lowered = compiled(module, until="inline_broadcasts").module
    stages = fused(lowered)
    ops = [op for op in stages[0].module.main.body.ops if is_unit(op)]
    makers = stages[0].module.main.body.producers()
    pairs = [
        (makers[v], op)
        for op in ops
        for v in dict.fromkeys(op.operands)
        if v in makers and is_unit(makers[v])
    ]
    held = [homes(stage.module) for stage in stages]
    for first, second in pairs:
        answers = why_not(stages, 0, first, second)
        for answer in answers:
            one, two = (held[answer.stage].get(op.origin, set()) for op in (first, second))
            assert (answer.outcome == "fused") == bool(one & two), answer
            assert answer.condition != "a rewrite left", answer
        joined = bool(held[-1].get(first.origin, set()) & held[-1].get(second.origin, set()))
        assert any(a.outcome == "fused" for a in answers) == joined
        if not joined:
            assert {a.pass_label for a in answers} >= set(FUSIONS)


# -- recorded models -------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["resnet18", "bert-base"])
def model(request, tmp_path_factory):
    """(a narrow model's name, its recording without generated code)."""
    pytest.importorskip("torch")
    from core_compiler.frontends.pytorch import import_module
    from sample_models import build
    from tests.sample_models.narrow import NARROW

    built = build(request.param, **NARROW[request.param])
    imported = import_module(built.module, built.example_inputs, name=request.param)
    path = tmp_path_factory.mktemp("why_not") / f"{request.param}.run"
    recorder = Recorder(path)
    recorder.begin({"model": request.param, "target": "cpu"})
    made = compilation.start(imported.module, CPU(), Options(), observer=recorder)
    while made.next.label != "schedule_kernels":
        made.step()
    recorder.end("finished")
    with Recording.open(path) as opened:
        yield request.param, opened, made


def stage_of(opened: Recording, name: str) -> int:
    return [s.pass_name for s in opened.stages()].index(name)


@pytest.mark.sampled(2)
def test_neighbours_in_a_recorded_model_were_joined_or_say_why_not(model):
    """A value read once is gone after the fusions where its reader took it in, and only there."""
    _, opened, _ = model
    start, end = stage_of(opened, "inline_broadcasts"), stage_of(opened, "fuse_reductions")
    body, after = opened.module(start).main.body, opened.module(end).main.body
    readers: dict = {}
    for op in body.ops:
        for value in op.uses():
            readers.setdefault(value, []).append(op)
    left = {value for op in after.ops for value in op.results}
    outcomes = {True: 0, False: 0}
    for op in body.ops:
        if not is_unit(op) or op.kind in CONTROL_FLOW or len(op.results) != 1:
            continue
        reading = readers.get(op.result, [])
        if len(reading) != 1 or op.result in body.outputs or not is_unit(reading[0]):
            continue
        answers = why_not(opened, start, opened.op_id(op), opened.op_id(reading[0]))
        joined = any(a.outcome == "fused" for a in answers)
        assert joined == (op.result not in left), [str(a) for a in answers]
        outcomes[joined] += 1
        if not joined:
            assert {a.pass_label for a in answers} >= set(FUSIONS)
            assert all(a.condition != "a rewrite left" for a in answers)
    assert outcomes[True] > 10 and outcomes[False] > 1, outcomes


def first_pair(opened: Recording, first: str, second: str) -> tuple[int, int]:
    """Ids of the first two ops of the import of these kinds of which one reads the other."""
    body = opened.module(0).main.body
    makers = body.producers()
    for op in body.ops:
        for value in op.operands if op.kind == f"core.{second}" else ():
            if value in makers and makers[value].kind == f"core.{first}":
                return opened.op_id(makers[value]), opened.op_id(op)
    raise AssertionError(f"no {first} feeds a {second}")


def test_two_ops_of_the_model_are_followed_through_all_passes(model):
    name, opened, _ = model
    if name == "resnet18":
        answers = why_not(opened, 0, *first_pair(opened, "conv", "batch_norm"))
        assert [(a.pass_label, a.outcome) for a in answers] == [
            ("fold_batch_norm", "applied"),
            ("fuse_elementwise", "refused"),
            ("fuse_epilogues", "fused"),
        ]
        answers = why_not(opened, 0, *first_pair(opened, "relu", "max_pool"))
        assert {a.outcome for a in answers} == {"refused"}
        assert "is a pooling" in by_pass(answers)["fuse_epilogues"].sentence
    else:
        pair = first_pair(opened, "linear", "gelu")
        answers = why_not(opened, 0, *pair)
        assert answers[-1].outcome == "fused" and answers[-1].pass_label == "fuse_epilogues"
        ids = [op["op"] for a in answers for op in a.ops]
        assert ids and all(isinstance(i, int) and opened.op(i) for i in ids)
        pair = first_pair(opened, "gelu", "linear")
        answers = why_not(opened, 0, *pair)
        assert not any(a.outcome == "fused" for a in answers)
        assert set(by_pass(answers)) >= set(FUSIONS)
    for answer in answers:
        told = json.loads(json.dumps(answer.to_json()))
        assert told["sentence"] == answer.sentence and told["pass"] == answer.pass_label


def test_a_recording_and_its_compilation_say_the_same(model):
    _, opened, made = model
    start = stage_of(opened, "inline_broadcasts")
    recorded, live = opened.module(start).main.body.ops, made.stages[start].module.main.body.ops
    assert [op.kind for op in recorded] == [op.kind for op in live]
    for a, b in list(zip(range(len(live)), range(1, len(live)), strict=False))[::7]:
        said = [
            [(x.pass_label, x.rule, x.outcome, x.condition, x.source, x.held) for x in found]
            for found in (
                why_not(opened, start, opened.op_id(recorded[a]), opened.op_id(recorded[b])),
                why_not(made, start, live[a], live[b]),
            )
        ]
        assert said[0] == said[1]
