"""StableHLO files that nobody has vouched for: refused with the reason, whatever MLIR's parser does
with them.

(`python -m tests.fuzz stablehlo` finds more; what it finds becomes a row here.)
"""

from __future__ import annotations

import re
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax", reason="the frontend reads programs by jaxlib")

import jax
import jax.numpy as jnp
from jax import export

from core_compiler.frontends.stablehlo import import_file, import_program, isolated, reading
from core_compiler.ir.text import print_module
from core_compiler.support.errors import CANNOT_HERE, InternalError, UserError

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def program() -> bytes:
    lowered = jax.jit(lambda x: jnp.tanh(x) @ x.T).trace(X).lower(lowering_platforms=("cpu",))
    held = BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(held)
    return held.getvalue()


def refusal(tmp_path: Path, content: str | bytes) -> UserError:
    path = tmp_path / "m.mlir"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError) as caught:
        import_file(path)
    error = caught.value
    assert error.where.startswith(str(path))
    assert error.fix
    assert "\n" not in str(error)
    return error


def main(body: str, result: str = "tensor<4xf32>") -> str:
    """A program of one function of x: tensor<4xf32>."""
    return f"func.func @main(%x: tensor<4xf32>) -> {result} {{\n{body}\n  return %y : {result}\n}}"


HUGE = 10**15
# What fails in the child only once: each row starts a process.
ROWS = {
    "attributes nested too deep for a stack": (
        main(f"  %y = stablehlo.abs %x {{a = {'[' * 200_000}{']' * 200_000}}} : tensor<4xf32>"),
        r"MLIR's parser crashed \(SIG",
    ),
    "no program": ("hello", "not a StableHLO program"),
    "half a program": (program()[:300], "not a StableHLO program"),
    "bytes in the place of a length": (
        program()[:40] + b"\xff" * 9 + program()[49:],
        "not a StableHLO program|crashed",
    ),
    "a function that calls itself": (
        main("  %y = func.call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>"),
        "calls itself",
    ),
    "ops that nobody knows": (
        main("""
  %a = "other.op"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %y = "other.op"(%a) : (tensor<4xf32>) -> tensor<4xf32>"""),
        r"1 op is not supported: other.op",
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ROWS)
def test_a_hostile_program_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    content, said = ROWS[name]
    error = refusal(tmp_path, content)
    assert re.search(said, str(error)), str(error)


def test_a_constant_of_any_declared_size_takes_no_memory(tmp_path: Path) -> None:
    text = main(f"  %y = stablehlo.constant dense<1.5> : tensor<{HUGE}xf32>", f"tensor<{HUGE}xf32>")
    made = import_program(text)
    assert [op.kind for op in made.module.walk()] == ["core.constant", "core.broadcast"]


def test_what_is_no_name_of_a_result_is_none() -> None:
    named = "func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {jax.result_info = NAME})"
    for told, name in (('"loss"', "loss"), ("[1]", "output0"), ("7", "output0"), ('""', "output0")):
        text = f"{named.replace('NAME', told)} {{\n  return %x : tensor<4xf32>\n}}"
        assert import_program(text).outputs == (name,)


def test_names_that_are_no_text_are_told(tmp_path: Path) -> None:
    exported = export.export(jax.jit(jnp.tanh), platforms=["cpu"])(X).mlir_module_serialized
    assert b"jax.result_info" in exported
    error = refusal(tmp_path, exported.replace(b"jax.result_info", b"jax.re\xff\xfeult_info"))
    assert "not valid UTF-8" in str(error) or "not a StableHLO program" in str(error)


@pytest.mark.slow
def test_what_mlir_says_of_an_artifact_is_told_and_not_printed(tmp_path: Path, capfd) -> None:
    exported = export.export(jax.jit(jnp.tanh), platforms=["cpu"])(X).mlir_module_serialized
    error = refusal(tmp_path, exported[: len(exported) // 2])
    assert "not a StableHLO program: attempting to parse" in str(error)
    assert capfd.readouterr() == ("", "")


# -- the process -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_file_and_a_program_in_memory_are_read_alike(tmp_path: Path) -> None:
    data = program()
    path = tmp_path / "m.mlir"
    path.write_bytes(data)
    there, here = import_file(path), import_program(data, name=str(path))
    assert print_module(there.module, locations="full") == print_module(
        here.module, locations="full"
    )
    assert (there.inputs, there.outputs, there.facts) == (here.inputs, here.outputs, here.facts)
    assert there.sources == here.sources


def test_weights_come_back_as_nobody_may_write_to_them(tmp_path: Path) -> None:
    table = jnp.asarray(np.random.default_rng(0).standard_normal((64, 64)), jnp.float32)
    path = tmp_path / "m.mlir"
    path.write_text(str(jax.jit(lambda x: x @ table).lower(table).compiler_ir("stablehlo")))
    store = import_file(path).module.weights
    (digest,) = store
    assert not store[digest].flags.writeable
    np.testing.assert_array_equal(store[digest], np.asarray(table))


@pytest.mark.slow
def test_sizes_of_example_inputs_reach_the_process(tmp_path: Path) -> None:
    sizes = jax.ShapeDtypeStruct(export.symbolic_shape("n, 6"), np.float32)
    path = tmp_path / "m.mlir"
    path.write_bytes(export.export(jax.jit(jnp.sin))(sizes).mlir_module_serialized)
    assert import_file(path, [X]).module.main.arguments[0].type.shape == (4, 6)
    assert import_file(path, sizes={"input0_0": 9}).module.main.arguments[0].type.shape == (9, 6)


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (-24, UserError, r"takes more than 20 s of CPU time"),
        (-11, UserError, r"MLIR's parser crashed \(SIGSEGV\)"),
        (-6, UserError, r"MLIR's parser crashed \(SIGABRT\)"),
        (1, InternalError, "Traceback of a bug"),
    ],
)
def test_how_a_process_ended_is_told(code: int, kind, said: str, tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    path.write_text("")
    with pytest.raises(kind, match=said):
        raise isolated.exit_error(code, path, "Traceback of a bug")


def test_nothing_is_imported_from_the_folder_of_the_model(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "jax.py").write_text("raise SystemExit('the wrong jax')")
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path) not in sys.path
    assert "not a StableHLO program" in str(refusal(tmp_path, "hello"))


def test_memory_beyond_the_limit_is_told(tmp_path: Path, monkeypatch) -> None:
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr("core_compiler.frontends.stablehlo.importer.import_program", full)
    monkeypatch.setattr("core_compiler.support.subprocesses.hold_to", lambda memory, seconds: None)
    path = tmp_path / "m.mlir"
    path.write_text("")
    error = isolated.answer(path, None, None)
    assert "memory limit" in error.what
    assert error.exit_code == CANNOT_HERE


@pytest.mark.slow
def test_a_long_text_is_counted_before_it_is_parsed(tmp_path, monkeypatch):
    ops = "\n".join(f"  %v{i} = stablehlo.abs %x : tensor<4xf32>" for i in range(60))
    body = f"{ops}\n  %y = stablehlo.abs %v59 : tensor<4xf32>"
    monkeypatch.setattr(reading, "COUNT_OPS_ABOVE", 100)
    monkeypatch.setattr(reading, "OPS", 60)
    assert "the program has 61 ops, at most 60" in str(refusal(tmp_path, main(body)))
    monkeypatch.setattr(reading, "OPS", 61)
    path = tmp_path / "m.mlir"
    assert import_file(path).outputs
