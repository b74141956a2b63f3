"""Planted faults shrink to a handful of ops, still fail the same way, and run alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_compiler.debug.bisect import bisect
from core_compiler.debug.failure import Failure
from core_compiler.debug.reduce import _minimise, is_plain, reduce
from core_compiler.driver import compilation, reproducer
from core_compiler.driver.legality import levels
from core_compiler.ir.text import print_module
from core_compiler.ir.verifier import verify
from core_compiler.pipelines.pipeline import Step
from core_compiler.pipelines.python_text import Spelling
from core_compiler.support.errors import UserError
from tests.debug import faults, planted
from tests.examples import examples
from tests.passes import specs
from tests.passes.programs import inputs as arrays_for
from tests.passes.programs import program

ROOT = Path(__file__).resolve().parents[2]


def step(pass_) -> Step:
    return Step(pass_.name(), pass_)


def kinds(reduced) -> list[str]:
    return [op.kind.removeprefix("core.") for op in reduced.case.module.main.body.ops]


def shrink(pass_, module, arrays=None, **how):
    """What ``pass_`` alone fails on, reduced."""
    seconds = how.pop("seconds", None)
    trial = reproducer.trial([step(pass_)], **how)
    return reduce(module, arrays, trial, seconds=seconds)


def run_alone(folder: Path) -> tuple[int, str]:
    """(exit code, output) of a reproducer in a fresh process that knows the core alone."""
    done = subprocess.run(
        [sys.executable, "reproducer.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


# -- what it comes to ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bert():
    """The narrow BERT as tensor IR, with its inputs."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.sample_models.narrow import NARROW
    from workbench.model import models
    from workbench.model.spec import read_spec

    model = models.load(read_spec("bert-base", "torch", **NARROW["bert-base"]), cache=False)
    return model.imported.module, model.inputs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pass_", "left", "what"),
    [
        (planted.QuickGelu(), {"gelu"}, ("check", "gelu(x) => x * sigmoid(1.702 x)")),
        (planted.Widens(), {"gelu"}, ("invalid", None)),
        (planted.NeverEnds(), {"layer_norm", "tanh"}, ("never ends", None)),
    ],
    ids=lambda p: p.name() if hasattr(p, "name") else "",
)
def test_bert_reduces_to_the_ops_that_the_fault_needs(bert, pass_, left, what):
    from core_compiler.passes.recompose import Recompose

    module, arrays = bert
    module, _ = specs.apply(Recompose(), module)
    pass_seconds = 1.0 if what[0] == "never ends" else None
    found = shrink(pass_, module, arrays, pass_seconds=pass_seconds)
    assert (found.stopped, found.failure.how) == ("", what[0])
    assert what[1] in (None, found.failure.what)
    assert set(kinds(found)) == left and found.case.ops == len(left)
    assert found.before > 60
    sizes = [v.type.elements for v in found.case.module.main.arguments]
    assert max(sizes) <= 4
    assert verify(found.case.module, levels()) == []


def test_what_no_event_speaks_of_is_reduced_too():
    network = program(
        lambda b, x, y: b.relu(b.add(b.exp(b.div(b.abs(x), b.add(y, y))), x)), "6x8xf32", "6x8xf32"
    )
    found = shrink(planted.SwapsOperands(), network, arrays_for(network))
    assert (found.failure.how, found.failure.what) == ("check", "unlogged change")
    # The quotient and what makes its first operand: without that the pass leaves it alone.
    assert kinds(found) in (["abs", "div"], ["add", "div"])
    assert found.case.inputs[0].size == 1


def test_a_rule_that_only_hurtful_values_break_keeps_breaking_on_those(tmp_path, capsys):
    """Of sums that are positive, relu is the magnitude: the given values show nothing."""
    network = program(lambda b, x, y: b.exp(b.relu(b.add(x, y))), "4x8xf32", "4x8xf32")
    found = shrink(planted.ReluOfSum(), network, [abs(a) for a in arrays_for(network)])
    assert (found.failure.how, found.failure.adversarial) == ("check", True)
    assert kinds(found) == ["add", "relu"] and found.case.ops == 2
    (path,) = reproducer.write(tmp_path, found, "cpu")
    assert "adversarial=True" in path.read_text()
    capsys.readouterr()
    trial = (print_module(found.case.module), found.case.inputs, [], (step(planted.ReluOfSum()),))
    assert reproducer.run(*trial, found.failure) == 1
    assert capsys.readouterr().out.startswith("FAILS: ")


def test_a_rule_that_given_values_break_keeps_breaking_on_those():
    """Zeros are simpler, and would only show what is made to hurt."""
    network = program(lambda b, x, y: b.relu(b.add(x, y)), "4x8xf32", "4x8xf32")
    found = shrink(planted.ReluOfSum(), network, arrays_for(network))
    assert (found.failure.how, found.failure.adversarial) == ("check", False)
    assert (np.add(*found.case.inputs) < 0).any()


def test_nothing_fails_nothing_is_reduced():
    network = program(lambda b, x: b.exp(x), "2x3xf32")
    assert shrink(planted.QuickGelu(), network, arrays_for(network)) is None


def test_only_the_same_failure_counts():
    """Smaller modules fail in other ways all the time; they are not what is looked for."""

    @specs_pass
    def picky(module):
        present = [op.kind for op in module.main.body.ops]
        if len(present) < 3:
            raise ValueError("a small module")
        if "core.tanh" in present:
            raise ZeroDivisionError

    network = program(lambda b, x: b.exp(b.tanh(b.neg(b.abs(b.exp(b.relu(x)))))), "2x3xf32")
    found = shrink(picky, network)
    assert found.failure.what == "ZeroDivisionError"
    assert found.case.ops == 3 and "tanh" in kinds(found)


def test_another_line_that_raises_the_same_is_another_failure():
    @specs_pass
    def two_lines(module):
        present = [op.kind for op in module.main.body.ops]
        if "core.tanh" in present and "core.exp" in present:
            raise ValueError
        raise ValueError

    network = program(lambda b, x: b.relu(b.tanh(b.neg(b.exp(x)))), "2x3xf32")
    found = shrink(two_lines, network)
    assert sorted(kinds(found)) == ["exp", "tanh"]


def specs_pass(look):
    """A pass that looks at the module and returns it."""
    from dataclasses import dataclass

    from core_compiler.passes.base import Pass

    @dataclass(frozen=True)
    class Looks(Pass):
        """Looks at the module."""

        def run(self, module, context):
            look(module)
            return module

    return Looks()


@pytest.mark.slow
def test_passes_before_the_suspect_come_along_where_they_are_needed():
    """A schedule is made of kernels; what is reduced is the tensor program that they come from."""
    module, arrays = faults.rows()
    target = faults.Broken("reduce_sum", step=faults.backwards)
    made = compilation.start(module, target, compilation.Options(), arrays)
    found = bisect(made, arrays, levels=levels(), execute=False)
    assert found.pass_label == "schedule_kernels"
    start = max(n for n in range(found.stage) if is_plain(made.stages[n].module))
    trial = reproducer.trial(made.steps[start : found.stage], target)
    reduced = reduce(made.stages[start].module, arrays, trial, seconds=None)
    assert (reduced.failure.pass_label, reduced.failure.how) == ("schedule_kernels", "check")
    assert reduced.failure.what == "unroll(k) changed the bits of its results"
    assert reduced.before == 6 and "reduce_sum" in kinds(reduced) and reduced.case.ops <= 2
    left = [each.label for each in reduced.trial.steps]
    assert left[-1] == "schedule_kernels" and "outline_kernels" in left
    assert len(left) < len(trial.steps)


UNARY = ("neg", "exp", "tanh", "abs", "relu", "sigmoid")


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.sampled_from(UNARY), min_size=2, max_size=24), st.data())
def test_a_reduced_module_fails_is_valid_and_minimal(names, data):
    """The fault needs one to three ops of given kinds; no more than these are left."""
    most = min(3, len(set(names)))
    wanted = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=most, unique=True))

    @specs_pass
    def needs(module):
        if {f"core.{name}" for name in wanted} <= {op.kind for op in module.main.body.ops}:
            raise KeyError(wanted[0])

    def build(b, x):
        for name in names:
            x = b.add(getattr(b, name)(x), x)
        return x

    network = program(build, "3x4xf32")
    found = shrink(needs, network)
    assert sorted(kinds(found)) == sorted(wanted)
    assert verify(found.case.module, levels()) == []
    assert found.trial.find(found.case.module, None) == found.failure


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 40), st.data())
def test_ddmin_finds_exactly_what_is_needed(count, data):
    needed = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=5))
    found = _minimise(list(range(count)), lambda kept: needed <= set(kept))
    assert found == sorted(needed)


# -- bounds ----------------------------------------------------------------------------------------


def test_no_time_left_still_gives_a_case_that_fails():
    network = program(lambda b, x: b.exp(b.gelu(x)), "4x8xf32")
    found = shrink(planted.QuickGelu(), network, arrays_for(network), seconds=0.0)
    assert (found.stopped, found.tried) == ("time limit", 0)
    assert found.case.module is network


def test_ctrl_c_keeps_the_smallest_so_far():
    network = program(lambda b, x: b.exp(b.gelu(b.neg(b.tanh(b.abs(x))))), "4x8xf32")

    def interrupt(what, done, total):
        if done == 3:
            raise KeyboardInterrupt

    trial = reproducer.trial([step(planted.QuickGelu())])
    found = reduce(network, arrays_for(network), trial, seconds=None, progress=interrupt)
    assert found.stopped == "interrupted"
    assert found.case.ops < 5
    assert trial.find(found.case.module, found.case.inputs) == found.failure


@pytest.mark.slow
def test_ctrl_c_while_the_last_case_is_given_all_its_time_keeps_it():
    """Smaller modules get less time; the last one all of it, for which a hand may not wait."""

    @specs_pass
    def waits(module):
        started = time.monotonic()
        ops = [op.kind for op in module.main.body.ops]
        while "core.tanh" in ops:
            if len(ops) == 1 and time.monotonic() - started > 1.0:
                raise KeyboardInterrupt
            time.sleep(0.001)

    network = program(lambda b, x: b.exp(b.tanh(b.neg(x))), "4x8xf32")
    found = shrink(waits, network, pass_seconds=2.0)
    assert (found.stopped, kinds(found)) == ("interrupted", ["tanh"])
    assert found.trial.pass_seconds == 2.0


def test_the_same_failure_reduces_to_the_same_bytes(tmp_path):
    module, arrays = faults.network()
    texts = []
    for name in ("a", "b"):
        found = shrink(planted.Widens(), module, arrays)
        (path,) = reproducer.write(tmp_path / name, found, "cpu")
        texts.append(path.read_text())
    assert texts[0] == texts[1]


# -- the program -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_numbers_that_no_line_says_lie_beside_it(tmp_path):
    random = np.random.default_rng(3)
    weight = random.standard_normal((256, 16)).astype(np.float32) * np.float32(4)
    network = program(lambda b, x: b.tanh(b.matmul(b.exp(x), b.constant(weight))), "2x256xf32")
    found = shrink(planted.ReadsWeights(), network, arrays_for(network))
    assert found.failure.what == "LookupError"
    files = reproducer.write(tmp_path, found, "cpu")
    assert [path.name for path in files] == ["reproducer.py", "reproducer.npz"]
    code, out = run_alone(tmp_path)
    assert code == 1 and out.startswith("FAILS: pass reads_weights, raised: raised LookupError")


@pytest.mark.slow
def test_a_pass_with_options_and_tables_is_written_as_it_was(tmp_path):
    network = program(lambda b, x: b.exp(b.gelu(x)), "4x8xf32")
    found = shrink(planted.QuickGelu((planted.QUICK_GELU,)), network, arrays_for(network))
    (path,) = reproducer.write(tmp_path, found, "cpu")
    assert 'Step("quick_gelu", QuickGelu())' in path.read_text()
    code, out = run_alone(tmp_path)
    assert code == 1
    told = "FAILS: pass quick_gelu, check: gelu(x) => x * sigmoid(1.702 x) "
    assert out.startswith(told) and out.count("\n") == 1


def test_another_failure_than_the_recorded_one_is_told_as_such(capsys):
    network = program(lambda b, x: b.softmax(x, axis=1), "2x3xf32")
    text, passes = print_module(network), (step(planted.Widens()),)
    recorded = Failure("widens", "raised", "ValueError")
    assert reproducer.run(text, None, [], passes, recorded) == 1
    assert capsys.readouterr().out.startswith("FAILS in another way (recorded: raised, ValueError)")


def test_a_pass_that_cannot_be_written_is_told():
    @specs_pass
    def local(module):
        raise ValueError

    found = shrink(local, program(lambda b, x: b.exp(x), "2x3xf32"))
    with pytest.raises(UserError, match="Looks is defined inside a function"):
        reproducer.write(Path("unused"), found, "cpu")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (True, "True"),
        ("a'b", '"a\'b"'),
        (0.1, "0.1"),
        (float("inf"), 'float("inf")'),
        ((1,), "(1,)"),
        ([1, (2, "x")], "[1, (2, 'x')]"),
        ({"k": None}, "{'k': None}"),
        (planted.StridesOfOne(), "StridesOfOne()"),
        (planted.StridesOfOne(1), "StridesOfOne(stride=1)"),
        (planted.QUICK_GELU, "QUICK_GELU"),
        (planted.made_by, "made_by"),
    ],
)
def test_values_are_spelled_as_python(value, text):
    assert Spelling().of(value) == text


@pytest.mark.slow
def test_a_notebook_cell_becomes_part_of_the_program(tmp_path):
    """Classes of a cell have no file: the cell's text is taken, and what it uses of other cells."""
    cells = (
        """
from dataclasses import dataclass
from core_compiler.passes.base import Pass
import math as m
LIMIT = 1
""",
        """
def too_many(ops):
    return m.floor(len(ops)) >= LIMIT
""",
        """
@dataclass(frozen=True)
class Mine(Pass):
    '''Of a cell.'''

    def run(self, module, context):
        if too_many(module.main.body.ops):
            raise RuntimeError("many")
        return module
""",
    )
    script = f"""
import linecache, sys
from pathlib import Path
main = sys.modules["__main__"]
vars(main).pop("__file__", None)
for number, source in enumerate({cells!r}):
    name = f"/tmp/cells/{{number}}.py"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), vars(main))
from core_compiler.driver import reproducer
from core_compiler.debug.reduce import reduce
from core_compiler.pipelines.pipeline import Step
from tests.passes.programs import program
trial = reproducer.trial([Step("mine", Mine())])
found = reduce(program(lambda b, x: b.exp(b.neg(x)), "2x3xf32"), None, trial)
reproducer.write(Path({str(tmp_path)!r}), found, "cpu")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stderr
    code, out = run_alone(tmp_path)
    assert code == 1
    assert out.startswith("FAILS: pass mine, raised: raised RuntimeError at reproducer.py:")
    text = (tmp_path / "reproducer.py").read_text()
    assert "import math as m" in text and "LIMIT = 1" in text
