"""Two recordings side by side: launches matched by what they compute, and as a person uses it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import struct
from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widgets.encode import finite
from workbench.queries import compared
from workbench.queries.kernel_table import table
from workbench.queries.pairs import Launched, pair_launches, pairs
from workbench.queries.work import Work
from workbench.state.view_state import ViewState
from workbench.views import compare

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

VIEW = "#cw-view-compare"


# -- which launches compute the same ---------------------------------------------------------------


def launch(op: int, nodes) -> Launched:
    return Launched(op, Work(op, f"kernel_{op}", 0, 0, None), frozenset(nodes), "", "")


LAUNCHES = st.lists(st.frozensets(st.sampled_from("abcdef"), max_size=3), max_size=8)


@given(LAUNCHES, LAUNCHES)
def test_every_launch_is_in_one_pair_with_all_that_shares_its_nodes(first, second):
    a = [launch(i, nodes) for i, nodes in enumerate(first)]
    b = [launch(100 + i, nodes) for i, nodes in enumerate(second)]
    found = pair_launches(a, b)
    assert sorted(e.op for p in found for e in p.first) == [e.op for e in a]
    assert sorted(e.op for p in found for e in p.second) == [e.op for e in b]
    for pair in found:
        assert pair.first or pair.second
    for nodes in set(first) & set(second) - {frozenset()}:
        apart = [
            p for p in found if {e.nodes for e in p.first} == {nodes} == {e.nodes for e in p.second}
        ]
        assert apart, "the same nodes stand beside each other"


@given(LAUNCHES)
def test_a_program_beside_itself_is_paired_launch_by_launch(program):
    a = [launch(i, nodes or {f"n{i}"}) for i, nodes in enumerate(program)]
    found = pair_launches(a, [replace(e, op=e.op) for e in a])
    assert [(p.first[0].op, p.second[0].op) for p in found] == [(e.op, e.op) for e in a]
    assert all(len(p.first) == len(p.second) == 1 for p in found)


def test_one_fused_launch_stands_beside_those_that_do_its_work():
    fused, parts = launch(0, "abc"), [launch(1, "ab"), launch(2, "c")]
    (pair,) = pair_launches([fused], parts)
    assert pair.first == (fused,) and pair.second == tuple(parts)


def test_launches_without_common_nodes_are_paired_by_work_and_order():
    """As of one model through two frontends, which name its nodes differently."""

    def program(prefix: str, *works: int) -> list[Launched]:
        nodes = [{f"{prefix}{i}", f"{prefix}{i + 1}"} for i in range(len(works))]
        return [
            replace(launch(i, nodes[i]), work=Work(i, "k", n, 4 * n, None))
            for i, n in enumerate(works)
        ]

    found = pair_launches(program("a", 5, 7, 5, 9), program("b", 5, 8, 7, 5))
    ops = [tuple(e.op for e in (*p.first, *p.second)) for p in found if p.first and p.second]
    assert ops == [(0, 0), (1, 2), (2, 3)]
    assert all(p.by_work for p in found if p.first and p.second)
    assert [p.second[0].work.flops for p in found if not p.first] == [8]
    unknown = [replace(launch(0, "a"), work=Work(0, "k", 0, 0, None))]
    assert len(pair_launches(unknown, [replace(unknown[0], nodes=frozenset("b"))])) == 2


@pytest.mark.slow
def test_a_processors_launches_stand_beside_a_gpus(both):
    cpu, cuda = both
    found = pairs(cpu, cuda)
    assert len(found) == len(cpu.timings())
    for pair in found:
        assert [e.nodes for e in pair.first] == [e.nodes for e in pair.second]


# -- the data -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_are_those_of_the_recordings(both):
    cpu, cuda = both
    data = compare.data((cpu, cuda), ViewState())
    json.dumps(finite(data), allow_nan=False)
    facts = {f["name"]: f for f in data["facts"]}
    assert facts["identity"]["equal"], "the bits do not depend on the target"
    assert not facts["target"]["equal"] and facts["output digest"]["b"] == ""
    figures = {f["name"]: f for f in data["figures"]}
    assert figures["time per execution"]["a"] == float(cpu.figures("timing")["total_ms"])
    assert figures["time per execution"]["b"] is None
    assert figures["peak memory"]["b"] == cuda.figures("memory")["arena_bytes"]
    for side, run in (("a", cpu), ("b", cuda)):
        times = {r["name"]: r["total_us"] or r["predicted_us"] for r in table(run) if r["count"]}
        for rows in (data["kernels"], data["launches"]):
            assert sum(r[side]["us"] for r in rows) == pytest.approx(sum(times.values()))
        names = [p["name"] for p in data["passes"] if p[side]]
        assert names == [s.pass_name for s in run.stages()]
    assert all(r["a"]["measured"] and not r["b"]["measured"] for r in data["kernels"])
    assert all(r["b"]["registers"] and r["a"]["registers"] is None for r in data["kernels"])


@pytest.mark.slow
def test_passes_of_one_recording_only_stand_in_their_place(both, tmp_path):
    """Another pipeline: the model again without a pass."""
    cpu, _ = both
    rows = compared.passes(cpu, cpu)
    assert all(r["a"] == r["b"] for r in rows)

    class Shorter:
        @staticmethod
        def stages():
            return [s for s in cpu.stages() if s.pass_name != "fuse_elementwise"]

    names = [s.pass_name for s in cpu.stages()]
    for pair, missing in (
        (compared.passes(cpu, Shorter), "b"),
        (compared.passes(Shorter, cpu), "a"),
    ):
        assert [r["name"] for r in pair] == names
        assert [r["name"] for r in pair if r[missing] is None] == ["fuse_elementwise"]


def test_a_recording_beside_itself_differs_in_nothing(both):
    cpu, _ = both
    data = compare.data((cpu, cpu), ViewState())
    assert all(f["equal"] for f in data["facts"])
    assert all(f["a"] == f["b"] for f in data["figures"])
    assert all(r["a"] == r["b"] for r in data["kernels"] + data["launches"] + data["passes"])


# -- in a browser ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.playwright
def test_a_processor_beside_a_gpu_in_two_clicks(library, tab, both):
    """From the first page: one recording, then the other; then swapped, and cleared."""
    page = tab(library.url)
    for name in ("cpu.run", "cuda.run"):
        page.locate(f'#cw-start button[aria-label="Compare {name}"]').click()
    page.wait(f'{VIEW} [data-table="kernels"] tbody tr')
    page.wait_query("run", "cpu.run")
    page.wait_query("other", "cuda.run")
    rows = page.locate(f'{VIEW} [data-table="kernels"] tbody tr')
    assert rows.count() == len(compare.data((both[0], both[1]), ViewState())["kernels"])
    assert "≈" in rows.first.inner_text(), "the GPU's time is a prediction"
    assert rows.first.inner_text().count("≈") == 2, "so is how much faster it is"
    kernel = rows.first.get_attribute("data-kernel")
    rows.first.click()
    page.wait_query("kernel", kernel)
    page.wait(f'{VIEW} tr.on[data-kernel="{kernel}"]')
    page.locate(f'{VIEW} [data-do="swap"]').click()
    page.wait_query("run", "cuda.run")
    page.wait_query("other", "cpu.run")
    page.wait(f'{VIEW} .bar b:text-is("cuda.run")')
    page.locate(f'{VIEW} [data-do="clear"]').click()
    page.wait_query("other", None)
    page.locate(f'{VIEW} tr[data-name="cpu.run"]').click()
    page.wait_query("other", "cpu.run")
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
def test_tables_sort_by_the_size_of_the_difference(library, tab, both):
    page = tab(f"{library.url}?run=cpu.run&other=cuda.run&panes=compare")
    table = f'{VIEW} [data-table="passes"]'
    page.wait(f"{table} tbody tr")
    page.locate(f'{table} th[data-column="ms_d"]').click()
    page.wait(f'{table} th[data-column="ms_d"][aria-sort="descending"]')
    shown = page.locate(f"{table} tbody tr td:first-child").all_inner_texts()
    passes = compare.data((both[0], both[1]), ViewState())["passes"]
    by = {p["name"]: abs(p["b"]["ms"] - p["a"]["ms"]) for p in passes if p["a"] and p["b"]}
    assert [by[name] for name in shown if name in by] == sorted(by.values(), reverse=True)
    assert set(shown[len(by) :]).isdisjoint(by), "passes of one of the two come last"
    page.wait_query("compare.view", '"passes":["ms_d",-1]', partly=True)
    with page.page.expect_download() as download:
        page.locate(f"{VIEW} h2:has-text('Kernels') button:text-is('CSV')").click()
    text = download.value.path().read_text()
    assert len(text.splitlines()) == 1 + len(pairs(*both)), "each launch has a kernel of its own"
    assert not page.errors


@pytest.mark.slow
@pytest.mark.playwright
def test_a_recording_elsewhere_is_compared_by_its_path(server, tab, two_targets):
    page = tab(f"{server.url}?run={quote(str(two_targets.cpu))}&panes=compare")
    page.locate(f"{VIEW} .bar select").select_option("/")
    page.locate(f"{VIEW} .bar input").fill(str(two_targets.cuda))
    page.press("Enter")
    page.wait(f'{VIEW} [data-table="figures"] tr[data-figure="peak memory"]')
    page.wait_query("other", str(two_targets.cuda))
    page.locate(f"{VIEW} .bar select").select_option("/")
    page.locate(f"{VIEW} .bar input").fill(str(two_targets.cuda) + ".not")
    page.press("Enter")
    page.wait('#cw-bar [role="alert"]:visible')


# -- what is wrong, and what is noise --------------------------------------------------------------


def with_samples(path, factor: float):
    """A copy whose executions took ``factor`` times as long, each some 2 % apart."""

    with sqlite3.connect(path) as db:
        samples = [100 * factor * (1 + 0.01 * (i % 3)) for i in range(10)]
        db.execute(
            "UPDATE execution SET median = ?, samples = ?",
            (sorted(samples)[5], struct.pack("<10d", *samples)),
        )
        db.execute(
            "UPDATE launch_time SET median = ?, samples = ?",
            (sorted(samples)[5], struct.pack("<10d", *samples)),
        )
        db.execute("UPDATE figure SET value = ? WHERE name = 'total_ms'", (0.1 * factor,))
    db.close()
    return path


@pytest.mark.parametrize(("factor", "noise"), [(2.0, False), (1.002, True)])
def test_a_speedup_has_its_interval_and_says_where_it_is_noise(
    two_targets, tmp_path, server, tab, factor, noise
):

    a = with_samples(shutil.copy(two_targets.cpu, tmp_path / "a.run"), factor)
    b = with_samples(shutil.copy(two_targets.cpu, tmp_path / "b.run"), 1.0)
    page = tab(f"{server.url}?run={quote(str(a))}&other={quote(str(b))}&panes=compare")
    row = f'{VIEW} [data-figure="speedup of B"] td[data-noise]'
    page.wait(row)
    assert page.locate(row).get_attribute("data-noise") == str(noise).lower()
    text = page.text(row)
    assert ("within noise" in text) is noise and text.startswith("2.0" if factor == 2 else "1.0")
    kernels = page.locate(f'{VIEW} [data-table="kernels"] td[data-noise="{str(noise).lower()}"]')
    assert kernels.count() == page.locate(f'{VIEW} [data-table="kernels"] tbody tr').count()
    for width, height in ((1440, 900), (1024, 700)):  # no column of facts and figures is cut off
        page.page.set_viewport_size({"width": width, "height": height})
        hidden = page.locate(f"{VIEW} .two .wide").evaluate_all(
            "(all) => all.map((each) => each.scrollWidth - each.clientWidth)"
        )
        assert len(hidden) == 3 and max(hidden) <= 0


def test_which_side_is_wrong_stands_first(two_targets, tmp_path, server, tab):

    b = shutil.copy(two_targets.cpu, tmp_path / "b.run")
    with sqlite3.connect(b) as db:
        (stage,) = db.execute("SELECT max(id) FROM stage WHERE changed").fetchone()
        db.execute(
            "INSERT INTO check_result VALUES (NULL, ?, NULL, 'failed', 0.5, 0.0, NULL, '[]',"
            " 0.0, '')",
            (stage,),
        )
    db.close()
    page = tab(
        f"{server.url}?run={quote(str(two_targets.cpu))}&other={quote(str(b))}&panes=compare"
    )
    page.wait(f'{VIEW} [data-wrong="b"]')
    assert "1 failed check" in page.text(f'{VIEW} [data-wrong="b"]')
    assert page.locate(f'{VIEW} [data-wrong="a"]').count() == 0


def test_more_checks_that_kept_every_bit_are_better(two_targets):
    from workbench.queries.run import Run

    run = Run(two_targets.cpu)
    rows = {row["name"]: row for row in compare.data((run, run), ViewState())["figures"]}
    assert rows["time per execution"]["better"] == "less"
    assert rows["launches"]["better"] == ""
    run.close()


def test_edits_are_told_in_words():
    meta = {
        "edit": {
            "skip": ["fold_constants"],
            "insert": [{"place": "canonicalise", "source": "p.py", "name": "P", "code": "x"}],
        },
        "target_options": {"tiles": "small"},
    }
    told = compare._edited(meta)
    assert "{" not in told and told.startswith("skip fold_constants") and "tiles = small" in told
    assert compare._edited({"edit": {"skip": 5}}).startswith("edited in a way")
