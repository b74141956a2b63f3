"""What commands print: the outputs that others rely on, and what a person reads."""

from __future__ import annotations

import json
import re
import resource
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from core_compiler.ir.parser import parse
from core_compiler.record import Recording
from sample_models import CATALOGUE
from tests.slow import slow_but
from tests.workbench.conftest import MODEL
from workbench.commands import check_machine, printing, show_diff, show_memory

DIGEST = re.compile(r"[0-9a-f]{64}")


# -- run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frontend", "against"),
    slow_but(
        [("torch", "torch")],
        [("torch", "torch"), ("onnx", "onnxruntime"), ("torch", "onnxruntime")],
    ),
)
def test_run_agrees_with_the_framework(command, frontend, against):
    pytest.importorskip("torch")
    found = command.json("run", *MODEL, "--frontend", frontend, "--against", against)
    assert {*found} >= {
        "model",
        "target",
        "worst_relative_error",
        "worst_ulp",
        "verdict",
        "digest",
        "identity",
    }
    assert (found["model"], found["target"]) == ("digits-mlp", "cpu")
    assert 0 <= found["worst_relative_error"] <= 1e-6
    assert found["verdict"] in ("equal", "within") and found["beyond"] is None
    assert isinstance(found["worst_ulp"], int)
    assert DIGEST.fullmatch(found["digest"])
    assert DIGEST.fullmatch(found["identity"])


def test_compile_says_what_the_execution_took_and_how_sure_that_is(command, tmp_path):
    path = tmp_path / "x.run"
    found = command.json("compile", *MODEL, "--execute", "-o", path)["execution"]
    with Recording.open(path) as file:
        (recorded,) = file.executions()
        digest = file.figures()["digest"]
    assert found["median_us"] == pytest.approx(np.median(recorded.samples_us))
    assert found["samples"] == len(recorded.samples_us) > 5
    assert found["low_us"] <= found["median_us"] <= found["high_us"]
    assert found["digest"] == digest and DIGEST.fullmatch(digest)
    assert command.json("compile", *MODEL)["execution"] is None
    said = command.text("compile", *MODEL, "--execute")
    timed = r"\nexecuted \d+ times on \d+ threads?: median .*s, .*s to .*s \(95 % interval\)"
    assert re.search(timed, said)


@pytest.mark.slow
def test_run_gives_the_same_bits_with_any_number_of_threads_and_any_vectors(command):
    digests = {
        command.json(
            "run", *MODEL, "--threads", threads, "--target-option", f"vector_width={width}"
        )["digest"]
        for threads, width in ((1, 16), (2, 16), (1, 8))
    }
    assert len(digests) == 1


def test_run_says_no_where_the_error_is_larger_than_asked(command):
    found = command.json("run", *MODEL, "--against", "torch", "--tolerance", "0", code=1)
    assert found["worst_relative_error"] > 0


def test_run_without_a_peer_compares_nothing(command):
    found = command.json("run", *MODEL)
    assert (found["worst_relative_error"], found["worst_ulp"]) == (None, None)
    assert found["verdict"] is None
    assert found["digest"] in command.text("run", *MODEL)


#: A model of torch whose outputs are sums, positions, and random numbers.
OWN = """\
import torch

class Sums(torch.nn.Module):
    def forward(self, x):
        y = torch.tanh(x)
        z = y.sum(1)
        return z * 2, y.argmax(1)

class Norms(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x, (6,))

class Draws(torch.nn.Module):
    def forward(self, x):
        return torch.rand_like(x)

class Both(torch.nn.Module):
    def forward(self, x):
        return torch.rand_like(x), x * 2

def given():
    return torch.randn(6, 6, generator=torch.Generator().manual_seed(2)),

def sums():
    return Sums(), given()

def norms():
    return Norms(), given()

def draws():
    return Draws(), given()

def both():
    return Both(), given()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user's own, in the folder that commands run in."""
    pytest.importorskip("torch")
    (tmp_path / "own_verdicts.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    yield "own_verdicts"
    sys.modules.pop("own_verdicts", None)


def test_what_our_own_ops_raise_is_not_told_as_the_framework_s(command, own, monkeypatch):
    from core_compiler.debug import framework
    from core_compiler.ir import dtype

    monkeypatch.setattr(framework, "compare", lambda *given: dtype("no such"))
    found = command.json("compile", f"{own}:sums", "--against", "torch", code=1)
    assert "the compiler's ops raised TypeError" in found["error"]["what"]
    assert "core_compiler/ir/types.py:" in found["error"]["what"]


def test_what_a_library_raises_is_ours_where_we_had_called_it():
    from core_compiler.runtime.program import Program
    from core_compiler.support.errors import UserError, raised_inside

    with pytest.raises(UserError) as told:
        Program.from_json("{")
    cause = told.value.__context__  # json's
    assert raised_inside(cause).startswith("core_compiler/runtime/program.py:")
    torch = pytest.importorskip("torch")
    with pytest.raises(RuntimeError) as told:
        torch.nn.Linear(3, 4)(torch.ones(5))
    assert raised_inside(told.value, "torch") == ""


def test_a_checked_compile_that_a_pass_ends_has_its_failure_as_a_row(command, own, monkeypatch):
    from core_compiler.passes import plan_memory

    right = plan_memory.lifetimes
    monkeypatch.setattr(
        plan_memory,
        "lifetimes",
        lambda ops: [
            replace(life, space="arena") if life.space == "output" else life for life in right(ops)
        ],
    )
    found = command.json("compile", f"{own}:sums", "--check", code=1)
    (row,) = found["failures"]
    assert row["pass"] == "plan_memory" and "caller's memory" in row["note"]
    assert row["note"] in found["error"]["what"] and found["error"]["where"] == "pass plan_memory"


def test_a_result_of_another_shape_differs(command, tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    from core_compiler.ops.builder import Builder

    text = """<ir_version: 9, opset_import: ["" : 21]>
    g (float[3, 8] x) => (float[n, m] y)
    <int64[1] from = {1}, int64[1] to = {6}, int64[1] axis = {1}> {y = Slice(x, from, to, axis)}"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "part.onnx")
    words = "compile", str(tmp_path / "part.onnx"), "--against", "onnxruntime"
    assert command.json(*words)["against"]["verdict"] == "equal"
    right = Builder.cut
    monkeypatch.setattr(
        Builder,
        "cut",
        lambda self, x, axis, start, limit, step=1: right(self, x, axis, start, limit - 1, step),
    )
    beyond = command.json(*words, "--no-import-cache", code=1)["against"]["beyond"]
    assert beyond["node"] == "y"
    assert beyond["note"] == "it is float32[3, 4], expected float32[3, 5]"
    said = command.text(*words, "--no-import-cache", code=1)
    assert beyond["note"] in said and "None there" not in said


def test_a_function_beyond_its_stated_error_is_a_failed_check(command, own, monkeypatch):
    """The reference and the kernels compute it alike, and the framework is near enough."""
    from core_compiler.debug import elementary

    fault = elementary.Fault(3.0, (0.5,), 1.0, 1.0 + 3 * 2.0**-23)
    monkeypatch.setattr(elementary, "wrong", lambda name, dtype: fault if dtype == "f32" else None)
    words = f"{own}:norms", "--no-import-cache"
    (row,) = command.json("compile", *words, "--check", code=1)["failures"]
    assert row["pass"] == "import" and row["line"].endswith("own_verdicts.py:11")
    assert "is off by 3 ulps; the contract states" in row["note"]
    found = command.json("bisect", *words, code=1)
    assert (found["first_bad_pass"], found["note"]) == ("import", row["note"])
    assert found["model_lines"] == [row["line"]]


def test_a_translation_that_torch_stands_in_for_is_a_failed_check(command, own, monkeypatch):
    """Its numbers are right all the same."""
    from core_compiler.frontends.pytorch.aten import table

    monkeypatch.setitem(table.TABLE, "layer_norm", lambda b, x, *more: b.reduce_sum(x, axes=(1,)))
    words = "compile", f"{own}:norms", "--no-import-cache"
    found = command.json(*words, "--check", "--against", "torch", code=1)
    assert found["against"]["verdict"] == "within"
    (row,) = found["failures"]
    assert (row["pass"], row["rule"]) == ("import", "translation")
    assert row["line"].endswith("own_verdicts.py:11")
    assert "translation of aten.layer_norm.default (node layer_norm) is wrong" in row["note"]
    assert "got tensor<6xf32>" in row["note"]
    assert found["checks"]["failed"] == 1
    found = command.json("bisect", f"{own}:norms", "--no-import-cache", code=1)
    assert (found["first_bad_pass"], found["stage"], found["how"]) == ("import", 0, "check")
    assert found["note"] == row["note"] and found["model_lines"] == [row["line"]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("words", [("run",), ("compile",), ("compile", "--check")])
def test_a_wrong_translation_fails_the_command_and_is_named(command, own, monkeypatch, words):
    """A sum over the wrong axis: its sums look like sums."""
    from core_compiler.frontends.pytorch.aten import table

    name, *more = words
    sound = command.json(name, f"{own}:sums", "--against", "torch", *more)
    assert (sound if name == "run" else sound["against"])["verdict"] == "within"
    right = table.TABLE["sum"]
    monkeypatch.setitem(table.TABLE, "sum", lambda b, x, dim, *rest: right(b, x, [0], *rest))
    found = command.json(name, f"{own}:sums", "--against", "torch", *more, "-o", "x.run", code=1)
    told = found["values"] if name == "run" else found["against"]
    assert told["verdict"] == "differs"
    beyond = found["beyond"] if name == "run" else told["beyond"]
    assert (beyond["node"], beyond["alone"]) == ("sum_1", True)
    assert beyond["line"].endswith("own_verdicts.py:6") and "core.reduce_sum" in beyond["op"]
    assert beyond["want"] != beyond["got"] and beyond["error"] > 0.01 and beyond["ulps"] > 1000
    assert len(beyond["element"]) == 1 and [i["error"] < 1e-6 for i in beyond["inputs"]] == [True]
    if name == "compile":
        assert [(r["pass"], r["rule"]) for r in found["failures"]] == [("import", "torch sum_1")]
        assert {n: beyond[n] for n in ("op", "line", "want", "got")}.items() <= (
            found["failures"][0].items()
        )
    if name == "run":
        assert (found["verdict"], found["worst_relative_error"] > 0.01) == ("differs", True)
    # The recording has it too, and says so in its views.
    assert command.json("numerics", "x.run")["framework"]["beyond"] == beyond
    shown = command.json("show", "x.run", "numerics")["data"]["framework"]
    assert shown["verdict"] == "differs" and "sum_1" in shown["beyond"][0]
    figures = {f["label"]: f for f in command.json("show", "x.run", "overview")["data"]["figures"]}
    figure = figures["import against its framework"]
    assert figure["text"] == "differs" and "sum_1" in figure["hint"]
    first = command.json("show", "x.run", "overview")["data"]["findings"][0]
    assert "The import differs from torch: sum_1" in first["title"]
    text = command.text(name, f"{own}:sums", "--against", "torch", *more, code=1)
    assert "first node that differs: sum_1" in text and "own_verdicts.py:6" in text


def test_where_nothing_can_be_compared_the_command_says_so(command, own):
    found = command.json("run", f"{own}:draws", "--against", "torch", code=3)
    assert (found["verdict"], found["not_compared"]) == ("not_compared", 1)
    assert found["worst_relative_error"] is None and found["worst_ulp"] is None
    found = command.json("compile", f"{own}:draws", "--against", "torch", code=3)
    assert (found["against"]["verdict"], found["against"]["left_out"]) == ("not_compared", 1)
    first, *_ = command.text("compile", f"{own}:draws", "--against", "torch", code=3).split("\n")
    assert "not compared (values not compared: 1)" in first
    # What can be compared is, and what cannot is counted in the first line.
    found = command.json("run", f"{own}:both", "--against", "torch")
    assert (found["verdict"], found["not_compared"]) == ("equal", 1)
    first, *_ = command.text("run", f"{own}:both", "--against", "torch").split("\n")
    assert "outputs not compared: 1" in first


def test_outputs_of_another_framework_are_judged(command, monkeypatch):
    """The peer has no nodes of the import: its outputs alone show the fault."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    from workbench.model import peers

    words = ("run", *MODEL, "--against", "onnxruntime")
    assert command.json(*words)["verdict"] in ("equal", "within")
    right = peers.peer

    def wrong(*given):
        run = right(*given)
        return lambda *arrays: tuple(a * np.float32(1 + 1e-5) for a in run(*arrays))

    monkeypatch.setattr(peers, "peer", wrong)
    found = command.json(*words, code=1)
    assert (found["verdict"], found["values"]) == ("differs", None)
    assert found["beyond"]["alone"] is False and 5e-6 < found["beyond"]["error"] < 2e-5
    assert command.json(*words, "--tolerance", "1e-4")["verdict"] == "within"


# -- compile, profile, bisect ------------------------------------------------------------------


def test_compile_counts_what_it_did_and_records_it(command, tmp_path):
    path = tmp_path / "x.run"
    found = command.json("compile", *MODEL, "-o", path, "--check")
    assert {*found} >= {"passes", "ops_before", "ops_after", "seconds", "kernels", "checks"}
    assert list(found["checks"]) == ["bitwise", "within", "failed", "unchecked"]
    assert found["checks"]["bitwise"] > 0
    assert found["checks"]["failed"] == 0
    with Recording.open(path) as recording:
        stages = recording.stages()
        assert len(stages) == found["passes"] + 1
        assert len(recording.kernels()) == found["kernels"]
        assert sum(s.verdicts.get("bitwise", 0) for s in stages) == found["checks"]["bitwise"]
        assert stages[0].figures["ops"] == found["ops_before"]


def test_compile_without_checks_calls_every_rewrite_unchecked(command):
    checks = command.json("compile", *MODEL)["checks"]
    assert checks["unchecked"] > 0
    assert checks["bitwise"] == checks["within"] == checks["failed"] == 0


@pytest.mark.slow
def test_profile_times_kernels_and_peers(command, tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "x.run"
    found = command.json(
        "profile",
        *MODEL,
        "--against",
        "torch,onnxruntime",
        "--repeats",
        3,
        "--rounds",
        2,
        "--threads",
        1,
        "-o",
        path,
    )
    assert {*found} >= {"ours_ms", "peers", "ratios", "kernels"}
    assert list(found["peers"]) == list(found["ratios"]) == ["torch", "onnxruntime"]
    for name, ms in found["peers"].items():
        assert found["ratios"][name] == pytest.approx(ms / found["ours_ms"])
    kernel = found["kernels"][0]
    assert {*kernel} >= {"name", "count", "median_us", "gflops", "gbytes_per_s", "percent_of_limit"}
    with Recording.open(path) as recording:
        assert sum(k["count"] for k in found["kernels"]) == len(recording.timings())


def test_bisect_finds_nothing_where_nothing_is_wrong(command):
    found = command.json("bisect", *MODEL, "--no-execute")
    assert [found[k] for k in ("first_bad_pass", "first_bad_rewrite", "value")] == [None] * 3
    assert "no fault found" in command.text("bisect", *MODEL, "--no-execute")


def test_bisect_names_a_broken_pass_and_says_no(command, monkeypatch):
    from core_compiler.passes.lower_composites import LowerComposites
    from core_compiler.passes.rules import Rule, apply_rules, op

    wrong = Rule("erf(x) => tanh(x)", op("erf", "x"), lambda b, m: b.tanh(m["x"]))
    right = LowerComposites.run

    def run(self, module, context):
        module = right(self, module, context)
        return context.rewrite(module, lambda rw: apply_rules(rw, (wrong,), module.weights))

    monkeypatch.setattr(LowerComposites, "run", run)
    found = command.json("bisect", *MODEL, "--no-execute", code=1)
    assert found["first_bad_pass"] == "lower_composites"
    assert found["first_bad_rewrite"]["rule"] == "erf(x) => tanh(x)"
    assert found["first_bad_rewrite"]["source"].endswith(f"test_cli_outputs.py:{_line_of(wrong)}")
    assert found["value"].startswith("%")
    code, out, _ = command("bisect", *MODEL, "--no-execute")
    assert code == 1
    assert "lower_composites is wrong" in out
    assert "core.erf" in out


def _line_of(rule) -> int:
    return rule.rewrite.__code__.co_firstlineno


# -- commands that read ------------------------------------------------------------------------


def test_passes_lists_every_stage_with_its_checks(command, recording):
    found = command.json("passes", recording)
    with Recording.open(recording) as opened:
        assert [p["pass"] for p in found["passes"]] == [s.pass_name for s in opened.stages()]
    assert found["status"] == "finished"
    assert any(p["verdicts"].get("bitwise") for p in found["passes"])
    assert "fold_constants" in command.text("passes", recording, "--changed")


def test_a_model_is_compiled_once_and_then_read(command, monkeypatch):
    first = command.json("passes", *MODEL)
    monkeypatch.setattr("workbench.model.jobs.compile", None)  # would raise if it were called
    assert command.json("passes", *MODEL) == first
    assert command.json("memory", *MODEL)["peak_bytes"] >= 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("edit", "more"), [(("--repeat", "decompose"), 1), (("--cut", "recompose=2x1"), 2)]
)
def test_what_is_read_is_a_compile_with_the_same_pipeline(command, edit, more):
    plain = [p["pass"] for p in command.json("passes", *MODEL)["passes"]]
    name = edit[1].partition("=")[0]
    edited = [p["pass"] for p in command.json("passes", *MODEL, *edit)["passes"]]
    at = plain.index(name) + 1
    assert edited == [*plain[:at], *(name + suffix for suffix in ("+", "+2")[:more]), *plain[at:]]


def test_diff_shows_what_a_pass_changed(command, recording):
    text = command.text("diff", recording, "--pass", "decompose", "--context", 0)
    lines = text.splitlines()
    assert lines[0].startswith("--- stage ")
    assert any(line.startswith("-") and "core.linear" in line for line in lines[2:])
    assert any(line.startswith("+") and "core.matmul" in line for line in lines[2:])
    assert "\x1b" not in text
    full = command.text("diff", recording, "--pass", "decompose", "--full")
    assert len(full.splitlines()) > len(lines)
    rows = command.json("diff", recording, "--pass", "decompose")["rows"]
    assert {row["kind"] for row in rows} >= {"removed", "added"} or "changed" in {
        row["kind"] for row in rows
    }


def test_diff_over_several_passes_holds_the_work_of_all(command, recording):
    found = command.json("diff", recording, "--pass", "1", "--to", "plan_memory")
    assert found["before"]["stage"] == 0
    kinds = " ".join(row["right"] or "" for row in found["rows"])
    assert "target.alloc" in kinds


def test_diffs_are_coloured_for_people_only():
    row = {"kind": "removed", "left": "  x\x1b[2J", "right": None}
    coloured = list(show_diff.unified([row], 0, 1, ("a", "b"), colour=True))
    assert coloured[-1] == "\x1b[31m-  x\\x1b[2J\x1b[0m"
    assert list(show_diff.unified([row], 0, 1, ("a", "b"), colour=False))[-1] == "-  x\\x1b[2J"


def test_op_by_text_lists_the_candidates_and_by_name_tells_a_life(command, recording):
    code, _, err = command("op", recording, "core.linear")
    assert code == 2
    assert err.startswith("workbench: OP: 3 ops of stage 0 (import) match 'core.linear'")
    number, name = re.search(r": (\d+): (%\S+) = ", err).groups()  # the first candidate
    out = command.text("op", recording, name)
    assert out == command.text("op", recording, number)
    assert out.startswith(f"op {number}  core.linear")
    assert "kernels: " in out
    assert "model: " in out


def test_op_by_id_names_its_kernel_and_memory(command, recording):
    with Recording.open(recording) as opened:
        op = next(op for op in opened.module(0).walk() if op.kind == "core.linear")
        number = opened.op_id(op)
        kernels = {k.name for k in opened.kernels()}
    found = command.json("op", recording, number)
    assert found["kind"] == "core.linear"
    assert found["stages"]["first"] == 0
    assert found["model"][0]["file"].endswith(".py")
    assert {*found["kernels"]} <= kernels
    assert found["kernels"]
    assert found["buffers"]


def test_the_timeline_of_an_op_leads_from_its_line_to_its_kernel_and_back(command, recording):
    with Recording.open(recording) as opened:
        gelu = next(op for op in opened.module(0).walk() if op.kind == "core.gelu")
        number = opened.op_id(gelu)
        kernel = next(k for k in opened.kernels() if k.name.endswith("_erf"))
        names = [s.pass_name for s in opened.stages()]
        fused = opened.op_history(number)
    found = command.json("op", recording, number)["timeline"]
    assert (found["op"], found["first"], found["stages"]) == (number, 0, len(names))
    told = [(m["lane"], m["what"], m["pass"]) for m in found["marks"]]
    assert told[:3] == [
        ("from", "source", None),
        ("op", "imported", "import"),
        ("op", "removed", "lower_composites"),
    ]
    assert ("became", "fused", "fuse_elementwise") in told
    assert ("became", "kernel", "outline_kernels") in told
    assert [what for _, what, _ in told[-3:]] == ["kernel", "buffer", "code"]
    assert found["last"] + 1 == names.index("lower_composites")
    assert found["marks"][-3]["go"]["kernel"] == kernel.id
    # and back: what it was fused into came from it
    heirs = {step.new for step in fused.later}
    (mark,) = [m for m in found["marks"] if m["pass"] == "fuse_elementwise"]
    assert mark["go"]["op"] in heirs and names[mark["at"]] == mark["pass"] and mark["rule"]
    back = command.json("op", recording, mark["go"]["op"])["timeline"]["marks"]
    made = next(m for m in back if m["lane"] == "op")
    assert (made["what"], made["at"]) == ("created", mark["at"])
    assert any(m["lane"] == "from" and m["pass"] == "lower_composites" for m in back)


def test_memory_adds_up(command, recording):
    found = command.json("memory", recording, "--top", 3)
    arena = [b for b in found["buffers"] if b["kind"] == "temporary"]
    assert found["peak_bytes"] == max(b["offset"] + b["size"] for b in arena)
    assert found["lower_bound_bytes"] == max(n for _, n in found["live"])
    assert found["gap"] == pytest.approx(found["peak_bytes"] / found["lower_bound_bytes"] - 1)
    text = command.text("memory", recording)
    assert "live bytes of the arena" in text


def test_the_curve_draws_the_peak_where_it_is():
    drawn = show_memory.drawn([(0, 1024), (4, 4096), (6, 1024), (8, 0)], height=4, width=8)
    bars = [line.split("|")[1].ljust(8) for line in drawn[:-1]]
    assert [sum(row[c] != " " for row in bars) for c in range(8)] == [1, 1, 1, 1, 4, 4, 1, 1]
    assert drawn[0].startswith("   4.0 KiB")


def test_kernels_lists_and_shows_every_text(command, recording):
    rows = command.json("kernels", recording)["kernels"]
    times = [row["total_us"] or 0 for row in rows]
    assert times == sorted(times, reverse=True)
    assert times[0] > 0
    name = rows[0]["name"]
    assert name in command.text("kernels", recording)
    source = command.text("kernels", recording, "--show", name)
    assert "def " in source
    assert "define" in command.text("kernels", recording, "--show", name, "--what", "llvm")
    assembly = command.json("kernels", recording, "--show", name, "--what", "assembly")
    assert "kernel:" in assembly["text"]
    assert assembly["assembly_map"]
    steps = command.json("kernels", recording, "--show", name, "--what", "steps")["steps"]
    assert steps[0]["name"] == "unscheduled"
    assert all('sym_name = "' in step["text"] for step in steps)


def test_query_answers_in_rows(command, recording):
    found = command.json("query", recording, "SELECT id, pass FROM stage ORDER BY id LIMIT 2")
    assert found["columns"] == ["id", "pass"]
    assert found["rows"][0] == [0, "import"]
    assert found["truncated"] is False
    text = command.text("query", recording, "SELECT id, pass FROM stage", "--rows", 1)
    assert text.splitlines()[1].split() == ["0", "import"]
    assert "more than 1 rows" in text


def test_export_copies_a_recording_and_writes_stages(command, recording, tmp_path):
    copy = tmp_path / "copy.run"
    command.json("export", recording, "-o", copy)
    with sqlite3.connect(copy) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert command.json("passes", copy) == command.json("passes", recording)
    text = tmp_path / "stage.mlir"
    found = command.json("export", recording, "--stage", "decompose", "-o", text)
    module = parse(text.read_text())
    with Recording.open(recording) as opened:
        kinds = [op.kind for op in opened.module(found["stage"]).walk()]
    assert [op.kind for op in module.walk()] == kinds


# -- lists, doctor -----------------------------------------------------------------------------


def test_a_disk_that_fills_under_a_stage_leaves_what_was_there(
    command, recording, tmp_path, monkeypatch
):
    path, text = tmp_path / "stage.mlir", Recording.text
    path.write_text("before")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def and_no_room_is_left(*given, **options):
        made = text(*given, **options)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
        return made

    monkeypatch.setattr(Recording, "text", and_no_room_is_left)
    try:
        code, _, err = command("export", recording, "--stage", "0", "-o", path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert code == 2 and "cannot be written: File too large" in err
    assert [p.name for p in tmp_path.iterdir()] == ["stage.mlir"]
    assert path.read_text() == "before"


def test_models_are_those_of_the_catalogue(command):
    found = command.json("models")["models"]
    assert [m["name"] for m in found] == list(CATALOGUE)
    assert "25,557,032" in command.text("models")


def test_targets_say_whether_this_machine_executes_them(command):
    assert {"name": "cpu", "missing": None}.items() <= command.json("targets")["targets"][0].items()
    found = command.json("targets", "--ops")
    by_name = {o["op"]: o for o in found["ops"]}
    assert by_name["core.matmul"]["targets"]["cpu"] == "kernel"
    assert by_name["core.softmax"]["targets"]["cpu"] == "decomposed"
    assert f"{len(by_name)} ops" in command.text("targets", "--ops")


def test_doctor_finds_this_machine_fit_and_names_what_is_missing(command, monkeypatch, tmp_path):
    found = command.json("doctor")
    names = {f["name"]: f for f in found["findings"]}
    assert found["ok"]
    assert {*names} >= {
        "Python",
        "numba",
        "llvmlite",
        "torch",
        "cores",
        "memory",
        "cache",
        "graphviz",
    }
    assert all(f["fix"] for f in found["findings"] if f["status"] != "ok")
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    monkeypatch.setenv("COMPILER_WORKBENCH_CACHE", str(blocked / "cache"))
    monkeypatch.setattr(check_machine, "PYTHON", (9, 0))
    worse = command.json("doctor", code=1)
    problems = {f["name"]: f["fix"] for f in worse["findings"] if f["status"] == "problem"}
    assert problems == {
        "Python": "use Python 9.0 or newer",
        "cache": "set COMPILER_WORKBENCH_CACHE to a writable folder",
    }


def test_doctor_compares_versions_with_the_tested_range():
    assert check_machine.within("2.4.6", ">=2.1,<3")
    assert not check_machine.within("3.0", ">=2.1,<3")
    assert not check_machine.within("2.0.9", ">=2.1,<3")
    assert check_machine.within("2.13.0+cpu", ">=2.11,<2.14")
    assert check_machine.tested_range("numpy") == ">=2.1,<3"
    assert check_machine.tested_range("torch").startswith(">=2.")


def test_every_json_output_is_one_line(command, recording):
    for words in (("models",), ("passes", recording), ("memory", recording), ("targets",)):
        _, out, _ = command(*words, "--json")
        assert out.count("\n") == 1
        json.loads(out)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "words",
    [
        ("passes",),
        ("lines",),
        ("lines", "--nodes"),
        ("kernels",),
        ("memory",),
        ("numerics",),
        ("show", "overview"),
        ("op", "11"),
        ("diff", "--pass", "3"),
        ("why-not", "11", "12"),
    ],
)
def test_names_in_a_recording_steer_no_terminal_and_break_no_table(
    command, recording, tmp_path, words
):
    path, name = tmp_path / "hostile.run", "\x1b[2J\u202e\n"
    shutil.copy(recording, path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE node SET name = ?1 || name, kind = ?1, scope = ?1, file = ?1", (name,))
        db.execute("UPDATE kernel SET name = ?1 || id", (name,))
        db.execute("UPDATE stage SET pass = ?1 || id, summary = ?1", (name,))
        db.execute("UPDATE meta SET value = ? WHERE key = 'model'", (json.dumps(name),))
    plain, hostile = (command.text(words[0], file, *words[1:]) for file in (recording, path))
    assert "\x1b" not in hostile and "\u202e" not in hostile
    if words[0] in ("kernels", "lines"):
        assert len(hostile.splitlines()) <= len(plain.splitlines())


def test_columns_stand_below_each_other_whatever_letters_are_in_them():
    rows = [("plain", 1), ("\u5c64\u5c64", 2), ("e\u0301t\u00e9", 3)]
    head, *lines = printing.table(("name", "n"), rows).splitlines()
    assert head == "name   n"
    assert lines == ["plain  1", "\u5c64\u5c64   2", "e\u0301t\u00e9    3"]


def test_nodes_that_were_left_out_vouch_for_no_result():
    from workbench.commands.run_model import _are_right

    right = {"left_out": 0, "verdict": "within"}
    assert _are_right(right)
    assert not _are_right({**right, "left_out": 1})
    assert not _are_right({**right, "verdict": "differs"})
    assert not _are_right(None)
