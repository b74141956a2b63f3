"""`workbench show`: every view's data as strict JSON, and strict JSON of commands that read."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from workbench import views
from workbench.commands.show_view import ELSEWHERE, PARTS, as_lists
from workbench.queries.run import Run
from workbench.state.view_state import VIEWS, ViewState

#: Views that say why there is nothing, of a recording that trains nothing.
OF_TRAINING = ("training", "divergence")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("view", [v for v in VIEWS if v not in OF_TRAINING])
def test_it_gives_what_the_page_is_given(command, recording, view):
    found = command.json("show", recording, view)
    run = Run(recording)
    wanted = views.data(view, (run,), ViewState())
    if view == "overview":  # what the page asks for once the rest is drawn
        wanted["advice"] = views.answer(view, (run,), ViewState(), {"kind": "advice"})
    run.close()
    assert (found["view"], found["shown"]["op"]) == (view, None)
    assert found["data"] == json.loads(json.dumps(as_lists(wanted), allow_nan=False))


@pytest.mark.parametrize("view", OF_TRAINING)
def test_a_view_with_nothing_to_show_says_why_and_what_to_do(command, recording, view):
    error = command.json("show", recording, view, code=2)["error"]
    assert error["where"] == f"view {view}"
    assert "workbench train" in error["what"]


def test_arrays_become_lists_and_what_is_not_known_null():
    data = {"a": np.array([1.5, np.nan]), "b": (np.int32(3), float("inf")), 4: "x"}
    assert as_lists(data) == {"a": [1.5, None], "b": [3, None], "4": "x"}


def test_what_is_selected_is_said_as_in_the_page(command, recording):
    kernels = command.json("show", recording, "kernels")["data"]["rows"]
    chosen = kernels[-1]
    code = command.json("show", recording, "code", "--kernel", chosen["name"])
    assert code["shown"]["kernel"] == chosen["id"]
    assert code["data"]["title"].startswith(chosen["name"])

    graph = command.json("show", recording, "graph", "--stage", "fold_constants")
    ops = graph["data"]["ops"]
    key, name = ops["key"][-1], ops["name"][-1]
    by_name = command.json(
        "show", recording, "inspector", "--stage", "fold_constants", "--op", name
    )
    assert by_name["shown"]["op"] == key
    assert by_name["data"]["title"].startswith(name)
    hits = command.json("show", recording, "search", "--ask", chosen["name"])["data"]
    assert any(chosen["name"] in json.dumps(hit) for hit in hits)
    rail = command.json("show", recording, "rail", "--stage", "fold_constants")["data"]
    assert rail["total"] == len(rail["rewrites"])


def test_what_views_ask_for_besides_can_be_asked(command, recording):
    planners = command.json("show", recording, "memory", "--ask", "planners")["answer"]
    assert [p["planner"] for p in planners if p["used"]]
    lines = command.json(
        "show", recording, "diff", "--stage", 1, "--ask", '{"kind": "lines", "from": 0, "to": 5}'
    )["answer"]
    assert len(lines["lines"]) == 5


def test_the_overview_and_a_comparison_are_text_too(command, recording):
    text = command.text("show", recording, "overview")
    for words in ("digits-mlp", "peak memory", "output digest", "findings"):
        assert words in text
    text = command.text("show", recording, "overview", "--other", recording)
    for words in ("A: mlp.run", "B: mlp.run", "peak memory", "output digest", "findings"):
        assert words in text
    assert "differs" not in text
    found = command.json("show", recording, "overview", "--other", recording)["data"]
    assert {each["sides"] for each in found["advice"]} <= {"ab"}
    text = command.text("show", recording, "compare", "--other", recording)
    assert "time per execution" in text
    assert "no view" not in text


@pytest.mark.parametrize("view", ELSEWHERE)
def test_what_is_data_only_names_the_command_for_people(command, recording, view):
    code, out, err = command("show", recording, view)
    assert (code, out) == (2, "")
    assert "add --json" in err
    assert f"workbench {ELSEWHERE[view].split()[0]}" in err


def test_every_view_and_part_is_text_here_or_elsewhere():
    assert {*ELSEWHERE, "overview", "compare"} == {*VIEWS, *PARTS}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("kernel",), "did you mean kernels"),
        (("graph", "--stage", "99"), "stage 99 not found"),
        (("code", "--kernel", "nothing"), "unknown kernel"),
        (("graph", "--op", "%nothing"), "'%nothing'"),
        (("graph", "--op", "123456789"), "123456789"),
        (("memory", "--buffer", "99999"), "buffer 99999 not found"),
        (("rewrites", "--stage", "0", "--rewrite", "0"), "0 rewrites"),
        (("memory", "--ask", "nonsense"), "does not support"),
        (("memory", "--ask", "{nonsense"), "does not support"),
        (("kernels", "--ask", "x"), "not supported by view kernels"),
        (("search",), "missing search text"),
        (("compare", "--other", "none.run"), "not found"),
    ],
)
def test_mistakes_are_named(command, recording, words, says):
    error = command.json("show", recording, *words, code=2)["error"]
    assert says in f"{error['what']} {error['fix']}"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        ("passes",),
        ("diff", "--pass", "1"),
        ("op", "1"),
        ("memory",),
        ("lines",),
        ("numerics",),
        ("kernels",),
        ("kernels", "--show", "{kernel}"),
        ("query", "SELECT * FROM tensor_stats"),
        ("export", "-o", "{t}/x.graph.json"),
        ("export", "-o", "{t}/a", "--tables", "csv"),
        ("export", "--table", "help"),
        ("show", "overview"),
        ("show", "numerics"),
        ("show", "timeline"),
        ("show", "compare"),
    ],
    ids=lambda words: "-".join(w for w in words if "{" not in w and " " not in w),
)
def test_json_is_strict_also_where_numbers_are_not_finite(
    command, hostile, tmp_path_factory, words
):
    path, kernel = hostile
    folder = tmp_path_factory.mktemp("out")
    head, *rest = (w.format(t=folder, kernel=kernel) for w in words)
    command.json(head, path, *rest)  # refuses NaN and Infinity
    for written in folder.rglob("*.json"):
        json.loads(written.read_text(), parse_constant=pytest.fail)


def test_a_trace_has_no_word_for_times_that_are_not_finite(command, hostile, tmp_path):
    error = command.json("export", hostile[0], "-o", tmp_path / "x.trace.json", code=2)["error"]
    assert "non-finite" in error["what"]
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def hostile(recording, tmp_path_factory):
    """The recording with infinities wherever a float stands, and the name of a kernel."""
    path = tmp_path_factory.mktemp("hostile") / "x.run"
    path.write_bytes(recording.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        for table, columns in {
            "tensor_stats": ("minimum", "maximum", "mean"),
            "check_result": ("worst_error",),
            "launch_time": ("median",),
            "execution": ("median",),
            "rewrite": ("microseconds",),
        }.items():
            for column in columns:
                connection.execute(f"UPDATE {table} SET {column} = 9e999")
        connection.execute(
            "UPDATE figure SET value = -9e999 WHERE section IN ('run', 'timing')"
            " AND typeof(value) = 'real'"
        )
        ((kernel,),) = connection.execute("SELECT name FROM kernel LIMIT 1")
        connection.commit()
    return path, kernel
