"""The PyTorch frontend: in-place and view semantics, state, symbolic sizes, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

import core_compiler as cc
from core_compiler.debug import translations
from core_compiler.frontends.pytorch import import_exported, import_module
from core_compiler.frontends.pytorch.aten import TABLE
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.frontends.programs import Program, agrees, execute, exported


def _input(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


# -- in-place ops and views --


def write_through_a_view(x):
    y = x * 2
    y[1].add_(1)
    return y


def write_through_a_chunk(x):
    y = x + 1
    first, _ = y.chunk(2)
    first.mul_(3)
    return y + 1


def write_into_a_base(x):
    y = x + 1
    z = y.view(-1)
    y.add_(5)
    return z * 1


def write_through_dropout_in_evaluation(x):
    """Dropout that does nothing returns its argument itself, which its schema does not say."""
    y = x * 1
    functional.dropout(y, 0.5, False).add_(1)
    return y


def write_through_a_slice_with_a_step(x):
    y = x.clone()
    y[:, ::2] = 0
    return y


def write_a_column(x):
    y = torch.zeros(4, 6)
    y[:, 2] = x[:, 0]
    return y


def chain_on_one_tensor(x):
    y = x + 1
    y.add_(1)
    y.relu_()
    y.mul_(y)
    return y


def write_with_an_operator(x):
    y = x > 0
    y &= x < 1
    return y


def write_into_a_transpose(x):
    y = x.clone()
    y.t().copy_(torch.arange(24.0).reshape(6, 4))
    return y


def fill_through_two_views(x):
    y = x.clone()
    y.view(2, 12)[0].view(3, 4)[1].fill_(7)
    return y


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "function",
    [
        write_through_a_view,
        write_through_a_chunk,
        write_into_a_base,
        write_through_dropout_in_evaluation,
        write_through_a_slice_with_a_step,
        write_a_column,
        chain_on_one_tensor,
        write_with_an_operator,
        write_into_a_transpose,
        fill_through_two_views,
    ],
)
def test_writes_are_seen_through_every_alias(function):
    agrees(function, _input(4, 6))


_VIEWS = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.transpose(0, 1),
    "select": lambda x: x[0],
    "slice": lambda x: x[:, 1:],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "reshape": lambda x: x.reshape(6, 4),
    "diagonal": lambda x: x.diagonal(),
    "narrow": lambda x: x.narrow(1, 2, 3),
    "none": lambda x: x,
}
_WRITES = {
    "add_": lambda x: x.add_(1),
    "mul_": lambda x: x.mul_(-2),
    "relu_": lambda x: x.relu_(),
    "zero_": lambda x: x.zero_(),
    "clamp_": lambda x: x.clamp_(-0.5, 0.5),
    "sub_": lambda x: x.sub_(3),
    "neg_": lambda x: x.neg_(),
}


@pytest.mark.slow
@settings(max_examples=examples(15))  # torch takes half a second for each
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(_VIEWS)), st.sampled_from(sorted(_WRITES))),
        min_size=1,
        max_size=3,
    )
)
def test_any_mix_of_views_and_writes(steps):
    def function(x):
        y = x * 1
        kept = []
        for view, write in steps:
            part = _VIEWS[view](y)
            kept.append(part)
            _WRITES[write](part)
        return [y, *(k + 0 for k in kept)]

    agrees(function, _input(4, 6))


# -- state --


def test_a_changed_input_is_a_result_after_the_models_own():
    x = _input(3)
    made = import_exported(exported(lambda x: x.add_(1) * 2, x))
    assert made.outputs[1].endswith("(after)") and made.facts["written"] == [0]
    torch.testing.assert_close(execute(made, x), [(x + 1) * 2, x + 1])


class Counting(torch.nn.Module):
    """Normalises by the batch, keeps statistics, and counts its calls in two ways."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)
        self.register_buffer("calls", torch.zeros(2))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        self.calls.add_(1)
        self.calls[0] = self.calls[0] * 2
        return self.norm(x) * self.scale + self.calls.sum()


def test_buffers_that_change_are_arguments_and_results():
    """They come after the model's own, by name; a result may take its argument's memory."""
    program = torch.export.export(Counting().train(), (_input(4, 6),), strict=False)
    imported = import_exported(program)
    names = ("calls", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked")
    assert imported.inputs[1:] == names
    assert imported.outputs[1:] == tuple(f"{name} (next)" for name in names)
    assert imported.module.main.attributes["aliases"] == ((1, 1), (2, 2), (3, 3), (4, 4))
    assert [a.tolist() for a in imported.state[:2]] == [[0, 0], [0] * 6]


@pytest.mark.slow
def test_a_model_keeps_its_state_from_call_to_call():
    module = Counting().train()
    program = torch.export.export(module, (_input(4, 6),), strict=False)
    made = cc.compile(program, (_input(4, 6),), check=True)
    assert {r.verdict for checks in made.checks.values() for r in checks} <= {"bitwise", "within"}
    for seed in range(3):
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
        (y,) = made(x.numpy())
        torch.testing.assert_close(torch.from_numpy(y), module(x))
        theirs = [module.calls, module.norm.running_mean, module.norm.running_var]
        for own, buffer in zip(made.state, theirs, strict=False):
            torch.testing.assert_close(torch.from_numpy(own), buffer)
    assert made.state[3] == module.norm.num_batches_tracked == 3


def test_a_stage_further_on_keeps_the_state_of_its_own() -> None:
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls.add_(1)
            return x + self.calls

    program = torch.export.export(Counts(), (torch.zeros(2),), strict=False)
    first = cc.compile(program, (torch.zeros(2),))
    x = torch.zeros(2).numpy()
    assert first(x)[0].tolist() == [1, 1]
    second = first.rerun(3).finish()
    assert second(x)[0].tolist() == [2, 2]
    assert first(x)[0].tolist() == [2, 2]


def test_batch_norm_that_keeps_no_statistics_normalises_by_the_batch():
    module = torch.nn.BatchNorm1d(6, track_running_stats=False).train()
    x = _input(4, 6)
    (y,) = cc.compile(exported(module, x), (x,))(x.numpy())
    torch.testing.assert_close(torch.from_numpy(y), module(x))


def test_dropout_in_training_is_refused():
    with pytest.raises(UserError, match=r"dropout in training mode; call model\.eval\(\)"):
        import_module(torch.nn.Dropout(0.5).train(), (_input(4, 6),))


def test_dropout_in_evaluation_is_nothing():
    imported = import_module(torch.nn.Dropout(0.5).eval(), (_input(4, 6),))
    assert not imported.module.main.body.ops


# -- refusals --


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.tensor_split(x, 3, dim=1),
        lambda x: torch.tensor_split(x, (1, 4, 3), dim=-1),
        lambda x: (*torch.hsplit(x, 5), *torch.hsplit(x[0], [2]), *torch.vsplit(x, [1, -1])),
        lambda x: torch.dsplit(x[None], [1, 3]),
        lambda x: torch.take(x, torch.tensor([[0, 14], [-1, 7]])),
        lambda x: torch.cartesian_prod(x[0], x[1, :2], x[2]),
        lambda x: x.index_fill(1, torch.tensor([3, 0, 3, -1]), x[0, 0]),
        lambda x: torch.unsafe_chunk(x, 2, 1),
    ],
    ids=["parts", "places", "axes", "third axis", "take", "tuples", "fill", "chunks"],
)
def test_splits_and_reads_by_place_that_torch_does_not_decompose(function):
    agrees(function, _input(3, 5))


def test_all_unsupported_ops_are_named_at_once_with_their_lines():
    class Model(torch.nn.Module):
        def forward(self, x):
            y = torch.special.bessel_j0(x)
            z = torch.special.bessel_y0(x) + 1
            return y + z

    with pytest.raises(UserError) as caught:
        import_module(Model(), (_input(4),))
    line = Model.forward.__code__.co_firstlineno
    text = caught.value.what
    assert "2 ops are not supported" in text
    assert f"aten.special_bessel_j0.default (no translation; {__file__}:{line + 1})" in text
    assert f"aten.special_bessel_y0.default (no translation; {__file__}:{line + 2})" in text
    assert "\n" not in str(caught.value)


def test_a_number_taken_from_data_is_refused():
    with pytest.raises(UserError, match="depends on data"):
        import_exported(exported(lambda x: x * x.sum().item(), _input(4)))


def test_a_module_that_torch_cannot_export_is_told_in_one_line():
    def function(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(UserError, match=r"^model: torch\.export failed: ") as caught:
        import_module(Program(function), (_input(4),))
    assert "\n" not in str(caught.value)


# -- symbolic sizes --


def _symbolic():
    batch = torch.export.Dim("batch", min=2, max=64)
    return exported(
        lambda x: x.reshape(x.shape[0] * 2, -1) * x.shape[0],
        _input(4, 6),
        dynamic_shapes={"tensors": ({0: batch},)},
    )


def test_symbols_take_the_example_inputs_sizes():
    imported = import_exported(_symbolic())
    ((_, bound),) = imported.facts["bound"].items()
    assert bound == {"size": 4, "low": 0, "high": 64}  # torch takes 0 and 1 from 2 on
    x = _input(4, 6)
    torch.testing.assert_close(execute(imported, x)[0], x.reshape(8, -1) * 4)


@pytest.mark.parametrize("batch", [2, 7, 64])
def test_symbols_take_given_sizes(batch):
    program = _symbolic()
    (name,) = import_exported(program).facts["bound"]
    imported = import_exported(program, sizes={name: batch})
    x = _input(batch, 6)
    torch.testing.assert_close(execute(imported, x)[0], x.reshape(2 * batch, -1) * batch)


def test_a_size_out_of_the_symbols_range_is_refused():
    program = _symbolic()
    (name,) = import_exported(program).facts["bound"]
    with pytest.raises(UserError, match=f"size {name} = 65 is not in 0..64"):
        import_exported(program, sizes={name: 65})


def test_a_symbol_that_the_program_has_not_is_refused():
    with pytest.raises(UserError, match="unknown size 'length'"):
        import_exported(_symbolic(), sizes={"length": 3})


def test_two_dims_tied_by_the_program_are_bound_together():
    n = torch.export.Dim("n", min=2, max=100)
    x, y = _input(3, 5), _input(6)
    program = exported(
        lambda x, y: x.repeat(2, 1) + y[:, None],
        x,
        y,
        dynamic_shapes={"tensors": ({0: n}, {0: 2 * n})},
    )
    (name,) = import_exported(program).facts["bound"]
    imported = import_exported(program, sizes={name: 4})
    assert [v.type.shape for v in imported.module.main.arguments] == [(4, 5), (8,)]


# -- what has no translation --


def test_an_op_without_translation_is_its_decomposition_and_the_rest_stays():
    """Only that op is taken apart; its parts come from its own line."""

    def function(x):
        return functional.gelu(torch.diff(x, dim=1)) + functional.softmax(x[:, 1:], -1)

    agrees(function, _input(3, 5))
    imported = import_exported(exported(function, _input(3, 5)))
    kinds = [op.kind for op in imported.module.main.body.ops]
    assert "core.gelu" in kinds
    assert "core.softmax" in kinds
    parts = [
        op
        for op in imported.module.main.body.ops
        if any(n.kind == "aten.diff.default" for n in op.origin.nodes())
    ]
    assert [op.kind for op in parts][-1] == "core.sub"


def test_a_type_rule_that_raises_is_a_wrong_translation(monkeypatch):
    """torch's decomposition stands in for it, with the right values; the checks fail."""
    from core_compiler.ops.base import REGISTRY

    def rule(types, attributes):
        x, weight = types  # the bias is forgotten
        return (x, weight)

    monkeypatch.setitem(REGISTRY, "core.linear", replace(REGISTRY["core.linear"], type_rule=rule))
    found = import_exported(exported(torch.nn.Linear(5, 4), _input(3, 5)))
    (row,) = found.facts["stood_in"]
    assert row["op"].startswith("aten.linear")
    assert "its type rule raises ValueError" in row["reason"]


def test_a_translation_that_raises_is_wrong(monkeypatch):
    """torch's decomposition replaces it, with the right values; the check of the import fails."""

    def roll(b, x, shifts, axes=()):
        return b.reverse(x, axes=[axis + 1 for axis in axes[0]])

    def function(x):
        return torch.roll(x, 2, 1)

    monkeypatch.setitem(TABLE, "roll", roll)
    agrees(function, _input(3, 5))
    found = import_exported(exported(function, _input(3, 5)))
    (row,) = found.facts["stood_in"]
    assert row["op"].startswith("aten.roll") and "TypeError" in row["reason"]
    (failed,) = translations.checks(found.facts, found.module)
    assert failed.verdict == "failed" and "the translation of aten.roll" in failed.note


def test_arguments_that_a_translation_does_not_take_are_no_fault_of_it(monkeypatch):
    monkeypatch.setitem(TABLE, "roll", lambda b, x, shifts: x)
    found = import_exported(exported(lambda x: torch.roll(x, 2, 1), _input(3, 5)))
    assert found.facts["stood_in"] == []


def test_a_part_under_no_grad_is_walked_in_place():
    def function(x):
        with torch.no_grad():
            y = x.relu()
        with torch.autocast("cpu", enabled=False):
            return y * 2

    agrees(function, _input(3, 5))


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz])
def test_what_is_too_large_for_a_narrow_float_becomes_what_torch_makes_of_it(kind):
    x = torch.tensor([1e9, -1e9, 448, 464, 465, 0.1, float("inf"), float("nan"), 57344, 61440])
    agrees(lambda x: x.to(kind).to(torch.float32), x)


def test_numbers_that_forward_changes_are_told():
    """An export runs ``forward`` once: what it changes is compiled in."""

    class Inner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1.0

        def forward(self, x):
            self.scale *= 0.5
            return x * self.scale

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Inner()).eval()
    with pytest.warns(UserWarning, match=r"forward changes 1\.scale: the compiled model keeps"):
        imported = import_module(model, (_input(4),))
    assert model[1].scale == 1.0
    (found,) = execute(imported, _input(4))
    torch.testing.assert_close(found, model(_input(4)).detach())
    assert not model._forward_hooks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize(
    "divide",
    [torch.floor_divide, lambda a, b: torch.div(a, b, rounding_mode="floor")],
    ids=["//", "div"],
)
def test_the_floor_of_a_quotient_of_floats_is_torchs(dtype, divide):
    """Of the exact quotient: 1 // 0.1 is 9, though 1 / 0.1 is rounded to 10."""
    special = torch.tensor(
        [0.0, -0.0, 1, -1, 0.1, -0.1, 6, float("inf"), -float("inf"), float("nan"), -3.5, 0.5]
    )
    tenths = torch.arange(-60, 61) / 10
    a = torch.cat([special.repeat_interleave(12), tenths.repeat(7)]).to(dtype)
    b = torch.cat([special.repeat(12), tenths.repeat_interleave(7)]).to(dtype)
    (found,) = execute(import_exported(exported(divide, a, b)), a, b)
    wanted = divide(a, b)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    real = ~wanted.isnan()
    assert torch.equal(found.signbit()[real], wanted.signbit()[real])


def test_a_threshold_keeps_what_is_no_number():
    agrees(lambda x: functional.threshold(x, 0.0, 7.0), torch.tensor([float("nan"), 1.0, -1.0]))


_BY_CHANNEL = torch.tensor([0.5, -2.0, 1.5, 3.0])


@pytest.mark.parametrize("weight", [None, _BY_CHANNEL], ids=["", "scale"])
@pytest.mark.parametrize("bias", [None, _BY_CHANNEL + 1], ids=["", "bias"])
@pytest.mark.parametrize(
    "norm",
    [
        lambda x, w, b: functional.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        lambda x, w, b: functional.layer_norm(x.mT, (4,), w, b),
        lambda x, w, b: functional.batch_norm(x, _BY_CHANNEL, _BY_CHANNEL.abs(), w, b),
    ],
    ids=["instance", "group", "layer", "batch"],
)
def test_a_norm_may_have_a_scale_or_a_bias_alone(norm, bias, weight):
    agrees(lambda x: norm(x, weight, bias), _input(2, 4, 5))


def test_torch_says_nothing_of_a_decomposition_that_it_cannot_trace(capfd):
    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("variance", torch.ones(4))

        def forward(self, x):
            return torch.native_batch_norm(x, None, None, self.mean, self.variance, True, 0.1, 1e-5)

    import_module(Norm(), (_input(2, 4, 5),))
    assert capfd.readouterr() == ("", "")


class Doubled(torch.nn.Module):
    def forward(self, x):
        return x.float() * 2 + x.shape[0]


def test_a_program_takes_the_sizes_of_the_inputs_that_it_is_compiled_with():
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Doubled(), (torch.ones(4, 3),), dynamic_shapes=({0: batch},))
    x = torch.randn(6, 3)
    made = cc.compile(program, (x,), check=True)
    torch.testing.assert_close(torch.from_numpy(made(x)[0]), Doubled()(x))
    assert cc.compile(program)(torch.ones(4, 3))[0].shape == (4, 3)
    with pytest.raises(UserError, match=r"= 100 is not in 1\.\.64"):
        cc.compile(program, (torch.ones(100, 3),))
    fixed = torch.export.export(Doubled(), (torch.ones(4, 3),))
    with pytest.raises(UserError, match=r"expected example input x to be .*, got float32 6x3"):
        cc.compile(fixed, (x,), check=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "x",
    [
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3).to(torch.float8_e4m3fn),
        torch.ones(3, requires_grad=True),
        torch._neg_view(torch.ones(3)),
    ],
    ids=["bf16", "f8", "with gradient", "negated"],
)
def test_a_call_takes_the_tensors_of_the_compile(x):
    (found,) = cc.compile(Doubled(), (x,))(x)
    torch.testing.assert_close(torch.from_numpy(found), Doubled()(x).detach())


def test_a_call_says_what_is_no_array_of_numbers():
    made = cc.compile(Doubled(), (torch.ones(3),))
    exponents = torch.ones(3).to(torch.float8_e8m0fnu)
    for wrong in (torch.ones(3, device="meta"), torch.ones(3).to_sparse(), exponents, ["a"] * 3):
        with pytest.raises(UserError, match=r"(not an array|expected numbers)"):
            made(wrong)


def test_one_tensor_for_two_inputs_or_for_state_is_told_apart():
    """``torch.export`` follows tensors by identity: it would read one input for both."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3))

        def forward(self, a, b):
            return a - 2 * b + self.w

    model, x = Scaled(), torch.tensor([1.0, 2.0, 3.0])
    for example in ((x, x), (model.w, x), (x.numpy(), x.numpy())):
        (made,) = cc.compile(model, example)(x, x + 1)
        np.testing.assert_array_equal(made, model(x, x + 1).detach().numpy())
