"""Receipts, verifying them, and the first difference of two runs, on differences that are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import core_compiler as cc
from core_compiler.numerics.reference.difference import ulps
from core_compiler.numerics.reference.digest import LANES, MULTIPLIER, canonical_bytes, digest, leaf
from core_compiler.numerics.reference.dtypes import DTYPES
from core_compiler.support.errors import UserError
from core_compiler.training.audit import receipts
from core_compiler.training.audit.diverge import diverge
from core_compiler.training.audit.inject import Injection
from core_compiler.training.audit.receipts import Book, first_difference
from core_compiler.training.audit.replay import Run, mismatch
from core_compiler.training.config import Training
from core_compiler.training.fit import fit
from core_compiler.training.run.plan import Plan
from tests.training.test_step import Pictures, _made, _pictures

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

ITERATIONS, BATCH = 6, 4


def _data():
    parts = [_pictures(i) for i in range(4)]
    return tuple(np.concatenate([np.asarray(p[i]) for p in parts]) for i in (0, 1))


class Lab:
    """One compiled step, and runs of it in folders."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.data = _data()
        batch = tuple(a[:BATCH] for a in self.data)
        self.step = cc.compile(
            _made(Pictures), batch, training=Training(optimizer="adamw", shards=2)
        )
        self.first = self.step.whole_state()
        self.plain = self.run("plain")
        self.detailed = self.run("plain with all values", ops_every=1)

    def run(self, name: str, **how) -> Run:
        folder = self.folder / name
        self.step.load_state_dict(self.first)
        inject = how.pop("inject", None)
        how = {"receipts": "state", **how}
        fit(
            self.step,
            self.data,
            iterations=ITERATIONS,
            batch=BATCH,
            seed=3,
            folder=folder,
            every=2,
            inject=inject,
            **how,
        )
        plan = Plan(
            ITERATIONS, BATCH, 3, folder, 2, inject=Injection.of(inject) if inject else None
        )
        return Run(folder, plan, lambda edit: (self._reset(), self.data))

    def _reset(self):
        self.step.load_state_dict(self.first)
        return self.step


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Lab:
    return Lab(tmp_path_factory.mktemp("runs"))


#: What is injected: forward, statistics over shards, backward, the sum of gradients over shards,
#: the optimiser's slots and parameters.
INJECTED = (
    ("core.add#1", 3),
    ("core.all_reduce#1", 2),
    ("core.conv#2", 5),
    ("core.conv_weight_gradient#2", 1),
    ("core.max_pool_gradient#1", 6),
    ("core.all_reduce#-1", 2),
    ("parameter", 3),
    ("slot", 2),
)


def _op(lab: Lab, what: str) -> str:
    """An op of the step by what it is for."""
    names, probes = lab.step.names, lab.step.probes.probes
    seen = [names[p.number].op for p in probes]
    if what in ("parameter", "slot"):  # the last values that the optimiser writes
        written = [p for p in probes if p.ref.space == "output" and len(p.shape) == 4]
        return names[written[0 if what == "parameter" else -1].number].op
    kind, _, number = what.partition("#")
    of_kind = [op for op in seen if op.startswith(f"{kind}#")]
    return of_kind[-1] if number == "-1" else what


def first_state(a: Run, b: Run) -> int | None:
    """The first iteration after which the states of two runs differ."""
    held = a.book.receipts, b.book.receipts
    return next((i for i in held[0] if held[0][i].state != held[1][i].state), None)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("what", "iteration"), INJECTED)
def test_an_injected_rounding_is_found(lab: Lab, what, iteration):
    op = _op(lab, what)
    other = lab.run(f"{op}-{iteration}", inject=f"{op}:{iteration}", ops_every=1)
    found = diverge(lab.detailed, other)
    assert found is not None
    assert (found.op, found.iteration, found.ulps, found.count) == (op, iteration, 1, 1)
    assert found.numbers[0] != found.numbers[1]
    assert found.history
    assert found.lasting == (first_state(lab.detailed, other) is not None)
    if found.lasting and first_state(lab.detailed, other) == iteration:  # the state says it too
        by_state = diverge(lab.plain, other)
        assert by_state is not None
        assert (by_state.op, by_state.iteration) == (op, iteration)
    again = diverge(other, lab.detailed)
    assert again is not None
    assert again.numbers == found.numbers[::-1]


def test_one_whose_effect_vanishes_is_no_lasting_difference(lab: Lab):
    """A rounding of a gradient that is lost again as it is added up with others: receipts of all
    values show it, the state does not keep it."""
    for element in range(4):
        other = lab.run(
            f"vanishing-{element}", inject=f"core.max_pool_gradient#1:4:{element}", ops_every=1
        )
        found = diverge(lab.detailed, other)
        if found is not None and not found.lasting:
            assert (found.op, found.iteration, found.ulps) == ("core.max_pool_gradient#1", 4, 1)
            assert diverge(lab.plain, other) is None  # receipts of the state alone say nothing
            return
    pytest.fail("every element's rounding lasts")


@pytest.mark.parametrize(("ops_every", "kind"), [(1, "value"), (0, "state")])
def test_a_fault_that_does_not_come_again_is_said(lab: Lab, ops_every, kind):
    """A bit that memory lost: receipts have it, the same iteration done again has not."""
    op = _op(lab, "core.conv#2")
    struck = lab.run(f"struck {ops_every}", inject=f"{op}:3", ops_every=ops_every)
    struck = Run(struck.folder, lab.plain.plan, struck.build)
    sound = lab.detailed if ops_every else lab.plain
    for runs, place in (((sound, struck), 1), ((struck, sound), 0)):
        found = diverge(*runs)
        assert found is not None and found.lasting
        assert (found.iteration, found.count, found.missing) == (3, 0, ("", ""))
        assert found.op == (op if ops_every else "")
        assert found.passing[place].startswith(f"{kind} ")
        assert found.passing[1 - place] == ""


@pytest.mark.slow
def test_receipts_of_gradients_have_one_of_every_parameter(tmp_path):
    """Also where kernels that make a gradient could use it up themselves: of one shard."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((8, 5)).astype(np.float32), rng.integers(0, 3, 8)
    batch = tuple(a[:BATCH] for a in data)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 3))
    fused, kept = (
        cc.compile(model, batch, training=Training(keep_gradients=keep)) for keep in (False, True)
    )
    with pytest.raises(UserError, match="keep_gradients"):
        fit(fused, data, iterations=1, batch=BATCH, folder=tmp_path / "a", receipts="gradients")
    fit(kept, data, iterations=2, batch=BATCH, folder=tmp_path / "b", receipts="gradients")
    parameters = {name for role, name, _ in kept.roles.arguments if role == "parameter"}
    receipt = Book.read(tmp_path / "b" / receipts.FILE).receipts[2]
    assert receipt.gradients.keys() == parameters
    hashed = receipts.leaf_hash("fast")
    assert receipt.gradients == {name: hashed(a) for name, a in kept.gradients.items()}


@pytest.mark.slow
def test_a_gradient_that_no_launch_writes_as_it_is_has_a_receipt_too(tmp_path):
    """Of a batch norm's parameters: a reduction's result, of which another shape is given back."""
    rng = np.random.default_rng(0)
    data = rng.standard_normal((8, 1, 6, 6)).astype(np.float32), rng.integers(0, 3, 8)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, bias=False),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(64, 3),
    )
    step = cc.compile(model, tuple(a[:BATCH] for a in data), training=Training(keep_gradients=True))
    fit(step, data, iterations=3, batch=BATCH, folder=tmp_path, receipts="gradients", ops_every=2)
    book, hashed = Book.read(tmp_path / receipts.FILE), receipts.leaf_hash("fast")
    assert book.receipts[3].gradients == {name: hashed(a) for name, a in step.gradients.items()}
    assert book.receipts[2].gradients.keys() == book.receipts[3].gradients.keys()


def test_leaves_for_audits_are_sha256(lab: Lab):
    run = lab.run("audited", receipts="gradients", ops_every=3, leaves="sha256")
    receipt = run.book.receipts[6]
    assert receipt.state["last.bias"] == digest([lab.step.state_dict()["last.bias"]])
    assert {len(leaf) for leaf in (*receipt.gradients.values(), *receipt.ops.values())} == {64}
    assert mismatch(receipt, run.receipt(6)) is None
    other = lab.run("audited too", ops_every=3, leaves="sha256", inject="core.conv#2:3")
    found = diverge(run, other)
    assert found is not None
    assert (found.op, found.iteration) == ("core.conv#2", 3)
    with pytest.raises(UserError, match="sha256"):
        diverge(lab.plain, other)
    with pytest.raises(UserError, match="choose fast, sha256"):
        lab.run("wrong", leaves="md5")


def test_runs_without_a_difference_have_none(lab: Lab):
    assert diverge(lab.plain, lab.run("again")) is None


def test_receipts_of_unequal_detail_are_compared_in_what_they_share(lab: Lab):
    other = lab.run("detailed", receipts="gradients", ops_every=2, inject="core.conv#2:3")
    found = diverge(lab.plain, other)
    assert found is not None
    assert (found.op, found.iteration) == ("core.conv#2", 3)


def test_a_run_is_verified_and_a_false_receipt_is_named(lab: Lab):
    run = lab.run("detailed to verify", receipts="gradients", ops_every=3)
    for iteration in (1, 3, 6):
        wanted = run.book.receipts[iteration]
        assert mismatch(wanted, run.receipt(iteration)) is None
    other = lab.run("false", receipts="gradients", ops_every=3, inject="core.conv#2:3")
    honest = Run(other.folder, run.plan, run.build)  # a plan that injects nothing
    told = mismatch(honest.book.receipts[3], honest.receipt(3))
    assert told is not None
    number = int(told.rpartition("/")[2])
    assert lab.step.names[number].op == "core.conv#2"
    run.plan = other.plan  # what it says of its configuration is not what it did
    assert mismatch(run.book.receipts[3], run.receipt(3)) is not None


def test_a_resumed_run_goes_on_with_its_receipts(lab: Lab, tmp_path):
    step = lab._reset()
    how = {"batch": BATCH, "seed": 3, "folder": tmp_path, "every": 2, "receipts": "state"}
    fit(step, lab.data, iterations=5, **how)
    (tmp_path / "iteration-00000005.safetensors").unlink()  # as if killed after iteration 5
    with open(tmp_path / receipts.FILE, "a") as out:
        out.write('{"iteration": 6, "lo')  # in the middle of a line
    fit(lab._reset(), lab.data, iterations=ITERATIONS, resume=True, **how)
    found = Book.read(tmp_path / receipts.FILE)
    assert [r.root for r in found.receipts.values()] == [
        r.root for r in lab.plain.book.receipts.values()
    ]


def test_a_changed_receipt_is_named(lab: Lab, tmp_path):
    lines = (lab.plain.folder / receipts.FILE).read_text().splitlines()
    row = json.loads(lines[2])
    row["loss"] = (1.25).hex()
    path = tmp_path / receipts.FILE
    path.write_text("\n".join([*lines[:2], json.dumps(row), *lines[3:]]) + "\n")
    with pytest.raises(UserError, match="the root of iteration 2 does not match its receipt"):
        Book.read(path)
    with pytest.raises(UserError, match="no receipts found"):
        Book.read(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("core.conv#9:1", "unknown op core.conv#9"),
        ("core.erf#1:2", "its result is not written to memory"),
        ("core.relu#1:2", "its kernel uses the result before"),
        ("core.conv", "cannot parse 'core.conv' as an op"),
        ("core.conv:0", "expected an iteration of 1 or more, got 0"),
    ],
)
def test_what_cannot_be_injected(lab: Lab, text, said):
    with pytest.raises(UserError, match=said):
        lab.run("refused", inject=text)


@pytest.mark.slow
def test_what_its_own_kernel_goes_on_with_cannot_be_injected(tmp_path):
    """The update is in the kernel that makes the gradient: it would not see the change."""
    data = _data()
    batch = tuple(a[:BATCH] for a in data)
    step = cc.compile(_made(Pictures), batch, training=Training(keep_gradients=True))
    (seen,) = (p for p in step.probes.probes if p.number == step.probes.gradients["first.weight"])
    assert seen.inside
    op = step.names[seen.number].op
    with pytest.raises(UserError, match="its kernel uses the result before"):
        fit(step, data, iterations=1, batch=BATCH, folder=tmp_path, inject=f"{op}:1")


# -- hashes ----------------------------------------------------------------------------------------


def _leaf(raw: bytes) -> int:
    """The hash as docs/numerics.md defines it."""
    words = np.frombuffer(raw + bytes(-len(raw) % (8 * LANES)), np.uint64).reshape(-1, LANES)
    held = []
    for lane in range(LANES):
        h = (lane + 1) * MULTIPLIER % 2**64
        for word in words[:, lane].tolist():
            h = (h ^ word) * MULTIPLIER % 2**64
            h ^= h >> 32
        held.append(h)
    total = len(raw)
    for h in held:
        total = (total ^ h) * MULTIPLIER % 2**64
        total ^= total >> 29
    return total


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16", "f8e4m3fn", "i8", "i64", "bool"])
@given(data=st.binary(max_size=1500))
def test_the_hash_is_the_documents_and_sees_one_nan(name, data):
    kind = DTYPES[name]
    data = bytes(b & 1 for b in data) if name == "bool" else data
    array = np.frombuffer(data[: len(data) // kind.itemsize * kind.itemsize], kind)
    assert leaf(array) == _leaf(canonical_bytes(array))
    assert leaf(array[1:]) == _leaf(canonical_bytes(array[1:]))


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=40), st.data())
def test_the_tree_finds_the_first_difference(values, data):
    one = {f"n{i}": v for i, v in enumerate(values)}
    other = {n: data.draw(st.sampled_from("ab")) for n in one}
    wanted = next((n for n in one if one[n] != other[n]), None)
    assert first_difference(3, one, other) == wanted


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [(1.0, 1.0000001, 1), (0.0, -0.0, 0), (-1e-45, 1e-45, 2), (3.4028235e38, np.inf, 1)],
)
def test_ulps_count_representable_numbers(a, b, apart):
    assert ulps(np.float32(a), np.float32(b)) == apart
