"""An import beside its framework where no rounding explains anything: exact ops, the model's
results by their places, its state, masks, draws.  Faults are planted in tables of translations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core_compiler.debug.draws import distribution_difference
from core_compiler.debug.framework import compare
from core_compiler.debug.metric import distance, masks
from core_compiler.debug.verdict import Evidence, judge
from core_compiler.debug.whole import judge_results, judge_state
from core_compiler.frontends.pytorch import import_module
from core_compiler.frontends.pytorch.aten import complex_numbers, table
from core_compiler.ir import dtype
from core_compiler.support.arrays import as_numpy

torch: Any = pytest.importorskip("torch", reason="the models are torch's")

X = np.random.default_rng(5).standard_normal((6, 6)).astype(np.float32)
#: The type of ONNX's positions, by the result's name.
INTEGERS = {"y": 7}
BF16, F16 = dtype("bf16"), dtype("f16")
TIES = np.float32([[1, 3, 3, 2], [5, 5, 5, 5], [0, 1, 0, 1]])


class Made(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *x):
        return self.function(*x)


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(6))

    def forward(self, x):
        self.n.mul_(0.9).add_(x.mean(0))
        return x - self.n


def imported(module, *arrays):
    module = module if isinstance(module, torch.nn.Module) else Made(module)
    return import_module(module.eval(), tuple(map(torch.from_numpy, arrays)))


def compared(module, *arrays, change=lambda found: found.module):
    found = imported(module, *arrays)
    return compare(change(found), [*arrays, *found.state], found.nodes, len(arrays))


# -- exact ops -------------------------------------------------------------------------------------


def last_of_equals(b, x, dim=None, keepdim=False):
    """A position of the largest, but of equal ones the last."""
    size, axis = x.type.shape[dim], dim
    turned = b.argmax(b.reverse(x, axes=(axis,)), axis=axis)
    return b.sub(b.scalar_like(size - 1, turned), turned)


def away_from_zero(b, x):
    half = b.floor(b.add(b.abs(x), b.scalar_like(0.5, x)))
    return b.mul(b.sign(x), half)


@pytest.mark.parametrize(
    ("row", "wrong", "function", "x"),
    [
        ("argmax", last_of_equals, lambda x: x.argmax(1), TIES),
        ("floor", lambda b, x: b.ceil(x), torch.floor, TIES + np.float32(0.5)),
        ("ge.Tensor", lambda b, x, y: b.gt(x, y), lambda x: x >= x.round(), TIES),
        ("relu", lambda b, x: b.abs(x), torch.relu, X * np.float32(1e-3)),
    ],
)
def test_what_rounds_nothing_is_right_or_wrong(monkeypatch, row, wrong, function, x):
    assert compared(function, x).verdict == "equal"
    name = row if row in table.TABLE else row.partition(".")[0]
    monkeypatch.setitem(table.TABLE, name, wrong)
    found = compared(function, x)
    assert found.verdict == "differs"
    assert found.beyond.judgement.note == "the values differ, but its ops do not round"


def test_a_step_on_the_operand_itself_is_not_rounded(monkeypatch):
    x = np.float32([0.5, 1.5, 2.5, -0.5])
    monkeypatch.setitem(table.TABLE, "round", away_from_zero)
    assert compared(torch.round, x).verdict == "differs"


# -- complex numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "wrong", "node"),
    [
        ("_conj", lambda b, x: x, "_conj"),
        ("_fft_r2c", None, "fft_rfft"),
    ],
)
def test_a_wrong_complex_number_is_found_where_it_is_made(monkeypatch, row, wrong, node):
    """Not at the real number that is made of it later."""

    def power(x):
        z = torch.fft.rfft(x)
        return (z * z.conj()).real.log1p(), z.abs()

    x = X[:, :5]
    assert compared(power, x).verdict == "within"
    right = complex_numbers.COMPLEX[row]

    def scaled(b, *more):
        made = right(b, *more)
        return replace(made, imag=b.mul(made.imag, b.scalar_like(1.01, made.imag)))

    monkeypatch.setitem(complex_numbers.COMPLEX, row, wrong or scaled)
    found = compared(power, x)
    assert (found.verdict, found.beyond.node, found.beyond.alone) == ("differs", node, True)


def test_a_part_of_complex_numbers_is_measured_by_the_larger_part():
    """The imaginary part of |z|^2 is what rounding leaves of 0, on either side."""

    def power(x):
        z = torch.fft.rfft(x)
        return torch.view_as_real(z * z.conj())

    found = compared(power, np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32))
    assert found.verdict == "within" and max(r.error for r in found.records) < 1e-6
    parts = [r for r in found.records if r.node.startswith("mul")]
    assert len(parts) == 2 and not parts[1].same and parts[1].theirs != parts[1].ours


# -- plain inputs: where all cancels, and where all rounds to one side ----------------------------


def _divergence(x):
    return torch.nn.functional.kl_div(x.log_softmax(1), x.softmax(1))


def _windows(x):
    return torch.view_as_real(
        torch.stft(
            x.flatten(), 16, 4, window=torch.hann_window(16), return_complex=True, center=False
        )
    )


PLAIN = {
    "running sum of a tenth": (lambda x: x.cumsum(0), np.full((300, 4), 0.1)),
    "sum of a tenth": (torch.sum, np.full((300, 50), 0.1)),
    "mean square": (lambda x: (x * x).mean(), np.full((300, 50), 0.1)),
    "divergence of equals": (_divergence, np.linspace(-1, 1, 180).reshape(6, 30)),
    "spectrum of a constant": (lambda x: torch.fft.rfft(x).imag, np.full((3, 12), -1.0)),
    "windows of a small constant": (_windows, np.full((2, 80), 1e-30)),
}


@pytest.mark.parametrize("case", PLAIN)
def test_nothing_is_wrong_with_plain_inputs(case):
    function, x = PLAIN[case]
    assert compared(function, x.astype(np.float32)).verdict in ("equal", "within")


@pytest.mark.parametrize(
    "wrong",
    [
        # Rounds on the way to 8 bits, or its operands to 11; or is wrong by less than that.
        lambda b, right, x, *more: b.to(right(b, b.to(x, BF16), *more), x.type.dtype),
        lambda b, right, x, *more: right(b, b.to(b.to(x, F16), x.type.dtype), *more),
        lambda b, right, x, *more: b.mul(right(b, x, *more), b.scalar_like(1.00001, x)),
    ],
)
def test_equal_terms_excuse_nothing_but_their_own_rounding(monkeypatch, wrong):
    function, x = PLAIN["running sum of a tenth"]
    right = table.TABLE["cumsum"]
    monkeypatch.setitem(table.TABLE, "cumsum", lambda b, *more: wrong(b, right, *more))
    assert compared(function, x.astype(np.float32)).verdict == "differs"


# -- where torch overflows or rounds on its way, and where it does not ----------------------------

LARGE = np.full((8, 8), 89.2, np.float32)


def test_where_the_framework_overflows_on_its_way_its_f64_is_asked(monkeypatch):
    assert np.isinf(torch.sinh(torch.from_numpy(LARGE)).numpy()).any()
    assert compared(torch.sinh, LARGE).verdict == "within"
    right = table.TABLE["sinh"]
    for wrong in (
        lambda b, x: b.min(right(b, x), b.scalar_like(1e38, x)),
        lambda b, x: b.mul(right(b, x), b.scalar_like(0.9999, x)),
    ):
        monkeypatch.setitem(table.TABLE, "sinh", wrong)
        assert compared(torch.sinh, LARGE).verdict == "differs"


def test_an_infinity_that_f64_has_too_is_not_excused(monkeypatch):
    x = np.float32([[0, 1, 2]])
    monkeypatch.setitem(
        table.TABLE,
        "reciprocal",
        lambda b, x: b.div(b.scalar_like(1, x), b.max(x, b.scalar_like(1e-30, x))),
    )
    assert compared(torch.reciprocal, x).verdict == "differs"


NARROW = {
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "norm of order 3": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
    "cosine": lambda x: torch.nn.functional.cosine_similarity(x, x.flip(0)),
    "normalised": lambda x: torch.nn.functional.normalize(x),
    "adaptive mean": lambda x: torch.nn.functional.adaptive_avg_pool2d(x[None], (2, 3)),
    "glu": lambda x: torch.nn.functional.glu(torch.cat([x, -40 * x.abs()], 1)),
    "sinc": lambda x: torch.sinc(x.round()),
    "quotients": lambda x: x // x.flip(0),
    "decimals": lambda x: torch.cat([x.round(decimals=d) for d in (-1, 2, 5)]),
}


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NARROW)
def test_narrow_floats_are_wide_on_the_way_as_torch_has_them(name, kind):
    """Squares of 300 and of 1e-4 have no f16, sums of nine 2e4s neither."""
    for scale in (1, 300, 2e4, 1e-4):
        x = (torch.from_numpy(np.tile(X, (1, 2))[:, :9]) * scale).to(getattr(torch, kind))
        found = import_module(Made(NARROW[name]).eval(), (x,))
        judged = compare(found.module, [as_numpy(x), *found.state], found.nodes, 1)
        assert judged.verdict in ("equal", "within"), (scale, judged.beyond)


def test_statistics_that_torch_keeps_narrow_are_judged_as_that():
    """Declared f32; their rounding to 8 bits is torch's own."""
    for seed in (6, 9, 11):
        random = torch.Generator().manual_seed(seed)
        norm = torch.nn.BatchNorm1d(5).to(torch.bfloat16).train()
        norm.running_mean.copy_(torch.rand(5, generator=random) * 9 - 4)
        norm.running_var.copy_(torch.rand(5, generator=random) * 40)
        x = (torch.rand(5, 5, 5, generator=random) * 18 - 9).to(torch.bfloat16)
        found = import_module(norm, (x,))
        judged = compare(found.module, [as_numpy(x), *found.state], found.nodes, 1)
        assert judged.verdict in ("equal", "within")


def test_positions_of_equals_are_open_where_torch_says_so_only():
    def sorts(x):
        return x.topk(2).indices, x.sort(descending=True).indices, x.kthvalue(2, 1).indices

    def stable(x):
        return x.argmax(1), x.sort(stable=True).indices, x.max(1).indices

    nodes = imported(sorts, TIES).nodes
    assert len(nodes.open_ties) == 3
    assert not imported(stable, TIES).nodes.open_ties
    assert compared(sorts, TIES).verdict in ("equal", "within")
    assert compared(stable, TIES).verdict == "equal"


@pytest.mark.parametrize("wrong", [0, 1])
def test_onnx_says_which_of_equals_a_position_is_of(wrong, monkeypatch):
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    from core_compiler.frontends.onnx import import_proto
    from tests.frontends.onnx_models import one_node

    proto = one_node(
        "ArgMax", {"x": TIES}, "y", opset=13, axis=1, types=INTEGERS, select_last_index=1 - wrong
    )
    if wrong:  # as if the import had not seen the attribute
        right = import_proto(
            one_node(
                "ArgMax", {"x": TIES}, "y", opset=13, axis=1, types=INTEGERS, select_last_index=1
            ),
            inputs={"x": TIES},
        )
        nodes = import_proto(proto, inputs={"x": TIES}).nodes
        values = dict(zip(nodes.values, right.nodes.values.values(), strict=True))
        found = compare(right.module, [TIES], replace(nodes, values=values), 1)
    else:
        made = import_proto(proto, inputs={"x": TIES})
        found = compare(made.module, [TIES], made.nodes, 1)
    assert found.verdict == ("differs" if wrong else "equal")


def test_a_table_that_the_import_computes_may_round_otherwise():
    """A window's cosine is rounded differently by each runtime: 3 ulps of its smallest number."""
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    from core_compiler.frontends.onnx import import_proto
    from tests.frontends.onnx_models import one_node

    size = np.array(10)
    proto = one_node("HammingWindow", {"n": size}, "y", opset=17, periodic=0)
    made = import_proto(proto, inputs={"n": size})
    assert compare(made.module, [size], made.nodes, 1).verdict in ("equal", "within")


def test_results_whose_size_data_decide_are_compared_as_far_as_they_count(monkeypatch):
    x = np.float32([0, 1, 0, 4])
    assert compared(torch.nonzero, x).left_out == 0
    right = table.TABLE["nonzero"]

    def off(b, x):
        made = right(b, x)
        moved = b.add(made, b.scalar_like(7, made))
        b.sizes.mark(moved, b.sizes.of(made))
        return moved

    monkeypatch.setitem(table.TABLE, "nonzero", off)
    assert compared(torch.nonzero, x).verdict == "differs"


# -- results and state -----------------------------------------------------------------------------


def with_outputs(found, outputs):
    main = found.module.main
    return found.module.with_function(main.with_(body=replace(main.body, outputs=tuple(outputs))))


def test_each_result_is_at_the_place_where_the_model_has_it():
    def two(x):
        return x.sin(), x.exp()

    assert compared(two, X).verdict in ("equal", "within")
    found = compared(two, X, change=lambda f: with_outputs(f, f.module.main.outputs[::-1]))
    assert found.verdict == "differs"
    assert found.beyond.node == "result 0 of the model"


def test_the_state_that_a_call_leaves_is_the_framework_s():
    assert compared(Counting(), X).verdict in ("equal", "within")

    def stays(found):
        main = found.module.main
        return with_outputs(found, (main.outputs[0], main.arguments[1]))

    found = compared(Counting(), X, change=stays)
    assert found.verdict == "differs"
    assert found.beyond.node == "n, the state after a call"


def test_the_state_that_a_program_leaves_is_held_to_the_import():
    found = imported(Counting(), X)
    given = [X, *found.state]
    right = X.astype(np.float64).mean(0).astype(np.float32)
    assert judge_state(found.module, given, [right])[1].verdict in ("equal", "within")
    assert judge_state(found.module, given, [right * 0])[1].verdict == "differs"


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_statistics_of_narrow_numbers_are_torchs(narrow, monkeypatch):
    """Torch declares them f32, computes them so and keeps them in the dtype of the layer."""
    model = torch.nn.BatchNorm1d(6).to(getattr(torch, narrow)).train()
    x = torch.from_numpy(X).to(model.weight.dtype)

    def verdict():
        found = import_module(model, (x,))
        return compare(found.module, [as_numpy(x), *found.state], found.nodes, 1).verdict

    assert verdict() in ("equal", "within")
    row = "_native_batch_norm_legit_functional"
    right = table.TABLE[row]
    monkeypatch.setitem(
        table.TABLE, row, lambda *given: right(*given[:-2], given[-2] * 1.1, given[-1])
    )
    assert verdict() == "differs"


def test_what_is_0_everywhere_in_f64_excuses_nothing():
    ours, theirs = np.zeros(3, np.float32), np.float32([0.5, 0, 0])
    nothing = Evidence(
        lambda: np.zeros(3), lambda seed, zeros=True: np.full(3, 1e-300 if zeros else 0.0)
    )
    assert judge(theirs, ours, nothing).verdict == "differs"
    # Where an ulp of the operands makes as much of it, rounding does.
    sensitive = Evidence(lambda: np.zeros(3), lambda seed, zeros=True: np.full(3, 0.5))
    assert judge(theirs, ours, sensitive).verdict in ("within", "not_compared")


# -- masks and poles -------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [-1e9, -3.4028234663852886e38, -np.inf, np.nan])
def test_masks_hide_nothing(mask):
    theirs = np.float32([mask, 0.25, -0.5])
    ours = np.float32([mask, 0.25, 0.0])
    truth = theirs.astype(np.float64)
    evidence = Evidence(lambda: truth, lambda seed, zeros=True: truth)
    assert list(masks(theirs, ours)) == [True, False, False]
    assert judge(theirs, ours, evidence).verdict == "differs"
    assert distance(theirs, ours, ignored=masks(theirs, ours)).relative == 1.0
    near = np.float32([mask, 0.25, np.nextafter(np.float32(-0.5), np.float32(0))])
    assert judge(theirs, near, evidence).verdict == "within"


def test_large_numbers_that_differ_are_no_masks():
    a, b = np.float32([1e9, 1.0, 2.0]), np.float32([1e9 * (1 + 1e-6), 1.0, 2.0])
    assert not masks(a, b).any()
    c = np.float32([1e9, 1e8, 2.0])
    assert not masks(c, c + np.float32([0, 64, 0])).any()  # another is nearly as large


@pytest.mark.parametrize("function", [torch.rsqrt, torch.log, torch.reciprocal])
def test_an_operand_of_0_is_no_pole_that_rounding_makes(function):
    """A program with an epsilon of its own, or with NaN, where the framework has an infinity."""
    x = np.float32([0, 1, 4])
    found = imported(function, x)
    theirs = as_numpy(function(torch.from_numpy(x)))
    for bad in (np.float32(1e15), np.float32(np.nan), -theirs[0]):
        ours = np.array(theirs)
        ours[0] = bad
        (judged,) = judge_results(found.module, [x], [ours], [theirs], list)
        assert judged.verdict == "differs", bad


def test_positions_of_numbers_that_the_framework_rounds_to_equals_are_within():
    x = np.float32([[0.0, 8.0, 9.0, 1.0]])
    found = imported(lambda x: torch.tanh(x).argmax(1), x)
    ours, theirs = np.int64([2]), np.int64([1])  # tanh(8) is 1 - 2.3e-7
    for wrong, verdict in ((theirs, "within"), (np.int64([3]), "differs")):
        (judged,) = judge_results(found.module, [x], [ours], [wrong], list)
        assert judged.verdict == verdict


# -- draws -----------------------------------------------------------------------------------------


def test_random_numbers_are_of_the_framework_s_distribution(monkeypatch):
    def noise(x):
        return torch.rand_like(x), torch.randn_like(x), torch.bernoulli(x.abs().clamp(max=1))

    x = np.random.default_rng(0).random((100, 60)).astype(np.float32)
    found = compared(noise, x)
    assert found.beyond is None and found.left_out == 3
    right = table.TABLE["randn_like"]
    monkeypatch.setitem(
        table.TABLE,
        "randn_like",
        lambda b, x, **named: b.mul(made := right(b, x, **named), b.scalar_like(1.5, made)),
    )
    found = compared(noise, x)
    assert found.beyond is not None and "distributions differ" in found.beyond.judgement.note


def test_what_dropout_keeps_is_what_the_framework_makes_of_it():
    random = np.random.default_rng(0)
    x = random.standard_normal(400).astype(np.float32)
    kept = [random.random(400) < 0.7 for _ in range(2)]
    ours, theirs = (np.where(k, x / np.float32(0.7), np.float32(0)) for k in kept)
    assert not distribution_difference(ours, theirs, x)
    assert "an element that both keep" in distribution_difference(ours * np.float32(0.7), theirs, x)
    few = np.where(random.random(400) < 0.2, theirs, np.float32(0))
    assert "distributions differ" in distribution_difference(few, theirs)
    assert "draws nothing" in distribution_difference(ours, x, x)
    assert not distribution_difference(np.zeros(0, np.float32), np.zeros(0, np.float32))


def test_nothing_is_kept_of_what_a_framework_leaves_unset():
    assert compared(lambda x: (x.new_empty((3,)), x + 1), X).verdict == "equal"


def test_a_position_of_equals_that_is_handed_on_is_open_too():
    """torch's kthvalue gives any of equal elements; ours is a part of a sort's positions."""
    x = np.random.default_rng(0).integers(0, 3, (40, 50))
    found = compared(lambda x: tuple(x.kthvalue(3, 1)), x)
    assert found.verdict == "within" and found.beyond is None
