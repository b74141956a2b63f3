"""Find lifetimes: from which step to which an allocation is needed."""

from __future__ import annotations

from tests.passes import specs


def products(b, x, w):
    return b.matmul(b.matmul(b.matmul(x, w), w), w)


def test_an_allocation_is_marked_with_its_first_and_last_step():
    made = specs.reach("find_lifetimes", products, *["4x4xf32"] * 2)
    assert set(specs.rules_fired(made.step().rewrites)) == {"first and last use"}
    ops = made.module.main.body.ops
    launches = [i for i, op in enumerate(ops) if op.kind == "target.launch"]
    marks = [(op["start"], op["end"]) for op in ops if op.kind == "target.alloc"]
    first, second, third = launches
    # Each is written by one product and read by the next; the result is needed to the end.
    assert marks == [(first, second + 1), (second, third + 1), (third, len(ops))]


def test_what_a_loop_reads_from_outside_lives_to_its_end():
    from tests.passes.loops import below, loop, next_

    def build(b, x):
        y = b.exp(x)
        return loop(
            b, (b.constant(0, "i32"), x), below(3), lambda b, i, v: (next_(b, i), b.add(v, y))
        )[1]

    made = specs.reach("find_lifetimes", build, "4xf32")
    made.step()
    ops = made.module.main.body.ops
    end = next(i for i, op in enumerate(ops) if op.kind == "target.repeat")
    before = next(i for i, op in enumerate(ops) if op.kind == "target.loop")
    made_before = {v for op in ops[:before] if op.kind == "target.launch" for v in op.operands}
    (outside,) = [
        op
        for op in ops[:before]
        if op.kind == "target.alloc" and op.result in made_before and op["start"] < before
    ]
    assert outside["end"] > end
