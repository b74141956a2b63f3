"""Whole training steps: as torch trains, bit for bit themselves, and what is refused."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from torch.nn import functional

import core_compiler as cc
from core_compiler.debug.evaluate import Evaluator
from core_compiler.support.errors import UserError
from core_compiler.training.config import Training
from core_compiler.training.graph import losses
from core_compiler.training.optimisers import optimizers
from tests.training.helpers import Reference, joint_of


class Pictures(torch.nn.Module):
    """A small network with what networks of pictures hold."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(6)
        self.second = torch.nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.last = torch.nn.Linear(8 * 4, 5)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.norm(self.first(x))), 2)
        return self.last(functional.gelu(self.second(x)).flatten(1))


class Words(torch.nn.Module):
    """A small language model with tied embeddings."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.table = torch.nn.Embedding(11, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 24, dropout, batch_first=True)
        self.head = torch.nn.Linear(16, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.layer(self.table(tokens)))


def _pictures(number: int):
    torch.manual_seed(number)
    return torch.randn(4, 1, 8, 8), torch.randint(0, 5, (4,))


def _words(number: int):
    torch.manual_seed(number)
    return torch.randint(0, 11, (3, 7)), torch.randint(0, 11, (3, 7))


def _made(kind):
    torch.manual_seed(7)
    return kind()


@pytest.mark.parametrize(("kind", "batch"), [(Pictures, _pictures), (Words, _words)])
def test_it_trains_as_torch_does(kind, batch):
    model = _made(kind)
    training = Training(optimizer=optimizers.SGD(0.1, momentum=0.9), clip_norm=1.0)
    step = Reference(model, batch(0)[:1], training)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for number in range(4):
        x, y = batch(number)
        optimizer.zero_grad()
        out = model(x)
        loss = functional.cross_entropy(out.flatten(0, -2), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert step(x.numpy(), y.numpy()) == pytest.approx(loss.item(), rel=1e-5)
    held = model.state_dict()
    for name in step.places.keys() & held.keys():
        np.testing.assert_allclose(step[name], held[name].numpy(), rtol=1e-4, atol=1e-5)


def test_tied_parameters_are_one():
    joint = joint_of(_made(Words), _words(0)[:1], Training())
    parameters = [name for role, name, _ in joint.roles.arguments if role == "parameter"]
    assert len(parameters) == len(list(_made(Words).parameters()))


@pytest.mark.slow
def test_the_compiled_step_has_the_references_bits():
    batch = _pictures(0)
    step = cc.compile(
        _made(Pictures), batch, training=Training(optimizer="adamw", keep_gradients=True), threads=2
    )
    meaning = [s for s in step.compilation.stages if s.step is None or s.step.half == "meaning"][-1]
    body, weights = meaning.module.main.body, meaning.module.weights
    for number in range(2):
        arrays = [t.numpy() for t in _pictures(number)]
        wanted = Evaluator(weights).block(body, [*arrays, *step.state])
        assert step(*arrays) == float(wanted[0])
        ours = [*step.state, *step.gradients.values()]
        for array, reference in zip(ours, wanted[1:], strict=True):
            assert array.tobytes() == np.ascontiguousarray(reference).tobytes()
    assert step.iteration == 2


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "batch"), [(Pictures, _pictures), (Words, _words)])
def test_the_width_of_vectors_changes_no_bit(kind, batch):
    """Nor do tilings and threads with it: of 16 floats, as AVX-512 has them, and of 8."""
    training, found, kernels = Training(optimizer="adamw", clip_norm=0.5), set(), set()
    for width, tiles in itertools.product((16, 8), ("default", "small")):
        for threads in (1, 2):
            step = cc.compile(
                _made(kind),
                batch(0),
                training=training,
                threads=threads,
                options={"vector_width": width, "tiles": tiles},
            )
            losses = [step(*batch(number)) for number in range(3)]
            found.add((step.digest, *losses))
        program = step.compilation.facts["program"][0]
        kernels.add(tuple(sorted(kernel.key for kernel in program.kernels)))
    assert len(found) == 1
    assert len(kernels) == 4, "each way must be other machine code, or nothing was shown"


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [{}, {"clip_norm": 0.05}, {"optimizer": "adamw"}, {"shards": 2}, {"precision": "bf16"}],
    ids=str,
)
def test_gradients_that_are_kept_are_all_there_and_change_nothing(how):
    batch = _pictures(0)
    kept, plain = (
        cc.compile(_made(Pictures), batch, training=Training(keep_gradients=keep, **how))
        for keep in (True, False)
    )
    for number in range(2):
        assert kept(*_pictures(number)) == plain(*_pictures(number))
    assert (kept.identity, kept.digest) == (plain.identity, plain.digest)
    parameters = {name for role, name, _ in kept.roles.arguments if role == "parameter"}
    assert kept.gradients.keys() == kept.probes.gradients.keys() == parameters
    assert not kept.probes.unseen
    with pytest.raises(UserError, match="does not keep"):
        _ = plain.gradients


@pytest.mark.slow
def test_gradients_that_are_kept_are_torchs():
    model, (x, y) = _made(Pictures), _pictures(0)
    step = cc.compile(model, (x, y), training=Training(clip_norm=0.05, keep_gradients=True))
    step(x, y)
    functional.cross_entropy(model.train()(x), y).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    for name, parameter in model.named_parameters():
        wanted = parameter.grad.numpy()
        np.testing.assert_allclose(step.gradients[name], wanted, rtol=1e-4, atol=1e-7)


def test_every_rewrite_is_checked_on_real_tensors():
    batch = _pictures(0)
    step = cc.compile(_made(Pictures), batch, training=Training(), check=True, finish=False)
    made = step.compilation
    while made.next is not None and made.next.half == "meaning":
        made.step()
    verdicts = {r.verdict for results in made.checks.values() for r in results}
    assert "failed" not in verdicts and "bitwise" in verdicts
    added = [
        r
        for results in made.checks.values()
        for r in results
        if "gradient of" in getattr(r.rewrite, "rule", "")
    ]
    assert added and {r.verdict for r in added} == {"within"}
    names = [s.name for s in made.stages]
    assert names.index("differentiate") < names.index("apply_optimizer")


def test_a_gradient_op_comes_from_its_forward_op():
    from core_compiler.passes.base import PassContext
    from tests.training.helpers import after_passes

    context = PassContext()
    joint = joint_of(_made(Pictures), _pictures(0)[:1], Training())
    after_passes(joint.module, Training(), context)
    made = [r for r in context.rewrites if r.rule == "gradient of core.conv"]
    assert len(made) == 2
    for rewrite in made:
        (node,) = rewrite.new[0].origin.nodes()
        assert node.line and node.scope in ("first", "second")


@pytest.mark.slow
def test_dropout_draws_anew_in_each_iteration_and_the_same_in_each_run():
    batch = [t.numpy() for t in _words(0)]

    def losses_of(seed: int) -> list[float]:
        model = _made(lambda: Words(0.4))
        step = Reference(model, _words(0)[:1], Training(optimizer=optimizers.SGD(0.0), seed=seed))
        return [step(*batch) for _ in range(3)]

    first = losses_of(1)
    assert len(set(first)) == 3
    assert losses_of(1) == first
    assert losses_of(2) != first


def test_statistics_and_counters_go_on():
    model = _made(Pictures)
    step = Reference(model, _pictures(0)[:1], Training())
    for number in range(3):
        x, y = _pictures(number)
        step(x.numpy(), y.numpy())
    assert int(step["norm.num_batches_tracked"]) == 3
    assert int(step["iteration"]) == 3


@pytest.mark.slow
def test_parts_that_do_not_train_keep_their_mode():
    """As fine-tuning has it: the statistics of a batch norm in eval mode are used and stay."""
    model = _made(Pictures)
    model.norm.eval()
    modes = [part.training for part in model.modules()]
    step = cc.compile(model, _pictures(0), training=Training(optimizer=optimizers.SGD(0.1)))
    assert [part.training for part in model.modules()] == modes
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    for number in range(3):
        x, y = _pictures(number)
        loss = functional.cross_entropy(other(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        np.testing.assert_allclose(step(x, y), loss.item(), rtol=1e-5)
    state = step.whole_state()
    assert not any("running" in name or "num_batches" in name for name in state)
    model.eval()
    whole = cc.compile(model, _pictures(0), training=Training(optimizer=optimizers.SGD(0.1)))
    assert any("running" in name for name in whole.state_dict()) and not model.norm.training


def test_frozen_parameters_stay():
    model = _made(Pictures)
    model.second.weight.requires_grad_(False)
    joint = joint_of(model, _pictures(0)[:1], Training(freeze=("first.*",)))
    trained = [name for role, name, _ in joint.roles.arguments if role == "parameter"]
    assert trained == ["norm.weight", "norm.bias", "second.bias", "last.weight", "last.bias"]


class Stopped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, x):
        with torch.no_grad():
            seen = self.first(x)
        return self.second(x) + seen + self.first(x).detach()


def test_gradients_stop_where_the_model_stops_them():
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    model = _made(Stopped)
    before = copy.deepcopy(model.state_dict())
    step = Reference(model, (x,), Training(losses.MeanSquaredError(), optimizers.SGD(0.5)))
    step(x.numpy(), y.numpy())
    assert np.array_equal(step["first.weight"], before["first.weight"].numpy())
    assert not np.array_equal(step["second.weight"], before["second.weight"].numpy())


class Held(torch.nn.Module):
    """Parts under ``no_grad`` in a model that torch functionalises, for its batch normalisation."""

    def __init__(self, how: str):
        super().__init__()
        self.how, self.first, self.norm = how, torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)
        if how == "buffer":
            self.register_buffer("mean", torch.ones(4))
        if how == "spectral":
            self.first = torch.nn.utils.parametrizations.spectral_norm(self.first)

    def forward(self, x):
        y = self.norm(self.first(x))
        if self.how == "part":
            with torch.no_grad():
                seen = self.first(x).sin()
            return y * seen
        if self.how == "buffer":
            with torch.no_grad():
                self.mean.mul_(0.9).add_(y.mean(0) * 0.1)
            return y * self.mean
        return y


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["part", "buffer", "spectral"])
def test_gradients_stop_in_a_model_that_is_functionalised(how):
    torch.manual_seed(0)
    model = Held(how)
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    theirs = copy.deepcopy(model)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    step = Reference(model, (x,), Training(losses.MeanSquaredError(), optimizers.SGD(0.5)))
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(theirs(x), y).backward()
        optimizer.step()
        step(x.numpy(), y.numpy())
    for name, wanted in theirs.state_dict().items():
        if wanted.is_floating_point():
            np.testing.assert_allclose(step[name], wanted.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["iteration", "seed"])
def test_a_buffer_that_is_called_as_the_steps_own_state_is_refused(name):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            getattr(self, name).add_(1)
            return self.layer(x)

    with pytest.raises(UserError, match=f"buffer name {name} is reserved"):
        joint_of(_made(Counting), (torch.ones(2, 3),), Training("mse"))


def test_what_is_detached_twice_is_detached():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x):
            y = self.layer(x)
            return (y * y.detach().detach()).sum()

    x, model = torch.randn(4, 3), _made(Twice)
    step = Reference(model, (x,), Training(None, optimizers.SGD(0.1)))
    assert step(x.numpy()) == pytest.approx(model(x).item(), rel=1e-6)


def test_the_models_own_loss():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x, y):
            return functional.mse_loss(self.layer(x), y), self.layer(x)

    x, y = torch.randn(4, 3), torch.randn(4, 1)
    model = _made(Own)
    step = Reference(model, (x, y), Training(None, optimizers.SGD(0.1)))
    assert step(x.numpy(), y.numpy()) == pytest.approx(model(x, y)[0].item(), rel=1e-6)


@pytest.mark.slow
def test_state_goes_to_torch_and_back():
    batch = _pictures(0)
    model = _made(Pictures)
    step = cc.compile(model, batch, training=Training())
    step(*[t.numpy() for t in batch])
    held = {k: torch.from_numpy(v) for k, v in step.state_dict().items()}
    model.load_state_dict(held)
    step.load_state_dict(model.state_dict())
    before = step.digest
    with pytest.raises(UserError, match=r"unknown name 'third\.weight'"):
        step.load_state_dict({"first.bias": np.zeros(6, np.float32), "third.weight": 0})
    with pytest.raises(UserError, match=r"first.bias to be float32\[6\], got float32\[5\]"):
        step.load_state_dict({"first.bias": np.zeros(5, np.float32)})
    assert step.digest == before


def _words_step(model):
    return cc.compile(model, _words(0), training=Training(), finish=False)


def test_a_parameter_of_several_names_goes_by_each_of_them():
    model = _made(Words)
    step = _words_step(model)
    held = step.state_dict()
    assert set(held) == set(model.state_dict())
    assert held["head.weight"].tobytes() == held["table.weight"].tobytes()
    model.load_state_dict({k: torch.from_numpy(v) for k, v in held.items()})
    for name, other in (("head.weight", "table.weight"), ("table.weight", "head.weight")):
        fresh = np.random.default_rng(len(name)).random((11, 16), np.float32)
        step.load_state_dict({name: fresh})
        assert np.array_equal(step.state_dict()[other], fresh)
    step.load_state_dict(model.state_dict())  # both, the same
    assert step.state_dict()["head.weight"].tobytes() == held["head.weight"].tobytes()
    before = step.digest
    with pytest.raises(UserError, match=r"head.weight and table.weight are one tensor, got two"):
        step.load_state_dict({"table.weight": held["table.weight"], "head.weight": fresh})
    assert step.digest == before


def test_a_saved_program_ties_what_its_model_tied(tmp_path):
    model = _made(Words)
    program = torch.export.export(model.train(), _words(0)[:1])
    torch.export.save(program, tmp_path / "words.pt2")
    step, saved = _words_step(program), _words_step(tmp_path / "words.pt2")
    assert set(saved.state_dict()) == set(model.state_dict())
    assert len(saved.roles.numbers("parameter")) == len(list(model.parameters()))
    assert saved.digest == step.digest


def test_a_step_is_recorded_after_torch_trained_the_module_on(tmp_path):
    from core_compiler.record.reader import Recording

    model = _made(Pictures)
    step = cc.compile(model, _pictures(0), training=Training(), finish=False)
    before = step.digest
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    path = step.compilation.record(tmp_path / "step.run")
    assert len(Recording.open(path).stages()) == len(step.compilation.stages)
    assert step.digest == before


def test_frozen_weights_that_torch_changed_are_refused_as_ever(tmp_path):
    """They are read where they are."""
    model = _made(Pictures)
    training = Training(freeze=("last.weight",))
    step = cc.compile(model, _pictures(0), training=training, finish=False)
    with torch.no_grad():
        model.last.weight.add_(1)
    with pytest.raises(UserError, match=r"last.weight was changed in place"):
        step.compilation.record(tmp_path / "step.run")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((), "needs an example batch"),
        ((torch.ones(4, 1, 8, 8), torch.ones(4)), "targets to be tensor<4xi64>, got float32 4"),
        ((torch.ones(4, 1, 8, 8), torch.ones(3, dtype=torch.int64)), "targets .*, got int64 3"),
    ],
)
def test_an_example_batch_that_does_not_fit_is_refused(batch, message):
    with pytest.raises(UserError, match=message):
        cc.compile(_made(Pictures), batch, training=Training())


def test_a_configuration_that_is_none_is_refused():
    with pytest.raises(UserError, match=r"expected training to be a cc.Training, got str"):
        cc.compile(_made(Pictures), _pictures(0), training="sgd")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: joint_of(torch.nn.ReLU(), (torch.ones(2),), Training()), "no parameter to train"),
        (
            lambda: joint_of(_made(Pictures), _pictures(0)[:1], Training(freeze=("third.*",))),
            "no parameter matches 'third.*'.*first.weight",
        ),
        (
            lambda: joint_of(_made(Pictures), _pictures(0)[:1], Training(None)),
            "expected a loss as the model's first result, got ",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2])
def test_a_target_that_is_no_class_is_refused(shards):
    (x, y), loss = _pictures(0), losses.CrossEntropy(ignore_index=-1)
    step = cc.compile(_made(Pictures), (x, y), training=Training(loss=loss, shards=shards))
    step(x, torch.tensor([0, 4, -1, 2]))
    before = step.digest
    for given, message in (
        ([0, 1, 2, 5], "target 5 in row 3 of the batch is out of range for 5 classes"),
        ([0, -5, -1, 9], "target -5 in row 1 .* from 0 to 4, or -1"),
    ):
        with pytest.raises(UserError, match=message):
            step(x, torch.tensor(given))
    assert step.digest == before and step.iteration == 1


@pytest.mark.slow
def test_a_target_inside_a_row_is_named():
    tokens, targets = _words(0)
    step = cc.compile(_made(Words), (tokens, targets), training=Training())
    targets[2, 3] = 11
    with pytest.raises(UserError, match=r"target 11 in row 2, at \[3\] of the batch"):
        step(tokens, targets)
