"""Replaying a pass's events on the stage before gives the stage after; the rest is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core_compiler.ir import Module, Op, Rewrite, Rewriter, Value
from core_compiler.ir.replay import MOST_OLD, UNLOGGED, differences, unproven
from core_compiler.passes.base import PassContext
from core_compiler.passes.lower_control_flow import LowerControlFlow
from core_compiler.passes.simplify_loops import SimplifyLoops
from tests.passes.loops import below, loop, next_, region
from tests.passes.programs import program


def network() -> Module:
    return program(lambda b, x, y: [b.exp(b.add(b.relu(x), y)), b.mul(x, y)], "3x4xf32", "3x4xf32")


def edited(module: Module, change: Callable[[list[Op]], list[Op]]) -> Module:
    body = module.main.body
    return module.with_main(body.with_(ops=tuple(change(list(body.ops)))))


def only(kind: str, module: Module) -> Op:
    (found,) = (op for op in module.main.body.ops if op.kind == f"core.{kind}")
    return found


def logged(module: Module, edit: Callable[[Rewriter], None]) -> tuple[Module, list[Rewrite]]:
    rewriter = Rewriter(module.main.body)
    edit(rewriter)
    return module.with_main(rewriter.commit()), rewriter.events


def swap_relu(rewriter: Rewriter) -> None:
    (old,) = (op for op in rewriter.ops if op.kind == "core.relu")
    new = Value(old.result.type)
    rewriter.replace(
        old,
        old.with_(kind="core.abs", results=(new,), origin=None),
        {old.result: new},
        rule="relu => abs",
    )


def test_a_module_that_nobody_touched_has_no_differences():
    module = network()
    assert differences(module, module, ()) == []


def test_what_events_say_leaves_nothing_over():
    module = network()
    after, events = logged(module, swap_relu)
    assert after is not module
    assert differences(module, after, events) == []


def test_the_same_change_without_its_event_is_found_at_the_op():
    module = network()
    after, _ = logged(module, swap_relu)
    (found,) = differences(module, after, ())
    assert found.rewrite.rule == UNLOGGED
    assert [op.kind for op in found.rewrite.old] == ["core.relu", "core.add"]
    assert [op.kind for op in found.rewrite.new] == ["core.abs", "core.add"]
    (kept,) = found.rewrite.values
    assert kept is only("add", module).result


def test_an_event_beside_an_unlogged_change_does_not_cover_it():
    module = network()
    after, events = logged(module, swap_relu)
    sneaky = edited(
        after,
        lambda ops: [op.with_(kind="core.sub") if op.kind == "core.mul" else op for op in ops],
    )
    (found,) = differences(module, sneaky, events)
    assert [op.kind for op in (*found.rewrite.old, *found.rewrite.new)] == ["core.mul", "core.sub"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda ops: [
                o.with_(operands=o.operands[::-1]) if o.kind == "core.mul" else o for o in ops
            ],
            "reads other values",
        ),
        (
            lambda ops: [
                o.with_(attributes={"note": 1}) if o.kind == "core.exp" else o for o in ops
            ],
            "note: None became 1",
        ),
    ],
    ids=["operands", "attributes"],
)
def test_changed_operands_and_attributes_are_said(change, said):
    module = network()
    (found,) = differences(module, edited(module, change), ())
    assert said in found.note


def test_other_results_are_found():
    module = network()
    body = module.main.body
    (found,) = differences(
        module, module.with_main(body.with_(outputs=(body.outputs[1], body.outputs[1]))), ()
    )
    assert found.rewrite.values == {body.outputs[0]: body.outputs[1]}


def test_facts_of_a_function_are_part_of_the_log():
    module = network()
    main = module.main
    after = module.with_function(main.with_(attributes={"aliases": ((0, 0),)}))
    (found,) = differences(module, after, ())
    assert "aliases" in found.note
    said = Rewrite("donate", "", (), (), {}, attributes={"aliases": ((0, 0),)})
    assert differences(module, after, [said]) == []


def test_an_op_that_an_event_names_and_nobody_put_in_is_found():
    module = network()
    _, events = logged(module, swap_relu)
    found = differences(module, module, events)
    assert any("which does not exist" in d.note for d in found)


def test_one_event_for_everything_proves_nothing():
    module = program(lambda b, x: [_chain(b, x, MOST_OLD + 1)], "4xf32")
    ops = module.main.body.ops
    assert unproven(Rewrite("all at once", "", ops, ops, {}))
    assert not unproven(Rewrite("some", "", ops[:MOST_OLD], ops[:MOST_OLD], {}))


def _chain(b, x, length: int):
    for _ in range(length):
        x = b.neg(x)
    return x


def test_a_loop_may_stop_carrying_what_it_carried_first():
    """Its body is another region then, with the same ops."""

    def body(b, j, i, x):
        return next_(b, j), next_(b, i), b.mul(b.add(x, x), b.scalar_like(0.5, x))

    def go(b, j, i, x):
        return b.lt(i, b.scalar_like(9, i))

    module = program(
        lambda b, i, x: loop(b, (b.constant(0, "i32"), i, x), go, body)[2], "i32", "4xf32"
    )
    context = PassContext()
    after = SimplifyLoops().run(module, context)
    (kept,) = (op for op in after.main.body.ops if op.kind == "core.while")
    assert len(kept.operands) == 2
    assert differences(module, after, context.rewrites) == []


def test_a_loop_in_a_branch_belongs_where_the_event_puts_it():
    """Its ops keep their results, in a block of a loop with others."""

    def arm(b, y):
        return loop(
            b, (b.constant(0, "i32"), y), below(3), lambda b, i, y: (next_(b, i), b.add(y, y))
        )[1]

    def build(b, p, x):
        arms = region([x.type], arm), region([x.type], lambda b, y: b.neg(y))
        return b.op("core.if", (p, x), regions=arms)

    module, context = program(build, "i1", "4xf32"), PassContext()
    after = LowerControlFlow().run(module, context)
    assert differences(module, after, context.rewrites) == []
    (kept,) = (op for op in after.main.body.ops if op.kind == "core.while")
    test, body = kept.regions
    (moved,) = (op for op in body.ops if op.results == (body.outputs[1],))
    rest = tuple(op for op in body.ops if op is not moved)
    there = kept.with_(regions=(test.with_(ops=(*test.ops, moved)), body.with_(ops=rest)))
    wrong = edited(after, lambda ops: [there if op is kept else op for op in ops])
    assert differences(module, wrong, context.rewrites)


def test_an_event_of_an_op_that_is_there_still_is_found():
    """A pass that logs a rewrite and keeps the op: the step would show what did not happen."""
    module = network()
    _, events = logged(module, swap_relu)
    found = [d.note for d in differences(module, module, events)]
    assert any("but it still exists" in note for note in found)
    assert any("which does not exist" in note for note in found)


def test_an_event_that_puts_in_another_op_for_a_value_is_found_where_the_old_one_stays():
    module = network()
    relu = only("relu", module)
    new = relu.with_(kind="core.abs", origin=None)
    event = Rewrite("relu => abs", "", (relu,), (new,), {relu.result: relu.result})
    (found,) = differences(module, module, [event])
    assert found.rewrite.old[0].kind == "core.abs"
    assert found.rewrite.new[0] is relu
