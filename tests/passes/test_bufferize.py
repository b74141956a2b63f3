"""Bufferize: values become buffers, launches read and write them."""

from __future__ import annotations

from tests.passes import specs
from tests.passes.programs import inputs, program


def test_values_become_buffers():
    made = specs.reach("bufferize", lambda b, x, y: b.exp(b.add(x, y)), *["3x4xf32"] * 2)
    assert specs.kinds(made.module) == ["launch(add exp)"]
    made.step()
    assert specs.kinds(made.module) == ["input", "input", "alloc", "launch(add exp)", "output"]
    first, second, memory, launch, result = made.module.main.body.ops
    assert launch.operands == (first.result, second.result, memory.result)
    assert launch["reads"] == 2 and launch["writes"] == 1
    assert result.operands == (memory.result,)
    assert str(memory.result.type).startswith("memref<3x4xf32")


def test_a_reshape_is_a_view_and_no_memory_of_its_own():
    made = specs.reach(
        "bufferize",
        lambda b, x: b.reduce_sum(b.reshape(b.exp(x), shape=(2, 6)), axes=(1,)),
        "3x4xf32",
    )
    stage = made.step()
    allocated = [op for op in made.module.main.body.ops if op.kind == "target.alloc"]
    assert len(allocated) <= 2
    arrays = inputs(program(lambda b, x: b.exp(x), "3x4xf32"))
    while made.next is not None:
        made.step()
    wanted = specs.outputs(made.stages[0].module, arrays)
    assert [a.tobytes() for a in made(*arrays)] == [a.tobytes() for a in wanted]
    assert stage.module.main.level == "target"


def test_an_input_that_is_a_result_is_copied():
    made = specs.reach("bufferize", lambda b, x: (x, b.exp(x)), "4xf32")
    made.step()
    assert "copy" in specs.kinds(made.module)
