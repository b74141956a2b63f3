"""What is recorded comes back: modules, rewrites, checks, kernels, memory, history, SQL."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from core_compiler.ir import Block, Function, Module, Op, Value
from core_compiler.ir.diff import diff
from core_compiler.ir.events import Observer, Observers, StageRecord, TimingRecord
from core_compiler.ir.parser import parse
from core_compiler.record import Recorder, Recording
from core_compiler.record.encoding import apply_edits, edits, pack, unpack
from core_compiler.support.errors import UserError
from tests.examples import examples
from tests.ir import modules as strategies
from tests.ir.modules import difference
from tests.record.compiles import TYPE, record, stages


@pytest.fixture(scope="module")
def made() -> list[StageRecord]:
    return stages()


@pytest.fixture(scope="module")
def path(made, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "a b?#é.run"
    record(Recorder(path), made)
    return path


@pytest.fixture
def recording(path):
    with Recording.open(path) as opened:
        yield opened


# -- modules -------------------------------------------------------------------------------------


def test_every_stage_comes_back_whole(recording, made):
    for stage in reversed(made):  # the last first: it rests on edits of edits
        again = recording.module(stage.index)
        assert difference(stage.module, again) == ""


def test_an_id_is_the_same_object_in_every_stage(recording, made):
    for a, b in pairwise(made):
        theirs = set(recording.module(a.index).walk())
        kept = [op for op in recording.module(b.index).walk() if op in theirs]
        expected = set(a.module.walk()) & set(b.module.walk())
        assert len(kept) == len(expected)
    assert recording.module(3).main.arguments[0] is recording.module(9).main.arguments[0]
    op = recording.module(5).main.body.ops[3]
    assert recording.op(recording.op_id(op)) is op
    value = op.result
    assert recording.value(recording.value_id(value)) is value


@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(strategies.modules(), strategies.modules())
def test_random_modules_come_back(tmp_path, first, second):
    path = tmp_path / "random.run"
    with Recorder(path) as recorder:
        recorder.begin({})
        recorder.stage(StageRecord(0, "import", first))
        recorder.stage(StageRecord(1, "other", second))
    with Recording.open(path) as again:
        assert difference(first, again.module(0)) == ""
        assert difference(second, again.module(1)) == ""


def test_a_module_that_is_recorded_twice_adds_nothing(tmp_path, made):
    with Recorder(tmp_path / "twice.run") as recorder:
        recorder.begin({})
        recorder.stage(made[0])
        recorder.stage(StageRecord(1, "nothing", made[0].module, changed=False))
    with Recording.open(tmp_path / "twice.run") as again:
        assert again.module(0).main is again.module(1).main
        assert again.query("SELECT count(*) FROM stage_op WHERE stage = 1").rows == [(0,)]


def test_text_reads_back_and_unnamed_values_keep_their_numbers(recording, made):
    text = recording.text(4)
    again = parse(text)
    assert difference(made[4].module, again, names=False, origins=False) == ""
    value = next(v for op in recording.module(4).walk() for v in op.results if not v.name)
    assert f"%{recording.value_id(value)} = " in text
    table = recording.lines(4)
    assert "\n".join(table.lines) + "\n" == text


# -- stages, rewrites, checks --------------------------------------------------------------------


def test_stages_say_what_happened(recording, made):
    found = recording.stages()
    assert len(found) == recording.stage_count() == len(made)
    for stage, given_ in zip(found, made, strict=True):
        assert (stage.index, stage.pass_name, stage.half) == (
            given_.index,
            given_.pass_name,
            given_.half,
        )
        assert (stage.exact, stage.changed, stage.seconds) == (
            given_.exact,
            given_.changed,
            given_.seconds,
        )
        assert stage.figures == given_.figures and stage.options == given_.options
        assert stage.rewrites == len(given_.rewrites)
        assert stage.ops == given_.figures.get("ops", len(list(given_.module.walk())))
    assert found[1].verdicts == {"bitwise": 1, "within": 1, "failed": 1}
    assert found[1].worst_error == 2e-7 and found[0].worst_error is None


def test_rewrites_have_their_ops_values_and_checks(recording, made):
    module = recording.module(6)
    before = recording.module(5)
    for again, given_ in zip(recording.rewrites(6), made[6].rewrites, strict=True):
        rewrite = again.rewrite
        assert (rewrite.rule, rewrite.tolerance, rewrite.note) == (
            given_.rule,
            given_.tolerance,
            given_.note,
        )
        assert [op.kind for op in rewrite.old] == [op.kind for op in given_.old]
        assert len(rewrite.values) == len(given_.values)
        assert all(op in set(module.walk()) for op in rewrite.new)
        assert all(op in set(before.walk()) for op in rewrite.old)
        assert again.check.value is rewrite.old[0].result
    assert [c.verdict for c in recording.checks(6)] == ["bitwise", "within", "failed"]
    assert recording.checks(6)[2].index == (2, 1)
    assert [c.kind for c in recording.checks(6)] == ["rewrite", "unlogged", "rewrite"]


def test_diffs_are_those_of_the_original_modules(recording, made):
    for a, b in ((0, 1), (3, 9), (0, len(made) - 1)):
        steps = [r for s in made[a + 1 : b + 1] for r in s.rewrites]
        expected = diff(made[a].module, made[b].module, steps)
        found = recording.diff(a, b)
        for part in ("kept", "moved", "changed", "merged", "removed", "added"):
            assert len(getattr(found, part)) == len(getattr(expected, part)), part
        assert [m.how for m in found.changed] == [m.how for m in expected.changed]
        back = recording.diff(b, a)
        assert [m.new for m in back.changed] == [m.old for m in found.changed]


def test_diff_lines_name_ops_by_their_ids(recording):
    rows = [r for r in recording.diff_lines(2, 3) if r["kind"] == "changed"]
    assert rows
    for row in rows:
        assert recording.op(row["left_key"]) in set(recording.module(2).walk())
        assert recording.op(row["right_key"]) in set(recording.module(3).walk())
    assert {"@main"} < {r["left_key"] for r in recording.diff_lines(2, 3, changed_only=False)}


def test_diagnostics(recording):
    (found,) = recording.diagnostics(3)
    assert (found.severity, found.message) == ("warning", "careful 3")
    assert found.op is recording.module(3).main.body.ops[1]
    assert len(recording.diagnostics()) == recording.stage_count() - 1


# -- the rest ------------------------------------------------------------------------------------


def test_kernels_memory_timings_tensors_and_figures(recording):
    (kernel,) = recording.kernels()
    assert (kernel.name, kernel.cached, kernel.steps) == ("exp_k", True, ("plain", "vectorised"))
    assert recording.op(kernel.ops[0]).operands and kernel.line_map == [(1, kernel.ops[0])]
    assert recording.kernel_text(kernel.id) == "def kernel(): ...\n" * 50
    assert recording.kernel_text(kernel.id, "assembly") == "vmulps"
    assert recording.kernel_machine_code(kernel.id) == b"\x90\0\xff"
    assert recording.kernel_step_text(kernel.id, 1) == "vector loop"
    (buffer,) = recording.buffers()
    assert (buffer.offset, buffer.size, buffer.start, buffer.end, buffer.tier) == (
        64,
        128,
        1,
        5,
        "dram",
    )
    (timing,) = recording.timings()
    assert timing.samples_us.tolist() == [3.0, 1.0, 2.0]
    assert (timing.median_us, timing.min_us, timing.threads) == (2.0, 1.0, 2)
    (stats,) = recording.tensors()
    assert np.isnan(stats.mean) and stats.histogram == ([0, 1, 2], [3, 4])
    assert stats.data.tolist() == np.arange(32, dtype=np.float32).reshape(4, 8).tolist()
    assert recording.tensors([10**6]) == []
    same, other = recording.framework_values()
    assert (same.node, same.same, same.theirs, same.index) == ("exp_0", True, None, ())
    assert (other.framework, other.error, other.index) == ("torch", 1e-6, (1, 2))
    assert (other.theirs, other.ours) == (0.5, 0.25) and str(other.value.type) == str(TYPE)
    assert recording.figures() == {
        "identity": "abc",
        "worst": 1.5,
        "huge": float(2**70),
        "quantised_results": 7,
        "quantised_sqnr_db": 41.5,
    }
    assert recording.figures("memory")["arena_bytes"] == 192
    assert recording.sources() == {"model.py": "x = 1\n"}
    assert recording.meta()["model"] == "chain" and recording.status == "finished"
    assert recording.progress()["what"] == "passes"


def test_what_quantisation_lost_comes_back(recording, made, tmp_path):
    found = recording.quantisation()
    assert (found.results, found.sqnr_db) == (7, 41.5)
    worst, best = found.values
    assert (worst.stage, worst.sqnr_db, worst.cosine, worst.saturated) == (2, -3.5, 0.5, 0.25)
    assert (worst.observed, worst.range, worst.alone_db) == ((0, 1), (-1, 2), 9.0)
    assert worst.histogram == ([0.0, 0.5, 1.0], [3, 4], [2, 5])
    assert worst.value is best.integers and worst.integers is best.value
    assert best.sqnr_db == float("inf") and np.isnan(best.cosine) and best.alone_db is None
    (left,) = found.left
    assert left.op.result is worst.value and left.reason.startswith("why") and left.op.operands
    with Recorder(tmp_path / "floats.run") as recorder:
        recorder.begin({"model": "m"})
    with Recording.open(tmp_path / "floats.run") as plain:
        assert plain.quantisation() is None


def test_a_recording_holds_every_execution_and_shows_the_newest(tmp_path, made):
    path = tmp_path / "timed.run"
    op = next(op for op in made[0].module.main.body.ops if op.operands)
    recorder = Recorder(path)
    recorder.begin({"model": "chain"})
    recorder.stage(made[0])
    last = []
    for digest, samples in (("d1", (4.0,)), ("d2", (2.0, 6.0))):
        figures = {"total_ms": 1.0, "digest": digest, "total_samples_us": str(list(samples))}
        recorder.timings([TimingRecord(0, samples, 10, 20, "k", op, 2)], figures)
        with sqlite3.connect(path) as db:
            last += db.execute("SELECT max(id) FROM timing").fetchone()
    recorder.end("finished")
    with Recording.open(path) as recording:
        (timing,) = recording.timings()
        first, second = recording.executions()
        (before,) = recording.timings(first.id)
        assert recording.timings(7) == []
        assert recording.figures("timing").keys() == {"total_ms"}  # the rest stands once
    assert timing.samples_us.tolist() == [2.0, 6.0] and before.samples_us.tolist() == [4.0]
    assert (first.digest, second.digest, second.threads) == ("d1", "d2", 2)
    assert second.samples_us.tolist() == [2.0, 6.0] and second.median_us == 4.0
    assert first.began <= second.began
    assert last[0] < last[1]  # by which a reader sees that there is news


def test_missing_weights_are_named_by_digest(path, made):
    (digest,) = made[0].module.weights
    with Recording.open(path) as without:
        assert without.missing_weights() == [digest]
        with pytest.raises(UserError, match=digest[:12]):
            without.module(0).weights[digest]
    with Recording.open(path, made[0].module.weights) as having:
        assert having.missing_weights() == []


def test_source_text_can_be_left_out(tmp_path, made):
    record(Recorder(tmp_path / "bare.run", source_text=False), made[:1])
    with Recording.open(tmp_path / "bare.run") as again:
        assert again.sources() == {}


# -- history -------------------------------------------------------------------------------------


def test_the_history_of_an_op_leads_back_to_the_model_and_on_to_its_kernel(recording, made):
    last = len(made) - 1
    final = next(op for op in recording.module(last).main.body.ops if op.operands)
    history = recording.op_history(recording.op_id(final))
    assert history.stages[1] is None
    assert history.kernels and history.buffers
    first = recording.op(history.earlier[-1].old)
    assert first in set(recording.module(0).walk())
    assert history.nodes == first.origin.nodes()
    forward = recording.op_history(recording.op_id(first))
    assert recording.op_id(final) in {s.new for s in forward.later}
    assert forward.kernels == history.kernels
    assert forward.stages[0] == 0 and forward.stages[1] is not None


def test_history_follows_every_op_back_to_the_import(recording, made):
    imported = {recording.op_id(op) for op in recording.module(0).walk()}
    for op in recording.module(len(made) - 1).walk():
        history = recording.op_history(recording.op_id(op))
        oldest = {s.old for s in history.earlier} or {history.op}
        assert oldest & imported, op


def test_merged_and_origin_linked_ops_have_a_history(tmp_path):
    from core_compiler.ir import Rewriter
    from core_compiler.ir.origin import Origin

    x, a, b, c = (Value(TYPE, n) for n in "xabc")
    one, two = Op("core.exp", (x,), (a,)), Op("core.exp", (x,), (b,))
    origin = Origin.synthetic("seed", "why")
    add = Op("core.add", (a, b), (c,), None, (), origin)
    before = Module({"main": Function("main", Block((x,), (one, two, add), (c,)))})
    rewriter = Rewriter(before.main.body)
    rewriter.replace(two, (), {b: a}, rule="merge equal")
    after = before.with_main(rewriter.commit())
    d = Value(TYPE, "d")
    launch = Op("target.launch", (x,), (d,), None, (), Origin.derived("outline", [origin]))
    last = after.with_main(Block((x,), (launch,), (d,)))
    with Recorder(tmp_path / "h.run") as recorder:
        recorder.begin({})
        recorder.stage(StageRecord(0, "import", before))
        recorder.stage(StageRecord(1, "merge", after, rewriter.events))
        recorder.stage(StageRecord(2, "outline", last))
    with Recording.open(tmp_path / "h.run") as again:
        ops = again.module(0).main.body.ops
        merged = again.op_history(again.op_id(ops[1]))
        assert [(s.new, s.how, s.rule) for s in merged.later] == [
            (again.op_id(ops[0]), "rewrite", "merge equal")
        ]
        final = again.op_history(again.op_id(again.module(2).main.body.ops[0]))
        assert {s.how for s in final.earlier} == {"origin", "value"}
        assert again.op_id(ops[2]) in {s.old for s in final.earlier}


# -- SQL -----------------------------------------------------------------------------------------


def test_sql_sees_the_ops_of_a_stage(recording, made):
    sql = "SELECT op FROM stage_op WHERE stage <= 7 GROUP BY op HAVING sum(change) > 0"
    found = {row[0] for row in recording.query(sql).rows}
    assert found == {recording.op_id(op) for op in recording.module(7).walk()}


def test_queries_are_limited_in_time_and_rows(recording):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"
    with pytest.raises(UserError, match="took more than"):
        recording.query(endless.format("count(*)"), timeout=0.2)
    many = recording.query(endless.format("i"), max_rows=5)
    assert many.rows == [(1,), (2,), (3,), (4,), (5,)] and many.truncated
    assert many.columns == ("i",)
    assert recording.stage_count() > 0  # and the recording is usable afterwards


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM stage",
        "INSERT INTO meta VALUES ('a', '1')",
        "DROP TABLE op",
        "CREATE TABLE t (x)",
        "CREATE TEMP TABLE t (x)",
        "ATTACH '/tmp/other.db' AS o",
        "PRAGMA query_only = OFF",
        "VACUUM INTO '/tmp/copy.db'",
        "SELECT load_extension('x')",
        "SELECT 1; SELECT 2",
        "SELECT nonsense FROM nowhere",
        "",
        "SELECT zeroblob(1000000000)",
    ],
)
def test_queries_only_read(recording, path, sql):
    before = path.read_bytes()
    if sql:
        with pytest.raises(UserError) as caught:
            recording.query(sql)
        assert caught.value.where == str(path)
    else:
        assert recording.query(sql).rows == []
    assert path.read_bytes() == before


def test_the_documented_recipes_work(recording, repository):
    text = (repository / "docs" / "recording.md").read_text()
    recipes = [part.split("```", 1)[0] for part in text.split("```sql\n")[1:]]
    assert len(recipes) >= 8
    for recipe in recipes:
        assert recording.query(recipe.strip().rstrip(";")).columns


# -- files ---------------------------------------------------------------------------------------


def test_a_closed_recording_is_one_file(path):
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    head = path.read_bytes()[:20]
    assert head[18:20] == b"\x01\x01"  # not in write-ahead mode


def test_a_recording_in_a_read_only_place_opens(path, tmp_path):
    copy = tmp_path / "copy.run"
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        with Recording.open(copy) as again:
            assert again.stage_count() == 25
    finally:
        tmp_path.chmod(0o700)


def test_export_makes_a_complete_copy(recording, tmp_path):
    recording.export(tmp_path / "copy.run")
    with Recording.open(tmp_path / "copy.run") as again:
        assert again.stages() == recording.stages()
    with pytest.raises(UserError, match="cannot write the copy"):
        recording.export(tmp_path / "no" / "such" / "folder.run")


def test_recording_where_one_cannot_write_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="cannot write a recording"):
        Recorder(tmp_path / "no" / "folder" / "x.run")


def test_one_that_another_replaced_leaves_that_one_alone(tmp_path, made):
    path = tmp_path / "x.run"
    first = Recorder(path)
    first.begin({"model": "first"})
    second = Recorder(path)
    second.begin({"model": "second"})
    second.stage(made[0])
    first.end("finished")
    with Recording.open(path) as live:
        assert live.meta()["model"] == "second" and live.stage_count() == 1
    second.stage(made[1])
    second.end("finished")
    with Recording.open(path) as whole:
        assert whole.stage_count() == 2
    assert [p.name for p in tmp_path.iterdir()] == ["x.run"]


def test_one_that_another_process_writes_is_not_replaced(tmp_path):
    path = tmp_path / "x.run"
    code = (
        "import sys\nfrom core_compiler.record import Recorder\n"
        "recorder = Recorder(sys.argv[1])\nrecorder.begin({'model': 'theirs'})\n"
        "print('begun', flush=True)\nsys.stdin.read()\n"
    )
    command, pipe = [sys.executable, "-c", code, str(path)], subprocess.PIPE
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=root) as other:
        assert other.stdout.readline() == b"begun\n"
        with pytest.raises(UserError, match="being written by another process"):
            Recorder(path)
        with Recording.open(path) as theirs:
            assert theirs.meta()["model"] == "theirs"
        other.kill()
    with Recorder(path) as recorder:  # what was left of it is nobody's
        recorder.begin({"model": "ours"})
    with Recording.open(path) as again:
        assert again.meta()["model"] == "ours"


def test_a_disk_that_is_full_at_the_end_keeps_all_and_says_so(tmp_path, made):
    path = tmp_path / "x.run"
    recorder = Recorder(path)
    recorder.begin({})
    for stage in made:
        recorder.stage(stage)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(UserError, match="complete, but not in one file"):
            recorder.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    held = (os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd"))
    assert str(path) not in held
    with Recording.open(path) as again:
        assert again.stage_count() == len(made)


def test_an_exception_ends_the_recording_as_failed(tmp_path, made):

    def compile_until(path: Path, problem: BaseException) -> None:
        with Recorder(path) as recorder:
            recorder.begin({})
            recorder.stage(made[0])
            raise problem

    with pytest.raises(RuntimeError):
        compile_until(tmp_path / "f.run", RuntimeError("broken"))
    with pytest.raises(KeyboardInterrupt):
        compile_until(tmp_path / "c.run", KeyboardInterrupt())
    with Recording.open(tmp_path / "f.run") as again:
        assert again.status == "failed" and again.meta()["message"] == "broken"
        assert again.stage_count() == 1
    with Recording.open(tmp_path / "c.run") as again:
        assert again.status == "cancelled"


def test_observers_pass_everything_on(tmp_path, made):
    record(Observers(Observer(), Recorder(tmp_path / "x.run")), made)
    with Recording.open(tmp_path / "x.run") as again:
        assert again.stage_count() == len(made) and again.kernels()


def test_two_recordings_of_one_compile_hold_the_same_rows(tmp_path):
    """Under any hash seed: what differs is only when it happened."""
    code = (
        "import sys\nfrom core_compiler.record import Recorder\n"
        "from tests.record.compiles import record, stages\n"
        "record(Recorder(sys.argv[1]), stages())\n"
    )
    contents = []
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.run"
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            check=True,
            env={"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
        )
        db = sqlite3.connect(path)
        tables = [t for (t,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        timed = {"meta", "event", "stage", "rewrite", "figure", "execution"}
        contents.append(
            {t: db.execute(f"SELECT * FROM {t}").fetchall() for t in tables if t not in timed}
        )
        db.close()
    assert contents[0] == contents[1]


# -- encodings -----------------------------------------------------------------------------------

ids = strategies.st.lists(strategies.st.integers(1, 40), unique=True, max_size=20)


@given(ids, ids)
def test_edits_turn_one_list_into_the_other(old, new):
    assert apply_edits(old, edits(old, new), len(new)) == new
    assert unpack(pack(new), len(new)) == new
