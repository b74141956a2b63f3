"""The harness itself, and the ratchet: what was recorded is consistent and no worse than before."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.mutations import carried, classes, judge, score, sites, tree, trial
from tests.mutations.operators import OPERATORS, function_at, lines_around, mutations
from tests.mutations.planted import PLANTED

RECORD = tree.ROOT / "tests/results/mutations.json"
RATCHET = Path(__file__).with_name("ratchet.toml")

_SOURCE = '''
LIMIT = 4
NAMES = {"Abs": "abs", "Neg": "neg"}
RULES = (Rule("x - 0 => x", op("sub", "x", 0), tolerance=0.5),)

def f(x, axis, strides):
    """1 + 1"""
    total = 0
    for i in range(x.rank):
        if i == axis and not x.empty:
            continue
        total += strides[i] * 2
    need(total > 3, "too few")
    if total < 7:
        raise ValueError(axis)
    put(total, axis)
    return min(total, g(x, keep=True)[0]), f"{total} + 1"
'''


def _edits(operator: str) -> set[tuple[str, str]]:
    return {(m.before(_SOURCE), m.after(_SOURCE)) for m in mutations(_SOURCE, (operator,))}


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("arithmetic", "total += strides[i] * 2", "total -= strides[i] * 2"),
        ("arithmetic", "total += strides[i] * 2", "total += strides[i] // 2"),
        ("comparison", "if i == axis and not x.empty:", "if i != axis and not x.empty:"),
        ("condition", "if i == axis and not x.empty:", "if ((i == axis)):"),
        ("condition", "if i == axis and not x.empty:", "if i == axis and (x.empty):"),
        ("condition", "if i == axis and not x.empty:", "if False:"),
        ("constant", "LIMIT = 4", "LIMIT = 5"),
        ("constant", "LIMIT = 4", "LIMIT = 8"),
        (
            "axis",
            'return min(total, g(x, keep=True)[0]), f"{total} + 1"',
            'return min(total, g(x, keep=True)[1]), f"{total} + 1"',
        ),
        ("swap", "put(total, axis)", "put(axis, total)"),
        (
            "keyword",
            'return min(total, g(x, keep=True)[0]), f"{total} + 1"',
            'return min(total, g(x)[0]), f"{total} + 1"',
        ),
        (
            "twin",
            'return min(total, g(x, keep=True)[0]), f"{total} + 1"',
            'return max(total, g(x, keep=True)[0]), f"{total} + 1"',
        ),
        ("removal", "put(total, axis)", "pass"),
        ("removal", "continue", "pass"),
        ("word", 'NAMES = {"Abs": "abs", "Neg": "neg"}', 'NAMES = {"Abs": "neg", "Neg": "neg"}'),
        (
            "emitted",
            'return min(total, g(x, keep=True)[0]), f"{total} + 1"',
            'return min(total, g(x, keep=True)[0]), f"{total} - 1"',
        ),
        ("stride", "total += strides[i] * 2", "total += strides[i] * 3"),
    ],
)
def test_an_operator_makes_its_edit(operator, before, after):
    assert (before, after) in _edits(operator)


def test_docstrings_and_messages_are_left_alone():
    for operator in OPERATORS:
        assert not any('"""' in before for before, _ in _edits(operator))


def test_guards_are_left_alone():
    for operator in OPERATORS:
        assert not any("need" in b or "total < 7" in b for b, _ in _edits(operator))


def test_rows_of_tables_are_known_by_their_first_word():
    rows = {m.row for m in mutations(_SOURCE, ("constant",)) if m.row}
    assert rows == {"x - 0 => x", "sub"}
    assert {m.row for m in mutations(_SOURCE, ("word",))} == {"Abs", "Neg"}
    assert {m.name for m in mutations(_SOURCE, ("constant",)) if m.name} == {"LIMIT", "RULES"}


@pytest.mark.parametrize("name", ["rules", "gradients", "emitted", "schedules"])
def test_nearly_every_mutation_of_the_sources_parses(name):
    kind, tried, bad = classes.CLASSES[name], 0, []
    for file in kind.paths(tree.ROOT)[::3]:
        text = (tree.ROOT / file).read_text()
        for mutation in mutations(text, kind.operators)[::29]:
            tried += 1
            try:
                ast.parse(mutation.applied(text))
            except SyntaxError:
                bad.append((file, mutation.line, mutation.operator))
    assert tried > 5
    assert len(bad) <= tried / 50, bad


def test_quotas_are_in_proportion_and_add_up():
    assert sum(classes.quotas(400).values()) == 400
    own = {k.name: k.quota for k in classes.CLASSES.values()}
    assert classes.quotas(sum(own.values())) == own
    assert sum(classes.quotas(7, ("rules", "axes")).values()) == 7


def test_an_overlay_differs_in_one_file(tmp_path):
    base = tmp_path / "base"
    (base / "core_compiler/passes").mkdir(parents=True)
    (base / "core_compiler/passes/a.py").write_text("A = 1\n")
    (base / "core_compiler/passes/b.py").write_text("B = 1\n")
    (base / "core_compiler/c.py").write_text("C = 1\n")
    made = tree.overlay(tmp_path / "made", base, "core_compiler/passes/a.py", "A = 2\n")
    assert (made / "core_compiler/passes/a.py").read_text() == "A = 2\n"
    assert (base / "core_compiler/passes/a.py").read_text() == "A = 1\n"
    same = [made / "core_compiler/passes/b.py", made / "core_compiler/c.py"]
    assert [p.read_text() for p in same] == ["B = 1\n", "C = 1\n"]


def test_what_a_mutant_writes_stays_out_of_the_clean_cache(tmp_path):
    from core_compiler.runtime.cache_folder import CacheFolder

    clean = CacheFolder(tmp_path / "clean")
    clean.put("kernels", "ab12", {"kernel.o": b"right"})
    (tmp_path / "clean/reference/0123").mkdir(parents=True)
    (tmp_path / "clean/reference/0123/f.nbi").write_bytes(b"index")
    own = CacheFolder(tree.cache(tmp_path / "own", tmp_path / "clean"))
    assert own.get("kernels", "ab12", "kernel.o") == b"right"
    own.put("kernels", "ab34", {"kernel.o": b"wrong"})
    own.remove("kernels", "ab12")
    (tmp_path / "own/reference/0123/f.nbi").write_bytes(b"other")
    (tmp_path / "own/reference/0123/g.nbi").write_bytes(b"other")
    assert clean.keys("kernels") == ["ab12"]
    assert clean.get("kernels", "ab12", "kernel.o") == b"right"
    assert [p.name for p in (tmp_path / "clean/reference/0123").iterdir()] == ["f.nbi"]
    assert (tmp_path / "clean/reference/0123/f.nbi").read_bytes() == b"index"
    (tmp_path / "own/tried").mkdir()
    # The next mutant finds nothing of it.
    assert tree.cache(tmp_path / "own", tmp_path / "clean") == own.root
    assert own.keys("kernels") == ["ab12"]
    assert own.get("kernels", "ab12", "kernel.o") == b"right"
    assert [p.name for p in (tmp_path / "own/reference/0123").iterdir()] == ["f.nbi"]
    assert (tmp_path / "own/reference/0123/f.nbi").read_bytes() == b"index"
    assert not (tmp_path / "own/tried").exists()


def _command(code: int, named=(), said="", model="m") -> dict:
    return {"kind": "command", "code": code, "named": list(named), "said": said, "model": model}


@pytest.mark.parametrize(
    ("said", "ended", "outcome"),
    [
        ([_command(0), _command(1, [["canonicalise", "x * 1 => x"]])], "", judge.CAUGHT),
        ([_command(70, [["fold_constants", "error"]])], "", judge.CAUGHT),
        ([_command(70)], "", judge.CRASH),
        ([_command(2)], "", judge.REFUSED),
        ([_command(3, said="does not compile (kernel k3)")], "", judge.CAUGHT),
        ([_command(2, said="1 op has invalid inputs or attributes: core.take")], "", judge.CAUGHT),
        ([_command(0), {"kind": "begin", "model": "n"}], "timeout", judge.TIMEOUT),
        ([_command(0), {"kind": "begin", "model": "n"}], "SIGSEGV", judge.CRASH),
        ([_command(0)], "", judge.SURVIVED),
        ([{"kind": "invalid", "error": "ImportError: x"}], "", judge.INVALID),
    ],
)
def test_the_first_command_that_is_not_green_decides(said, ended, outcome):
    assert judge.outcome(said, ended)["outcome"] == outcome


def test_whether_the_right_pass_was_blamed():
    assert judge.right([["canonicalise", "r"]], ["canonicalise"]) is True
    assert judge.right([["generate_code", "k"]], ["schedule_kernels"]) is False
    assert judge.right([], ["canonicalise"]) is None
    assert judge.right([["import", "torch add"]], ["fold_constants"], tables=True) is True
    assert judge.right([["import", "torch add"]], ["fold_constants"]) is False
    assert judge.right([["outline_kernels", "k"]], [], tables=True) is False


def test_a_line_has_the_name_of_the_function_around_it():
    text = "X = 1\nclass A:\n    def f(self):\n        def g():\n            return 2\n"
    assert function_at(text, 1) == ""
    assert function_at(text, 5) == "A.f.g"
    assert lines_around(text, 5) == range(5, 6) and lines_around(text, 3) == range(4, 6)
    assert not lines_around(text, 1)


def _survivor(**facts) -> dict:
    return {
        "file": "a.py",
        "function": "A.f",
        "before": "x  = 1",
        "after": "x = 2",
        "outcome": judge.SURVIVED,
        "tried": ["m"],
        **facts,
    }


def test_an_argument_of_a_decision_holds_only_where_results_are_the_clean_ones(monkeypatch):
    said = {
        "site": [{"file": "b.py", "before": "x = 1", "after": "x = 2", "argument": "never read"}],
        "decision": [{"file": "a.py", "function": "A", "argument": "one of several right ways"}],
    }
    monkeypatch.setattr(judge, "equivalents", lambda: said)
    known = judge.Arguments()
    right = judge.EQUIVALENT_SITE, "one of several right ways"
    assert known.of(_survivor(effect="code")) == right
    assert known.of(_survivor(effect="earlier")) == right
    schedule = "core_compiler/scheduling/transforms/edit.py"
    assert known.of(_survivor(effect="earlier", file=schedule))[0] == judge.EQUIVALENT_SITE
    assert known.of(_survivor(effect="code", file=schedule))[0] == judge.SURVIVED
    assert known.of(_survivor(effect="values")) == (judge.SURVIVED, "")
    assert known.of(_survivor(file="b.py", effect="values"))[0] == judge.EQUIVALENT_SITE


def _probe(model: str, text: str, values: str) -> dict:
    return {
        "kind": "probe",
        "model": model,
        "text": text,
        "values": [values],
        "kernels": {"a": text},
        "steps": {"a": ["l", "s"]},
        "loops": {"a": [text]},
    }


@pytest.mark.parametrize(
    ("probed", "effect", "again"),
    [
        ([_probe("m", "a", "1"), _probe("n", "a", "1")], "nothing", []),
        ([_probe("m", "a", "1"), _probe("n", "b", "1")], "code", ["n"]),
        ([_probe("m", "b", "2"), _probe("n", "b", "1")], "values", ["n"]),
        ([_probe("m", "b", "1") | {"loops": {"a": ["s"]}}], "earlier", ["n"]),
        ([_probe("m", "b", "1") | {"loops": {"a": ["s", "k"]}}], "code", ["n"]),
        ([_probe("m", "b", "1") | {"loops": {}}], "code", ["n"]),
        (
            [_probe("m", "b", "1") | {"loops": {"a": ["s"]}, "kernels": {"a": "b", "c": "d"}}],
            "code",
            ["n"],
        ),
        ([_probe("m", "b", "2") | {"loops": {"a": ["s"]}}], "values", ["n"]),
        ([_probe("m", "a", "1"), {"kind": "begin", "model": "n"}], "nothing", []),
        ([], "unknown", []),
    ],
)
def test_what_a_survivor_changes_decides_what_is_tried_next(probed, effect, again):
    site = sites.Site(classes.CLASSES["rules"], "a.py", None, ("m", "n"))
    one = trial.Trial(site, _survivor())
    one.probed = probed
    clean = {name: _probe(name, "a", "1") for name in ("m", "n")}
    assert one.conclude(clean) == again
    assert one.row["effect"] == effect
    assert (one.row["outcome"] == judge.NO_EFFECT) == (effect == "nothing")


def test_a_mutation_is_found_again_where_its_line_has_moved(tmp_path):
    file = "core_compiler/passes/a.py"
    (tmp_path / file).parent.mkdir(parents=True)
    source = "def f(x):\n    # new\n    return x < 2\n\ndef g(x):\n    return x < 2\n"
    (tmp_path / file).write_text(source)
    lines = {"pass:fold": {file: [3, 6]}}
    seen = sites.Coverage([sites.Traced("m", lines, frozenset(), {"check": 1.0})])
    kind = classes.CLASSES["rules"]
    row = {
        "file": file,
        "line": 2,
        "operator": "comparison",
        "before": "return x < 2",
        "after": "return x <= 2",
    }
    found = sites.like(kind, tmp_path, seen, row)
    assert found is not None and (found.mutation.line, found.passes) == (3, ("fold",))
    assert sites.like(kind, tmp_path, seen, {**row, "before": "return x < 3"}) is None


def test_traces_are_carried_over_to_changed_sources(tmp_path):
    old, new = tmp_path / "1", tmp_path / "2"
    for folder, texts in (
        (old, {"a.py": "1\n2\n3\n4\n", "gone.py": "1\n", "same.py": "1\n2\n"}),
        (new, {"a.py": "0\n1\n2 and more\nand this\n4\n", "new.py": "1\n", "same.py": "1\n2\n"}),
    ):
        base = folder / "tree"
        base.mkdir(parents=True)
        for file, text in texts.items():
            (base / file).write_text(text)
        carried.keep_sources(folder, base, sorted(texts))
    lines = {"check": {"a.py": [1, 3], "gone.py": [1], "same.py": [2]}, "load": {"a.py": [4]}}
    for name in ("x.json", "y.json"):
        (old / name).write_text(json.dumps({"lines": lines, "tokens": ["t"]}))
    (new / "y.json").write_text("its own")
    assert carried.carry_over(new, ["x.json", "y.json", "z.json"]) == (["x.json"], ["new.py"])
    assert json.loads((new / "x.json").read_text()) == {
        "lines": {"check": {"a.py": [1, 2, 3, 4], "same.py": [2]}, "load": {"a.py": [5]}},
        "tokens": ["t"],
        "carried": "1",
    }
    assert (new / "y.json").read_text() == "its own"


def test_what_was_missed_is_what_has_no_argument_and_what_another_pass_was_blamed_for():
    outcomes = (judge.CAUGHT, judge.SURVIVED, judge.EQUIVALENT_SITE, judge.NO_EFFECT, judge.CRASH)
    rows = [{"outcome": o, "right": None} for o in outcomes]
    rows.append({"outcome": judge.CAUGHT, "right": False})
    assert score.missed(rows) == [rows[1], rows[4], rows[5]]


def test_what_is_tried_again_stands_in_its_place_but_for_what_changes_nothing():
    def row(name, outcome):
        return {
            "file": "a.py",
            "function": name,
            "before": "x",
            "after": "y",
            "class": "rules",
            "outcome": outcome,
            "right": None,
            "seconds": 1.0,
            "processor": 1.0,
        }

    session = SimpleNamespace(digest="d", jobs=1, entries={}, dropped={}, flags=[], carried=0)
    first = score.result(
        [row("f", judge.SURVIVED), row("g", judge.SURVIVED), row("h", judge.CAUGHT)],
        7,
        3,
        session,
        3.0,
    )
    found = score.again(first, [row("f", judge.CAUGHT), row("g", judge.NO_EFFECT)], session)
    assert [r["outcome"] for r in found["mutations"]] == [
        judge.CAUGHT,
        judge.SURVIVED,
        judge.CAUGHT,
    ]
    assert [r.get("first") for r in found["mutations"]] == [judge.SURVIVED, judge.SURVIVED, None]
    assert (found["seed"], found["whole"]["caught"], found["first"]["whole"]["caught"]) == (7, 2, 1)


# -- the ratchet -----------------------------------------------------------------------------------


def _record() -> dict:
    if not RECORD.exists():
        pytest.skip(
            "no run is recorded: python -m tests.mutations --seed N -o tests/results/mutations.json"
        )
    return json.loads(RECORD.read_text())


def test_the_record_is_consistent():
    found = _record()
    rows = score.counted(found["mutations"])
    assert score.score(rows) == found["whole"]
    assert {r["outcome"] for r in rows} <= set(judge.OUTCOMES)
    drawn = Counter(r["class"] for r in rows)
    for name, quota in classes.quotas(found["count"], tuple(found["classes"])).items():
        assert drawn[name] == quota
        assert score.score([r for r in rows if r["class"] == name]) == found["classes"][name]


def test_the_score_is_not_below_its_floor():
    found, floor = _record(), tomllib.loads(RATCHET.read_text())["floor"]
    assert found["whole"]["score"] >= floor["all"]
    for name, least in floor["classes"].items():
        assert found["classes"][name]["score"] >= least, name


def test_every_survivor_has_an_argument_or_is_a_known_hole():
    known = {
        (h["file"], judge.plain(h["before"]), judge.plain(h["after"]))
        for h in tomllib.loads(RATCHET.read_text()).get("hole", [])
    }
    missing = [
        f"{r['file']}:{r['line']} {r['before']} => {r['after']}"
        for r in _record()["mutations"]
        if r["outcome"] not in (judge.CAUGHT, judge.EQUIVALENT_SITE, judge.INVALID, judge.NO_EFFECT)
        and (r["file"], judge.plain(r["before"]), judge.plain(r["after"])) not in known
    ]
    assert not missing


def test_every_argument_is_written():
    for kind in judge.equivalents().values():
        for site in kind:
            assert len(site["argument"]) > 40, site
    for hole in tomllib.loads(RATCHET.read_text()).get("hole", []):
        assert len(hole["cause"]) > 40, hole


# -- planted faults --------------------------------------------------------------------------------


def _planted(names: list[str], folder: Path) -> dict[str, dict]:
    words = [
        sys.executable,
        "-m",
        "tests.mutations",
        "--planted",
        ",".join(names),
        "--work",
        folder,
    ]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tree.ROOT, timeout=900)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == len(names), done.stderr[-2000:]
    return {row["class"]: row for row in rows}


def _is_caught(row: dict) -> None:
    assert row["outcome"] == judge.CAUGHT, row
    assert row["right"] in (True, None), row


@pytest.mark.slow
def test_a_planted_fault_of_each_class_is_caught(tmp_path):
    assert set(PLANTED) == set(classes.CLASSES)
    for row in _planted(list(PLANTED), tmp_path).values():
        _is_caught(row)
