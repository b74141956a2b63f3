"""A target installed by somebody else: found, claims, is checked, executes with the same bits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler import targets
from core_compiler.debug.bits import same_bits
from core_compiler.debug.evaluate import Evaluator
from core_compiler.debug.kernels import check_kernels
from core_compiler.driver import compilation
from core_compiler.driver.compilation import InvalidModule, Options
from core_compiler.ir.target import LAUNCH
from core_compiler.kernel_ir.interpreter import interpret
from core_compiler.lowering.lower import lower_group
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import inputs, program

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder as pip leaves it: the package, and metadata with the entry point."""
    folder = tmp_path_factory.mktemp("site-packages")
    shutil.copy(HERE / "third_party.py", folder / "byte_machine.py")
    metadata = folder / "byte_machine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: byte-machine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[core_compiler.targets]\nbytes = byte_machine:Bytes\n"
    )
    return folder


@pytest.fixture(scope="module")
def target(site):
    """The target, installed into this process."""
    sys.path.insert(0, str(site))
    targets.rescan()
    yield targets.target("bytes")
    sys.path.remove(str(site))
    sys.modules.pop("byte_machine", None)
    targets.rescan()


def network(b, x):
    """Two layers: products with a bias, an activation, a softmax."""
    random = np.random.default_rng(5)
    w1 = b.constant(random.standard_normal((12, 9)).astype(np.float32))
    w2 = b.constant(random.standard_normal((9, 5)).astype(np.float32))
    bias = b.constant(random.standard_normal(9).astype(np.float32))
    hidden = b.gelu(b.add(b.matmul(x, w1), b.expand(bias, (4, 9))), approximate="none")
    return b.softmax(b.matmul(hidden, w2), axis=1)


@pytest.fixture(scope="module")
def compiled(target):
    module = program(network, "4x12xf32")
    arrays = inputs(module)
    made = compilation.start(module, target, Options(check=True, threads=1), arrays).finish()
    return made, arrays


def kinds(op):
    return [o.kind for o in op.regions[0].ops]


def test_the_cpu_target_s_machine_is_this_one_s():
    from core_compiler.hardware import host

    machine = targets.target("cpu").machine
    assert machine.unit("core") == host.machine().unit("core")


def test_it_is_found_by_its_entry_point_in_a_fresh_process(site):
    script = (
        "import json; from core_compiler import targets; t = targets.target('bytes');"
        "print(json.dumps([targets.names(), t.name, t.host.name, type(t).__module__]))"
    )
    path = os.pathsep.join([str(site), str(HERE.parents[1])])
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout) == [["bytes", "cpu", "cuda"], "bytes", "cpu", "byte_machine"]


def test_what_it_claims_stays_alone_and_carries_its_name(compiled):
    made, _ = compiled
    launches = [op for op in made.module.main.body.ops if op.kind == LAUNCH]
    own = [op for op in launches if op.get("target") == "bytes"]
    assert [kinds(op) for op in own] == [["core.matmul"], ["core.matmul"]]
    assert len({op["kernel"] for op in own}) == 1, "one kernel, generic in sizes, serves both"
    assert all("core.matmul" not in kinds(op) for op in launches if op not in own)
    assert made.module.functions[own[0]["kernel"]].attributes["target"] == "bytes"


def test_every_rewrite_and_every_launch_was_checked(compiled):
    made, _ = compiled
    records = [r for found in made.checks.values() for r in found]
    assert records and not [r for r in records if r.verdict == "failed"]
    assert {c.record.verdict for c in made.facts["kernel_checks"]} == {"bitwise"}


def test_results_are_the_reference_s_and_the_cpu_s_bit_for_bit(compiled):
    made, arrays = compiled
    (result,) = made(*arrays)
    (want,) = specs.outputs(made.stages[made_meaning(made)].module, arrays)
    assert same_bits(result, want)
    cpu = compilation.start(made.stages[0].module, "cpu", Options(threads=1), arrays).finish()
    assert same_bits(result, cpu(*arrays)[0])
    assert cpu.identity == made.identity


def made_meaning(made) -> int:
    """The last stage of the meaning half."""
    return max(s.index for s in made.stages if s.step is None or s.step.pass_.half == "meaning")


def test_it_can_be_profiled_and_shows_its_code(compiled):
    made, arrays = compiled
    samples = made.executable.profile(arrays, repeats=2, warmup=0)
    assert samples.durations.shape == (2, len(made.executable.program.launches))
    assert (samples.durations > 0).all()
    own = [c for c in made.facts["compiled"].values() if c.ref.symbol == "bytes"]
    assert "FMA" in own[0].text("kernel.s")


@settings(max_examples=examples(15))
@given(st.integers(0, 3), *[st.integers(1, 6)] * 2, st.sampled_from([1, 2, 255, 256, 257]))
def test_byte_programs_have_the_bits_of_the_contract(batch, m, n, k):
    from tests.targets.third_party import encode, simulate

    lead = f"{batch}x" if batch else ""
    module = program(lambda b, x, y: b.matmul(x, y), f"{lead}{m}x{k}xf32", f"{lead}{k}x{n}xf32")
    lowered = lower_group(module.main.body.ops[0])
    arrays = inputs(module, special=k < 3)
    (want,) = specs.outputs(module, arrays)
    results = []
    for run in (
        lambda buffers: simulate(
            encode(lowered.function), [b.view(np.uint8) for b in buffers], lowered.sizes
        ),
        lambda buffers: interpret(lowered.function, buffers, lowered.sizes),
    ):
        made = np.zeros(want.size, np.float32)
        run([*(a.reshape(-1) for a in arrays), made])
        results.append(made.reshape(want.shape))
    assert same_bits(results[0], want) and same_bits(results[1], want)


def test_an_op_outside_its_table_is_refused_by_the_verifier(target, monkeypatch):
    narrower = type(target).legal(target, "kernel") - {"kernel.fma"}
    monkeypatch.setattr(type(target), "legal", lambda self, level: narrower)
    made = compilation.start(program(network, "4x12xf32"), target)
    with pytest.raises(InvalidModule, match=r"kernel\.fma is not legal at level kernel") as caught:
        made.finish()
    assert caught.value.where == "pass outline_kernels"
    assert made.stages[-1].name == "recompute_in_readers", "the stages before are kept"


def test_a_wrong_byte_program_is_named_by_the_check_of_launches(target, compiled, monkeypatch):
    made, arrays = compiled
    module = sys.modules["byte_machine"]
    monkeypatch.setattr(module, "fma", lambda a, b, c: float(np.float32(np.float32(a * b) + c)))
    found = check_kernels(
        made.module, made.facts, target, arrays, Evaluator(made.module.weights), 1
    )
    wrong = [c.launch for c in found if c.record.verdict == "failed"]
    assert wrong and all(op.get("target") == "bytes" for op in wrong)


@pytest.mark.slow
def test_claims_may_depend_on_shapes(target, monkeypatch):
    """Two products of one structure, one claimed: two kernels, each where it belongs."""
    claims = type(target).claims
    monkeypatch.setattr(
        type(target), "claims", lambda self, op: claims(self, op) and op.result.type.shape[1] > 5
    )
    module = program(network, "4x12xf32")
    arrays = inputs(module)
    made = compilation.start(module, target, Options(threads=1)).finish()
    own = [op for op in made.module.main.body.ops if op.get("target") == "bytes"]
    assert [op.operands[op["reads"]].type.shape for op in own] == [(4, 9)]
    cpu = compilation.start(module, "cpu", Options(threads=1)).finish()
    assert same_bits(made(*arrays)[0], cpu(*arrays)[0])
