"""Mixed precision: what is narrow, as torch.autocast trains, bit for bit itself."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

import core_compiler as cc
from core_compiler.debug.evaluate import Evaluator
from core_compiler.driver.legality import levels
from core_compiler.ir import Block, Function, Module, Value, WeightStore, tensor
from core_compiler.ir.rewriter import Budget
from core_compiler.ir.verifier import verify
from core_compiler.ops import REGISTRY, Builder
from core_compiler.passes.base import PassContext
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph.roles import Roles
from core_compiler.training.optimisers import optimizers
from core_compiler.training.passes.differentiate import Differentiate
from core_compiler.training.passes.mixed_precision import MixedPrecision
from core_compiler.training.passes.recompute_widened import RecomputeWidened
from tests.examples import examples
from tests.slow import slow_but
from tests.training.helpers import Reference, after_passes, joint_of
from tests.training.test_step import Pictures, Words, _made, _pictures, _words

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16}


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(16, 32), torch.nn.Linear(32, 5)

    def forward(self, x):
        return self.last(functional.gelu(self.first(x)))


def _rows(number: int):
    torch.manual_seed(number)
    return torch.randn(24, 16), torch.randint(0, 5, (24,))


def _spelled(body: Block) -> list[str]:
    """Each op as ``result = op(operand types)``, without casts' and constants' places."""
    return [
        f"{o.kind.split('.')[1]}({', '.join(str(v.type.dtype.name) for v in o.operands)})"
        f" -> {', '.join(v.type.dtype.name for v in o.results)}"
        for o in body.ops
    ]


# -- the table --


def test_every_op_with_floats_says_what_mixed_precision_does_with_it():
    integers = {"not", "bitnot", "and", "or", "xor", "shl", "shr", "eq", "ne", "lt", "le", "gt",
                "ge", "is_nan", "is_inf", "is_finite", "reduce_and", "reduce_or", "argmax",
                "argmin", "argsort", "max_pool_positions", "random_bits", "row_order",
                "rescale", "table", "integer_softmax", "integer_normalize"}  # fmt: skip
    said = {d.name for d in REGISTRY.values() if d.precision is not None}
    assert said == {d.name for d in REGISTRY.values()} - integers


# -- what the pass does --


def test_a_network_of_rows_op_by_op():
    joint = joint_of(_made(Rows), _rows(0)[:1], Training(precision="bf16"))
    context = PassContext()
    module = MixedPrecision("bf16").run(joint.module, context)
    assert [r.rule for r in context.rewrites] == [
        "core.linear reads bf16",
        "core.gelu follows in bf16",
        "core.linear reads bf16",
        "nothing reads the f32 form any more",
    ]
    made = _spelled(module.main.body)
    assert made[: made.index("cast(bf16) -> f32") + 1] == [
        "cast(f32) -> bf16",  # the batch
        "cast(f32) -> bf16",
        "transpose(bf16) -> bf16",  # the weight
        "cast(f32) -> bf16",  # the bias
        "linear(bf16, bf16, bf16) -> bf16",
        "gelu(bf16) -> bf16",
        "cast(f32) -> bf16",
        "transpose(bf16) -> bf16",
        "cast(f32) -> bf16",
        "linear(bf16, bf16, bf16) -> bf16",
        "cast(bf16) -> f32",  # the logits, for the loss
    ]


def _program(build, *types) -> Module:
    """``build(b, *values)`` of a step whose one parameter is the last value."""
    values = tuple(Value(tensor(t, "f32"), f"x{i}") for i, t in enumerate(types))
    b = Builder(WeightStore())
    made = build(b, *values)
    rows = (*(("batch", v.name, -1) for v in values[:-1]), ("parameter", "w", -1))
    function = Function("main", Block(values, tuple(b.ops), (made,)))
    module = Module({"main": function}, b.weights)
    return module.with_function(Roles(rows, ()).applied(function, [(("loss", -1), made)]))


def _narrow_kinds(module: Module) -> list[str]:
    made = MixedPrecision("f16").run(module, PassContext())
    assert not verify(made, levels())
    return [
        o.kind.split(".")[1]
        for o in made.main.body.ops
        if o.results[0].type.dtype.name == "f16" and o.kind != "core.cast"
    ]


def test_the_widest_operand_decides_but_parameters_take_what_they_meet():
    def of_batch(b, x, y, w):
        return b.add(b.matmul(x, w), y)

    def of_parameter(b, x, y, w):
        return b.add(b.matmul(x, w), b.mul(w, w))

    shapes = ((3, 3),) * 3
    assert _narrow_kinds(_program(of_batch, *shapes)) == ["matmul"]
    assert _narrow_kinds(_program(of_parameter, *shapes)) == ["matmul", "add"]


@pytest.mark.parametrize(("number", "kept"), [(0.5, False), (-1e9, True)])
def test_a_number_that_the_narrow_dtype_does_not_hold_keeps_f32(number, kept):
    def build(b, x, w):
        return b.mul(b.matmul(x, w), b.scalar_like(number, x))

    assert ("mul" in _narrow_kinds(_program(build, (3, 3), (3, 3)))) is not kept


def test_normalisations_keep_f32_parameters_and_statistics():
    joint = joint_of(_made(Pictures), _pictures(0)[:1], Training())
    made = _spelled(MixedPrecision("bf16").run(joint.module, PassContext()).main.body)
    assert "batch_norm(bf16, f32, f32, f32, f32) -> bf16" in made
    assert all("bf16" not in line for line in made if line.startswith(("mean", "variance")))


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_what_the_optimiser_sees_is_f32(precision):
    training = Training(optimizer="adamw", precision=precision)
    joint = joint_of(_made(Words), _words(0)[:1], training)
    for value in (*joint.module.main.arguments, *after_passes(joint.module, training).main.outputs):
        assert value.type.dtype.name in ("f32", "f64", "i64"), value


def test_an_op_comes_from_its_own_node_alone():
    joint = joint_of(_made(Pictures), _pictures(0)[:1], Training())
    module = MixedPrecision("bf16").run(joint.module, PassContext())
    (first, second) = (o for o in module.main.body.ops if o.kind == "core.conv")
    assert [n.scope for n in first.origin.nodes()] == ["first"]
    assert [n.scope for n in second.origin.nodes()] == ["second"]
    casts = [o for o in module.main.body.ops if o.kind == "core.cast"]
    assert all(o.origin is not None and o.origin.is_explained() for o in casts)


def test_a_model_of_f64_is_left_as_it_is_and_scaled_all_the_same():
    model, context = _made(Rows).double(), PassContext()
    x, y = _rows(0)
    training = Training(optimizer=optimizers.SGD(0.1), precision="f16")
    joint = joint_of(model, (x.double(),), training)
    after_passes(joint.module, training, context)
    assert [n.message for n in context.notes] == [
        "nothing is stored in f16: the model has no f32 product or convolution"
    ]
    scaled = Reference(model, (x.double(),), training)
    plain = Reference(model, (x.double(),), Training(optimizer=optimizers.SGD(0.1)))
    arrays = x.double().numpy(), y.numpy()
    assert scaled(*arrays) == plain(*arrays)
    assert scaled["first.weight"].tobytes() == plain["first.weight"].tobytes()


@functools.cache
def _joint():
    return joint_of(_made(Words), _words(0)[:1], Training())


@settings(max_examples=examples(12))
@given(st.integers(0, 60))
def test_after_any_number_of_rewrites_the_program_holds(count):
    module = MixedPrecision("bf16").run(_joint().module, PassContext(budget=Budget(count)))
    assert not verify(module, levels())
    arrays = [t.numpy() for t in _words(0)] + list(_joint().state)
    wide, made = (
        float(Evaluator(m.weights).block(m.main.body, arrays)[0]) for m in (_joint().module, module)
    )
    assert made == pytest.approx(wide, rel=2**-6)


def test_every_rewrite_stays_within_what_it_states():
    step = cc.compile(
        _made(Pictures), _pictures(0), training=Training(precision="bf16"), check=True, finish=False
    )
    made = step.compilation
    while made.stages[-1].name != "recompute_widened":
        made.step()
    number = next(i for i, s in enumerate(made.stages) if s.name == "mixed_precision")
    verdicts = [r.verdict for r in made.checks[number]]
    assert len(verdicts) == len(made.stages[number].rewrites) > 8
    assert set(verdicts) <= {"bitwise", "within"}, set(verdicts)


# -- what is kept for the backward pass --


def _kept(module: Module) -> set[str]:
    """The dtypes of the large values of the forward pass that later ops read; broadcasts are read
    in place."""
    body = EliminateDeadCode().run(module, PassContext()).main.body
    makers = body.producers()
    forward, work = set(), [makers.get(body.outputs[0])]
    while work:
        op = work.pop()
        if op is not None and op not in forward:
            forward.add(op)
            work += [makers.get(v) for v in op.uses()]
    read = [v for o in body.ops if o not in forward for v in o.uses()]
    made = [v for v in read if makers.get(v) in forward and makers[v].kind != "core.broadcast"]
    return {v.type.dtype.name for v in made if v.type.dtype.is_float and v.type.bytes > 300}


def test_activations_are_kept_narrow_with_the_same_bits():
    joint = joint_of(_made(Pictures), _pictures(0)[:1], Training())
    context = PassContext()
    module = MixedPrecision("bf16").run(joint.module, context)
    module = Differentiate().run(module, context)
    made = RecomputeWidened().run(module, context)
    assert _kept(module) == {"f32", "bf16"}
    assert _kept(made) == {"bf16"}
    arrays = [t.numpy() for t in _pictures(0)] + list(joint.state)
    before, after = (Evaluator(m.weights).block(m.main.body, arrays) for m in (module, made))
    for a, b in zip(before, after, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


# -- as torch.autocast --


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "batch", "rate"),
    [(Rows, _rows, 0.05), (Pictures, _pictures, 0.05), (Words, _words, 0.01)],
)
def test_it_trains_as_autocast_does(kind, batch, rate):
    """20 losses: as near to those of f32 as autocast's are, and to autocast's within twice that."""

    def theirs(narrow: bool) -> np.ndarray:
        model, found = _made(kind), []
        optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
        for number in range(20):
            x, y = batch(number % 3)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                out = model(x)
            loss = functional.cross_entropy(out.float().flatten(0, -2), y.flatten())
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return np.array(found)

    step = Reference(
        _made(kind),
        batch(0)[:1],
        Training(optimizer=optimizers.SGD(rate, momentum=0.9), precision="bf16"),
    )
    ours = np.array([step(*(t.numpy() for t in batch(n % 3))) for n in range(20)])
    wide, narrow = theirs(False), theirs(True)
    off = np.abs(narrow - wide).max()
    assert 0 < np.abs(ours - wide).max() <= 1.5 * off
    assert np.abs(ours - narrow).max() <= 2 * off


# -- bits --


def _has_the_references_bits(kind, batch, precision, threads, tiles):
    training = Training(optimizer="adamw", clip_norm=1.0, precision=precision)
    step = cc.compile(
        _made(kind), batch(0), training=training, threads=threads, options={"tiles": tiles}
    )
    meaning = [s for s in step.compilation.stages if s.step is None or s.step.half == "meaning"][-1]
    body, weights = meaning.module.main.body, meaning.module.weights
    for number in range(2):
        arrays = [t.numpy() for t in batch(number)]
        wanted = Evaluator(weights).block(body, [*arrays, *step.state])
        assert step(*arrays) == float(wanted[0])
        nexts = [
            a
            for (role, _), a in zip(Roles.of(meaning.module.main).results, wanted, strict=True)
            if role == "next"
        ]
        for ours, reference in zip(step.state, nexts, strict=True):
            assert ours.tobytes() == np.ascontiguousarray(reference).tobytes()


@pytest.mark.slow
def test_the_compiled_step_has_the_references_bits():
    _has_the_references_bits(Pictures, _pictures, "f16", 2, "small")


@pytest.mark.slow
@pytest.mark.parametrize("tiles", ["default", "small"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize(("kind", "batch"), [(Pictures, _pictures), (Words, _words)])
def test_the_bits_do_not_depend_on_threads_and_tilings(kind, batch, precision, threads, tiles):
    _has_the_references_bits(kind, batch, precision, threads, tiles)


# -- bad input --


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"precision": "fp16"}, "unknown precision 'fp16'.*did you mean|choose f32"),
        ({"precision": 16}, "unknown precision 16"),
        ({"precision": "f32", "loss_scale": 8}, "loss_scale is not supported.* f32; leave loss_sc"),
        ({"precision": "f16", "loss_scale": 0}, "0.0 for loss_scale; pass a number above 0"),
        ({"precision": "f16", "loss_scale": -2}, "-2.0 for loss_scale; pass a number above 0"),
        ({"precision": "f16", "loss_scale": 1e39}, "value 1e.39 for loss_scale.*f32 can represent"),
        ({"precision": "bf16", "loss_scale": "auto"}, "value 'auto' for loss_scale.*or dynamic"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(UserError, match=message):
        Training(**given)


HOWS = {
    "narrow": {"precision": "f16", "clip_norm": 1.0},
    "shards": {"shards": 2},
    "bf16": {"precision": "bf16"},
    "statistics": {"shards": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("how", slow_but(("narrow",), HOWS))
def test_checking_finds_no_fault_in_what_is_meant(how):
    """What a pass computes anew is held to formulas, and the passes after it to what it made."""
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    model, batch = Rows(), (x, np.arange(8) % 5)
    if how == "statistics":  # of batch normalisation: those of all shards
        model, batch = Pictures(), _pictures(0)
    training = Training(loss="cross_entropy", **HOWS[how])
    made = cc.compile(model, batch, training=training, check=True).compilation.finish()
    checks = {made.stages[i].name: records for i, records in made.checks.items()}
    failed = [
        (name, r.note) for name, found in checks.items() for r in found if r.verdict == "failed"
    ]
    assert failed == []
    other = {s.name for s in made.stages[1:] if s.step.pass_.changes_semantics and s.rewrites}
    excused = [r for name in other for r in checks[name] if r.verdict == "unchecked" and r.rewrite]
    assert other and not excused
    formulas = {r.note for name in other for r in checks[name] if "by its formula" in r.note}
    assert any("over all shards" in note for note in formulas) is (how == "statistics")
    last = max(s.index for s in made.stages[1:] if s.name in other)
    later = [r for i, found in made.checks.items() if i > last for r in found]
    assert sum(r.verdict == "bitwise" for r in later) > 5
