"""Hazards of launches: unfused ops, layout changes, kernels far from their limit, repeated work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from core_compiler import targets
from core_compiler.debug.fusions import HOLDS
from core_compiler.debug.why_not import ABOUT, REFUSED, Answer, first_stage, why_not
from core_compiler.ir import Op, Value
from core_compiler.ir.target import Launch as LaunchOp
from core_compiler.ops import typed
from core_compiler.passes.choose_layouts import ChooseLayouts
from core_compiler.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from core_compiler.passes.fold_constants import FoldConstants
from core_compiler.passes.fuse_elementwise import FuseElementwise
from core_compiler.passes.fuse_epilogues import FuseEpilogues
from core_compiler.passes.fuse_reductions import FuseReductions
from core_compiler.passes.inline_broadcasts import InlineBroadcasts
from core_compiler.passes.simplify_shapes import SimplifyShapes
from core_compiler.runtime.memory import show_bytes
from core_compiler.support.errors import UserError
from workbench.advice import trials
from workbench.advice.finding import EXPERIMENT, NOTHING, Cost, Fact, Finding, Suggestion, severity
from workbench.advice.offers import last_stage, option, repeat, suggest_reverting, target_option
from workbench.advice.program import Launch, Program, at, family_of, of_line
from workbench.queries.kernel_table import table
from workbench.support import units

#: A kernel that takes at least this share of the time is reported if it reaches less than this
#: percentage of its limit: kernels of one machine normally reach between 30 and 90 %.
MIN_TIME_SHARE, LOW_PERCENT = 0.10, 25.0
#: In addition each of its launches must take this much longer (us) than its limit: caches left cold
#: by the previous launch, and dispatch, cost about as much.
MIN_LOSS_US = 20.0
#: The number of launch pairs, most expensive first, for which the fusion passes are queried again:
#: a query steps through all passes of the pipeline.
MAX_QUERIED = 8
#: The most elements of a tensor that is moved to check whether two moves cancel.
MAX_MOVED = 1 << 22
#: The bytes of weights that folding may add: more is not worth a launch.
MAX_FOLDED = 64 << 20
#: The number of launches that are examined between two changes of a layout.
MAX_BETWEEN = 6

_FUSIONS = tuple(
    p.name() for p in (InlineBroadcasts, FuseElementwise, FuseEpilogues, FuseReductions)
)

_ALONE = (
    "One of the two always needs its own kernel (a running sum, a sort, a window). Apply the "
    "following ops to its input instead, if the result is the same."
)
#: Suggestions for the model if a condition prevents a fusion (by the condition's words).
_MODEL = {
    "not alone": _ALONE,
    "elementwise ops": _ALONE,
    "a product and its epilogue": _ALONE,
    "reductions": _ALONE,
    "plain operands": "A product reads its operands many times. Move the arithmetic after the "
    "product, or into its weights.",
    "a product alone": "Two products cannot share a kernel, only the elementwise ops around "
    "them can.",
    "the same rows": "Reduce both over the same axes to get one kernel.",
    "loops side by side": "Reduce over the same axes, or keep the first result for several uses.",
    "outputs of one shape": "A value with other readers does not have the shape of the kernel's "
    "rows. Recompute it where it is read, or read it once.",
    "each output element once": "Read it once, or in one order: this kernel would write it twice.",
    "each product once": "Read the product at one place and in one order.",
    "views read once": "The reshape or transpose between them has several readers: give each its "
    "own.",
    "no cycle": "Another op lies between the two: compute it before both or after both.",
    "size": "The kernel would be too large. Remove ops from it, if possible.",
}


# -- unfused launches ------------------------------------------------------------------------------


def unfused(program: Program) -> Iterator[Finding]:
    """Yield findings for elementwise launches that read an intermediate result only they need."""
    pairs: dict[tuple[str, str], list[tuple[Launch, Launch, int]]] = {}
    for reader in program.launches:
        for value, writer in dict(reader.reads).items():
            if reader.is_map and writer is not None and not writer.only_moves:
                between = _between(program, value, writer, reader)
                pairs.setdefault((writer.kernel, reader.kernel), []).append(
                    (writer, reader, between)
                )
    found = []
    for same in pairs.values():
        nbytes = sum(n for _, _, n in same)
        what = f"{show_bytes(nbytes)} written and read again between them"
        cost = program.traffic(nbytes, what)
        if cost is not None:
            found.append((cost, same))
    found.sort(key=lambda each: -each[0].value)
    for cost, same in found[:MAX_QUERIED]:
        yield _unfused(program, cost, same)
    if not found:
        yield from _fused_better(program)


def _fused_better(program: Program) -> Iterator[Finding]:
    """Yield findings for fusions that the order of the fusion passes prevents."""
    if any(program.bench.changed(*_FUSIONS)):
        return
    tried = trials.fusions(program)
    if tried is None:
        return
    cost = program.traffic(tried.bytes, f"{show_bytes(tried.bytes)} read and written unnecessarily")
    if cost is None:
        return
    stage = last_stage(program.stages, FuseReductions)
    fact = Fact(
        "the fusion passes were run again on their input, in every order and with each of "
        "them twice",
        {"stage": stage.index} if stage else {},
    )
    count = f"{units.launches(tried.launches)} more" if tried.launches else "More memory traffic"
    yield Finding(
        severity(cost),
        f"{count} than with other fusions",
        f"of {units.launches(len(program.launches))}",
        {"panes": ["pipeline"]},
        "unfused chain",
        cost,
        (fact,),
        (tried.offer,),
    )


def _between(program: Program, value: Value, writer: Launch, reader: Launch) -> int:
    """Return the bytes that one fused kernel would save.

    These are the read, and the write if there are no other readers.
    """
    others = value in program.results or any(
        value in dict(each.reads) for each in writer.readers if each is not reader
    )
    return value.type.bytes * (1 if others else 2)


def _unfused(program: Program, cost: Cost, same: Sequence[tuple[Launch, Launch, int]]) -> Finding:
    writer, reader, _ = same[0]
    readers = [r for _, r, _ in same]
    names = _names(program.last_computing(reader))
    title = f"{names} runs in a separate launch{at(readers)}"
    facts = [
        Fact(
            f"{reader.kernel} reads what {writer.kernel}{at([writer])} just wrote"
            + (f"; {len(same)} such pairs" if len(same) > 1 else ""),
            program.go(writer),
        )
    ]
    spent = program.time_of(list(dict.fromkeys(readers)))
    if spent is not None and spent.unit == "us" and not spent.estimated:
        facts.append(Fact(f"{reader.kernel} takes {units.duration(spent.value)}: {spent.how}"))
    answer = _closest(program, writer, reader)
    if answer is not None:
        facts.append(
            Fact(
                f"{answer.pass_label} refused ({answer.condition}): {answer.sentence}",
                {"stage": answer.stage, "open": "rewrites"},
            )
        )
    return Finding(
        severity(cost),
        title,
        f"between {writer.kernel} and {reader.kernel}",
        program.go(reader),
        "unfused chain",
        cost,
        tuple(facts),
        tuple(_join(program, answer)),
    )


def _names(op: Op | None) -> str:
    return "An op" if op is None else op.kind.partition(".")[2]


def _closest(program: Program, writer: Launch, reader: Launch) -> Answer | None:
    """Return the refusal of the fusion pass that came closest to joining two launches.

    Returns None if it is unknown.
    """
    first, second = program.last_computing(writer), program.last_computing(reader)
    if first is None or second is None:
        return None
    recording = program.run.recording
    try:
        claims = targets.target(str(program.run.meta().get("target"))).claims
        stage = first_stage(recording, first, second)
        answers = why_not(recording, stage, first, second, claims=claims)
    except UserError:
        return None  # a user pass may have made the ops
    labels = _labels(program)
    refused = [a for a in answers if a.outcome == REFUSED and a.pass_label in labels]
    nearest = [a for a in refused if a.condition not in ABOUT]
    if not nearest and any(program.bench.changed(*_FUSIONS)):
        return None  # the passes for such ops did not run
    return max(nearest or refused, key=lambda a: a.held, default=None)


def _labels(program: Program) -> set[str]:
    return {s.pass_name for s in program.stages if s.pass_name.partition("#")[0] in _FUSIONS}


def _join(program: Program, answer: Answer | None) -> list[Suggestion]:
    reverts = suggest_reverting(list(program.bench.changed(*_FUSIONS)))
    if reverts:
        return reverts
    tried = trials.fusions(program)
    better = [] if tried is None else [tried.offer]
    if answer is None:
        return better or [
            Suggestion(f"{NOTHING}no built-in pass fuses two such ops, in any order.")
        ]
    if answer.condition == HOLDS.condition:
        rerun = repeat(answer.pass_label)
        return [
            Suggestion(
                f"Run {answer.pass_label} twice: the ops met only after it had run.", (rerun,)
            )
        ]
    advice = _MODEL.get(answer.condition, "Change the model so that this condition holds.")
    return [
        *better,
        Suggestion(advice if better else f"{NOTHING}no order of the passes fuses them. {advice}"),
    ]


# -- layouts ---------------------------------------------------------------------------------------


def layouts(program: Program) -> Iterator[Finding]:
    """Yield findings for launches that only move elements, first those that undo each other."""
    moving = [launch for launch in program.launches if launch.only_moves]
    undone: list[tuple[Launch, Launch]] = []
    taken: set[Launch] = set()
    for second in moving:
        first = _undoes(program, second)
        if first is not None and first not in taken:
            undone.append((first, second))
            taken |= {first, second}
    if undone:
        every = [launch for pair in undone for launch in pair]
        cost = program.time_of(every)
        if cost is not None:
            first, second = undone[0]
            count = f"{len(undone)} layout changes" if len(undone) > 1 else "A layout change"
            title = f"{count} undone later{at(every)}"
            yield _layout(
                program,
                "layout ping-pong",
                title,
                f"{first.kernel} and {second.kernel}",
                every,
                cost,
                [
                    Fact(
                        f"{b.kernel} undoes the move of {a.kernel}: "
                        f"{show_bytes(_moved(a))} each way",
                        program.go(b),
                    )
                    for a, b in undone[:4]
                ],
            )
    rest = [launch for launch in moving if launch not in taken]
    cost = program.time_of(rest)
    if cost is not None:
        yield _layout(
            program,
            "layout change",
            f"{units.launches(len(rest))} just to change a layout{at(rest)}",
            ", ".join(dict.fromkeys(r.kernel for r in rest)),
            rest,
            cost,
            [
                Fact(
                    f"{r.kernel}{at([r])} copies {show_bytes(_moved(r))} from "
                    f"{_layout_text(r.reads[0][0])} to {_layout_text(r.writes[0])}",
                    program.go(r),
                )
                for r in sorted(rest, key=lambda r: -_moved(r))[:4]
            ],
        )


def _layout(
    program: Program,
    hazard: str,
    title: str,
    detail: str,
    every: Sequence[Launch],
    cost: Cost,
    facts: list[Fact],
) -> Finding:
    tries = suggest_reverting(
        list(program.bench.changed(ChooseLayouts.name(), SimplifyShapes.name(), *_FUSIONS))
    )
    chosen = last_stage(program.stages, ChooseLayouts)
    if not tries and chosen is not None and _of_images(program, every):
        other = not dict(chosen.options).get("channels_last", True)
        words = "channels last" if other else "the model's own layout"
        tries = [
            Suggestion(
                f"Use {words} for images: these copies disappear, convolutions may be slower "
                "or faster.",
                (option(chosen.pass_name, "channels_last", str(other)),),
            )
        ]
    if not tries:
        tries = [
            Suggestion(
                f"{NOTHING}no pass chose these layouts. Keep one order of axes in the model "
                "between these lines."
            )
        ]
    return Finding(
        severity(cost),
        title,
        detail,
        program.go(every[0]),
        hazard,
        cost,
        tuple(facts),
        tuple(tries),
    )


def _moved(launch: Launch) -> int:
    return sum(value.type.bytes for value in launch.writes)


def _layout_text(value: Value) -> str:
    shape = "x".join(map(str, value.type.shape)) or "one element"
    return f"{shape} with strides {list(value.type.strides)}"


def _of_images(program: Program, every: Sequence[Launch]) -> bool:
    """Return whether the moved values come from a convolution or pool, or go to one."""
    for launch in every:
        neighbours = [w for _, w in launch.reads if w is not None] + launch.readers
        if any(
            family_of(other.computes) in ("contraction", "window")
            and any(v.type.rank > 3 for v in other.writes)
            for other in neighbours
        ):
            return True
    return False


def _undoes(program: Program, second: Launch) -> Launch | None:
    """Return the earlier launch whose move ``second`` undoes, past elementwise launches."""
    launch: Launch | None = second
    for _ in range(MAX_BETWEEN):
        made = None if launch is None else next((w for _, w in launch.reads if w is not None), None)
        if made is None:
            return None
        if made.only_moves:
            return made if _is_identity(made, second) else None
        if not made.is_map:
            return None
        launch = made
    return None


def _is_identity(first: Launch, second: Launch) -> bool:
    """Return whether both moves together keep every element in place, in the same memory order."""
    before, after = first.reads[0][0].type, second.writes[0].type
    if (before.shape, before.strides) != (after.shape, after.strides):
        return False
    elements = math.prod(before.shape)
    if not elements or elements > MAX_MOVED:
        return False
    elements_in_order = np.arange(elements, dtype=np.int32).reshape(before.shape)
    moved = elements_in_order
    for op in (*first.computes, *second.computes):
        transpose = typed.Transpose.match(op)
        if transpose is not None:
            moved = moved.transpose(transpose.permutation)
        elif op.kind == "core.reshape":
            moved = moved.reshape(op.result.type.shape)
    return moved.shape == elements_in_order.shape and bool((moved == elements_in_order).all())


# -- kernels far from their limit ------------------------------------------------------------------


def far_from_limit(program: Program) -> Iterator[Finding]:
    """Yield findings for kernels that take much time and reach little of the machine's limits."""
    for row in table(program.run):
        spent, limit, share = row["total_us"], row["least_us"], row["share"]
        if (
            share is None
            or limit is None
            or share < MIN_TIME_SHARE
            or row["percent"] >= LOW_PERCENT
        ):
            continue
        if (spent - limit) / row["count"] < MIN_LOSS_US:
            continue
        how = f"measured {units.duration(spent)}, {units.duration(limit)} at this machine's limit"
        cost = program.above(spent, limit, how)
        if cost is None:
            continue
        facts = [
            Fact(
                f"{row['flops']:,} operations and {show_bytes(row['bytes'])} in "
                f"{units.launches(row['count'])}: bound by {row['bound']}"
            ),
            Fact(f"it runs at {row['gflops']:,.1f} GFLOP/s and {row['gbytes_per_s']:,.1f} GB/s"),
        ]
        yield Finding(
            severity(cost),
            f"{row['name']} reaches {row['percent']:.1f} % of this machine's "
            f"limit{of_line(row['place'])}",
            f"and takes {share * 100:.0f} % of the time in {units.launches(row['count'])}",
            {"kernel": row["id"], "panes": ["kernels", "code"]},
            "far from its limit",
            cost,
            tuple(facts),
            tuple(_faster(program, row)),
        )


def _faster(program: Program, row: dict) -> Iterator[Suggestion]:
    kernel_launches = [launch for launch in program.launches if launch.kernel == row["name"]]
    bench, product = (
        program.bench,
        any(family_of(m.computes) == "contraction" for m in kernel_launches),
    )
    target = program.run.meta().get("target")
    width, default_width = bench.target("vector_width"), bench.default("vector_width")
    if bench.target("tiles") not in ("", "default"):
        yield Suggestion(
            f"This run was compiled with tiles = {bench.target('tiles')}: use the default tiles.",
            (target_option("tiles", ""),),
        )
    elif target == "cpu" and width not in ("", default_width):
        yield Suggestion(
            f"This run was compiled with vectors of {width} lanes: use as many as the "
            "processor has.",
            (target_option("vector_width", ""),),
        )
    elif target == "cpu" and product and not width and default_width in ("", "16"):
        yield Suggestion(
            f"{EXPERIMENT}use vectors of 8 lanes. A result with few columns fills them "
            "better, and some processors clock higher.",
            (target_option("vector_width", "8"),),
        )
    elif product:
        yield Suggestion(
            f"{EXPERIMENT}use small tiles for its products: more units of work, but operands "
            "are read more often.",
            (target_option("tiles", "small"),),
        )
    else:
        yield Suggestion(
            f"{NOTHING}only products have tiles and widths to choose. Compare its loops "
            "with the assembly in the view Code; more rows at once (a larger batch) give it "
            "more work."
        )


# -- unnecessary work ------------------------------------------------------------------------------


def constant(program: Program) -> Iterator[Finding]:
    """Yield findings for launches of constants, which compute the same at every execution.

    A launch that only fills memory with a number is not work and is not reported.
    """
    constant_launches = [
        launch
        for launch in program.launches
        if launch.kinds
        and launch.reads
        and not program.has_loops
        and all(writer is None and v in program.constants for v, writer in launch.reads)
    ]
    cost = program.time_of(constant_launches)
    if cost is None:
        return
    costliest = max(constant_launches, key=lambda launch: launch.us or 0.0)
    facts = [
        Fact(
            f"{m.kernel}{at([m])} computes {show_bytes(_moved(m))} from "
            f"{show_bytes(sum(v.type.bytes for v, _ in m.reads))} of constants",
            program.go(m),
        )
        for m in constant_launches[:4]
    ]
    answer = _unfolded(program, costliest)
    if answer is not None:
        facts.append(
            Fact(
                f"{answer.pass_label} refused ({answer.condition}): {answer.sentence}",
                {"stage": answer.stage, "open": "rewrites"},
            )
        )
    yield Finding(
        severity(cost),
        f"{units.launches(len(constant_launches))} to compute constants{at(constant_launches)}",
        ", ".join(dict.fromkeys(m.kernel for m in constant_launches)),
        program.go(costliest),
        "constant work",
        cost,
        tuple(facts),
        tuple(_fold(program, constant_launches)),
    )


def _unfolded(program: Program, launch: Launch) -> Answer | None:
    op = program.last_computing(launch)
    if op is None:
        return None
    recording = program.run.recording
    try:
        answers = why_not(recording, first_stage(recording, op), op, rule=FoldConstants.name())
    except UserError:
        return None
    return next((a for a in reversed(answers) if a.outcome == REFUSED), None)


def _fold(program: Program, constant_launches: Sequence[Launch]) -> Iterator[Suggestion]:
    reverts = suggest_reverting(list(program.bench.changed(FoldConstants.name())))
    last = last_stage(program.stages, FoldConstants)
    if reverts or last is None:
        yield from reverts
        return
    growth = max(
        _moved(m) / max(1, sum(v.type.bytes for v, _ in m.reads)) for m in constant_launches
    )
    allowed, more = math.ceil(growth), sum(map(_moved, constant_launches))
    if allowed > float(dict(last.options).get("growth", 1.0)) and more <= MAX_FOLDED:
        yield Suggestion(
            f"Allow folded constants to grow {allowed}-fold: {show_bytes(more)} more weights.",
            (option(last.pass_name, "growth", str(allowed)),),
        )
    else:
        yield Suggestion(
            f"{NOTHING}as constants they would take {show_bytes(more)}. Make them smaller, "
            "or compute them before the model runs."
        )


def twice(program: Program) -> Iterator[Finding]:
    """Yield findings for launches that repeat another launch's kernel on the same memory."""
    if any("recompute" in s.pass_name for s in program.stages) or program.has_loops:
        return  # recomputation was requested; iterations look alike
    seen: dict[tuple, Launch] = {}
    repeats: list[tuple[Launch, Launch]] = []
    for launch in program.launches:
        key = launch.kernel, str(LaunchOp.of(launch.op).arguments), launch.reads
        if seen.setdefault(key, launch) is not launch:
            repeats.append((seen[key], launch))
    second = [launch for _, launch in repeats]
    cost = program.time_of(second)
    if cost is None:
        return
    facts = [
        Fact(f"{b.kernel}{at([b])} repeats the earlier launch{at([a])}", program.go(b))
        for a, b in repeats[:4]
    ]
    reverts = suggest_reverting(list(program.bench.changed(EliminateCommonSubexpressions.name())))
    tries = reverts or [
        Suggestion(
            f"{NOTHING}expressions with equal text are merged already. Compute "
            "it once in the model and use the result twice."
        )
    ]
    yield Finding(
        severity(cost),
        f"{units.launches(len(repeats))} of repeated work{at(second)}",
        ", ".join(dict.fromkeys(b.kernel for b in second)),
        program.go(second[0]),
        "work done twice",
        cost,
        tuple(facts),
        tuple(tries),
    )
