"""What data may be: arrays, columns, datasets, iterables; the same bits, also resumed."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.support.errors import UserError
from core_compiler.training.audit.replay import Run
from core_compiler.training.config import Training
from core_compiler.training.fit import fit
from core_compiler.training.run import checkpoint
from core_compiler.training.run.data import Data
from core_compiler.training.run.rows import InputSpec
from core_compiler.training.run.stream import Stream, shuffled
from tests.examples import examples

WANTED = (InputSpec("input", np.dtype(np.float32)), InputSpec("targets", np.dtype(np.int64)))


def _arrays(count: int = 13):
    random = np.random.default_rng(3)
    return random.standard_normal((count, 4)).astype(np.float32), random.integers(0, 3, count)


class Iterable:
    """Only ``__iter__``."""

    def __init__(self, count: int = 13):
        self.count, self.read = count, 0

    def __iter__(self):
        for x, y in zip(*_arrays(self.count), strict=True):
            self.read += 1
            yield x, y


class OfTorch(torch.utils.data.IterableDataset):
    def __iter__(self):
        return zip(*map(torch.from_numpy, _arrays()), strict=True)


class OfHuggingFace:
    """The interface of ``datasets.IterableDataset``: rows are mappings of plain Python values, in
    another order in every epoch."""

    def __init__(self):
        self.epoch, self.epochs = 0, []

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.epochs.append(epoch)

    def __iter__(self):
        x, y = _arrays()
        for i in np.random.default_rng(self.epoch).permutation(len(x)):
            yield {"id": f"row {i}", "targets": int(y[i]), "input": x[i].tolist()}


class MapStyle:
    """The interface of ``datasets.Dataset``: a table's shape, rows by number."""

    shape = (13, 2)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, i):
        x, y = _arrays()
        return {"label": int(y[i]), "input": x[i].tolist()}


@pytest.mark.parametrize(
    "what",
    [
        _arrays(),
        list(map(torch.from_numpy, _arrays())),
        dict(zip(("input", "label"), _arrays(), strict=True)),
        dict(zip(("label", "input"), reversed(_arrays()), strict=True)),
        {"id": ["a"] * 13, **dict(zip(("targets", "input"), reversed(_arrays()), strict=True))},
        {"a": _arrays()[0].tolist(), "b": _arrays()[1].tolist()},
        MapStyle(),
        torch.utils.data.TensorDataset(*map(torch.from_numpy, _arrays())),
    ],
)
def test_what_lies_in_memory_is_taken_by_name_or_in_order(what):
    held = Data.of(what, WANTED)
    for found, wanted in zip(held.arrays, _arrays(), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_a_table_of_pandas_is_columns():
    pandas = pytest.importorskip("pandas")
    held = Data.of(
        pandas.DataFrame({"y": [1, 2], "x": [0.5, 1.5]}), [InputSpec("x"), InputSpec("y")]
    )
    assert [a.tolist() for a in held.arrays] == [[0.5, 1.5], [1, 2]]


@pytest.mark.parametrize("kind", [Iterable, OfTorch, OfHuggingFace])
def test_what_is_iterated_is_read_in_its_own_order_through_a_buffer(kind):
    held = Data.of(kind(), WANTED)
    assert isinstance(held, Stream)
    every, labels = _arrays()
    for epoch in range(2):
        made = [held.batch(epoch * 3 + i, 4, 1) for i in range(3)]  # one row is left out
        rows, targets = (np.concatenate(parts) for parts in zip(*made, strict=True))
        assert (rows.dtype, targets.dtype) == (np.float32, np.int64)
        places = [next(i for i, e in enumerate(every) if np.array_equal(e, r)) for r in rows]
        assert len(set(places)) == 12
        assert places != sorted(places)
        assert np.array_equal(labels[places], targets)


def test_the_epoch_is_told_to_data_that_want_it():
    source = OfHuggingFace()
    held = Data.of(source, WANTED)
    for number in range(7):
        held.batch(number, 4, 0)
    assert source.epochs == [0, 1, 2]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 40), st.integers(1, 50), st.integers(0, 2**33), st.integers(0, 3))
def test_a_buffer_gives_every_row_once_and_none_before_its_time(count, buffer, seed, epoch):
    found = list(shuffled(iter(range(count)), seed, epoch, buffer))
    assert sorted(found) == list(range(count))
    assert found == list(shuffled(iter(range(count)), seed, epoch, buffer))
    assert all(row < place + buffer for place, row in enumerate(found))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 20), st.integers(1, 6), st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_a_batch_is_the_same_whenever_it_is_asked_for(count, size, numbers):
    if count < size:
        with pytest.raises(UserError, match=r"batch size .* exceeds the"):
            Data.of(Iterable(count)).batch(0, size, 2)
        return
    through = Data.of(Iterable(count))
    wanted = [through.batch(n, size, 2) for n in range(max(numbers) + 1)]
    asked = Data.of(Iterable(count))
    sent = pickle.loads(pickle.dumps(asked))
    for number in numbers:
        for held in (asked, sent):
            for a, b in zip(held.batch(number, size, 2), wanted[number], strict=True):
                assert a.tobytes() == b.tobytes()


def test_where_the_data_stand_saves_reading_the_epochs_before():
    through, source = Data.of(Iterable()), Iterable()
    wanted = [through.batch(n, 4, 1) for n in range(9)][-1]
    assert through.position == {"epoch": 2, "first": 6, "batch": 4}
    held = Data.of(source)
    held.resume_at(through.position)
    assert held.batch(8, 4, 1)[0].tobytes() == wanted[0].tobytes()
    assert source.read == 13


@pytest.mark.parametrize(
    "place",
    [None, 3, {}, {"epoch": "x", "first": 1, "batch": 4}, {"epoch": 9, "first": 2, "batch": 4}],
)
def test_a_place_that_is_none_is_left_alone(place):
    held = Data.of(Iterable())
    held.resume_at(place)
    assert held.batch(4, 4, 1)[0].tobytes() == Data.of(Iterable()).batch(4, 4, 1)[0].tobytes()


def test_an_iterator_is_one_epoch():
    held = Data.of(iter(Iterable()))
    first = held.example(4)
    assert np.array_equal(first[0], _arrays()[0][:4])
    seen = np.concatenate([held.batch(n, 4, 1)[1] for n in range(3)])
    assert len(seen) == 12
    with pytest.raises(UserError, match=r"iteration 4 would start epoch 2.*or run 3"):
        held.batch(3, 4, 1)
    with pytest.raises(UserError, match="only once, and iteration 3 is out of reach"):
        Data.of(iter(Iterable())).check(2, 4)


class Raises:
    def __iter__(self):
        yield 1.0, 2
        raise OSError("the net is gone")


class Empty:
    """Can be read a second time, and has nothing then."""

    def __init__(self):
        self.rows = iter(Iterable())

    def __iter__(self):
        return itertools.chain(self.rows)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (None, "unsupported type NoneType; pass arrays"),
        ("data.csv", "unsupported type str; pass arrays"),
        (3, "unsupported type int"),
        ([], "the dataset is empty"),
        ({"train": MapStyle(), "test": ["a"]}, "column 'train' is no array|expected numbers"),
        ({"a": [1]}, "expected the columns input, targets, got a"),
        (iter([{"text": "a", "targets": 1}] * 2), "a row, 'text': expected numbers"),
        (iter(["ab", "cd"]), "expected a row to be a tuple or a mapping, got a str"),
        ([(1.0, 2), (1.0,)], "expected rows of one length, got 1 and 2 values"),
        (iter([(np.zeros(2), 1), (np.zeros(3), 1)]), "cannot stack the examples"),
        (Raises(), "the data raised OSError at .*test_data.py:.*the net is gone"),
        (
            torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(3))),
            "expected rows, got batches from a DataLoader; pass its .dataset",
        ),
    ],
)
def test_what_is_no_data_is_said(what, message):
    with pytest.raises(UserError, match=message):
        Data.of(what, WANTED).batch(0, 2, 0)


def test_data_that_end_after_one_epoch_are_said():
    held = Data.of(Empty())
    with pytest.raises(UserError, match=r"size 4 exceeds the 0 examples in epoch 2; .*starts over"):
        [held.batch(n, 4, 0) for n in range(4)]


# -- in a run --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def step():
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Dropout(0.2), torch.nn.Linear(6, 3))
    return cc.compile(model, tuple(a[:5] for a in _arrays()), training=Training("cross_entropy"))


@pytest.fixture
def fresh(step):
    first = step.whole_state()
    yield step
    step.load_state_dict(first)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Iterable, OfTorch, OfHuggingFace])
@pytest.mark.parametrize("stopped", [1, 4, 6])
def test_a_resumed_run_on_an_iterable_has_the_bits_of_a_whole_one(kind, stopped, fresh, tmp_path):
    first = fresh.whole_state()
    how = {"batch": 5, "seed": 7, "receipts": "state"}
    whole = fit(fresh, kind(), iterations=7, folder=tmp_path / "whole", **how)
    wanted = fresh.digest
    fresh.load_state_dict(first)
    fit(fresh, kind(), iterations=stopped, folder=tmp_path / "parts", **how)
    fresh.load_state_dict(first)
    rest = fit(fresh, kind(), iterations=7, folder=tmp_path / "parts", resume=True, **how)
    assert (rest.first, fresh.digest) == (stopped, wanted)
    assert rest.loss == whole.loss[stopped:]
    told = [(tmp_path / run / "receipts.jsonl").read_text() for run in ("whole", "parts")]
    assert told[0] == told[1]


@pytest.mark.slow
def test_an_iteration_on_an_iterable_is_done_again(fresh, tmp_path):
    from core_compiler.training.run.plan import Plan

    first = fresh.whole_state()
    fit(
        fresh, Iterable(), iterations=7, batch=5, seed=7, folder=tmp_path, every=3, receipts="state"
    )

    def opened(edit):
        fresh.load_state_dict(first)
        return fresh, Iterable()

    run = Run(tmp_path, Plan(7, 5, 7, tmp_path, 3), opened)
    for iteration in (7, 2, 5):
        assert run.receipt(iteration).state == run.book.receipts[iteration].state


def test_a_generator_is_refused_where_it_would_be_read_again(fresh, tmp_path):
    with pytest.raises(UserError, match="and iteration 3 would start epoch 2"):
        fit(fresh, iter(Iterable()), iterations=4, batch=5, folder=tmp_path, every=1)
    assert fresh.iteration == 2
    assert max(checkpoint.list_checkpoints(tmp_path)) == 2
    with pytest.raises(UserError, match="only once, and iteration 3 is out of reach"):
        fit(fresh, iter(Iterable()), iterations=4, batch=5, folder=tmp_path, resume=True)


@pytest.mark.slow
def test_workers_read_their_own_iterables(tmp_path):
    pytest.importorskip("distributed", reason="needs dask")
    digests = []
    for workers in (1, 2):
        torch.manual_seed(2)
        model = torch.nn.Linear(4, 3)
        batch = tuple(a[:4] for a in _arrays())
        step = cc.compile(model, batch, training=Training("cross_entropy", shards=2))
        fit(step, Iterable(), iterations=5, batch=4, workers=workers)
        digests.append(step.digest)
    assert digests[0] == digests[1]
    step.load_state_dict({"iteration": np.int64(0)})
    with pytest.raises(UserError, match="the data cannot be sent to workers"):
        fit(step, (row for row in Iterable()), iterations=1, batch=4, workers=2)
