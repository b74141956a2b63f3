"""Advice: hazards planted in small programs, each beside a healthy twin; offers are carried out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core_compiler.driver import compilation
from core_compiler.driver.compilation import Compilation, Options
from core_compiler.hardware.limits import Limits
from core_compiler.ir.events import BufferRecord, KernelRecord, TensorStats, TimingRecord
from core_compiler.ir.target import LAUNCH
from core_compiler.pipelines.pipeline import PipelineEdit
from core_compiler.record.recorder import Recorder
from core_compiler.targets import cpu
from core_compiler.targets.cpu import CPU
from tests.passes.programs import program
from workbench.advice import HAZARDS, advise
from workbench.advice.finding import EXPERIMENT, NOTHING, Finding
from workbench.export import report
from workbench.model import edits
from workbench.queries.run import Run
from workbench.queries.work import work
from workbench.views import overview

#: What they look at takes long to make.
pytestmark = pytest.mark.slow

#: Told to the recorder after the compile.
More = Callable[[Recorder, Compilation], None]


class Bench:
    """Compiles programs up to code generation (no machine code, no times) and records them."""

    def __init__(self, folder: Path):
        self._folder, self._runs = folder, list[Run]()

    def __call__(
        self,
        build: Callable,
        *types: str,
        edit: PipelineEdit = PipelineEdit(),
        options: Mapping[str, Any] | None = None,
        until: str = "generate_code",
        more: More | None = None,
        **meta: Any,
    ) -> Run:
        target = dict(options or {})
        made = compilation.start(program(build, *types), CPU(), Options(edit=edit, target=target))
        while made.next is not None and made.next.label != until:
            made.step()
        path = self._folder / f"{len(self._runs)}.run"
        with Recorder(path) as recorder:
            made.report(
                recorder,
                **{
                    "spec": "digits-mlp",
                    "model": "planted",
                    "target": "cpu",
                    **meta,
                },
            )
            if more is not None:
                more(recorder, made)
        self._runs.append(Run(path))
        return self._runs[-1]

    def again(self, found: Finding, build: Callable, *types: str) -> Run:
        """The program compiled with the draft that a finding offers."""
        offer = found.tries[0]
        assert offer.draft is not None and not offer.reason
        edit = edits.from_json(offer.draft["edit"])
        return self(build, *types, edit=edit, options=offer.draft["target"])

    def close(self) -> None:
        for run in self._runs:
            run.close()


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.close()


def of(run: Run, hazard: str) -> list[Finding]:
    return [found for found in advise(run) if found.hazard == hazard]


def told(found: Finding) -> str:
    return " / ".join(fact.text for fact in found.evidence)


# -- programs --------------------------------------------------------------------------------------


def after_a_scan(b, x):
    return b.exp(b.cumsum(x, axis=1))


def chain(b, x):
    return b.exp(b.tanh(x))


def to_and_fro(b, x):
    return b.transpose(b.exp(b.transpose(x, permutation=(1, 0))), permutation=(1, 0))


def of_constants(b, x):
    ramp = np.linspace(-1, 1, 1024, dtype=np.float32)
    weight = b.matmul(b.constant(ramp.reshape(256, 4)), b.constant(ramp.reshape(4, 256)))
    return b.matmul(x, weight)


def same_twice(b, x, y):
    return b.matmul(x, y), b.matmul(x, y)


def two_sums(b, x, y):
    """Fused as it comes, one more launch than needed is left: a second round joins it."""
    wide = b.exp(x)
    summed = b.reduce_sum(wide, axes=(0,))
    wider = b.tanh(b.exp(wide))
    return b.reduce_sum(wider, axes=(0,)), summed, b.matmul(wider, y)


def tanh_of_a_sum(b, x, y):
    wide = b.exp(b.matmul(x, y))
    return b.tanh(b.exp(wide)), b.reduce_sum(wide, axes=(1,))


def variance(b, x):
    mean = b.mean(x, axes=(1,))
    return b.sub(b.mean(b.mul(x, x), axes=(1,)), b.mul(mean, mean))


def tiny(b, x):
    """75 running sums of 4 bytes that are alive at once, each padded to 64."""
    kept = [b.cumsum(b.mul(x, b.constant(np.float32([i + 1]))), axis=0) for i in range(75)]
    return b.concat(*(b.cumsum(k, axis=0) for k in kept), axis=0)


def for_nobody(b, x):
    b.cumsum(x, axis=1)
    return b.cumsum(x, axis=0)


def waits(b, x, w, v, u):
    kept = b.matmul(x, w)
    return b.matmul(b.matmul(b.matmul(kept, v), u), kept)


def waits_and_goes_on(b, x, w, v, u):
    return b.exp(b.tanh(waits(b, x, w, v, u)))


def does_not_wait(b, x, w, v, u):
    return b.matmul(b.matmul(b.matmul(x, w), v), u)


def uneven(b, x, w, v, u, t):
    return b.matmul(b.matmul(b.matmul(b.matmul(x, w), v), u), t)


SQUARE = "256x256xf32"
WIDE = ("256x256xf32", "256x256xf32", "256x1024xf32", "1024x256xf32")
UNEVEN = ("64x64xf32", "64x64xf32", "64x256xf32", "256x128xf32", "128x16xf32")


# -- launches --------------------------------------------------------------------------------------


def test_an_op_that_reads_what_was_just_written_is_named_with_what_refused(bench):
    (found,) = of(bench(after_a_scan, SQUARE), "unfused chain")
    assert found.title == "exp runs in a separate launch (model.py:2)"
    assert found.cost is not None
    assert (found.cost.value, found.cost.unit) == (2 * 4 * 256 * 256, "B")
    assert "fuse_elementwise refused (elementwise ops)" in told(found)
    assert "takes" not in told(found), "nothing was timed"
    assert [t.draft for t in found.tries] == [None], "the model has to change"
    assert found.tries[0].sentence.startswith(NOTHING + "no order of the passes fuses them")
    assert of(bench(chain, SQUARE), "unfused chain") == []
    assert of(bench(after_a_scan, "8x8xf32"), "unfused chain") == [], "too small to speak of"


#: A program, the edit that plants a hazard in it, and the hazard.
PLANTED = {
    "unfused chain": (chain, (SQUARE,), PipelineEdit(skip=("fuse_elementwise",))),
    "layout ping-pong": (
        to_and_fro,
        (SQUARE,),
        PipelineEdit(skip=("choose_layouts", "fuse_elementwise")),
    ),
    "work done twice": (
        same_twice,
        (SQUARE, SQUARE),
        PipelineEdit(skip=("eliminate_common_subexpressions",)),
    ),
    "never read": (for_nobody, (SQUARE,), PipelineEdit(skip=("eliminate_dead_code",))),
    "constant work": (of_constants, (SQUARE,), PipelineEdit()),
    "plan above its bound": (
        uneven,
        UNEVEN,
        PipelineEdit(options={"plan_memory": {"planner": "greedy_start"}}),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("hazard", PLANTED)
def test_a_planted_hazard_is_named_and_gone_where_its_offer_is_taken(bench, hazard):
    build, types, edit = PLANTED[hazard]
    (found,) = of(bench(build, *types, edit=edit), hazard)
    assert found.cost is not None and found.cost.value > 0 and found.cost.how
    assert 0 < found.cost.part <= 1 and found.evidence and found.go
    assert found.tries[0].command.startswith("workbench compile digits-mlp")
    assert of(bench.again(found, build, *types), hazard) == []


def test_the_offers_say_what_they_change(bench):
    wanted = {
        "unfused chain": ("no edits", "fuse_elementwise was skipped in this run: let it run."),
        "constant work": (
            "fold_constants#3.growth = 32.0",
            "Allow folded constants to grow 32-fold",
        ),
    }
    for hazard, (words, sentence) in wanted.items():
        build, types, edit = PLANTED[hazard]
        (found,) = of(bench(build, *types, edit=edit), hazard)
        assert found.tries[0].words == words and found.tries[0].sentence.startswith(sentence)
    (found,) = of(bench(of_constants, SQUARE), "constant work")
    assert "--set 'fold_constants#3.growth=32.0'" in found.tries[0].command
    assert "fold_constants#3 refused (worth a constant)" in told(found)


#: The order that leaves ``tanh_of_a_sum`` an op of its own.
BACKWARDS = ("fuse_reductions", "fuse_elementwise", "fuse_epilogues")


@pytest.mark.parametrize(
    ("build", "order", "words"),
    [
        (two_sums, (), "fuse_reductions twice"),
        (tanh_of_a_sum, BACKWARDS, "in the order fuse_reductions, fuse_epilogues"),
    ],
)
def test_fusions_that_leave_more_launches_than_others_are_offered(bench, build, order, words):
    run = bench(build, SQUARE, SQUARE, edit=PipelineEdit(order=order))
    (found,) = of(run, "unfused chain")
    assert "1 launch fewer, 512.0 KiB less read and written" in found.tries[0].sentence
    assert found.tries[0].words == words
    tried = bench.again(found, build, SQUARE, SQUARE)
    assert len(launches(tried)) == len(launches(run)) - 1
    moved = [sum(w.bytes for w in work(each)) for each in (run, tried)]
    assert moved[0] - moved[1] == 512 * 1024
    assert of(tried, "unfused chain") == []


def launches(run: Run) -> list:
    last = run.recording.module(len(run.stages()) - 1).main.body.ops
    return [op for op in last if op.kind == LAUNCH]


def timed(us: Sequence[float], threads: int = 2) -> More:
    """Times of the launches, on a machine of 100 GFLOP/s and 10 GB/s."""

    def tell(recorder: Recorder, made: Compilation) -> None:
        launches = [op for op in made.module.main.body.ops if op.kind == LAUNCH]
        recorder.kernels(
            [
                KernelRecord(name, launches=[op for op in launches if op["kernel"] == name])
                for name in dict.fromkeys(op["kernel"] for op in launches)
            ]
        )
        limits = Limits(threads, 100e9, ((1, 10e9),), ((1, 10e9),))
        rows = [
            TimingRecord(i, [t] * 5, 2 * 256**3, 3 * 4 * 256**2, op["kernel"], op, threads)
            for i, (op, t) in enumerate(zip(launches, us, strict=True))
        ]
        recorder.timings(rows, {"limits": json.dumps(asdict(limits)), "threads": threads})

    return tell


def product(b, x, y):
    return b.matmul(x, y)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("own", "chosen", "tried"),
    [
        (16, {}, "vector_width = 8"),
        (8, {"vector_width": 16}, "no edits"),
        (8, {}, "tiles = small"),
        (8, {"vector_width": 8}, "vector_width = 8; tiles = small"),
    ],
)
def test_the_width_of_vectors_follows_the_processor(bench, monkeypatch, own, chosen, tried):
    monkeypatch.setattr(cpu, "own_width", lambda: own)
    least = 2 * 256**3 / 100e9 * 1e6
    slow = bench(product, SQUARE, SQUARE, options=chosen, more=timed([10 * least]))
    (found,) = of(slow, "far from its limit")
    words = [t.words for t in found.tries if t.done]
    assert words == [tried]


def test_a_kernel_far_from_its_limit(bench, monkeypatch):
    monkeypatch.setattr(cpu, "own_width", lambda: 16)
    least = 2 * 256**3 / 100e9 * 1e6
    slow = bench(product, SQUARE, SQUARE, more=timed([10 * least]))
    (found,) = of(slow, "far from its limit")
    assert found.cost is not None and found.severity == "warning" and not found.cost.estimated
    assert found.cost.value == pytest.approx(9 * least) and found.cost.unit == "us"
    assert found.tries[0].words == "vector_width = 8"
    assert "--target-option vector_width=8" in found.tries[0].command
    small = bench(product, SQUARE, SQUARE, options={"tiles": "small"}, more=timed([10 * least]))
    (found,) = of(small, "far from its limit")
    assert found.tries[0].words == "no edits" and "--target-option" not in found.tries[0].command
    well = bench(product, SQUARE, SQUARE, more=timed([1.5 * least]))
    assert advise(well) == []


# -- memory ----------------------------------------------------------------------------------------


def test_a_buffer_that_waits_sets_the_peak(bench):
    (found,) = of(bench(waits, *WIDE), "sets the peak")
    assert found.cost is not None
    assert (found.cost.value, found.cost.unit) == (256 * 256 * 4, "B")
    assert found.cost.part == pytest.approx(1 / 6) and found.severity == "warning"
    assert "model.py:1" in found.title and "model.py:4" in found.title
    assert "1.5 MiB are alive at once" in found.detail
    assert of(bench(does_not_wait, *WIDE), "sets the peak") == []


def test_a_plan_is_held_against_what_other_planners_need(bench):
    build, types, edit = PLANTED["plan above its bound"]
    (found,) = of(bench(build, *types, edit=edit), "plan above its bound")
    unit = 64 * 64 * 4
    assert found.cost is not None and found.cost.value == unit
    assert found.title == "The memory plan is 16.7 % above its lower bound"
    assert "greedy_start needs 112.0 KiB (used)" in told(found)
    assert found.tries[0].sentence == "Plan with best, which needs 16.0 KiB less."
    assert found.tries[0].words == "no edits" and "--set" not in found.tries[0].command


def test_a_buffer_that_waits_is_computed_again(bench):
    run = bench(waits, *WIDE)
    (found,) = of(run, "sets the peak")
    assert found.tries[0].words == "rematerialise inserted after outline_kernels"
    assert "1.2 MiB instead of 1.5 MiB, for at most 1 launch more" in found.tries[0].sentence
    tried = bench.again(found, waits, *WIDE)
    assert found.cost is not None
    assert arena(run) - arena(tried) == found.cost.value == 256 * 256 * 4
    assert len(launches(tried)) == len(launches(run)) + 1
    assert of(tried, "sets the peak") == []


def test_where_nothing_lowers_the_peak_the_advice_says_so(bench):
    """What waits is made by the widest launch of all: done again it would set the peak itself."""

    def wide_waits(b, x, w, v):
        kept = b.matmul(x, w)
        return b.matmul(b.matmul(b.matmul(kept, v), b.exp(x)), kept)

    run = bench(wide_waits, "256x256xf32", "256x256xf32", "256x256xf32")
    for found in of(run, "sets the peak"):
        if found.tries[0].draft is None:
            assert found.tries[0].sentence.startswith(NOTHING)
        else:
            tried = bench.again(found, wide_waits, *["256x256xf32"] * 3)
            assert arena(tried) < arena(run)


def arena(run: Run) -> float:
    return float(run.figures("memory")["arena_bytes"])


@pytest.mark.slow
def test_less_padding_is_offered_where_it_is_less(bench):
    run = bench(tiny, "1xf32")
    (found,) = of(run, "padding")
    assert found.cost is not None and found.cost.value >= 75 * 60
    assert found.tries[0].words == "plan_memory.alignment = 32"
    tried = bench.again(found, tiny, "1xf32")
    assert arena(tried) <= arena(run) / 2 + 64
    (left,) = of(tried, "padding") or [None]
    assert left is None or left.tries[0].sentence.startswith(NOTHING)
    padded = [
        sum(b.size - b.unpadded_size for b in each.buffers() if b.tier == "dram")
        for each in (run, tried)
    ]
    assert padded[1] < padded[0] / 2


@pytest.mark.parametrize(("used", "named"), [(4, True), (60, False)])
def test_padding_at_the_peak(bench, used, named):
    def padded(recorder: Recorder, made: Compilation) -> None:
        rows = [BufferRecord(None, 64 * i, 64, used, "dram", 0, 5) for i in range(100)]
        recorder.buffers(rows, {"arena_bytes": 6400, "lower_bound_bytes": 6400})

    found = of(bench(chain, "8x8xf32", until="plan_memory", more=padded), "padding")
    assert [f.cost and f.cost.value for f in found] == ([6000] if named else [])


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "named"), [(3e-4, True), (2e-6, False)])
def test_a_pass_that_moves_the_outputs(bench, error, named):
    def moved(recorder: Recorder, made: Compilation) -> None:
        names = [stage.name for stage in made.stages]
        places = {name: names.index(name) for name in ("recompose", "fold_batch_norm")}
        recorder.figures(
            {
                f"accumulated_error/{places['recompose']}": 1e-7,
                f"accumulated_error/{places['fold_batch_norm']}": error,
            }
        )

    found = of(bench(chain, "8x8xf32", more=moved), "precision loss")
    assert len(found) == named
    for each in found:
        assert each.title == "fold_batch_norm moves the outputs by 0.0003"
        assert "1e-07 before fold_batch_norm, 0.0003 after it" in told(each)
        assert each.tries[0].words == "skip fold_batch_norm"
        assert "--skip fold_batch_norm" in each.tries[0].command


@pytest.mark.parametrize(("largest", "named"), [(2.0, True), (4e4, False)])
def test_an_op_that_cancels_its_digits(bench, largest, named):
    def difference(b, x, y):
        return b.sub(x, y)

    def seen(recorder: Recorder, made: Compilation) -> None:
        (op,) = made.stages[0].module.main.body.ops
        recorder.tensors(
            [TensorStats(v, -1e5, 1e5, 0.0) for v in op.operands]
            + [TensorStats(op.result, -largest, 0.0, 0.0)]
        )

    found = of(bench(difference, "8x8xf32", "8x8xf32", more=seen), "cancellation")
    assert len(found) == named
    for each in found:
        assert each.tries[0].sentence.startswith(NOTHING + "its operands are rounded to f32")
        assert each.title == "sub cancels most of its digits (model.py:1)"
        assert each.cost is not None and each.cost.estimated
        assert each.cost.value == pytest.approx(2.0**-23 * 1e5 / 2)


def test_the_digits_of_a_variance_are_kept_in_f64(bench, tmp_path):
    """Compiled, checked and executed: the offer brings the error from percents to roundings."""
    x = (np.random.default_rng(0).standard_normal((8, 512)) + 1000).astype(np.float32)
    wanted = x.astype(np.float64).var(axis=1)

    def executed(edit: PipelineEdit) -> tuple[Run, float]:
        options = Options(check=True, edit=edit)
        made = compilation.start(program(variance, "8x512xf32"), CPU(), options, (x,)).finish()
        path = tmp_path / f"variance-{len(edit.insert)}.run"
        with Recorder(path) as recorder:
            made.report(recorder, spec="digits-mlp", model="planted", target="cpu")
        (found,) = made(x)
        bench._runs.append(Run(path))
        return bench._runs[-1], float(np.abs(found - wanted).max() / wanted.max())

    run, error = executed(PipelineEdit())
    (found,) = of(run, "cancellation")
    assert found.title == "sub cancels most of its digits (model.py:5)"
    assert found.tries[0].words.startswith("widen_sums inserted") and error > 0.01
    assert found.tries[0].draft is not None
    tried, less = executed(edits.from_json(found.tries[0].draft["edit"]))
    assert less < 1e-6
    assert of(tried, "cancellation") == []


# -- kernels of a GPU ------------------------------------------------------------------------------


def on_a_gpu(**facts: Any) -> More:
    def tell(recorder: Recorder, made: Compilation) -> None:
        launches = [op for op in made.module.main.body.ops if op.kind == LAUNCH]
        given = {
            "threads": 64,
            "registers": 96,
            "shared": 4096,
            "spilled": 0,
            "occupancy": 0.5,
            "occupancy_limit": "registers",
            "work_items": [512],
            **facts,
        }
        recorder.kernels(
            [KernelRecord(op["kernel"], launches=[op], facts=given) for op in launches]
        )
        recorder.figures({"machine": "h200", "machine_units": 132})

    return tell


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("facts", "hazard", "title", "cost"),
    [
        ({"spilled": 24}, "spill", "spills registers", (24 * 64 * 512, "B")),
        ({"occupancy": 0.125}, "low occupancy", "fills 12% of a multiprocessor", None),
        ({"work_items": [33]}, "low occupancy", "leaves 75% of the GPU idle", None),
    ],
    ids=("spill", "occupancy", "grid"),
)
def test_hazards_of_a_gpu(bench, facts, hazard, title, cost):
    pytest.importorskip("numba_cuda", reason="what can be tried asks the CUDA target")
    run = bench(product, SQUARE, SQUARE, more=on_a_gpu(**facts), target="cuda")
    (found,) = of(run, hazard)
    assert title in found.title and "(model.py:1)" in found.title
    assert found.cost is not None and found.cost.part == 1
    assert cost is None or (found.cost.value, found.cost.unit) == cost
    assert found.tries[0].words == "tiles = small" and not found.tries[0].reason
    healthy = bench(product, SQUARE, SQUARE, more=on_a_gpu(), target="cuda")
    assert of(healthy, hazard) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("build", "types", "tiles", "words"),
    [
        (product, (SQUARE, SQUARE), "small", ["no edits"]),
        (
            lambda b, x, y: b.exp(b.matmul(x, y)),
            (SQUARE, SQUARE),
            "small",
            ["no edits", "skip fuse_epilogues; tiles = small"],
        ),
        (lambda b, x: b.reduce_sum(b.exp(x), axes=(1,)), (SQUARE,), "", ["skip fuse_reductions"]),
        (chain, (SQUARE,), "", ["skip fuse_elementwise"]),
        (lambda b, x: b.exp(x), (SQUARE,), "", [None]),
    ],
    ids=("small tiles", "epilogue", "row program", "chain", "one op"),
)
def test_what_is_tried_of_a_spill_depends_on_what_the_kernel_is(bench, build, types, tiles, words):
    pytest.importorskip("numba_cuda", reason="what can be tried asks the CUDA target")
    options = {"tiles": tiles} if tiles else {}
    run = bench(build, *types, options=options, more=on_a_gpu(spilled=24), target="cuda")
    (found,) = of(run, "spill")
    assert [t.words or None for t in found.tries] == words
    first = found.tries[0].sentence
    assert first.startswith(NOTHING if words == [None] else EXPERIMENT)
    for each in found.tries:
        if each.draft is not None:
            edit = edits.from_json(each.draft["edit"])
            tried = bench(build, *types, edit=edit, options=each.draft["target"])
            more = len(launches(tried)) - len(launches(run))
            assert more == (1 if edit.skip else 0), "what was fused is launched apart"


# -- all of it -------------------------------------------------------------------------------------


def test_the_order_is_severity_then_cost_and_each_says_how_it_was_got(bench):
    edit = PipelineEdit(skip=("fuse_elementwise", "fuse_epilogues"))
    found = advise(bench(waits_and_goes_on, *WIDE, edit=edit))
    assert {"unfused chain", "sets the peak"} <= {f.hazard for f in found}
    assert [f.rank for f in found] == sorted(f.rank for f in found)
    assert all(f.cost is not None and f.cost.how and f.evidence for f in found)
    assert all(f.severity == ("warning" if f.cost.part >= 0.1 else "note") for f in found)


def test_without_its_model_the_recording_is_tried(bench, tmp_path):
    edit = PipelineEdit(skip=("fuse_elementwise",))
    gone = bench(chain, SQUARE, edit=edit, spec=str(tmp_path / "gone.onnx"))
    (found,) = of(gone, "unfused chain")
    (offer,) = found.tries
    assert offer.reason == "" and offer.draft is not None
    assert offer.command is not None and offer.command.startswith(f"workbench compile {tmp_path}")
    training = bench(chain, SQUARE, edit=edit, mode="training")
    assert all(t.draft is None for f in advise(training) for t in f.tries)
    healthy = bench(chain, SQUARE, edit=edit)
    (offer,) = of(healthy, "unfused chain")[0].tries
    assert offer.draft is not None and not offer.reason
    (shown,) = [f for f in report._advice(healthy) if f["hazard"] == "unfused chain"]
    assert shown["tries"][0]["draft"] is None and "report" in shown["tries"][0]["reason"]


def test_the_overview_gives_advice_when_it_is_asked(bench):
    run = bench(after_a_scan, SQUARE)
    data = overview.data((run,), overview.ViewState())
    assert data["advice"] is None and not [f for f in data["findings"] if f["hazard"]]
    answer = overview.answer((run,), overview.ViewState(), {"kind": "advice"})
    assert [f["hazard"] for f in answer] == [f.hazard for f in advise(run)]
    json.dumps(answer, allow_nan=False)


def test_a_healthy_model_is_left_alone(recording):
    run = Run(recording)
    try:
        # How far kernels are from their limit depends on what else this machine does.
        assert {f.hazard for f in advise(run)} <= {"far from its limit"}
    finally:
        run.close()


def test_every_hazard_says_what_it_looks_for():
    assert all(look.__doc__ for look in HAZARDS.values())


GOLDEN = """\
warning: 1 launch to compute constants (model.py:3)
  cost: 264.0 KiB, 25.6 % of the bytes moved (counted: the bytes that these launches read and
    write; the recording has no times and no bandwidth of its machine)
  - matmul (model.py:3) computes 256.0 KiB from 8.0 KiB of constants
  - fold_constants#3 refused (worth a constant): %3 (core.matmul) would be a constant of 262144
    bytes, computed from constants of 8192 bytes
  try: Allow folded constants to grow 32-fold: 256.0 KiB more weights.
    $ workbench compile digits-mlp --set 'fold_constants#3.growth=32.0' -o edited.run
"""

#: Also listed by the overview: what the command says is all that any surface says.
UNCHECKED = """\
note: No rewrite was checked on real tensors
  Compile with 'check every rewrite' (--check) to have each one checked.
"""


def test_the_command_prints_one_paragraph_a_hazard(command, bench):
    run = bench(of_constants, SQUARE)
    text = command.text("advise", run.path)
    assert text == f"{GOLDEN}\n{UNCHECKED}"
    data = command.json("advise", run.path)
    assert [f["hazard"] for f in data["advice"]] == ["constant work", ""]
    assert command.text("advise", bench(chain, SQUARE).path) == UNCHECKED
    code, out, err = command("advise", "no.run")
    assert (code, out) == (2, "") and "file not found" in err and err.count("\n") == 1
