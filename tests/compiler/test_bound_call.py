"""Calls of a compiled model on the same arrays, again and again: ``c.bind(x)``."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import core_compiler as cc
from core_compiler.support.errors import UserError
from tests.compiler import test_other_sizes
from tests.compiler.test_other_sizes import Rows, drawn, seeded
from tests.cuda.simulated_target import SimulatedCUDA
from tests.passes.loops import CASES, given_arrays
from tests.passes.programs import program

torch = pytest.importorskip("torch")
nn = torch.nn

FLOATS = st.floats(-8, 8, width=32)


@pytest.fixture(scope="module")
def rows():
    return cc.compile(test_other_sizes.rows())


@pytest.fixture(scope="module")
def shifted():
    """(x + y, x * y), for any rows of 3."""
    return cc.compile(lambda_module(lambda x, y: (x + y, x * y)), (drawn(2, 3), drawn(2, 3)))


def lambda_module(function) -> nn.Module:
    class Function(nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    return Function()


def bits(results) -> list[bytes]:
    return [np.asarray(r).tobytes() for r in results]


@given(contents=arrays(np.float32, (3, 2, 2, 3), elements=FLOATS))
def test_it_computes_the_present_contents_of_its_inputs(shifted, contents):
    x, y = np.zeros((2, 2, 3), np.float32)
    bound = shifted.bind(x, y)
    for x[...], y[...] in contents:
        assert bits(bound()) == bits((x + y, x * y)) == bits(shifted(x, y))


def test_the_results_are_in_the_same_arrays_each_time(shifted):
    x, y = drawn(2, 3), drawn(2, 3)
    bound = shifted.bind(x, y)
    assert [a.any() for a in bound.outputs] == [False, False]
    first = bound()
    kept = [a.copy() for a in first]
    assert first is bound.outputs
    x[...] = 0
    assert all(a is b for a, b in zip(bound(), first, strict=True))
    assert np.array_equal(first[0], y) and not np.array_equal(kept[0], y)


def test_two_bound_calls_and_a_call_share_no_results(shifted):
    ones, twos, y = np.ones((2, 3), np.float32), np.full((2, 3), 2, np.float32), drawn(2, 3)
    one, two = shifted.bind(ones, y), shifted.bind(twos, y)
    (first, _), (second, _), (third, _) = one(), two(), shifted(y, y)
    assert np.array_equal(first, 1 + y) and np.array_equal(second, 2 + y)
    assert np.array_equal(third, y + y)
    chained = shifted.bind(one.outputs[0], y)  # the results of one are the input of another
    assert np.array_equal(chained()[0], 1 + y + y)


def test_tensors_are_read_in_place(shifted):
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    bound = shifted.bind(x, y)
    x.fill_(3)
    assert np.array_equal(bound()[0], (x + y).numpy())


@pytest.mark.parametrize(
    "x",
    [
        [[np.float32(1)] * 3] * 2,
        drawn(3, 2).T,
        drawn(2, 6)[:, ::2],
        torch.randn(3, 2).T,
    ],
    ids=["list", "transposed", "strided", "transposed tensor"],
)
def test_what_would_have_to_be_copied_is_refused(shifted, x):
    with pytest.raises(UserError, match=r"input .* in place: expected a row-major"):
        shifted.bind(x, drawn(2, 3))


def test_arguments_are_checked_when_they_are_bound(shifted):
    with pytest.raises(UserError, match="expected 2 inputs"):
        shifted.bind(drawn(2, 3))
    with pytest.raises(UserError, match="float64"):
        shifted.bind(drawn(2, 3), drawn(2, 3).astype(np.float64))


def test_other_sizes_are_bound_to_a_program_for_them(rows):
    bounds = {batch: rows.bind(drawn(batch, 24)) for batch in (4, 5, 6, 7, 9)}
    for batch, bound in bounds.items():  # 7 and 9 are of a family, whose programs share memory
        assert bits(bound()) == bits(rows(drawn(batch, 24)))
        assert bound.outputs[0].shape == (batch, 7)
    with torch.no_grad():
        expected = seeded(Rows())(torch.from_numpy(drawn(9, 24))).numpy()
    assert np.abs(bounds[9]()[0] - expected).max() < 1e-6
    assert {each.how for each in rows.other_sizes.rebinds} == {"compiled", "family"}


def test_the_state_goes_on_between_bound_calls_and_calls():
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total += x.sum(0)
            return x + self.total

    made, total = cc.compile(Counted(), (drawn(2, 3),)), np.zeros(3, np.float32)
    x = np.ones((2, 3), np.float32)
    bound = made.bind(x)
    for number, call in enumerate((bound, bound, lambda: made(x), bound, lambda: made(x), bound)):
        x[...] = number
        total = total + x.sum(0)
        assert np.array_equal(call()[0], x + total)
    assert len(bound.outputs) == 1 and np.array_equal(made.state[0], total)


def test_random_numbers_are_those_of_a_call():
    made = cc.compile(lambda_module(lambda x: x + torch.rand_like(x)), (drawn(4, 5),))
    x = drawn(4, 5)
    bound = made.bind(x)
    assert bits(bound()) == bits(made(x)) == bits(bound())


def test_an_input_that_the_model_writes_is_updated_in_place():
    made = cc.compile(lambda_module(lambda x: x.add_(1).sum()), (np.zeros(3, np.float32),))
    x = np.zeros(3, np.float32)
    bound = made.bind(x)
    assert [float(bound()[0]) for _ in range(3)] == [3, 6, 9]
    assert x.tolist() == [3, 3, 3]


def test_positions_are_checked_in_each_call():
    table = nn.Embedding(5, 3)
    made = cc.compile(table, (torch.zeros(2, dtype=torch.int64),))
    ids = np.array([0, 4])
    bound = made.bind(ids)
    wanted = table.weight.detach().numpy()
    assert np.array_equal(bound()[0], wanted[[0, 4]])
    ids[1] = 5
    with pytest.raises(UserError, match="5"):
        bound()
    ids[1] = 2
    assert np.array_equal(bound()[0], wanted[[0, 2]])


def test_results_of_a_size_that_depends_on_the_data():
    made = cc.compile(lambda_module(lambda x: torch.nonzero(x > 0)), (drawn(8),))
    x = np.zeros(8, np.float32)
    bound = made.bind(x)
    for places in ([], [3], [0, 7], [1, 2, 5, 6]):
        x[...] = 0
        x[places] = 1
        assert bound()[0].tolist() == [[p] for p in places]
        assert bound.outputs[0].shape == (len(places), 1)


@pytest.mark.parametrize("name", list(CASES)[:2])
def test_loops_whose_end_depends_on_the_data(name):
    build, *types = CASES[name]
    module = program(build, *types)
    given_first = given_arrays(module, 0)
    made = cc.compile(module, given_first, threads=2)
    bound = made.bind(*given_first)
    for first in (0, 3, 9):
        for place, contents in zip(given_first, given_arrays(module, first), strict=True):
            place[...] = contents
        assert bits(bound()) == bits(made(*given_first))


def test_threads_share_a_program_not_its_results(rows):
    """Each thread's own bound call returns its own rows, while the others run."""
    inputs = [drawn(4, 24) + n for n in range(3)]
    wanted = [bits(rows(x)) for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        bound = rows.bind(inputs[number])
        wrong.extend(number for _ in range(200) if bits(bound()) != wanted[number])

    workers = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_checked_and_stepped_compiles():
    module, x = program(lambda b, x: b.relu(x), "4x5xf32"), drawn(4, 5)
    checked = cc.compile(module, (x,), check=True)
    stepped = cc.compile(module, (x,), finish=False)
    stepped.step()
    for made in (checked, stepped):  # binding runs the passes that are left
        assert np.array_equal(made.bind(x)()[0], np.maximum(x, 0))
    assert stepped.next is None


def test_on_a_gpu_contents_are_copied_in_each_call():
    module, x = program(lambda b, x: b.add(x, x), "4x5xf32"), drawn(4, 5)
    made = cc.compile(module, (x,), target=SimulatedCUDA())
    bound = made.bind(x)
    first = bound()
    assert np.array_equal(first[0], 2 * x)
    x[...] = 1
    assert bound() is first and np.array_equal(first[0], np.full((4, 5), 2))


def test_where_this_machine_cannot_execute_it_says_so():
    module = program(lambda b, x: b.neg(x), "4xf32")
    made = cc.compile(module, target="cuda", options={"architecture": "sm_90"})
    if made.not_executed is None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError, match="choose -t cpu"):
        made.bind(drawn(4))


@pytest.mark.slow
def test_the_arguments_of_a_jax_function():
    jax = pytest.importorskip("jax", reason="needs jax")
    weights, x = {"w": jax.numpy.eye(3)}, jax.numpy.ones((2, 3))
    made = cc.compile(lambda p, x: x @ p["w"] + 1, (weights, x))
    assert np.array_equal(made.bind(weights, x)()[0], np.full((2, 3), 2))
    with pytest.raises(UserError, match="input 1: cannot be read in place"):
        made.bind(weights, np.ones((2, 6), np.float32)[:, ::2])
