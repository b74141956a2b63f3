"""The rewriter: what a block becomes, what is logged, and where new ops come from."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.ir import Block, FrontendNode, Function, Module, Op, Origin, Rewriter, Value
from core_compiler.ir.core import clone_block, structure_key
from core_compiler.ir.rewriter import Budget, RewriteLimit, stable_topological
from core_compiler.ir.verifier import LevelRules, verify
from core_compiler.support.errors import InternalError
from tests.examples import examples
from tests.ir.modules import F32, difference, modules, small_module


def value(name: str | None = None) -> Value:
    return Value(F32, name)


def root(name: str) -> Origin:
    return Origin.root(FrontendNode(name, "aten.op", "m.py", 1, f"net/{name}"))


def unary(kind: str, x: Value, name: str | None = None, origin: Origin | None = None) -> Op:
    return Op(kind, (x,), (value(name),), None, (), origin)


def block(arguments, ops, outputs) -> Block:
    return Block(tuple(arguments), tuple(ops), tuple(outputs))


@pytest.fixture
def three() -> tuple[Block, list[Op]]:
    x = value("x")
    a = unary("core.exp", x, "a", root("a"))
    b = unary("core.neg", a.result, "b", root("b"))
    c = unary("core.sin", b.result, "c", root("c"))
    return block([x], [a, b, c], [c.result]), [a, b, c]


# -- blocks --------------------------------------------------------------------------------------


def test_nothing_done_is_the_same_block(three):
    assert Rewriter(three[0]).commit() is three[0]


def test_a_remade_value_leaves_its_users_alone(three):
    before, (a, b, c) = three
    rewriter = Rewriter(before)
    (placed,) = rewriter.replace(b, b.with_(kind="core.tanh", origin=None), rule="swap")
    after = rewriter.commit()
    assert after.ops[0] is a and after.ops[2] is c and after.ops[1] is placed
    assert placed.result is b.result


def test_a_new_value_goes_to_all_users_regions_and_outputs():
    x = value("x")
    a = unary("core.exp", x)
    inner = block([], [unary("core.neg", a.result)], [a.result])
    loop = Op("core.while", (x,), (value(),), None, (inner,))
    before = block([x], [a, loop], [a.result, loop.result])
    new = unary("core.tanh", x)
    rewriter = Rewriter(before)
    rewriter.replace(a, new, {a.result: new.result}, rule="swap")
    after = rewriter.commit()
    region = after.ops[1].regions[0]
    assert region.ops[0].operands == region.outputs == (new.result,)
    assert after.outputs == (new.result, loop.result)
    assert after.ops[1].result is loop.result


def test_a_value_still_used_needs_a_successor(three):
    before, (_, b, _) = three
    with pytest.raises(InternalError, match="still used"):
        Rewriter(before).replace(b, unary("core.tanh", b.operands[0]), rule="swap")


def test_an_op_that_is_gone_cannot_be_replaced_again(three):
    before, (_, b, _) = three
    rewriter = Rewriter(before)
    rewriter.replace(b, (), {b.result: b.operands[0]}, rule="drop")
    with pytest.raises(InternalError, match="no longer in the block"):
        rewriter.replace(b, (), {b.result: b.operands[0]}, rule="drop")


def test_users_and_producers_are_kept_up_to_date(three):
    before, (a, b, c) = three
    rewriter = Rewriter(before)
    assert rewriter.users(a.result) == (b,) and rewriter.producer(a.result) is a
    rewriter.replace(b, (), {b.result: a.result}, rule="drop")
    (user,) = rewriter.users(a.result)
    assert user.kind == "core.sin" and user.results == c.results
    assert rewriter.has_one_use(a.result) and rewriter.is_output(c.result)
    assert rewriter.producer(b.result) is None and b not in rewriter


def test_program_order_is_repaired_after_a_merge():
    x = value("x")
    a, b = unary("core.exp", x), unary("core.neg", x)
    user = unary("core.sin", a.result)
    both = Op("core.both", (x,), (a.result, b.result))
    before = block([x], [a, user, b], [user.result, b.result])
    rewriter = Rewriter(before)
    rewriter.replace((a, b), both, rule="merge")
    assert [op.kind for op in rewriter.commit().ops] == ["core.both", "core.sin"]


def test_a_cycle_is_an_error():
    a, b = value(), value()
    ops = [Op("core.exp", (b,), (a,)), Op("core.exp", (a,), (b,))]
    with pytest.raises(InternalError, match="cycle"):
        stable_topological(ops)


# -- events and origins --------------------------------------------------------------------------


def test_events_tell_rule_ops_and_values(three):
    before, (a, b, _) = three
    new = unary("core.tanh", a.result)
    rewriter = Rewriter(before, "main")
    rewriter.replace(b, new, {b.result: new.result}, rule="swap", tolerance=1e-6, note="because")
    (event,) = rewriter.events
    assert (event.rule, event.old, event.function) == ("swap", (b,), "main")
    assert (event.tolerance, event.note) == (1e-6, "because")
    assert dict(event.values) == {b.result: new.result}
    assert [op.kind for op in event.new] == ["core.tanh"] and event.microseconds >= 0


def test_origins_are_inherited_fused_and_explained(three):
    before, (a, b, c) = three
    rewriter = Rewriter(before)
    both = Op("core.both", a.operands, (b.result,))
    (fused,) = rewriter.replace((a, b), both, rule="fuse")
    assert fused.origin.rule == "fuse" and fused.origin.parents == (a.origin, b.origin)
    assert [n.name for n in fused.origin.nodes()] == ["a", "b"]
    assert fused.origin.scope == "net"
    two = unary("core.p", fused.result), unary("core.q", fused.result)
    first, second = rewriter.replace(c, (two[0], two[1].with_(results=c.results)), rule="split")
    assert first.origin is second.origin and first.origin.nodes() == c.origin.nodes()
    (made,) = rewriter.insert(Op("core.constant", (), (value(),)), rule="add", reason="wanted")
    assert made.origin.reason == "wanted" and made.origin.is_explained()
    assert first.origin.rules() == ("split", "import")


def test_the_budget_limits_rewrites(three):
    before, (a, b, _) = three
    rewriter = Rewriter(before, budget=Budget(1))
    rewriter.replace(a, a.with_(kind="core.tanh", origin=None), rule="swap")
    with pytest.raises(RewriteLimit):
        rewriter.replace(b, b.with_(kind="core.tanh", origin=None), rule="swap")
    assert [op.kind for op in rewriter.commit().ops] == ["core.tanh", "core.neg", "core.sin"]


# -- properties ----------------------------------------------------------------------------------

_MEANING = {
    "core.neg": lambda x: -x,
    "core.inc": lambda x: x + 1,
    "core.dec": lambda x: x - 1,
    "core.add": lambda x, y: x + y,
    "core.id": lambda x: x,
}


def evaluate(body: Block, arguments: list[int]) -> list[int]:
    values = dict(zip(body.arguments, arguments, strict=True))
    for op in body.ops:
        values[op.result] = _MEANING[op.kind](*(values[v] for v in op.operands))
    return [values[v] for v in body.outputs]


def random_block(rng: random.Random, length: int) -> Block:
    seen = [value("x"), value("y")]
    arguments = tuple(seen)
    ops = []
    for number in range(length):
        kind = rng.choice(sorted(_MEANING))
        operands = [rng.choice(seen) for _ in range(2 if kind == "core.add" else 1)]
        ops.append(Op(kind, operands, (value(),), None, (), root(str(number))))
        seen.append(ops[-1].result)
    return block(arguments, ops, [rng.choice(seen) for _ in range(3)])


def rewrite_once(rewriter: Rewriter, op: Op, rng: random.Random) -> None:
    """A rule that keeps the meaning of ``op``."""
    x = op.operands[0]
    if op.kind == "core.id":
        rewriter.replace(op, (), {op.result: x}, rule="id x => x")
    elif op.kind == "core.neg":
        inner = unary("core.neg", x)
        outer = unary("core.neg", inner.result)
        last = Op("core.neg", (outer.result,), (op.result if rng.random() < 0.5 else value(),))
        rewriter.replace(op, (inner, outer, last), {op.result: last.result}, rule="-x => ---x")
    elif op.kind == "core.inc":
        steps = [unary("core.inc", x)]
        steps.append(unary("core.dec", steps[-1].result))
        steps.append(unary("core.inc", steps[-1].result))
        rewriter.replace(op, steps, {op.result: steps[-1].result}, rule="longer")
    elif op.kind == "core.dec":
        made = rewriter.producer(x)
        if made is not None and made.kind == "core.inc" and rewriter.has_one_use(x):
            rewriter.replace((made, op), (), {op.result: made.operands[0]}, rule="cancel")


@given(st.integers(1, 15), st.randoms(use_true_random=False))
def test_rewrites_keep_meaning_ssa_and_origins(length, rng):
    before = random_block(rng, length)
    rewriter = Rewriter(before)
    for _ in range(rng.randint(1, 10)):
        if rewriter.ops:
            rewrite_once(rewriter, rng.choice(rewriter.ops), rng)
    after = rewriter.commit()
    assert evaluate(after, [3, 10]) == evaluate(before, [3, 10])
    module = Module({"main": Function("main", after)})
    assert verify(module, {"tensor": LevelRules()}) == []
    assert all(op.origin.is_explained() and op.origin.nodes() for op in after.ops)
    replaced = {v for event in rewriter.events for op in event.old for v in op.results}
    for op in before.ops:  # an op that nobody replaced still makes its value
        if op.result not in replaced:
            assert [other.kind for other in after.ops if other.results == op.results] == [op.kind]


@settings(max_examples=examples(30))
@given(modules())
def test_a_clone_is_equal_and_shares_no_value(module):
    main = next(iter(module.functions.values()))
    copy = main.with_(body=clone_block(main.body))
    a, b = (module.with_(functions={main.name: f}) for f in (main, copy))
    assert difference(a, b) == ""
    assert structure_key(a) == structure_key(b)
    mine = {v for op in a.walk() for v in op.results} | set(main.arguments)
    assert not mine & ({v for op in b.walk() for v in op.results} | set(copy.arguments))


def test_the_structure_key_sees_structure_not_names():
    module = small_module()
    key = structure_key(module)
    ops = module.main.body.ops
    renamed = clone_block(module.main.body)
    for argument in renamed.arguments:
        argument.name = None
    assert structure_key(module.with_main(renamed)) == key
    other = ops[3].with_(attributes={**ops[3].attributes, "limit": 4})
    changed = module.with_main(module.main.body.with_(ops=(*ops[:3], other)))
    assert structure_key(changed) != key
