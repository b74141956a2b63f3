"""Generate code: machine code for each kernel, and a program of launches."""

from __future__ import annotations

from core_compiler.driver import compilation
from tests.passes import specs
from tests.passes.programs import inputs, program


def test_each_kernel_is_compiled_once_and_launches_are_listed():
    def build(b, x, y):
        return b.exp(b.add(x, y)), b.exp(b.add(y, y))

    made = specs.reach("generate_code", build, *["3x4xf32"] * 2)
    stage = made.step()
    assert not stage.changed  # the module stays; code and program are facts
    assert set(made.facts["compiled"]) == {
        op["kernel"] for op in made.module.main.body.ops if op.kind == "target.launch"
    }
    linked = made.facts["program"][0]
    assert [launch.kernel for launch in linked.launches] == [
        op["kernel"] for op in made.module.main.body.ops if op.kind == "target.launch"
    ]


def test_the_program_computes_the_meaning():
    module = program(lambda b, x, y: b.exp(b.add(x, y)), *["3x4xf32"] * 2)
    arrays = inputs(module)
    made = compilation.start(module, "cpu").finish()
    (wanted,) = specs.outputs(module, arrays)
    assert made(*arrays)[0].tobytes() == wanted.tobytes()
