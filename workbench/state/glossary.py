"""The meaning, unit and measurement of every figure and column of the page.

The views take their labels and tooltips from here, and ``docs/glossary.md`` is generated from it:
``python -m workbench.state.glossary`` writes the page, ``--check`` reports whether it is up to
date.
"""

# ruff: noqa: E501, RUF001  # a term is a line; signs are those of the page
from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.state.view_state import VIEWS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"


@dataclass(frozen=True)
class Term:
    """A glossary entry.

    ``label`` and ``unit`` as in a column's head ("" if a value has its own), what it ``means``,
    and ``how`` it is measured or where it comes from.
    """

    label: str
    unit: str
    means: str
    how: str = ""

    @property
    def hint(self) -> str:
        """Return the tooltip."""
        return f"{self.means}\n{self.how}" if self.how else self.means


_LOST = "On the example inputs by the reference, when the passes that all targets share have run; the whole model is quantised, so that errors of earlier values are included."
_TIMED = "By the clock around every launch on every thread (on a GPU by events of the stream), in 10 executions after 3 warm-up runs, fewer if they take more than 60 s (`--seconds`); `workbench profile --repeats` sets more."
_ROOFLINE = "By the roofline model: the longer of its arithmetic at the arithmetic peak and its compulsory bytes at the memory bandwidth. Both limits are measured once per machine, or taken from the description of a machine that is not available."
_PREDICTED = "Of GPU kernels: computed by the compiler from the kernel's machine code and the figures of the machine (docs/cuda.md), and recorded. Otherwise by the roofline model: a lower bound, not a forecast."
_SHARED = "A kernel's time is shared among the ops it computes, in proportion to the least time this machine needs for each op's arithmetic and for the bytes it moves to and from memory; an op's share goes to the line it came from. All lines and \"no line\" add up to the time of all kernels."
_BESIDE = "The framework runs the model's own graph node by node on the same inputs; the import is evaluated by the reference (`--against`)."
_CHECKED = (
    "Both sides of the rewrite are evaluated on the same real tensors (`--check`). ∞: NaN or Inf"
    " against a number, different integers, or a difference from zeros."
)
_COMPULSORY = "Counted from the op's types: each operand read once, each result written once."
_COUNTED = "Counted from the ops of the program; an fma is two, an elementary function one."
_PLAN = "From the memory plan, which is exact: nothing else is allocated while it runs."
_LINE = "From the origin that each op keeps of the model it was imported from."
_ASSEMBLER = "Reported by the assembler (ptxas)."


#: Figures and columns by view, then by their name in the view.
GLOSSARY: Mapping[str, Mapping[str, Term]] = {
    "overview": {
        "time per execution": Term("time per execution", "s", "One run of the whole compiled program on the example inputs: the median.", _TIMED),
        "predicted time": Term("predicted time", "s", "The predicted time of all launches of one execution, which was not executed.", _PREDICTED),
        "peak memory": Term("peak memory", "B", "The arena that all temporaries of one execution share; weights, inputs and results are not included.", _PLAN),
        "weights": Term("weights", "B", "Constant data of the compiled program, after folding and packing."),
        "kernels": Term("kernels", "", "Compiled functions that are launched; each may be launched many times."),
        "imported ops": Term("imported ops", "", "Ops of the model as imported, before any pass."),
        "launches": Term("launches", "", "Kernel launches of one execution."),
        "work": Term("work", "flop", "Floating-point operations of one execution.", _COUNTED),
        "worst check error": Term("worst check error", "relative", "The largest difference found by a check of a rewrite or of the results, divided by the largest magnitude of the tensor.", _CHECKED),
        "end-to-end error": Term("end-to-end error", "relative", "How far the outputs after the last pass are from the outputs of the model as imported, divided by their largest magnitude.", "Both programs are evaluated on the example inputs (`--check`). Of a quantised model, the passes before it became one of integers against the import, those after it against that model: what the integers themselves lost is under quantisation."),
        "quantisation": Term("quantisation", "dB", "Signal-to-noise ratio of the outputs of a quantised model: the power of those in floats by that of their difference, in decibels; 20 dB are a tenth of the magnitude, 40 dB a hundredth.", _LOST),
        "error against peer": Term("error against peer", "relative", "The largest difference between the outputs and those of another framework, divided by their largest magnitude there; the verdict says whether rounding explains it.", "The peer runs the same model on the same inputs (`--against`)."),
        "import against its framework": Term("import against its framework", "verdict", "Each node of the model, computed by our ops and by its framework on the same operands: equal (every bit), within (only rounding differs), differs, not compared.", _BESIDE),
        "compile time": Term("compile time", "s", "From the import to the last kernel, recording included.", "Wall clock."),
        "identity": Term("identity", "digest", "A hash of everything the bits of the result depend on: the program after the passes that all targets share, and its numerics options. Equal identities promise equal bits on every target."),
        "output digest": Term("output digest", "digest", "A hash of the outputs' bits on the example inputs: equal digests, equal bits."),
        "not executed": Term("not executed", "", "What this machine lacks to run the program; the compile is complete without it."),
        "state digest": Term("state digest", "digest", "A hash of the bits of parameters, buffers and optimizer state after the run."),
        "iterations": Term("iterations", "", "Training steps completed."),
        "loss": Term("loss", "", "The loss of the last iteration, before its update."),
        "time per iteration": Term("time per iteration", "s", "Median of the last 20 iterations, receipts included.", "Wall clock."),
        "loss function": Term("loss function", "", "The function that is differentiated."),
        "optimizer": Term("optimizer", "", "The update rule of the parameters, and its options."),
        "parameters": Term("parameters", "", "Number of trained values."),
        "optimizer state": Term("optimizer state", "B", "Moments and the like, carried from step to step."),
        "saved for backward": Term("saved for backward", "B", "Values of the forward pass that are kept until the backward pass reads them.", _PLAN),
    },
    "passes": {
        "ops": Term("ops", "", "Change in the number of ops; for the import, their number.", "In this recording."),
        "rewrites": Term("rewrites", "", "Applications of its rules.", "In this recording."),
        "time": Term("time", "s", "Time of the pass, checks not included.", "Wall clock, in this recording."),
        "check": Term("✓", "", "Its checked rewrites: ✓ every bit kept, ≈ within the tolerance of their rule, ✗ one failed.", _CHECKED),
    },
    "inspector": {
        "values": Term("values", "", "Whether the pass keeps every bit of every value, or the change that it may make."),
        "time": Term("time", "s", "For a pass: its own time, without checks. For a rewrite: the time to find and apply it.", "Wall clock."),
        "ops after it": Term("ops after it", "", "Ops of the program after the pass."),
        "work": Term("work", "flop", "Floating-point operations of one execution, after the pass.", _COUNTED),
        "traffic": Term("traffic", "B", "Bytes that the ops must read and write in one execution, after the pass.", _COMPULSORY),
        "kernels": Term("kernels", "", "Kernels of the program after the pass, including those that others call."),
        "checks": Term("checks", "", "Checked rewrites of the pass, by verdict.", _CHECKED),
        "check": Term("check", "relative", "✓ every bit kept, ≈ the largest relative error, within what the rule allows, ✗ failed.", _CHECKED),
        "module": Term("module", "", "The path of the model's module that the op came from.", _LINE),
        "node": Term("node", "", "The framework's node that the op came from, with its kind.", _LINE),
        "made by": Term("made by", "", "The rule that made the op."),
        "phase": Term("phase", "", "For a pass: target-independent, or specific to this target. For an op: the part of the training step it belongs to: forward, loss, recomputed, backward, exchange or optimizer."),
        "kept": Term("kept", "B", "The values saved for the backward pass, and their size.", _PLAN),
    },
    "rewrites": {
        "n": Term("#", "", "Its number in the pass, from 0"),
        "rule": Term("rule", "", "The rule that was applied"),
        "name": Term("op", "", "The first computing op that it created (or replaced)"),
        "place": Term("model line", "", "The line of the model that the op came from.", _LINE),
        "before": Term("ops", "", "Ops before and after it"),
        "us": Term("µs", "µs", "Time to find and apply it.", "Wall clock."),
        "verdict": Term("check", "", "✓ every bit kept, ≈ the largest relative error, within its tolerance, ✗ failed, – not checked.", _CHECKED),
        "note": Term("note", "", "What the rule says about this application"),
    },
    "source": {
        "us": Term("time", "µs", "Time of the line's ops in one execution.", _SHARED),
        "share": Term("share", "% of time", "Its share of the time of all kernels. Outlined: a call, with the time of everything below it.", _SHARED),
        "bytes": Term("moved", "MiB", "Bytes its ops must read from and write to memory in one execution.", _COMPULSORY),
        "flops": Term("work", "Mflop", "Floating-point operations of one execution.", _COUNTED),
        "ops": Term("ops", "at import → now", "Ops that came from it, at import and in the stage shown. An op that was fused from several lines counts for each of them.", _LINE),
        "check": Term("checked", "worst error", "The worst check of all rewrites that replaced ops of this line: ✓ every bit kept, ≈ the largest relative error, within its tolerance, ✗ failed. Click to see that rewrite.", _CHECKED),
    },
    "kernels": {
        "name": Term("kernel", "", "The compiled function"),
        "total_us": Term("total", "µs", "Sum of the medians of its launches in one execution.", _TIMED),
        "share": Term("share", "% of time", "Its share of the time of all kernels."),
        "before_us": Term("before", "µs", "Sum of the medians of its launches in the previous execution.", _TIMED),
        "change": Term("change", "%", "How much longer its launches took than in the previous execution; negative: faster."),
        "place": Term("model line", "of the slowest launch", "The line of the model that its slowest launch came from.", _LINE),
        "predicted_us": Term("predicted", "µs", "The predicted time of all its launches, or the minimum on this machine.", _PREDICTED),
        "predicted_share": Term("share", "% predicted", "Its share of the predicted time of all kernels."),
        "ratio": Term("measured", "÷ predicted", "Measured time as a multiple of the predicted time."),
        "percent": Term("of limit", "%", "The minimum time as a fraction of the measured time: how close it is to the lower roof.", _ROOFLINE),
        "beyond": Term("> 100", "% of limit", "Above the measured limit: it was measured while the machine was busy.", "The limit is measured again with the next execution; this recording keeps what it has."),
        "gflops": Term("GFLOP/s", "", "Floating-point operations per second.", "Counted operations divided by measured time."),
        "gbytes_per_s": Term("GB/s", "", "Compulsory bytes per second; caches may move more or less.", _COMPULSORY),
        "count": Term("launches", "per execution", "How often one execution launches it."),
        "grid": Term("grid", "blocks", "Blocks of a launch: the least and the most among its launches."),
        "threads": Term("threads", "per block", "Threads of a block."),
        "registers": Term("registers", "per thread", "32-bit registers of each thread.", _ASSEMBLER),
        "spilled": Term("spilled", "B per thread", "Bytes stored and loaded because there were too few registers.", _ASSEMBLER),
        "occupancy": Term("occupancy", "% of warps", "Resident warps of a multiprocessor, as a share of the maximum.", "Computed from registers, shared memory and the launch shape."),
        "shared": Term("shared", "B per block", "Shared memory of a block.", _ASSEMBLER),
        "intensity": Term("intensity", "flop/B", "Floating-point operations per compulsory byte.", _COMPULSORY),
        "bound": Term("bound by", "", "What limits it during most of its time: as predicted for a GPU, else the lower roof, arithmetic or memory.", _PREDICTED),
        "flops": Term("work", "Mflop", "Floating-point operations of all its launches.", _COUNTED),
        "bytes": Term("traffic", "MiB", "Compulsory bytes of all its launches.", _COMPULSORY),
        "median_us": Term("median", "µs per launch", "One launch: the mean over its launches of their medians.", _TIMED),
        "min_us": Term("min", "µs", "The fastest sample of a launch.", _TIMED),
        "p95_us": Term("p95", "µs", "95 of 100 samples were faster.", _TIMED),
        "compile_seconds": Term("compiled", "in", "Time to compile it; 'cached': it was compiled before.", "Wall clock."),
        "execution": Term("execution", "ms", "Median time of one execution.", _TIMED),
        "interval": Term("interval", "ms", "In parentheses: the 95 % confidence interval of the median, between two order statistics of the samples."),
        "inside": Term("in kernels", "ms", "Sum of the medians of all launches: the part of an execution inside kernels.", _TIMED),
        "gaps": Term("launch gaps", "ms", "The rest of an execution: starting launches and waiting between them.", "Median of an execution minus the sum of the medians of its launches."),
        "limits": Term("limits", "", "Arithmetic peak and memory bandwidth.", "The best of several measurements on the machine: multiply-adds in registers; reading and copying with growing footprints. Measured again if a kernel exceeds them. For a machine that is not available: from its description."),
    },
    "memory": {
        "buffers": Term("buffers", "", "Buffers of this tier."),
        "arena": Term("arena", "B", "The highest address used: what must be allocated.", _PLAN),
        "peak live": Term("peak live", "B", "Maximum of live bytes over all program positions.", _PLAN),
        "lower bound": Term("lower bound", "B", "No plan for these lifetimes needs less memory."),
        "gap": Term("gap", "%", "How far the arena is above the lower bound; 0 % is proven optimal."),
        "fragmentation at peak": Term("fragmentation at peak", "B", "Free bytes below the highest live buffer, at the peak.", _PLAN),
        "padding": Term("padding", "B", "Bytes of all buffers that hold no data (hatched).", _PLAN),
        "of capacity": Term("of capacity", "%", "The arena as a fraction of the available memory."),
    },
    "timeline": {
        "execution": Term("execution", "s", "From the first start to the last end, in the execution whose time is closest to the median.", _TIMED),
        "predicted": Term("predicted", "s", "The time of all launches, one after another, as nothing was executed.", _PREDICTED),
        "launches": Term("launches", "", "Kernels started in one execution."),
        "lanes": Term("lanes", "", "Threads of the processor, or the stream of a GPU; one row each."),
        "at work": Term("at work", "%", "Share of the time that threads are inside kernels; for the rest they wait for each other.", _TIMED),
        "peak live": Term("peak live", "B", "Maximum of the live bytes of temporaries.", _PLAN),
    },
    "numerics": {
        "rewrite": Term("rewrite", "number and rule", "One application of a rule, checked alone on real tensors: before against after, from the same operands."),
        "error": Term("error", "of max abs", "Largest difference, divided by the largest magnitude of the value before.", _CHECKED),
        "ulps": Term("ulps", "", "Units in the last place between the two values at the worst element."),
        "tolerance": Term("allowed", "of max abs", "The tolerance of the rule; \"bits\" if it promises every bit."),
        "absolute": Term("absolute", "", "The difference at the worst element, in the value's own unit."),
        "value": Term("value", "worst element", "The value that was compared, and the index of its worst element."),
        "old": Term("before", "", "The value at the worst element before the rewrite."),
        "new": Term("after", "", "The value at the worst element after the rewrite."),
        "apart": Term("error", "of max abs", "Largest difference from the framework's tensor, divided by its largest magnitude. Differences accumulate along the graph.", _BESIDE),
        "apart_absolute": Term("absolute", "", "The difference at the worst element, in the value's own unit.", _BESIDE),
        "apart_one": Term("ulps", "", "Units in the last place between the two values at the worst element.", _BESIDE),
        "node": Term("node", "of the framework", "The node of the framework's graph whose tensor it is compared with."),
        "theirs": Term("framework", "worst element", "The framework's value at the worst element."),
        "ours": Term("import", "worst element", "The import's value at the worst element."),
        "element": Term("element", "worst", "The index of the worst element."),
        "line": Term("model line", "", "The line of the model it came from.", _LINE),
        "place": Term("#", "", "In program order."),
        "name": Term("value", "and its op", "The value, and the op that computes it."),
        "sqnr": Term("SQNR", "dB", "Signal-to-noise ratio of a quantised value: the power of the value in floats by that of its difference from the value in floats, in decibels; 6 dB are about one bit, ∞ means no difference.", _LOST),
        "cosine": Term("cosine", "", "Cosine of the angle between the value in floats and the one from integers; 1 if one is a multiple of the other.", _LOST),
        "saturated": Term("saturated", "of elements", "Elements that in floats lie beyond the range of the integers by more than half a step.", _LOST),
        "both": Term("histogram", "floats, integers", "The value in floats (filled) and from integers (outlined), in the same bins.", _LOST),
        "observed": Term("observed", "min to max", "The range on the calibration data, without what `percentile` leaves out; scale and zero point are chosen for it."),
        "covered": Term("integers", "min to max", "The range that the integers cover with their scale and zero point."),
        "alone": Term("alone", "dB", "SQNR of the model's outputs if only this value is quantised; – if that was not measured."),
        "module": Term("module", "", "The module of the model that the op belongs to."),
        "reason": Term("why", "", "What keeps the op in floats."),
        "bins": Term("histogram", "min to max", "Histogram of evenly spaced elements; the line marks zero."),
        "minimum": Term("min", "finite", "Smallest finite element."),
        "maximum": Term("max", "finite", "Largest finite element."),
        "mean": Term("mean", "finite", "Mean of the finite elements."),
        "largest": Term("max |x|", "finite", "Largest magnitude of a finite element."),
        "nan": Term("NaN", "elements", "Elements that are not a number."),
        "inf": Term("Inf", "elements", "Infinite elements. Attention masks scores with -Inf on purpose."),
        "side": Term("run", "", "A is the open recording, B the one it is compared with."),
        "difference": Term("difference", "at most", "The largest difference of min, max and mean; of single elements, if both recorded the tensor itself."),
        "relative": Term("difference", "of max abs", "The same, divided by the largest magnitude of the value on either side."),
        "unequal": Term("unequal", "elements", "Elements that are not bitwise equal, if both recorded the tensor itself."),
        "apart_ulps": Term("ulps", "at most", "Units in the last place between two elements, if both recorded the tensor itself."),
        "match": Term("same by", "", "How the two values were matched: recorded (both come from the same node of the framework, or carry the meaning of one imported value by the value maps of the rewrites), or guessed from the structure."),
        "peer": Term("against", "relative", "Largest difference between the outputs and the peer's, divided by their largest magnitude there; the verdict says whether rounding explains it.", "The peer runs the same model on the same inputs (`--against`)."),
    },
    "training": {
        "iteration": Term("iteration", "", "A forward pass, a backward pass and an update."),
        "left": Term("left", "s", "Time until the requested number of iterations.", "From the mean of the last 20 iterations."),
        "loss": Term("loss", "", "The loss of the iteration, before its update."),
        "seconds": Term("time", "ms", "Time of the iteration, receipts included.", "Wall clock; the figure above is the median of the last 20."),
        "throughput": Term("examples/s", "", "Examples of a batch divided by the median time of an iteration."),
        "apart": Term("apart", "relative", "|A − B| of the losses, divided by the larger."),
        "digest": Term("digest", "of its receipt", "The root of the iteration's receipt: a hash of everything computed in it; equal roots, equal bits."),
        "rate": Term("rate", "learning", "The learning rate of the update."),
        "loss_scale": Term("scale", "of the loss", "The factor by which the loss is multiplied before it is differentiated, so that small gradients survive f16."),
        "skipped": Term("left out", "updates", "Updates skipped so far because a gradient was not finite."),
    },
    "compare": {
        "time per execution": Term("time per execution", "ms", "Median of one run of the whole program.", _TIMED),
        "fastest execution": Term("fastest execution", "ms", "The fastest of the timed executions.", _TIMED),
        "predicted time": Term("predicted time", "ms", "The predicted time of all launches, or the minimum within the machine's limits.", _PREDICTED),
        "launches": Term("launches", "", "Kernel launches of one execution."),
        "kernels": Term("kernels", "", "Compiled functions that are launched."),
        "import against its framework": Term("import against its framework", "verdict", "Each node of the model, computed by our ops and by its framework on the same operands: equal (every bit), within (only rounding differs), differs, not compared.", _BESIDE),
        "compile time": Term("compile time", "s", "From the import to the last kernel, recording included.", "Wall clock."),
        "peak memory": Term("peak memory", "B", "The arena that all temporaries share.", _PLAN),
        "lower bound": Term("lower bound", "B", "No plan for these lifetimes needs less memory."),
        "weights": Term("weights", "B", "Constant data of the compiled program."),
        "inputs": Term("inputs", "B", "Bytes of the arguments of one execution."),
        "outputs": Term("outputs", "B", "Bytes of the results of one execution."),
        "ops imported": Term("ops imported", "", "Ops before any pass."),
        "ops at the end": Term("ops at the end", "", "Ops after the last pass: launches, views and the ops that connect them."),
        "arithmetic": Term("arithmetic", "flop", "Floating-point operations of one execution, as it was compiled.", _COUNTED),
        "rewrites": Term("rewrites", "", "Rule applications of all passes."),
        "worst check error": Term("worst check error", "relative", "Largest of all checks of rewrites and of the results, divided by the largest magnitude of the tensor.", _CHECKED),
        "end-to-end error": Term("end-to-end error", "relative", "Outputs after the last pass against those of the import, apart from the rounding to integers of a quantised model."),
        "SQNR of the outputs": Term("SQNR of the outputs", "dB", "Signal-to-noise ratio of the outputs of a quantised model against those in floats.", _LOST),
        "checks that kept every bit": Term("checks that kept every bit", "", "Rewrites whose two sides are bitwise equal, and schedules and kernels that are equal to their definition.", _CHECKED),
        "checks within tolerance": Term("checks within tolerance", "", "Rewrites that changed values by no more than their rule allows.", _CHECKED),
        "failed checks": Term("failed checks", "", "Rewrites, schedules and kernels that changed values by more than they may.", _CHECKED),
        "unchecked rewrites": Term("unchecked rewrites", "", "Rewrites that could not be evaluated on real tensors."),
        "computes": Term("computes", "", "The framework's nodes that both sides compute."),
        "place": Term("model line", "", "The line of the model they came from.", _LINE),
        "us": Term("time", "µs", "Time of one execution's launches; ≥: not measured, the minimum within the machine's limits."),
        "difference": Term("difference", "µs", "B − A; sorted by magnitude."),
        "ratio": Term("speedup of B", "95 % interval", "The time of A divided by that of B: above 1 B is faster. In parentheses its 95 % interval (bootstrap of both medians); if it contains 1, the difference is within the noise."),
    },
}  # fmt: skip


def hints(view: str) -> dict[str, str]:
    """Return the tooltips of a view's figures, by name."""
    return {name: term.hint for name, term in GLOSSARY[view].items()}


def plain() -> dict[str, dict[str, list[str]]]:
    """Return ``[label, unit, hint]`` by view and name, for the page's modules."""
    return {
        view: {name: [t.label, t.unit, t.hint] for name, t in terms.items()}
        for view, terms in GLOSSARY.items()
    }


INTRODUCTION = """\
# Glossary of figures

<!-- Generated by `python -m workbench.state.glossary`; edit workbench/state/glossary.py instead. -->

What each figure and column of the page means, its unit, and how it is measured. The page says the
same when you hover over a column's head or a figure. [views.md](views.md) shows the views.
"""


def page() -> str:
    """Return the text of ``docs/glossary.md``."""
    lines = [INTRODUCTION]
    for view, terms in GLOSSARY.items():
        title = VIEWS[view].title if view in VIEWS else view.capitalize()
        lines += [
            f"## {title}",
            "",
            "| figure | unit | meaning | how it is measured |",
            "|---|---|---|---|",
        ]
        for term in terms.values():
            cells = (term.label, term.unit, term.means, term.how)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = PAGE.read_text(encoding="utf-8") == page()
        print(
            "up to date" if current else "run python -m workbench.state.glossary", file=sys.stderr
        )
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
