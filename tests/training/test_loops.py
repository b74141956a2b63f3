"""Gradients of loops that say how often their bodies run."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from onnx import helper
from torch._higher_order_ops.scan import scan

import core_compiler as cc
from core_compiler.debug.evaluate import Evaluator
from core_compiler.driver.legality import levels
from core_compiler.frontends.keras import import_model
from core_compiler.frontends.onnx import import_proto
from core_compiler.ir import Block, Module, Op, Value
from core_compiler.ir.verifier import verify
from core_compiler.ops import Builder, evaluate_block
from core_compiler.passes.base import PassContext
from core_compiler.passes.eliminate_dead_code import EliminateDeadCode
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.simplify_loops import SimplifyLoops
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph.autodiff import pullback
from core_compiler.training.optimisers import optimizers
from tests.frontends.onnx_models import F, model_of
from tests.ops import philox
from tests.passes.loops import below, loop, next_
from tests.passes.programs import program
from tests.training.helpers import Reference, after_passes, joint_of
from tests.training.test_shards import Sharded

os.environ.setdefault("KERAS_BACKEND", "jax")

STEP = 1e-6


def zero(b: Builder, dtype: str = "i32") -> Value:
    return b.constant(0, dtype)


def part(b: Builder, xs: Value, i: Value) -> Value:
    """``xs[i]``."""
    starts = (i, *[b.constant(0, i.type.dtype)] * (xs.type.rank - 1))
    sizes = (1, *xs.type.shape[1:])
    return b.reshape(b.dynamic_slice(xs, *starts, sizes=sizes), shape=sizes[1:])


def put(b: Builder, xs: Value, i: Value, x: Value) -> Value:
    """``xs`` with ``x`` at ``i``."""
    starts = (i, *[b.constant(0, i.type.dtype)] * (xs.type.rank - 1))
    return b.dynamic_update_slice(xs, b.reshape(x, shape=(1, *x.type.shape)), *starts)


def recurrent(b, w, xs, h):
    """Carried state, a part of an input and a part of a result for each iteration, a weight."""
    ys = b.scalar_like(0, xs)

    def body(b, i, h, ys):
        h = b.tanh(b.add(part(b, xs, i), b.matmul(h, w)))
        return next_(b, i), h, put(b, ys, i, b.mul(h, h))

    made = loop(b, (zero(b), h, ys), below(xs.type.shape[0]), body)
    return made[1], made[2]


def powers(b, x):
    """The result of one iteration is all that the next one reads; the counter is read too."""

    def body(b, i, x):
        place = b.expand(b.cast(i, dtype="f64"), x.type.shape)
        return next_(b, i), b.add(b.mul(x, x), b.mul(place, x))

    return loop(b, (b.constant(1, "i64"), x), below(4), body)[1]


def exchanged(b, x, y):
    """Values that change places, one that is in two, one that is carried and not differentiated."""

    def body(b, i, x, y, z, n):
        return next_(b, i), y, b.mul(x, b.sin(y)), b.add(x, z), b.add(n, n)

    made = loop(b, (zero(b), x, y, x, b.constant(1, "i64")), below(5), body)
    return made[1], made[3]


def nested(b, w, x):
    """A loop in the body of another; both read the weight and count."""

    def body(b, i, x):
        def inner(b, j, y):
            place = b.cast(b.add(i, b.mul(j, j)), dtype="f64")
            return next_(b, j), b.tanh(b.add(b.mul(y, w), b.expand(place, y.type.shape)))

        x = loop(b, (zero(b), x), below(3), inner)[1]
        return next_(b, i), b.mul(x, b.exp(b.neg(b.mul(w, x))))

    return loop(b, (zero(b), x), below(4), body)[1]


def branching(b, w, x):
    """An ``if`` in the body, on the counter."""

    def body(b, i, x):
        odd = b.eq(b.rem(i, b.constant(2, "i32")), b.constant(1, "i32"))
        arms = []
        for build in (lambda b: b.mul(x, b.sin(w)), lambda b: b.add(x, b.mul(w, w))):
            inner = Builder()
            arms.append(Block((), (), (build(inner),)).with_(ops=tuple(inner.ops)))
        return next_(b, i), b.op("core.if", (odd,), regions=tuple(arms))

    return loop(b, (zero(b), x), below(5), body)[1]


def table(b, xs, x):
    """A part of what is carried is read and replaced, at places that come twice."""

    def body(b, i, xs, x):
        place = b.rem(i, b.constant(3, "i32"))
        old = part(b, xs, place)
        return next_(b, i), put(b, xs, place, b.mul(old, x)), b.add(x, b.cos(old))

    made = loop(b, (zero(b), xs, x), below(5), body)
    return made[1], made[2]


def countdown(b, xs, w):
    """From the last part of an input to the first; the step is not 1, the start comes from a
    result of another loop."""

    def body(b, i, h):
        read = b.add(b.mul(h, w), part(b, xs, i))
        return b.sub(i, b.constant(2, "i32")), b.tanh(read)

    def go(b, i, h):
        return b.ge(i, b.constant(0, "i32"))

    return loop(b, (b.constant(5, "i32"), b.scalar_like(0, w)), go, body)[1]


def no_iteration(b, x):
    return loop(b, (b.constant(4, "i32"), x), below(4), lambda b, i, x: (next_(b, i), b.mul(x, x)))[
        1
    ]


def composites(b, x, w):
    """Ops that are differentiated through their decompositions."""

    def body(b, i, x):
        wide = b.broadcast(w, shape=x.type.shape, dims=(1,))
        x = b.celu(b.softmax(b.mul(x, wide), axis=1), alpha=0.3)
        return next_(b, i), b.silu(b.layer_norm(x, w, w, axis=1, epsilon=1e-1))

    return loop(b, (zero(b), x), below(3), body)[1]


CASES = {
    "recurrent": (recurrent, "3x3xf64", "5x2x3xf64", "2x3xf64"),
    "powers": (powers, "3xf64"),
    "exchanged": (exchanged, "3xf64", "3xf64"),
    "nested": (nested, "2xf64", "2xf64"),
    "branching": (branching, "3xf64", "3xf64"),
    "table": (table, "3x2xf64", "2xf64"),
    "countdown": (countdown, "6x2xf64", "2xf64"),
    "no iteration": (no_iteration, "3xf64"),
    "composites": (composites, "2x4xf64", "4xf64"),
}


def simplified(module: Module) -> Module:
    for pass_ in (FoldConstants(), SimplifyLoops(), EliminateDeadCode()):
        module = pass_.run(module, PassContext())
    return module


def gradient_of(module: Module) -> Module:
    made = pullback(simplified(module), "the test")
    assert not [str(d) for d in verify(made, levels()) if d.severity == "error"]
    return made


def slopes(module: Module, arrays, way, given) -> float:
    """The derivative along ``way`` of the sum of the results times ``given``."""

    def there(sign: int) -> float:
        moved = [a + sign * STEP * w for a, w in zip(arrays, way, strict=True)]
        made = evaluate_block(module.main.body, moved, module.weights)
        return sum(float((r * g).sum()) for r, g in zip(made, given, strict=True))

    return (there(1) - there(-1)) / (2 * STEP)


def numbers(values, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [0.7 * random.standard_normal(v.type.shape) for v in values]


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_a_loop_is_its_slope(name):
    build, *types = CASES[name]
    module = program(build, *types)
    arrays, way = (numbers(module.main.arguments, seed) for seed in (0, 1))
    given = numbers(module.main.outputs, 2)
    back = gradient_of(module)
    found = evaluate_block(back.main.body, [*arrays, *given], back.weights)
    ours = sum(float((f * w).sum()) for f, w in zip(found, way, strict=True))
    assert ours == pytest.approx(slopes(module, arrays, way, given), rel=2e-6, abs=1e-8)


@pytest.mark.parametrize("name", ["powers", "recurrent", "nested", "table"])
def test_the_gradient_of_a_gradient_is_its_slope(name):
    """The loop of a gradient says its trips too."""
    build, *types = CASES[name]
    first = EliminateDeadCode().run(gradient_of(program(build, *types)), PassContext())
    arrays, way = (numbers(first.main.arguments, seed) for seed in (0, 1))
    given = numbers(first.main.outputs, 2)
    second = gradient_of(first)
    found = evaluate_block(second.main.body, [*arrays, *given], second.weights)
    ours = sum(float((f * w).sum()) for f, w in zip(found, way, strict=True))
    assert ours == pytest.approx(slopes(first, arrays, way, given), rel=2e-6, abs=1e-8)


# -- what a gradient's loops are like --


def loops(block: Block) -> list[Op]:
    return [op for op in block.ops if op.kind == "core.while"]


def stacks(op: Op) -> list[tuple[int, ...]]:
    """The shapes of what a loop keeps: results that begin with zeros and have a part an
    iteration."""
    makers = op.regions[1].producers()
    return [
        v.type.shape
        for v, made in zip(op.results, op.regions[1].outputs, strict=True)
        if made in makers and makers[made].kind == "core.dynamic_update_slice"
    ]


def test_a_loop_keeps_what_its_gradient_reads_and_nothing_else():
    """Of tanh(x_i + h w): h before and after; x_i, w, and what is made of constants are there."""

    def build(b, w, xs, h):
        def body(b, i, h):
            half = b.scalar_like(0.5, h)
            read = b.mul(b.reshape(part(b, xs, i), shape=h.type.shape), half)
            return next_(b, i), b.tanh(b.add(b.mul(read, read), b.matmul(h, w)))

        return loop(b, (zero(b), h), below(5), body)[1]

    made = gradient_of(program(build, "3x3xf64", "5x2x3xf64", "2x3xf64"))
    forward, backward = loops(made.main.body)
    assert stacks(forward) == [(5, 2, 3), (5, 2, 3)]
    assert (forward["trips"], backward["trips"]) == (5, 5)
    assert stacks(backward) == [(5, 2, 3)]  # the cotangent of xs
    read = set(backward.uses())
    assert set(made.main.arguments[:2]) <= read


def test_a_weight_adds_up_from_zero_the_last_iteration_first():
    """The order of the sums is the contract's; here it changes the bits."""

    def build(b, w, xs):
        def body(b, i, total):
            return next_(b, i), b.add(total, b.mul(w, part(b, xs, i)))

        return loop(b, (zero(b), b.scalar_like(0, w)), below(40), body)[1]

    made = gradient_of(program(build, "3xf32", "40x3xf32"))
    random = np.random.default_rng(0)
    w, xs, given = (random.standard_normal(s).astype(np.float32) for s in (3, (40, 3), 3))
    found, _ = evaluate_block(made.main.body, [w, xs, given], made.weights)
    total = np.zeros(3, np.float32)
    for x in xs[::-1]:
        total = total + given * x
    assert found.tobytes() == total.tobytes()
    other = np.zeros(3, np.float32)
    for x in xs:
        other = other + given * x
    assert found.tobytes() != other.tobytes()


@pytest.mark.slow
def test_what_is_kept_and_the_gradient_come_from_ops_of_the_model():
    context = PassContext()
    joint = joint_of(Recurrent("lstm"), [sequences(0)[0]], Training())
    after_passes(joint.module, Training(), context)
    by_rule = {r.rule: r for r in context.rewrites}
    keeps = by_rule["a loop keeps what its gradient reads"]
    assert keeps.note.startswith("7 values of each iteration, ")  # gates, tanh(c), c and h before
    kept = [v.name for op in keeps.new for v in op.results if (v.name or "").startswith("kept_")]
    assert len(kept) == 7  # the memory view calls them so
    for rewrite in (keeps, by_rule["gradient of core.while"]):
        (loop_,) = [op for op in rewrite.new if op.kind == "core.while"]
        for op in (loop_, *loop_.regions[1].ops):
            assert op.origin is not None
            if op.kind != "core.constant":
                assert {n.file.rpartition("/")[2] for n in op.origin.nodes()} == {"test_loops.py"}


@pytest.mark.slow
def test_a_loop_whose_end_depends_on_data_is_named_with_its_line():
    class Until(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            def body(y):
                return (y * 2 + self.w.exp(),)

            return torch.while_loop(lambda y: y.sum() < 100, body, (x,))[0]

    line = Until.forward.__code__.co_firstlineno + 4
    x = torch.ones(2, 3)
    with pytest.raises(
        UserError, match=r"core.while .its trip count is unknown at compile time"
    ) as told:
        cc.compile(Until(), (x, x), training=Training(loss="mse"))
    assert f"test_loops.py:{line}" in str(told.value) and "fixed number of times" in str(told.value)


# -- beside the frameworks --

STEPS, BATCH, FEATURES, HIDDEN = 7, 4, 3, 5


def sequences(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(batch, steps, features), classes."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, STEPS, FEATURES, generator=random)
    return x, torch.randint(0, 10, (BATCH,), generator=random)


class Recurrent(torch.nn.Module):
    """A recurrent layer and a linear one; ``forward`` scans, ``plain`` is torch's own layer."""

    def __init__(self, kind: str):
        super().__init__()
        torch.manual_seed(0)
        layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[kind]
        self.kind, self.cell = kind, layer(FEATURES, HIDDEN, batch_first=True)
        self.out = torch.nn.Linear(HIDDEN, 10)

    def forward(self, x):
        cell = self.cell

        def lstm(state, x):
            h, c = state
            given = torch.nn.functional.linear(x, cell.weight_ih_l0, cell.bias_ih_l0)
            own = torch.nn.functional.linear(h, cell.weight_hh_l0, cell.bias_hh_l0)
            i, f, g, o = (given + own).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            return (h, c), h.clone()

        def gru(h, x):
            given = torch.nn.functional.linear(x, cell.weight_ih_l0, cell.bias_ih_l0).chunk(3, -1)
            own = torch.nn.functional.linear(h, cell.weight_hh_l0, cell.bias_hh_l0).chunk(3, -1)
            reset, update = ((given[i] + own[i]).sigmoid() for i in (0, 1))
            new = (given[2] + reset * own[2]).tanh()
            h = (1 - update) * new + update * h
            return h, h.clone()

        def rnn(h, x):
            given = torch.nn.functional.linear(x, cell.weight_ih_l0, cell.bias_ih_l0)
            h = (given + torch.nn.functional.linear(h, cell.weight_hh_l0, cell.bias_hh_l0)).tanh()
            return h, h.clone()

        start = x.new_zeros(x.shape[0], HIDDEN)
        state = (start, start.clone()) if self.kind == "lstm" else start
        _, ys = scan({"lstm": lstm, "gru": gru, "rnn": rnn}[self.kind], state, x, dim=1)
        return self.out(ys.mean(1))

    def plain(self, x):
        return self.out(self.cell(x)[0].mean(1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", pytest.param("gru", marks=pytest.mark.slow)])
def test_a_scan_trains_as_torchs_own_layer(kind):
    training = Training(optimizer=optimizers.SGD(0.3, momentum=0.9))
    step = Reference(Recurrent(kind), [sequences(0)[0]], training)
    model = Recurrent(kind)
    theirs = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
    for number in range(4):
        x, y = sequences(number)
        theirs.zero_grad()
        loss = torch.nn.functional.cross_entropy(model.plain(x), y)
        loss.backward()
        theirs.step()
        assert step(x, y) == pytest.approx(loss.item(), rel=1e-5)
    for name, value in model.named_parameters():
        np.testing.assert_allclose(step[name], value.detach().numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_gradients_of_a_scan_are_those_of_jax():
    jax = pytest.importorskip("jax", reason="needs jax")
    from core_compiler.frontends.stablehlo.jax import import_function

    def function(w, u, xs, h):
        def step(state, x):
            h, total = state
            h = jax.numpy.tanh(x @ w + h @ u) * jax.nn.sigmoid(h)
            total = jax.lax.fori_loop(0, 3, lambda i, t: t + h * (i + 1.0) / (1 + t * t), total)
            return (h, total), jax.numpy.where(h > 0, h * h, -h)

        (h, total), ys = jax.lax.scan(step, (h, 0 * h), xs, reverse=True)
        return total, ys

    random = np.random.default_rng(0)
    arrays = [
        random.standard_normal(s).astype(np.float32) for s in ((3, 4), (4, 4), (6, 2, 3), (2, 4))
    ]
    given = [random.standard_normal(s).astype(np.float32) for s in ((2, 4), (6, 2, 4))]
    made = gradient_of(import_function(function, arrays).module)
    found = evaluate_block(made.main.body, [*arrays, *given], made.weights)
    _, back = jax.vjp(function, *arrays)
    for ours, theirs in zip(found, back(tuple(given)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTM", pytest.param("GRU", marks=pytest.mark.slow)])
def test_a_keras_layer_trains_as_keras_does(kind):
    keras = pytest.importorskip("keras", reason="needs keras")
    if keras.config.backend() != "jax":
        pytest.skip("another backend of Keras is chosen")
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input((STEPS, FEATURES)),
        getattr(keras.layers, kind)(HIDDEN),
        keras.layers.Dense(10),
    ]
    model = keras.Sequential(layers)
    batches = [tuple(t.numpy() for t in sequences(i)) for i in range(4)]
    imported = import_model(model, [batches[0][0]], training=True)
    step = Reference.on(imported, Training(optimizer=optimizers.SGD(0.3, momentum=0.9)))
    model.compile(
        optimizer=keras.optimizers.SGD(0.3, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    theirs = [float(model.train_on_batch(*batch)) for batch in batches]
    assert [step(*batch) for batch in batches] == pytest.approx(theirs, rel=1e-5)
    assert {op["trips"] for op in step.module.walk() if op.kind == "core.while"} == {STEPS}


def test_the_gradient_of_a_long_onnx_scan_is_torchs():
    long = 1030  # above what is unrolled
    nodes = [
        helper.make_node("Mul", ["h", "w"], ["kept"]),
        helper.make_node("Add", ["kept", "x"], ["next"]),
        helper.make_node("Tanh", ["next"], ["seen"]),
    ]
    infos = [helper.make_tensor_value_info(n, F, [2]) for n in ("h", "x", "next", "seen")]
    body = helper.make_graph(nodes, "body", infos[:2], infos[2:])
    node = helper.make_node("Scan", ["h0", "xs"], ["h1", "ys"], body=body, num_scan_inputs=1)
    shapes = {"w": [2], "h0": [2], "xs": [long, 2]}
    model = model_of(
        [node], [(n, F, s) for n, s in shapes.items()], [("h1", F, [2]), ("ys", F, [long, 2])]
    )
    random = torch.Generator().manual_seed(0)
    w, h, xs, d_h, d_ys = (
        torch.randn(s, generator=random) / 2 for s in (*shapes.values(), [2], [long, 2])
    )
    made = gradient_of(import_proto(model).module)
    found = evaluate_block(made.main.body, [t.numpy() for t in (w, h, xs, d_h, d_ys)], made.weights)
    leaves = [t.requires_grad_() for t in (w, h, xs)]
    ys = []
    for x in xs:
        h = h * w + x
        ys.append(h.tanh())
    wanted = torch.autograd.grad((h, torch.stack(ys)), leaves, (d_h, d_ys))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-4, atol=1e-5)


# -- the compiled step --


def compiled(kind: str = "lstm", options=None, threads: int = 2, **training):
    training = Training(**{"optimizer": "adamw", **training})
    return cc.compile(
        Recurrent(kind), sequences(0), training=training, threads=threads, options=options or {}
    )


def ran(step) -> tuple:
    losses = [step(*sequences(number)) for number in range(3)]
    return step.digest, *losses


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["rnn", *(pytest.param(k, marks=pytest.mark.slow) for k in ("lstm", "gru"))]
)
def test_the_compiled_step_has_the_references_bits(kind):
    step = compiled(kind, optimizer="sgd")
    meaning = [s for s in step.compilation.stages if s.step is None or s.step.half == "meaning"][-1]
    body, weights = meaning.module.main.body, meaning.module.weights
    for number in range(2):
        arrays = [t.numpy() for t in sequences(number)]
        wanted = Evaluator(weights).block(body, [*arrays, *step.state])
        assert step(*arrays) == float(wanted[0])
        state = wanted[1 : 1 + len(step.state)]  # gradients follow, which the step does not keep
        for ours, reference in zip(step.state, state, strict=True):
            assert ours.tobytes() == np.ascontiguousarray(reference).tobytes()
    assert [x.trips for x in step.compilation.facts["program"][0].loops] == [STEPS, STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_bits_do_not_depend_on_threads_tilings_or_recomputation(kind):
    found = {
        ran(compiled(kind, {"tiles": tiles}, threads))
        for threads in (1, 2)
        for tiles in ("default", "small")
    }
    found.add(ran(compiled(kind, recompute=0.5)))
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_it_trains_in_narrow_precision(precision):
    wide, narrow = ran(compiled()), ran(compiled(precision=precision))
    assert wide[0] != narrow[0] and narrow[1:] == pytest.approx(wide[1:], rel=1e-2)


@pytest.mark.slow
def test_shards_train_as_the_whole_batch():
    batch, training = sequences(0), {"optimizer": optimizers.SGD(0.3)}
    parts = Sharded(Recurrent("rnn"), batch, Training(**training, shards=2))
    whole = Reference(Recurrent("rnn"), batch[:1], Training(**training))
    for number in range(3):
        arrays = [t.numpy() for t in sequences(number)]
        assert parts(*arrays) == pytest.approx(whole(*arrays), rel=1e-5)


@pytest.mark.slow
def test_compiled_shards_have_the_same_bits_on_any_threads():
    one, two = (ran(compiled(shards=2, threads=threads)) for threads in (1, 2))
    assert one == two and one[1:] == pytest.approx(ran(compiled())[1:], rel=1e-5)


class Dropping(torch.nn.Module):
    """Dropout in a loop."""

    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(3, 10)

    def forward(self, x):
        def step(h, x):
            h = torch.nn.functional.dropout(h, 0.5, self.training) + x
            return h, h.clone()

        return self.out(scan(step, x.new_zeros(4, 3), x, dim=1)[1].mean(1))


def test_shards_refuse_what_would_be_each_shards_own_in_a_loop():
    joint = joint_of(Dropping(), [sequences(0)[0]], Training(shards=2))
    with pytest.raises(UserError, match=r"core.random_uniform inside core.while"):
        after_passes(joint.module, Training(shards=2))


class Masks(torch.nn.Module):
    """The sum of what dropout keeps, iteration by iteration a power of two larger."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2, 6))

    def forward(self, x):
        def step(h, x):
            kept = torch.nn.functional.dropout(self.w, 0.5, self.training) / 2
            return 2 * h + kept * x, h.clone()

        return scan(step, torch.zeros(2, 6), x)[0]


@pytest.mark.slow
def test_dropout_in_a_loop_has_another_mask_in_each_iteration():
    """Its gradient is that of the mask that was drawn; the kernels' masks are the contract's."""
    x, y, seed = torch.ones(5, 1, 1), torch.zeros(2, 6), 7
    training = Training(loss="l1", optimizer=optimizers.SGD(1.0), seed=seed)
    step = cc.compile(Masks(), (x, y), training=training)
    weight = np.ones((2, 6), np.float32)
    for iteration in range(2):
        kept = [
            philox.uniform(philox.words(seed, 0, iteration, 12, trip)).reshape(2, 6) >= 0.5
            for trip in range(5)
        ]
        assert len({k.tobytes() for k in kept}) == 5
        weights = sum(2.0 ** (4 - trip) * k for trip, k in enumerate(kept))
        assert step(x, y) == pytest.approx(np.abs(weight * weights).mean(), rel=1e-6)
        weight = weight - np.sign(weight * weights) * weights / 12
        np.testing.assert_allclose(step.state_dict()["w"], weight, rtol=1e-5)


@pytest.mark.slow
def test_the_op_of_a_loop_that_spoils_a_loss_is_named():
    class Growing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            def step(h, x):
                h = (h * self.w + x).exp()
                return h, h.clone()

            return scan(step, x.new_zeros(2, 3), x, dim=1)[0]

    line = Growing.forward.__code__.co_firstlineno + 5
    x, y = torch.zeros(2, 6, 3), torch.zeros(2, 3)
    step = cc.compile(Growing(), (x - 10, y), training=Training(loss="mse"))
    with pytest.raises(UserError, match=rf"core.exp .*test_loops.py:{line}. in iteration 4 of "):
        step(x, y)


class Detached(torch.nn.Module):
    """What a loop makes reaches the loss, and no gradient comes back through it."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)

    def forward(self, xs):
        def body(h, x):
            h = torch.tanh(self.inner(h) + x).detach()
            return h, h.sum(-1)

        h, _ = scan(body, xs[0], xs)
        return self.outer(h)


@pytest.mark.slow
def test_a_loop_that_no_gradient_comes_back_through():
    torch.manual_seed(2)
    model, x = Detached(), np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float32)
    y = np.array([0, 1, 1, 0])
    how = Training(optimizer=optimizers.SGD(0.5))
    step = cc.compile(model, (x, y), training=how)
    before = step.state_dict()
    step(x, y)
    after = step.state_dict()
    moved = {name for name in before if before[name].tobytes() != after[name].tobytes()}
    assert moved == {"outer.weight", "outer.bias"}


class Summed(torch.nn.Module):
    """The loss is what a loop carries."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, xs):
        def body(total, x):
            total = total + (self.weight * x).sum()
            return total, total.clone()

        return scan(body, torch.zeros(()), xs)[0]


@pytest.mark.slow
def test_a_loss_that_a_loop_carries_is_checked_before_anything_is_written():
    x = np.ones((6, 3), np.float32)
    training = Training(loss=None, optimizer=optimizers.SGD(0.5, momentum=0.9))
    step = cc.compile(Summed(), (x,), training=training)
    assert step(x) == 18.0
    digest = step.digest
    x[4, 1] = np.inf
    with pytest.raises(UserError, match="the loss of iteration 2 is"):
        step(x)
    assert step.digest == digest
    x[4, 1] = 1.0
    assert np.isfinite(step(x))
