"""Integer division by zero and of the lowest number by -1: reported, and readers of exports live.

After onnx/onnx#7570, microsoft/onnxruntime#9754, pytorch/pytorch#32100 and llvm reports of SIGFPE.
"""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
import torch

import core_compiler as cc
from core_compiler.record.reader import Recording
from tests.frontends.programs import Program
from tests.trials.everywhere import run_numpy, same
from workbench.advice.findings import problems
from workbench.commands import cli
from workbench.queries.run import Run

LOWEST = {"int8": -(2**7), "int16": -(2**15), "int32": -(2**31), "int64": -(2**63)}


def _told(made) -> list[str]:
    return [str(d) for stage in made.stages for d in stage.diagnostics]


# -- reports ---------------------------------------------------------------------------------------


def test_a_constant_divisor_is_reported_without_running_anything():
    made = cc.compile(lambda x: x // np.array([0, 1, 2], np.int32), (np.ones(3, np.int32),))
    (told,) = _told(made)
    assert "test_integer_division.py:" in told
    assert "warning: integer division by zero: the divisor is 0 at 1 of 3 elements" in told


# (jnp.remainder itself puts 1 in the place of a divisor of 0.)
@pytest.mark.sampled(3)
@pytest.mark.parametrize("function", [jnp.floor_divide, jax.lax.div, jax.lax.rem])
def test_a_divisor_of_the_example_inputs_is_reported_by_checking(function):
    def operation(x, n):
        return function(x, n)

    x, n = np.array([1, 2, -3], np.int32), np.array([0, 2, 0], np.int32)
    (told,) = _told(cc.compile(operation, (x, n), check=True))
    assert "by zero on the example inputs: the divisor is 0 at 2 of 3 elements" in told
    assert _told(cc.compile(operation, (x, np.array([1, 2, 3], np.int32)), check=True)) == []
    assert _told(cc.compile(operation, (x, n))) == []  # nothing was evaluated


def test_in_loops_and_for_floats():
    def loop(x):
        return jax.lax.fori_loop(0, 3, lambda i, c: jax.lax.div(c, i.astype(jnp.int32)), x)

    (told,) = _told(cc.compile(loop, (np.int32(7),), check=True))
    assert "the divisor is 0;" in told
    ones = np.ones(2, np.float32)
    assert _told(cc.compile(lambda x: x / 0 + x % 0, (ones,), check=True)) == []


def test_it_is_in_the_recording_and_in_every_list(tmp_path, capsys):
    x, n = np.array([1, 2, -3], np.int32), np.array([0, 2, 0], np.int32)
    path = tmp_path / "zero.run"
    cc.compile(jax.lax.div, (x, n), check=True).record(path)
    with Recording.open(path) as recording:
        assert [d.severity for d in recording.diagnostics(0)] == ["warning"]
    run = Run(path)
    (found,) = [f for f in problems(run) if "by zero" in f.title]
    run.close()
    assert found.go["stage"] == 0 and "op" in found.go
    for command in (
        ["advise", str(path)],
        ["numerics", str(path)],
        ["show", str(path), "overview"],
        ["passes", str(path)],
    ):
        assert cli.main(command) == 0
        assert "integer division by zero" in capsys.readouterr().out, command


# -- exports ---------------------------------------------------------------------------------------

RUN = """
import sys, numpy, onnxruntime
onnxruntime.set_default_logger_severity(4)
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
made = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
given = numpy.load(sys.argv[2])
names = [i.name for i in made.get_inputs()]
results = made.run(None, dict(zip(names, [given[k] for k in given.files])))
numpy.savez(sys.argv[3], *results)
"""


def _elsewhere(path, inputs, folder):
    """The results of onnxruntime in a process of its own: it may end with a signal."""
    np.savez(folder / "given.npz", *inputs)
    command = [sys.executable, "-c", RUN, path, folder / "given.npz", folder / "made.npz"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])
    held = np.load(folder / "made.npz")
    return tuple(held[name] for name in held.files)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", [*LOWEST, "uint8", "uint32"])
@pytest.mark.parametrize("guards", [False, True])
def test_an_export_keeps_our_results_and_its_reader_alive(tmp_path, kind, guards):
    lowest = LOWEST.get(kind, 0)
    a = np.array([lowest, lowest, 7, 5, 0, 9], kind)
    b = np.array([-1 if lowest else 3, 0, 0, 2, 0, 4], kind)

    def function(a, b):
        return jax.lax.div(a, b), jax.lax.rem(a, b)

    with jax.enable_x64(True):
        made = cc.compile(function, (a, b))
        wanted = made(a, b)
    assert wanted[0][0] == (lowest if lowest else 0) and not wanted[0][[1, 2, 4]].any()
    made.stages[0].export(tmp_path / "made.onnx", guards=guards)
    same(_elsewhere(tmp_path / "made.onnx", [a, b], tmp_path), wanted)
    made.stages[0].export(tmp_path / "made.py")
    same(run_numpy(tmp_path / "made.py", [a, b]), wanted)


def test_floored_division_of_torch_does_not_end_the_reader(tmp_path):
    def function(a, b):
        return torch.div(a, b, rounding_mode="floor"), a % b, a // b

    a, b = torch.tensor([-(2**31), 7, -7], dtype=torch.int32), torch.ones(3, dtype=torch.int32)
    made = cc.compile(Program(function), (a, b))
    made.stages[0].export(tmp_path / "made.onnx")
    divisors = np.array([-1, 0, 2], np.int32)
    same(_elsewhere(tmp_path / "made.onnx", [a.numpy(), divisors], tmp_path), made(a, divisors))


def test_divisors_that_are_provably_safe_cost_nothing(tmp_path):
    x = np.arange(4, dtype=np.int32)
    made = cc.compile(lambda x: (jax.lax.div(x, jnp.int32(3)), jax.lax.rem(x, jnp.int32(7))), (x,))
    made.stages[0].export(tmp_path / "made.onnx")
    kinds = [n.op_type for n in onnx.load(tmp_path / "made.onnx").graph.node]
    assert "Where" not in kinds and "Equal" not in kinds
