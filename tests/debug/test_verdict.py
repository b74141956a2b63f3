"""The verdict on values beside a framework's: what rounding explains, and what it does not.

The oracles are torch and onnxruntime; faults are planted in the tables of translations.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from core_compiler.debug import alone, equal_elements
from core_compiler.debug.framework import compare
from core_compiler.debug.verdict import Evidence, by_tolerance, judge, worst
from core_compiler.debug.whole import Whole, judge_results, moved_inputs
from core_compiler.support.arrays import as_numpy

torch: Any = pytest.importorskip("torch", reason="the models are torch's")
F: Any = torch.nn.functional
Linear, LayerNorm = torch.nn.Linear, torch.nn.LayerNorm

RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((6, 6)).astype(np.float32)
IMAGE = RANDOM.standard_normal((2, 3, 9, 9)).astype(np.float32)


class Made(torch.nn.Module):
    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.parts = function, torch.nn.ModuleList(modules)

    def forward(self, x):
        return self.function(x, *self.parts)


def compared(function, *modules, x=X, dtype=None):
    """The comparison of a torch model's import with torch; modules are made from a seed."""
    from core_compiler.frontends.pytorch import import_module

    torch.manual_seed(1)
    module = Made(function, *(make() for make in modules)).eval()
    given = torch.from_numpy(x)
    if dtype is not None:
        module, given = module.to(dtype), given.to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of recurrent weights, while they are exported
        found = import_module(module, (given,))
    return compare(found.module, [as_numpy(given), *found.state], found.nodes, 1)


# -- planted faults -------------------------------------------------------------------------------


def wrong_axis(right):
    return lambda b, x, dim=None, *more, **named: right(b, x, [1 - d for d in dim], *more, **named)


def swapped(right):
    return lambda b, x, y, **named: right(b, y, x, **named)


def handed_on(right):
    return lambda b, x, *more, **named: x


def epsilon_of_layer_norm(right):
    return lambda b, x, shape, w=None, bias=None, eps=1e-5, *more: right(b, x, shape, w, bias, 1e-6)


def epsilon_of_batch_norm(right):
    return lambda b, x, w, bias, mean, variance, training, momentum, eps, *more: right(
        b, x, w, bias, mean, variance, training, momentum, 2 * eps, *more
    )


def padded_at_one_end(right):
    """Padding that is off by one: 0 rows in front and 2 behind instead of 1 and 1."""

    def fault(b, x, w, bias=None, stride=1, padding=0, *more):
        wide = right(b, x, w, bias, stride, (2, 2), *more)
        rows, columns = x.type.shape[2:]
        return b.cut(b.cut(wide, 2, 2, 2 + rows, 1), 3, 1, 1 + columns, 1)

    return fault


FAULTS = {
    "sum over the wrong axis": (
        "sum", wrong_axis, "sum_1", lambda x: torch.tanh(x).sum(1) * 2, (), X,
    ),
    "swapped operands": (
        "sub", swapped, "sub", lambda x, layer: (torch.tanh(x) - layer(x)).exp(),
        (lambda: Linear(6, 6),), X,
    ),
    "missing transpose": (
        "permute", handed_on, "permute", lambda x: torch.tanh(x).permute(1, 0).exp(), (), X,
    ),
    "epsilon of a layer norm": (
        "layer_norm", epsilon_of_layer_norm, "layer_norm", lambda x, norm: norm(x).exp(),
        (lambda: LayerNorm(6),), X,
    ),
    "epsilon of a batch norm": (
        "batch_norm", epsilon_of_batch_norm, "batch_norm",
        lambda x, conv, norm: norm(conv(x)).relu(),
        (lambda: torch.nn.Conv2d(3, 8, 3), lambda: torch.nn.BatchNorm2d(8)), IMAGE,
    ),
    "padding off by one": (
        "conv2d", padded_at_one_end, "conv2d", lambda x, conv: conv(x).relu() + 1,
        (lambda: torch.nn.Conv2d(3, 8, 3, padding=1),), IMAGE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_translation_is_named(monkeypatch, name):
    from core_compiler.frontends.pytorch.aten import table

    row, wrap, node, function, modules, x = FAULTS[name]
    assert compared(function, *modules, x=x).verdict in ("equal", "within")
    monkeypatch.setitem(table.TABLE, row, wrap(table.TABLE[row]))
    found = compared(function, *modules, x=x)
    assert found.verdict == "differs" and found.beyond is not None
    assert (found.beyond.node, found.beyond.alone) == (node, True)
    off = found.beyond.judgement.distance
    assert off.relative > 1e-7 and off.want != off.got
    assert all(error < 1e-5 for _, error in found.beyond.inputs)
    if node != "permute":  # that has no op of its own
        assert "core." in found.beyond.op
        # What comes after it is right on the framework's own operands.
        assert found.counts["differs"] == 1


def test_an_error_far_below_an_ulp_is_found_in_f64(monkeypatch):
    """1.5e-8 of every operand: f32 alone could not tell it from rounding."""
    from core_compiler.frontends.pytorch.aten import table

    right = table.TABLE["exp"]

    def fault(b, x):
        return right(b, b.add(x, b.mul(x, b.scalar_like(2.0**-26, x))))

    assert compared(torch.exp).verdict in ("equal", "within")
    monkeypatch.setitem(table.TABLE, "exp", fault)
    found = compared(lambda x: torch.exp(x * 1.5))
    assert found.verdict == "differs" and found.beyond is not None and found.beyond.node == "exp"


def test_a_function_of_f64_that_has_the_digits_of_a_shorter_polynomial_differs(monkeypatch):
    """1e-12 of every value: below what f32 or a shared bound on the algebra would show."""
    from core_compiler.frontends.pytorch.aten import table

    right = table.TABLE["exp"]

    def fault(b, x):
        made = right(b, x)
        return b.add(made, b.mul(made, b.scalar_like(1e-12, made)))

    assert compared(torch.exp, dtype=torch.float64).verdict in ("equal", "within")
    monkeypatch.setitem(table.TABLE, "exp", fault)
    found = compared(torch.exp, dtype=torch.float64)
    assert found.verdict == "differs" and found.beyond is not None and found.beyond.node == "exp"
    assert "rounding in f64" in found.beyond.judgement.note


# -- no false alarms ------------------------------------------------------------------------------

SOUND = {
    "large logits": (lambda x: torch.softmax(x * 1e4, 1),),
    "a masked row": (lambda x: torch.softmax(x.masked_fill(x > -9, -3.4e38), 1),),
    "a large mean": (lambda x: ((x + 1e4).var(1), (x + 1e4).std(1), F.layer_norm(x + 1e4, (6,))),),
    "cancelling sums": (lambda x: (x.sum() - x.sum(1).sum(), (x * 1e8 - x * 1e8 + x).sum()),),
    "a difference of squares": (lambda x: (x * x).mean(1) - x.mean(1) ** 2,),
    "overflow": (lambda x: (x.exp() * 1e30 * 1e20, torch.log(x * 0))),
    "functions": (
        lambda x: (
            F.gelu(x),
            F.gelu(x, approximate="tanh"),
            F.silu(x) * 0.1,
            F.softplus(x),
            torch.logsumexp(x * 1e3, 1),
            x.prod(1),
        )
    ),
    "ties": (lambda x: (torch.topk(x.relu(), 3), x.relu().argmax(1), x.relu().sort(1))),
    "complex numbers": (lambda x: torch.fft.rfft(x).abs(),),
    "products": (lambda x, a, b: b(F.gelu(a(x))), lambda: Linear(6, 64), lambda: Linear(64, 5)),
}


def case(given):
    return given if isinstance(given, tuple) else (given,)


@pytest.mark.parametrize("seed", [20, 140])
def test_a_running_sum_may_err_as_a_sum_of_so_many_terms_does(seed):
    """In f32, one by one; torch adds in f64.  One in 25 inputs was called wrong."""
    x = np.random.default_rng(seed).standard_normal((4, 300)).astype(np.float32)
    assert compared(lambda x: x.cumsum(1), x=x).verdict == "within"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SOUND)
def test_ill_conditioned_models_are_within(name):
    function, *modules = case(SOUND[name])
    found = compared(function, *modules)
    assert found.verdict in ("equal", "within"), found.beyond
    assert found.counts["equal"] + found.counts["within"] >= 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_floats_are_judged_by_their_own_rounding(dtype):
    kind = getattr(torch, dtype)
    found = compared(
        lambda x, a, norm, b: (torch.softmax(b(F.gelu(norm(a(x)))), 1), x.var(1), x.argmax(1)),
        lambda: Linear(6, 32),
        lambda: LayerNorm(32),
        lambda: Linear(32, 4),
        dtype=kind,
    )
    assert found.verdict == "within", found.beyond


def test_a_deep_network_of_random_weights_is_within():
    def deep():
        layers = [torch.nn.Sequential(Linear(6, 6), torch.nn.Tanh()) for _ in range(30)]
        made = torch.nn.Sequential(*layers)
        for parameter in made.parameters():
            parameter.data *= 4  # errors grow from layer to layer
        return made

    found = compared(lambda x, network: network(x), deep)
    assert found.verdict == "within", found.beyond
    assert max(r.error for r in found.records) > 1e-7


def test_random_numbers_are_not_compared_and_what_reads_them_is():
    found = compared(lambda x: torch.rand_like(x).exp() + x)
    assert found.counts["not_compared"] == found.left_out == 1
    assert found.verdict in ("equal", "within") and found.counts.total() == 3
    assert compared(torch.rand_like).verdict == "not_compared"


# -- ONNX -----------------------------------------------------------------------------------------

GRAPH = """g (float[6,6] x) => (float[6] z, float[6,6] n, int64[6,1] k) {{
  t = Transpose<perm=[1,0]>(x)
  s = Sub(t, x)
  n = LayerNormalization<axis=1, epsilon=0.00001>(s, scale)
  k = ArgMax<axis=1>(n)
  axes = Constant<value = int64[1] {{1}}>()
  z = ReduceSum<keepdims=0>(n, axes)
}}"""
ONNX_FAULTS = {
    "Transpose": ("t", handed_on),
    "Sub": ("s", swapped),
    "LayerNormalization": (
        "n",
        lambda right: lambda b, x, w, *more: right(_Other(b, epsilon=2e-5), x, w, *more),
    ),
    "ReduceSum": (
        "z",
        lambda right: lambda b, x, axes=None: right(b, b.transpose(x, permutation=(1, 0)), axes),
    ),
}


class _Other:
    """A context whose node has another attribute."""

    def __init__(self, context, **changed):
        self._context, self._changed = context, changed

    def attr(self, name, *more):
        return self._changed.get(name) or self._context.attr(name, *more)

    def __getattr__(self, name):
        return getattr(self._context, name)


def onnx_model():
    onnx = pytest.importorskip("onnx", reason="the model is an ONNX one")
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    graph = onnx.parser.parse_graph(GRAPH.format())
    scale = np.linspace(0.5, 2, 6).astype(np.float32)
    graph.initializer.append(onnx.numpy_helper.from_array(scale, "scale"))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])


@pytest.mark.parametrize("row", ONNX_FAULTS)
def test_a_wrong_translation_of_onnx_is_named(monkeypatch, row):
    from core_compiler.frontends.onnx import import_proto, table

    model = onnx_model()
    sound = import_proto(model)
    result = compare(sound.module, [X], sound.nodes, 1)
    assert result.verdict in ("equal", "within"), result.beyond
    node, wrap = ONNX_FAULTS[row]
    monkeypatch.setitem(table.TABLE, row, wrap(table.TABLE[row]))
    wrong = import_proto(model)
    result = compare(wrong.module, [X], wrong.nodes, 1)
    assert result.verdict == "differs" and result.beyond is not None
    assert (result.beyond.node, result.beyond.alone) == (node, True)


def test_onnxruntime_rounds_and_is_not_blamed():
    """Its LayerNormalization exists in f64: both agree there to 1e-9."""
    from core_compiler.frontends.onnx import import_proto

    found = import_proto(onnx_model())
    told = {}
    found.nodes.run([X], lambda name, arrays, in_f64: [told.setdefault(name, in_f64()) is not None])
    (wide,) = told["n"]
    assert wide.dtype == np.float64 and not np.array_equal(wide, wide.astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["densenet121", "inception_v1", "shufflenet", "squeezenet"])
def test_a_light_model_of_random_weights_is_within(name):
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    from core_compiler.frontends.onnx import import_proto
    from tests.conformance import light_models

    model = light_models.random_model(name)
    found, given = import_proto(model), [*light_models.random_inputs(model).values()]
    result = compare(found.module, given, found.nodes, len(given))
    assert result.verdict == "within", result.beyond


# -- results as a whole ---------------------------------------------------------------------------


def results(theirs, ours=None, function=lambda x: x.exp().sum(1), others=list):
    from core_compiler.frontends.pytorch import import_module

    found = import_module(Made(function).eval(), (torch.from_numpy(X),))
    ours = [as_numpy(function(torch.from_numpy(X)))] if ours is None else ours
    return judge_results(found.module, [X], ours, theirs, others)[0]


def test_results_are_judged_against_f64():
    exact = np.exp(X.astype(np.float64)).sum(1)
    near = exact.astype(np.float32)
    assert results([near]).verdict in ("equal", "within")
    wrong = np.exp(X.astype(np.float64)).sum(0).astype(np.float32)
    judged = results([wrong])
    assert judged.verdict == "differs"
    expected = np.abs(near - wrong).max() / np.abs(wrong).max()
    assert judged.distance.relative == pytest.approx(expected, rel=1e-5)
    # Ours is not allowed to be many times less accurate than theirs.
    assert results([near], [near * np.float32(1 + 3e-6)]).verdict == "differs"
    assert results([np.full_like(near, np.nan)]).verdict == "differs"


def test_positions_that_rounding_decides_are_within():
    function = lambda x: (x * 1e-3 + 1e4).argmax(1)  # noqa: E731
    ours = as_numpy(function(torch.from_numpy(X)))
    other = (ours + 1) % 6

    def others():
        return [[as_numpy(function(torch.from_numpy(x)))] for (x,) in moved_inputs([X])]

    judged = results([other], [ours], function, lambda: [*others(), [ours]])
    assert judged.verdict == "within"
    assert (
        results([(X.argmax(1) + 1) % 6], [X.argmax(1)], lambda x: x.argmax(1)).verdict == "differs"
    )


def beside_import(theirs, ours, function, x=X, nodes_right=False, others=list):
    from core_compiler.frontends.pytorch import import_module

    found = import_module(Made(function).eval(), (torch.from_numpy(x),))
    return judge_results(found.module, [x], ours, theirs, others, nodes_right=nodes_right)


def test_integers_of_a_right_import_do_not_excuse_a_wrong_program():
    def function(x):
        return x > 0.5, x.argmax(1), (x * 8).to(torch.int32) * 3 + 1

    theirs = [as_numpy(a) for a in function(torch.from_numpy(X))]
    wrong = [~theirs[0], X.argmin(1), theirs[2] + 1]
    for place in range(3):
        ours = [w if i == place else a for i, (w, a) in enumerate(zip(wrong, theirs, strict=True))]
        judged = beside_import(theirs, ours, function)
        assert [j.verdict for j in judged] == [
            "differs" if i == place else "equal" for i in range(3)
        ]


STEPS = np.random.default_rng(3).random((6, 40)).astype(np.float32)
STEPS[0, :8] = 0.5


@pytest.mark.parametrize("where", ["beside the step", "below it"])
def test_an_element_on_a_step_excuses_no_other(where):
    function = lambda x: torch.where(x >= 0.5, x * 100.0, torch.tanh(x))  # noqa: E731
    theirs = as_numpy(function(torch.from_numpy(STEPS)))
    part = STEPS > 0.5 if where == "beside the step" else STEPS < 0.5
    ours = np.where(part, theirs * np.float32(1.0005), theirs)
    (judged,) = beside_import([theirs], [ours], function, STEPS)
    assert judged.verdict == "differs" and part[judged.distance.index]
    on = np.where(STEPS == 0.5, np.tanh(STEPS), theirs)  # the other side of the step
    assert judge(theirs, on, _stepping(function)).verdict == "within"


def _stepping(function) -> Evidence:
    """An ulp of the operands gives either side of a step."""

    def at(x):
        return as_numpy(function(torch.from_numpy(x.astype(np.float64))))

    wide = STEPS.astype(np.float64)
    return Evidence(
        lambda: at(wide),
        lambda seed, zeros=True: at(alone.moved(seed)(STEPS)),
        stepped=lambda up: at(alone.stepped(up)(STEPS)),
    )


def test_levels_of_a_rounding_excuse_no_other_level():
    function = lambda x: torch.round(x * 128) / 128  # noqa: E731
    x = STEPS.copy()
    x[0, :8] = (np.arange(8) + 0.5) / 128  # ties
    theirs = as_numpy(function(torch.from_numpy(x)))
    (judged,) = beside_import([theirs], [np.floor(x * 128) / np.float32(128)], function, x)
    assert judged.verdict == "differs"


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.0])
def test_the_largest_number_is_no_excuse_for_another(bad):
    lowest = np.finfo(np.float32).min
    theirs = np.array([lowest, 0.5], np.float32)
    ours = np.array([bad, 0.5], np.float32)
    assert judge(theirs, ours, _staying(theirs.astype(np.float64))).verdict == "differs"
    if bad is np.nan:
        swapped = judge(ours, theirs, _staying(theirs.astype(np.float64)))
        assert swapped.verdict == "differs"
    overflow = np.array([-np.inf, 0.5], np.float32)
    assert judge(theirs, overflow, _staying(theirs.astype(np.float64))).verdict == "within"


def test_positions_of_equals_are_right_where_every_node_is_and_the_program_is_the_import():
    x = np.random.default_rng(0).integers(0, 4, (4, 40))
    function = lambda x: torch.topk(x, 5, dim=1)  # noqa: E731
    theirs = [as_numpy(a) for a in function(torch.from_numpy(x))]
    from core_compiler.frontends.pytorch import import_module

    module = import_module(Made(function).eval(), (torch.from_numpy(x),)).module
    whole = Whole(module, [x])
    ours = [whole.own(place) for place in range(2)]
    assert not np.array_equal(ours[1], theirs[1])
    assert [j.verdict for j in beside_import(theirs, ours, function, x, True)] == [
        "equal",
        "within",
    ]
    wrong = [ours[0], np.roll(ours[1], 1, 1)]
    assert beside_import(theirs, wrong, function, x, True)[1].verdict == "differs"


def test_random_numbers_are_those_of_the_import_or_nothing_is_said():
    function = lambda x: x + torch.rand_like(x)  # noqa: E731
    from core_compiler.frontends.pytorch import import_module

    found = import_module(Made(function).eval(), (torch.from_numpy(X),))
    inputs = [X, *found.state]
    own = [Whole(found.module, inputs).own(0)]
    other = [a + 1 for a in own]
    for ours, kept in ((own, True), (other, False)):
        (judged,) = judge_results(found.module, inputs, ours, other, list)
        assert (judged.verdict, judged.kept) == ("not_compared", kept)


# -- small ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("off", "verdict"), [(1e-3, "within"), (0.3, "not_compared")])
def test_where_rounding_may_make_anything_nothing_is_compared(off, verdict):
    true = np.linspace(0.5, 1.0, 8)
    ours, theirs = ((true * (1 + e)).astype(np.float32) for e in (off, -off))
    evidence = Evidence(lambda: true, lambda seed, zeros=True: true * (1 + off * (-1) ** seed))
    found = judge(theirs, ours, evidence)
    assert found.verdict == verdict and ("ill-conditioned" in found.note) == (off > 0.1)
    wrong = judge(theirs, (true * (1 + 40 * off)).astype(np.float32), evidence)
    assert wrong.verdict == "differs"


def test_a_value_without_f64_is_held_to_the_spread_of_the_framework():
    def nothing():
        return None

    one = np.ones(3, np.float32)
    far, beside = one + np.float32(1e-5), one + np.float32(2e-6)
    alone = Evidence(nothing, lambda seed, zeros=True: one)
    assert judge(one, far, alone).verdict == "differs"
    spread = Evidence(nothing, lambda seed, zeros=True: one, others=lambda: [beside])
    assert judge(one, far, spread).verdict == "within"


def test_tolerance_and_order_of_verdicts():
    one = np.ones(3, np.float32)
    assert by_tolerance(one, one, 0).verdict == "equal"
    assert by_tolerance(one, one * np.float32(1.01), 0.1).verdict == "within"
    assert by_tolerance(one, one * np.float32(1.01), 0.001).verdict == "differs"
    assert worst(["equal", "within", "not_compared"]) == "within"
    assert worst(["equal", "differs"]) == "differs"
    assert worst([]) == worst(["not_compared"]) == "not_compared"


def test_ties_are_positions_of_equal_elements_only():
    values = np.float32([[3, 3, 1]])
    from core_compiler.ir import Op, Value, tensor

    x = Value(tensor((1, 3), "f32"), "x")
    op = Op("core.argmax", (x,), (Value(tensor((1,), "i64"), "k"),), {"axis": 1})
    assert equal_elements.are_ties([op], values, np.int64([0]), np.int64([1]))
    assert not equal_elements.are_ties([op], values, np.int64([0]), np.int64([2]))


def test_ties_are_looked_for_in_the_row_that_a_position_comes_from():
    """Both positions of the first row, in a form that could be one of each row."""
    from core_compiler.ir import Op, Value, tensor

    x, found, part, flat = (
        Value(tensor(shape, dtype), name)
        for shape, dtype, name in (
            ((2, 2), "f32", "x"),
            ((2, 2), "i64", "found"),
            ((1, 2), "i64", "part"),
            ((2,), "i64", "flat"),
        )
    )
    sort = Op("core.argsort", (x,), (found,), {"axis": 1, "descending": False})
    cut = Op(
        "core.slice", (found,), (part,), {"starts": (0, 0), "limits": (1, 2), "strides": (1, 1)}
    )
    chain = [sort, cut, Op("core.reshape", (part,), (flat,), {"shape": (2,)})]
    makers = {found: sort, part: cut, flat: chain[-1]}
    assert equal_elements.finder(flat, makers.get) == chain
    equal, other = np.float32([[5, 5], [1, 2]]), np.float32([[1, 2], [5, 5]])
    ours, theirs = np.int64([0, 1]), np.int64([1, 0])
    assert equal_elements.are_ties(chain, equal, ours, theirs)
    assert not equal_elements.are_ties(chain, other, ours, theirs)
    assert not equal_elements.are_ties(chain, equal, ours, np.int64([1, 1]))


def test_elements_that_are_integers_are_no_positions():
    """The first result of topk: of integers too it has to be right."""
    from core_compiler.ir import Op, Value, tensor

    x, values, places = (Value(tensor((4,), "i64"), name) for name in ("x", "values", "places"))
    op = Op("core.topk", (x,), (values, places), {"axis": 0, "k": 4, "largest": True})
    makers = {values: op, places: op}
    assert equal_elements.finder(places, makers.get) == [op]
    assert equal_elements.finder(values, makers.get) == []


def onnx_compared(proto, *arrays):
    from core_compiler.frontends.onnx import import_proto

    given = dict(zip((i.name for i in proto.graph.input), arrays, strict=True))
    found = import_proto(proto, inputs=given)
    return compare(found.module, [given[n] for n in found.inputs], found.nodes, len(found.inputs))


def test_constants_that_onnxruntime_keeps_in_f32_are_no_other_algebra():
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    from tests.frontends.onnx_models import one_node

    x = np.random.default_rng(0).standard_normal((1, 10, 10, 2)).astype(np.float32)
    found = onnx_compared(one_node("DFT", {"x": x}, "y", opset=19, inverse=1, axis=1), x)
    assert found.verdict == "within", found.beyond


def test_floats_that_numpy_has_not_are_no_bytes():
    pytest.importorskip("onnxruntime", reason="onnxruntime runs the graph")
    from onnx import TensorProto, helper

    from tests.frontends.onnx_models import one_node

    x = np.array([0.3, -1.7, 500.0, np.nan], np.float32)
    for kind in (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2, TensorProto.BFLOAT16):
        proto = one_node("Cast", {"x": x}, "y", opset=19, types={"y": kind}, to=kind)
        assert onnx_compared(proto, x).verdict == "equal"
        narrow = x.astype(helper.tensor_dtype_to_np_dtype(kind))
        back = one_node("Cast", {"x": narrow}, "y", opset=19, to=TensorProto.FLOAT)
        found = onnx_compared(back, narrow)
        assert (found.verdict, found.left_out) == ("equal", 0)


# -- jumps -----------------------------------------------------------------------------------------


def judged_beside(theirs, ours, around, other=None):
    """The verdict on values in f64 that an ulp of the operands up makes ``around``, and one down
    ``other`` (the same, if not given)."""
    theirs, ours, up = (np.array(a, np.float64) for a in (theirs, ours, around))
    down = up if other is None else np.array(other, np.float64)
    sides = {1: up, -1: down}
    return judge(
        theirs,
        ours,
        Evidence(
            lambda: ours,
            lambda seed, zeros=True: sides[1 if seed % 2 else -1],
            stepped=sides.__getitem__,
        ),
    )


def test_a_jump_excuses_itself_and_no_other_element():
    nan = float("nan")
    alike = judged_beside([5.0, 3.0], [5.0, 4.0], [5.0, 3.0], [5.0, 4.0])
    assert alike.verdict == "within"  # a step between 3 and 4
    beside = judged_beside([5.0, 3.0], [5.1, 3.0], [5.1, 9.0], [5.1, nan])
    assert (beside.verdict, beside.distance.index) == ("differs", (0,))
    both = judged_beside([5.0, 3.0], [5.0, 9.0], [5.0, 3.0], [5.0, 9.0])
    assert both.verdict == "within"


def test_a_wrong_number_where_ours_is_the_framework_s_to_either_side_differs():
    found = judged_beside([1.0, 4.0], [2.0, 4.0], [1.0, float("nan")])
    assert (found.verdict, found.distance.index) == ("differs", (0,))
    assert (found.distance.want, found.distance.got) == (1.0, 2.0)
    assert "to either side" in found.note


def test_a_wrong_special_case_of_a_power_is_seen_beside_those_that_are_no_numbers(monkeypatch):
    """-1.7 to the 2 is a number, and an ulp beside 2 none."""
    from core_compiler.frontends.pytorch.aten import table

    x = np.array([[1.0, -1.7, 2.0]])
    power = torch.tensor([[0.0], [2.0], [1.3], [-2.0]], dtype=torch.float64)
    assert compared(lambda x: torch.pow(x, power), x=x).verdict in ("within", "equal")
    right = table.TABLE["pow"]

    def wrong(b, x, y):
        made = right(b, x, y)
        wide = b.expand(x, made.type.shape)
        return b.select(b.eq(wide, b.scalar_like(1, wide)), b.scalar_like(2, made), made)

    monkeypatch.setitem(table.TABLE, "pow", wrong)
    found = compared(lambda x: torch.pow(x, power), x=x)
    assert found.verdict == "differs" and found.beyond is not None
    assert found.beyond.judgement.distance.index == (0, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_infinity_of_ours_in_f64_too_excuses_nothing(dtype):
    """A reference that leaves terms out: the logarithm of 0, where the framework has a number."""
    theirs, ours = np.array([0.03, 1.0], dtype), np.array([-np.inf, 1.0], dtype)
    truth = ours.astype(np.float64)
    assert judge(theirs, ours, _staying(truth)).verdict == "differs"
    # Where an ulp of the operands makes it finite, rounding decides.
    pole = Evidence(
        lambda: truth, lambda seed, zeros=True: np.array([-16.0, 1.0]) if seed % 2 else truth
    )
    assert judge(theirs, ours, pole).verdict == "within"
    # What overflows in one of the two is rounding as well.
    top = float(np.finfo(dtype).max)
    large, infinite = np.array([top, 1.0], dtype), np.array([np.inf, 1.0], dtype)
    for over in (np.array([there, 1.0]) for there in (top, np.inf)):
        assert judge(large, infinite, _staying(over)).verdict == "within"


def test_no_number_where_the_framework_has_one_in_f64_too_is_no_pole(monkeypatch):
    """0 / 0 in the middle of a curve: an ulp of the operands makes a number, and it is wrong."""
    from core_compiler.frontends.pytorch.aten import table

    x = np.array([0.5, 0.0, -1.25, 1.0])
    assert compared(torch.sinc, x=x).verdict in ("within", "equal")
    monkeypatch.setitem(table.TABLE, "sinc", lambda b, x: b.div(b.sin(x), x))
    found = compared(lambda x: torch.sinc(x[1:2]), x=x)
    assert found.verdict == "differs" and found.beyond is not None
    assert "NaN" in found.beyond.judgement.note
    ours, theirs = np.array([np.nan, 2.0]), np.array([1.0, 2.0])
    beside = {up: np.array([1.0, 2.0]) for up in (1, -1)}
    for below, verdict in ((1.0, "differs"), (-1.0, "within")):
        sides = {**beside, -1: np.array([below, 2.0])}
        found = Evidence(
            lambda: ours, lambda seed, zeros=True: beside[1], stepped=sides.__getitem__
        )
        assert judge(theirs, ours, found).verdict == verdict


def _staying(truth: np.ndarray) -> Evidence:
    """An ulp of the operands changes nothing."""
    return Evidence(lambda: truth, lambda seed, zeros=True: truth)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_defaults_that_depend_on_the_dtype_stay_what_they_are_in_f64(dtype):
    """RMSNorm's epsilon, left out, is that of its operand's dtype."""
    x = (np.random.default_rng(3).standard_normal((3, 10)) / 100).astype(np.float32)
    found = compared(lambda x: torch.nn.functional.rms_norm(x, (10,)), x=x, dtype=dtype)
    assert found.verdict == "within"
