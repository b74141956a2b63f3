"""Diffs of stages: counterparts by identity, values and rewrites; the text side by side."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.ir import Block, Function, Module, Op, Rewriter, Value
from core_compiler.ir.diff import diff, longest_increasing, value_map
from core_compiler.ir.line_diff import AlignedLines, changed_spans, diff_lines
from core_compiler.ir.text import print_module
from core_compiler.ir.unified import patch
from tests.examples import examples
from tests.ir.modules import F32, difference, modules, small_module


def chain(length: int) -> tuple[Module, list[Op]]:
    """x -> exp -> exp ... as a module, and its ops."""
    x = Value(F32, "x")
    ops, last = [], x
    for number in range(length):
        value = Value(F32, f"v{number}")
        ops.append(Op("core.exp", (last,), (value,)))
        last = value
    return module_of([x], ops, [last]), ops


def module_of(arguments, ops, outputs) -> Module:
    return Module({"main": Function("main", Block(tuple(arguments), tuple(ops), tuple(outputs)))})


def rewritten(module: Module, edit) -> tuple[Module, list]:
    rewriter = Rewriter(module.main.body)
    edit(rewriter)
    return module.with_main(rewriter.commit()), rewriter.events


# -- the structural diff -------------------------------------------------------------------------


def test_the_same_module_differs_in_nothing():
    module = small_module()
    found = diff(module, module)
    assert found.is_empty() and found.kept == list(module.walk())


def test_a_remade_value_is_a_recorded_counterpart():
    module, ops = chain(3)
    after, events = rewritten(
        module, lambda r: r.replace(ops[1], ops[1].with_(kind="core.tanh"), rule="swap")
    )
    found = diff(module, after, events)
    (match,) = found.changed
    assert (match.old, match.new.kind, match.how, match.why) == (
        ops[1],
        "core.tanh",
        "recorded",
        "same value",
    )
    assert found.kept == [ops[0], ops[2]] and not found.removed and not found.added


def test_a_mapped_value_is_a_recorded_counterpart_and_names_its_rule():
    module, ops = chain(3)
    new = Op("core.tanh", ops[1].operands, (Value(F32, "t"),))
    after, events = rewritten(
        module, lambda r: r.replace(ops[1], new, {ops[1].result: new.result}, rule="swap")
    )
    found = diff(module, after, events)
    assert [(m.old, m.new.kind, m.how, m.why) for m in found.changed] == [
        (ops[1], "core.tanh", "recorded", "swap"),
        (ops[2], "core.exp", "recorded", "same value"),
    ]


def test_value_maps_compose_over_several_rewrites():
    module, ops = chain(2)
    first = Op("core.tanh", ops[0].operands, (Value(F32),))
    second = Op("core.sin", ops[0].operands, (Value(F32),))

    def edit(rewriter):
        rewriter.replace(ops[0], first, {ops[0].result: first.result}, rule="one")
        placed = rewriter.producer(first.result)
        rewriter.replace(placed, second, {first.result: second.result}, rule="two")

    after, events = rewritten(module, edit)
    assert value_map(events)[ops[0].result] == (second.result, "one")
    (match, _) = diff(module, after, events).changed
    assert match.new.kind == "core.sin" and match.why == "one"


def test_fused_ops_are_merged_into_the_one_that_carries_their_value():
    module, ops = chain(3)
    both = Op("core.fused", ops[0].operands, (ops[1].result,))
    after, events = rewritten(module, lambda r: r.replace(ops[:2], both, rule="fuse"))
    found = diff(module, after, events)
    assert [m.old for m in found.changed] == [ops[1]]
    assert found.removed == [ops[0]]


def test_an_op_merged_with_an_equal_one_says_with_which():
    x, a, b, c = (Value(F32, n) for n in "xabc")
    one, two = Op("core.exp", (x,), (a,)), Op("core.exp", (x,), (b,))
    use = Op("core.add", (a, b), (c,))
    module = module_of([x], [one, two, use], [c])
    after, events = rewritten(module, lambda r: r.replace(two, (), {b: a}, rule="cse"))
    found = diff(module, after, events)
    assert [(m.old, m.new, m.why) for m in found.merged] == [(two, one, "cse")]
    assert found.removed == [two] and [m.old for m in found.changed] == [use]


def test_ops_in_another_order_are_moved():
    x, a, b, c = (Value(F32, n) for n in "xabc")
    ops = [Op("core.exp", (x,), (v,)) for v in (a, b, c)]
    found = diff(module_of([x], ops, [a]), module_of([x], [ops[2], ops[0], ops[1]], [a]))
    assert found.moved == [ops[2]] and found.kept == [ops[2], ops[0], ops[1]]


def test_without_rewrites_equal_structure_is_a_guess():
    before, _ = chain(3)
    x = before.main.arguments[0]
    ops, last = [], x
    for _ in range(3):
        value = Value(F32)
        ops.append(Op("core.exp", (last,), (value,)))
        last = value
    found = diff(before, module_of([x], ops, [last]))
    assert {m.how for m in found.changed} == {"guessed"}
    assert found.changed[0].old.operands == (x,)


@given(st.lists(st.integers(0, 30), unique=True, max_size=12))
def test_longest_increasing_subsequence(numbers):
    places = longest_increasing(numbers)
    assert places == sorted(places)
    picked = [numbers[p] for p in places]
    assert picked == sorted(picked)
    best = [1] * len(numbers)
    for i in range(len(numbers)):
        best[i] = max([best[j] + 1 for j in range(i) if numbers[j] < numbers[i]], default=1)
    assert len(picked) == max(best, default=0)


@given(st.integers(2, 12), st.randoms(use_true_random=False))
def test_every_op_is_in_exactly_one_list(length, rng: random.Random):
    module, ops = chain(length)

    def edit(rewriter):
        for op in rng.sample(ops, rng.randint(1, length)):
            current = rewriter.producer(op.result)
            if rng.random() < 0.5:
                rewriter.replace(current, current.with_(kind="core.tanh"), rule="swap")
            elif current is not None:
                new = Op("core.sin", current.operands, (Value(F32),))
                rewriter.replace(current, new, {op.result: new.result}, rule="sin")

    after, events = rewritten(module, edit)
    found = diff(module, after, events)
    old = [*found.kept, *(m.old for m in found.changed), *found.removed]
    new = [*found.kept, *(m.new for m in found.changed), *found.added]
    assert sorted(map(id, old)) == sorted(map(id, module.walk()))
    assert sorted(map(id, new)) == sorted(map(id, after.walk()))
    assert all(m.how == "recorded" for m in found.changed)


# -- the text side by side -----------------------------------------------------------------------


def sides(rows) -> tuple[list[str], list[str]]:
    return tuple([r[s] for r in rows if r[s] is not None] for s in ("left", "right"))


def plain(module: Module) -> list[str]:
    lines = print_module(module.with_(symbols={})).splitlines()
    return ["module {" if line.startswith("module ") else line for line in lines]


@settings(max_examples=examples(15))
@given(modules(), modules())
def test_both_columns_are_the_modules_texts(before, after):
    left, right = sides(diff_lines(before, after))
    names = sorted(before.functions.keys() & after.functions.keys())
    assert sorted(left) == sorted(plain(before))
    assert right == plain(after)
    if names == list(before.functions) == list(after.functions):
        assert left == plain(before)


def applied(text: list[str], lines: list[str]) -> list[str]:
    """What a patch makes of a text; where it does not say what is there, an AssertionError."""
    made: list[str] = []
    at = 0
    for line in lines[2:]:
        if line.startswith("@@"):
            start, count = map(int, line.split()[1].lstrip("-").split(","))
            begin = start - (count > 0)
            made += text[at:begin]
            at = begin
            new, many = map(int, line.split()[2].lstrip("+").split(","))
            assert len(made) == new - (many > 0)
            continue
        if line[0] in " -":
            assert text[at] == line[1:]
            at += 1
        if line[0] in " +":
            made.append(line[1:])
    return made + text[at:]


@settings(max_examples=examples(15))
@given(modules(), modules(), st.integers(0, 3))
def test_a_patch_makes_the_second_text_of_the_first(before, after, context):
    rows = AlignedLines(before, after, found=diff(before, after))
    left, right = sides(rows[:])
    lines = list(patch(rows, "before.mlir", "after.mlir", context))
    assert lines[:2] == (["--- before.mlir", "+++ after.mlir"] if left != right else [])
    assert applied(left, lines) == right


def test_a_patch_shows_what_changed_and_a_little_around_it():
    module, ops = chain(40)
    after, events = rewritten(
        module, lambda r: r.replace(ops[20], ops[20].with_(kind="core.tanh"), rule="swap")
    )
    rows = AlignedLines(module, after, found=diff(module, after, events))
    _, _, head, *lines = patch(rows, "a", "b", context=1)
    assert head == "@@ -23,3 +23,3 @@"
    assert [line[0] for line in lines] == [" ", "-", "+", " "]
    assert '"core.exp"' in lines[1] and '"core.tanh"' in lines[2]


def test_a_changed_op_stands_beside_its_counterpart():
    module, ops = chain(40)
    after, events = rewritten(
        module, lambda r: r.replace(ops[20], ops[20].with_(kind="core.tanh"), rule="swap")
    )
    rows = diff_lines(module, after, rewrites=events, changed_only=True, context=2, key=id)
    assert [r["kind"] for r in rows] == ["gap", "same", "same", "changed", "same", "same", "gap"]
    row = rows[3]
    assert row["how"] == "recorded"
    assert row["left_key"] == id(ops[20]) and row["right_key"] == id(after.main.body.ops[20])
    (span,) = row["left_spans"]
    assert row["left"][slice(*span)] == '"core.exp"'
    assert row["left_number"] == row["right_number"] == 24
    shown = sum(r["kind"] != "gap" for r in rows)
    assert shown + sum(r.get("hidden", 0) for r in rows) == len(plain(module))


def test_added_removed_and_moved_ops_have_one_side():
    x, a, b, c = (Value(F32, n) for n in "xabc")
    ops = [Op("core.exp", (x,), (a,)), Op("core.sin", (x,), (b,)), Op("core.cos", (x,), (c,))]
    extra = Op("core.tanh", (x,), (Value(F32, "d"),))
    before, after = (module_of([x], o, [c]) for o in (ops, [ops[2], ops[1], extra]))
    kinds = [(r["kind"], r["left"] is None) for r in diff_lines(before, after)]
    assert ("removed", False) in kinds and ("added", True) in kinds
    assert {k for k in kinds if k[0] == "moved"} == {("moved", True), ("moved", False)}


def test_functions_of_one_side_stand_where_that_side_has_them():
    x = Value(F32, "x")
    body = Block((x,), (), (x,))

    def made(*names: str) -> Module:
        return Module({name: Function(name, body) for name in names})

    heads = [
        row
        for row in diff_lines(
            made("main", "old", "kept"), made("main", "new", "kept"), key=lambda thing: thing.name
        )
        if "core.func" in (row["left"] or row["right"])
    ]
    assert [(row["left_key"], row["right_key"]) for row in heads] == [
        ("main", "main"),
        ("old", None),
        (None, "new"),
        ("kept", "kept"),
    ]


def test_a_change_inside_a_region_is_aligned_inside_it():
    module = small_module()
    loop = module.main.body.ops[3]
    inner = loop.regions[0]
    swapped = inner.with_(ops=(inner.ops[0].with_(kind="core.mul"),))
    ops = (*module.main.body.ops[:3], loop.with_(regions=(swapped,)))
    after = module.with_main(module.main.body.with_(ops=ops))
    rows = diff_lines(module, after, changed_only=True, context=0)
    assert [r["kind"] for r in rows if r["kind"] != "gap"] == ["changed"]
    (row,) = (r for r in rows if r["kind"] == "changed")
    assert '"core.add"' in row["left"] and '"core.mul"' in row["right"]


def test_spans_cover_what_differs():
    left, right = "%a = f(%b, %c)", "%a = f(%b, %long, %d)"
    a, b = changed_spans(left, right)
    assert [left[i:j] for i, j in a] == ["%c"]
    assert "".join(right[i:j] for i, j in b) == "%long, %d"


def test_a_diff_with_itself_is_all_same():
    module = small_module()
    assert {r["kind"] for r in diff_lines(module, module)} == {"same"}
    assert [r["kind"] for r in diff_lines(module, module, changed_only=True)] == ["gap"]
    assert difference(module, module) == ""
