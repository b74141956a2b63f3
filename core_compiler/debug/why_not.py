"""Reasons why two ops of a stage were not fused, or a rule did not apply to an op.

For each pass that could have fused them: the rewrite that did, or the first of its conditions that
refused.  The conditions are the passes' own, tested again on the module they were tested on: a
fusion is replayed along its recorded merges and tested on the pair, rules are matched on the pass's
result. None of this is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import finalize

from typing_extensions import override

from core_compiler.debug import fusions, patterns
from core_compiler.debug.stages import Stages
from core_compiler.debug.trails import OpLocation, key, parts
from core_compiler.ir import Op, Rewriter, Value
from core_compiler.ir.kinds import MEANING_IN_REGION
from core_compiler.ir.refusal import Refusal
from core_compiler.passes.base import Pass, RefusalContext
from core_compiler.passes.grouping import Fusion, family, feeder, is_copied
from core_compiler.passes.rules import Rule
from core_compiler.support.errors import UserError, nearest

#: The conditions by which a fusion restricts the pairs that it handles.
ABOUT = frozenset({"elementwise ops", "a product and its epilogue", "reductions"})
FUSED, APPLIED, REFUSED, NOT_APPLICABLE = "fused", "applied", "refused", "not applicable"


@dataclass(frozen=True)
class Answer:
    """The answer of one pass, or of one of its rules.

    ``outcome``    ``fused`` (two ops are one now), ``applied`` (the rule fired at the op),
                   ``refused``, ``not applicable`` (no condition was reached).
    ``condition``  the refused condition in a few words; ``sentence`` states it with the facts.
    ``source``     ``file:line`` of the condition, or of the rule if it was applied.
    ``ops``        the ops concerned: ``{"op": id or None, "kind", "value"}``.
    ``stage``      the stage that the pass made.
    ``held``       the number of conditions that held before the refused one.
    """

    pass_label: str
    rule: str
    outcome: str
    condition: str
    sentence: str
    source: str
    ops: tuple[Mapping[str, Any], ...]
    stage: int
    held: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "pass": self.pass_label,
            "stage": self.stage,
            "rule": self.rule,
            "outcome": self.outcome,
            "condition": self.condition,
            "sentence": self.sentence,
            "source": self.source,
            "ops": [dict(op) for op in self.ops],
            "held": self.held,
        }

    @override
    def __str__(self) -> str:
        return f"{self.pass_label}: {self.outcome}: {self.sentence} ({self.source})"


def why_not(
    recording_or_stages: Any,
    stage: int,
    first_op: Op | int,
    second_op: Op | int | None = None,
    rule: str | None = None,
    *,
    claims: Callable[[Op], bool] | None = None,
) -> list[Answer]:
    """Return the answer of each rule or pass that could have fused two ops of ``stage``.

    Or applied ``rule`` to one op.  The answers are in pass order; [] if none handles such ops.
    ``recording_or_stages``: a :class:`~core_compiler.record.Recording`, a
    :class:`~core_compiler.driver.compilation.Compilation`, or the latter's stages.  Ops are ops of
    the stage (members of a group too) or, of a recording, their ids.  ``rule`` is a rule's or a
    pass's name, or a part of one.  ``claims`` returns what the target executes whole (a compilation
    knows it). Raises UserError if the stage has no such op or ``rule`` is unknown.
    """
    return _asker(recording_or_stages, claims).ask(stage, first_op, second_op, rule)


def first_stage(recording_or_stages: Any, *ops: Op | int) -> int:
    """Return the first stage that has all of these ops; raise UserError if none has."""
    return _asker(recording_or_stages, None).first_stage(ops)


def summary(answers: Sequence[Answer]) -> str:
    """Return the answers in one sentence: where the ops were fused, else the closest attempt."""
    successes = [a for outcome in (FUSED, APPLIED) for a in answers if a.outcome == outcome]
    if successes:
        done = successes[0]
        return f"{done.outcome} by {done.pass_label} (stage {done.stage}): {done.sentence}"
    refused = [a for a in answers if a.outcome == REFUSED]
    if not refused:
        return answers[-1].sentence if answers else "no rule of this pipeline applies to these ops"
    best = max(refused, key=lambda a: a.held)
    if best.condition in ABOUT:
        return f"not fused: no pass handles this pair ({best.pass_label}: {best.sentence})"
    return f"refused; {best.pass_label} came closest: {best.sentence}"


#: Cached questions by identity of the recording or compilation, while it lives.
_KNOWN: dict[int, WhyNot] = {}


def _asker(source: Any, claims) -> WhyNot:
    if not hasattr(source, "stages"):  # a list of stages
        return WhyNot(source, claims)
    known = _KNOWN.get(id(source))
    if known is None:
        finalize(source, _KNOWN.pop, id(source), None)
    if known is None or (claims is not None and claims is not known.claims):
        known = _KNOWN[id(source)] = WhyNot(source, claims)
    return known


class WhyNot:
    """The questions about one recording or compilation, with a cache of what was read of it."""

    def __init__(self, source: Any, claims: Callable[[Op], bool] | None = None):
        self.stages = Stages(source)
        self.claims = claims or self.stages.claims
        self._rewriters: dict[tuple[int, Op | None], Rewriter] = {}

    # -- the question ----------------------------------------------------------------------------

    def ask(
        self, stage: int, first: Op | int, second: Op | int | None = None, rule: str | None = None
    ) -> list[Answer]:
        """See :func:`why_not`."""
        self.stages.refresh()
        if rule is not None:
            self._check_rule_name(rule)
        locations = [self._locate(stage, op) for op in (first, second) if op is not None]
        if len(locations) == 2 and locations[0] == locations[1]:
            raise UserError("both ops are the same", "why not", "name another op, or a rule")
        answers: list[Answer] = []
        for number, sets in self._trail(stage, locations):
            step = _Step(self, number, sets, stage)
            found = list(step.pair(rule) if second is not None else step.single(rule))
            answers += found
            if number > stage and any(a.outcome == FUSED for a in found):
                break
            removal = step.removal()
            if removal is not None:
                answers += [removal] if number > stage else []
                break
        return answers

    def first_stage(self, ops: Sequence[Op | int]) -> int:
        """See :func:`first_stage`."""
        self.stages.refresh()
        found = [self.stages.op(op) if isinstance(op, int) else op for op in ops]
        for number in range(self.stages.count):
            index = self.stages.index(number)
            if all(index.location(op) is not None for op in found):
                return number
        raise UserError(
            f"no stage contains {'both ops' if len(ops) == 2 else 'the op'}",
            "why not",
            "choose ops of one stage (a pass that rebuilds an op makes a new one)",
        )

    def _locate(self, stage: int, op: Op | int) -> OpLocation:
        if not 0 <= stage < self.stages.count:
            last = self.stages.count - 1
            raise UserError(
                f"stage {stage} not found", "why not", f"choose a stage from 0 to {last}"
            )
        found = self.stages.op(op) if isinstance(op, int) else op
        location = self.stages.index(stage).location(found)
        if location is None:
            name = op if isinstance(op, int) else found.kind
            raise UserError(
                f"op {name} not found in stage {stage} ({self.stages.label(stage)})",
                "why not",
                "choose an op of this stage, or the stage that contains the op",
            )
        return location

    def _trail(self, stage: int, locations: Sequence[OpLocation]) -> Iterator[tuple[int, list]]:
        """Yield (stage, the places of each op before it), in pass order, once all ops exist."""
        before = [[[location] for location in locations]]
        for number in range(stage, 0, -1):
            earlier = [self.stages.changes(number).backward(s) for s in before[-1]]
            before.append([self._significant(number - 1, s) for s in earlier])
        sets = before[-1]
        for number in range(1, self.stages.last_testable + 1):
            if number <= stage + 1:
                sets = before[stage + 1 - number]
            else:
                sets = [
                    self._significant(number - 1, self.stages.changes(number - 1).forward(s))
                    for s in sets
                ]
            if all(sets):
                yield number, sets

    def _significant(self, number: int, locations: list[OpLocation]) -> list[OpLocation]:
        """Return an op's successors without its constants and broadcasts, if there are others."""
        index = self.stages.index(number)
        significant = [p for p in locations if not _is_insignificant(index.shown(p))]
        return significant or locations

    def core(self, number: int, locations: Sequence[OpLocation]) -> Sequence[OpLocation]:
        """Return an op's successors that are products and reductions, if it has such.

        All other successors are secondary.
        """
        index = self.stages.index(number)
        return [p for p in locations if _has_loops(index.shown(p))] or locations

    def _check_rule_name(self, rule: str) -> None:
        known: dict[str, None] = {}
        for number in range(1, self.stages.count):
            known |= dict.fromkeys(self._names(number))
        if not any(_name_matches(rule, name) for name in known):
            choices = f"choose from {', '.join(list(known)[:12])}, ..."
            raise UserError(f"unknown rule or pass {rule!r}", "rule", nearest(rule, known, choices))

    def _names(self, number: int) -> list[str]:
        """Return the names by which a user may refer to the pass of a stage, and to its rules."""
        made = self.stages.pass_(number)
        label = self.stages.label(number)
        rules = [r.name for r in made.table()] if made else []
        fusion = made.fusion() if made else None
        return [label, label.partition("#")[0], *rules, *([fusion.rule] if fusion else [])]

    # -- what steps need -------------------------------------------------------------------------

    def rewriter(self, number: int, op: Op) -> Rewriter:
        """Return a view of the block of stage ``number`` that contains ``op``."""
        name, block = self.stages.index(number).home[op]
        known = (number, block.ops[0] if block.ops else None)
        if known not in self._rewriters:
            self._rewriters[known] = Rewriter(block, name)
        return self._rewriters[known]

    def scene(self, number: int, op: Op) -> RefusalContext:
        return RefusalContext(
            self.stages.index(number).module, self.rewriter(number, op), self.claims
        )


def _is_insignificant(op: Op | None) -> bool:
    return op is None or op.kind == "core.constant" or is_copied(op)


def _has_loops(op: Op | None) -> bool:
    return op is not None and op.kind.startswith("core.") and family(op) != "map"


def _name_matches(wanted: str, name: str) -> bool:
    return wanted.lower() in name.lower()


class _Step:
    """A pass and the places of the ops before it; ``query_stage`` is the stage of the question."""

    def __init__(
        self, asker: WhyNot, number: int, sets: Sequence[Sequence[OpLocation]], query_stage: int
    ):
        self.asker, self.number, self.sets, self.query_stage = asker, number, sets, query_stage
        self.stages = asker.stages
        self.label = self.stages.label(number)
        self.before, self.after = self.stages.index(number - 1), self.stages.index(number)
        self.changes = self.stages.changes(number)
        self.now = [asker._significant(number, self.changes.forward(s)) for s in sets]
        self.core = [asker.core(number - 1, s) for s in sets]

    def names(self, value: Value) -> str:
        return self.stages.name(value, self.number, self.query_stage)

    # -- answers ---------------------------------------------------------------------------------

    def answer(
        self, rule: str, outcome: str, refused: Refusal, held: int = 0, ops: Iterable[Op] = ()
    ) -> Answer:
        concerned = dict.fromkeys((*ops, *refused.ops))
        return Answer(
            self.label,
            rule,
            outcome,
            refused.condition,
            refused.sentence(self.names),
            refused.location,
            tuple(self.describe_op(op) for op in concerned),
            self.number,
            held,
        )

    def describe_op(self, op: Op) -> dict[str, Any]:
        value = self.names(op.results[0]) if op.results else ""
        return {"op": self.stages.op_id(op), "kind": op.kind, "value": value}

    def removal(self) -> Answer | None:
        """Return the rewrite that removed an op, if it no longer exists after the pass."""
        for locations, now in zip(self.sets, self.now, strict=True):
            if locations and not now:
                (op, *_) = self.before.ops(locations)
                _, through = self.changes.trace(locations)
                by = [self.changes.rewrites[n] for n in through]
                rule = by[-1].rule if by else ""
                text = "{0} does not exist after this pass: {1}"
                about = op, rule or "nothing replaces it"
                refused = Refusal("still there", text, about, self._pass_source())
                return self.answer(rule, NOT_APPLICABLE, refused)
        return None

    def is_requested(self, rule: str | None, *names: str) -> bool:
        names = (self.label, *names)
        return rule is None or any(_name_matches(rule, name) for name in names)

    # -- two ops ---------------------------------------------------------------------------------

    def pair(self, rule: str | None) -> Iterator[Answer]:
        """Yield the answers of this pass about two ops."""
        first, second = (self.before.ops(s) for s in self.core)
        if set(first) & set(second):  # both were, or are now, one op
            return
        fused = self._fused()
        if fused is not None:
            if self.is_requested(rule, fused.rule):
                yield fused
            return
        pass_ = self.stages.pass_(self.number)
        if pass_ is None or not all(self.now):
            return
        both = self._replaced_both()
        if both is not None and self.is_requested(rule, both.rule):
            yield both
            return
        fusion = pass_.fusion()
        if fusion is not None and self.is_requested(rule, fusion.rule):
            units = [self.after.ops(s) for s in self.now]
            if set(units[0]) & set(units[1]):  # parts of the two are already one, but not the core
                units = [self.after.ops(self.asker.core(self.number, s)) for s in self.now]
            yield self.fusion(fusion, *units)
        yield from self.rules(pass_, rule)
        if pass_.refusal_arity == 2 and self.is_requested(rule):
            yield from self._pair_answers(pass_)

    def _fused(self) -> Answer | None:
        """Return the rewrite of this pass that made one of two ops, or None."""
        first, second = ({p.key for p in self.asker.core(self.number, s)} for s in self.now)
        if not first & second:
            return None
        through = {n for s in self.core for n in self.changes.trace(s)[1]}
        for number in sorted(through):
            one, two = ({p.key for p in self.changes.forward(s, until=number)} for s in self.core)
            if one & two:
                break
        rewrite = self.changes.rewrites[number]
        shown = [self.before.shown(s[0]) for s in self.core]
        held = (
            parts(rewrite.new[0])[:8]
            if rewrite.new and rewrite.new[0].kind in MEANING_IN_REGION
            else ()
        )
        words = ", ".join(dict.fromkeys(op.kind.rpartition(".")[2] for op in held))
        made = rewrite.new or tuple(o for o in rewrite.old if o not in shown)
        text = "{0} and {1} were fused by the rule `{2}`" + (
            "; the group contains {4}" if words else " into {3}"
        )
        refusal = Refusal("", text, (*shown, rewrite.rule, made, words), rewrite.source)
        if not refusal.code_location:
            refusal.code_location = self._pass_source()
        return self.answer(rewrite.rule, FUSED, refusal)

    def _replaced_both(self) -> Answer | None:
        """Return the rewrite of this pass that took both ops and made several of them, or None."""
        one, two = (set(self.changes.trace(s)[1]) for s in self.core)
        for number in sorted(one & two):
            rewrite = self.changes.rewrites[number]
            shown = tuple(self.before.shown(s[0]) for s in self.core)
            text = "the rule `{1}` replaced {0} by {2}"
            refusal = Refusal("", text, (shown, rewrite.rule, rewrite.new), rewrite.source)
            refusal.code_location = refusal.code_location or self._pass_source()
            return self.answer(rewrite.rule, APPLIED, refusal)
        return None

    def _pass_source(self) -> Any:
        """Return the source of the pass, for rewrites that do not name theirs."""
        pass_ = self.stages.pass_(self.number)
        if pass_ is None:
            return ""
        decides = type(pass_).run if pass_.fusion() is None else type(pass_).fusion
        return (decides.__code__, 0)

    def _pair_answers(self, pass_: Pass) -> Iterator[Answer]:
        """Yield the answers of a pass with its own condition on two ops, if each is still one."""
        ops = [self.after.ops(s) for s in self.now]
        pair = pass_.pair(*(some[0] for some in ops)) if [len(s) for s in ops] == [1, 1] else None
        if pair is not None:
            refused = pass_.refusal(pair, self.asker.scene(self.number, pair[0]))
            yield self.answer(pass_.name(), REFUSED, refused or fusions.HOLDS, ops=pair)

    def fusion(self, fusion: Fusion, first: Sequence[Op], second: Sequence[Op]) -> Answer:
        """Return the first refused condition between two sets of units, as this pass left them."""
        rewriter = self.asker.rewriter(self.number, first[0])
        found = fusions.closest(fusion, first, second, self.changes, rewriter, self.asker.claims)
        return self.answer(fusion.rule, REFUSED, found.refusal, found.held, found.ops)

    # -- an op -----------------------------------------------------------------------------------

    def single(self, rule: str | None) -> Iterator[Answer]:
        """Yield the answers of this pass about one op."""
        pass_ = self.stages.pass_(self.number)
        if pass_ is None:
            return
        yield from self.rules(pass_, rule)
        fusion = pass_.fusion()
        if fusion is not None and self.is_requested(rule, fusion.rule):
            yield from self._neighbours(fusion)
        if pass_.refusal_arity == 1 and rule is not None and self.is_requested(rule):
            done = self._applied(lambda made: True)
            ops = self.after.ops(self.now[0])
            if done is not None:
                yield done
            elif ops:
                refused = pass_.refusal(ops[:1], self.asker.scene(self.number, ops[0]))
                yield self.answer(pass_.name(), REFUSED, refused or fusions.HOLDS, ops=ops[:1])

    def _applied(self, is_it: Callable[[str], bool]) -> Answer | None:
        """Return the first rewrite of the pass that took the op (for two ops: either), or None."""
        for locations in self.sets:
            for number in self.changes.trace(locations)[1]:
                rewrite = self.changes.rewrites[number]
                if is_it(rewrite.rule):
                    shown = self.before.shown(locations[0])
                    done = "replaced {0} by {2}" if rewrite.new else "removed {0}"
                    text = "the rule `{1}` " + done
                    refusal = Refusal("", text, (shown, rewrite.rule, rewrite.new), rewrite.source)
                    refusal.code_location = refusal.code_location or self._pass_source()
                    return self.answer(rewrite.rule, APPLIED, refusal)
        return None

    def _matched(self, rows: Sequence[Rule]) -> Answer | None:
        """Return the rewrite of a rule that matched the ops and left them for other readers."""
        sets = [self.before.ops(s) for s in self.sets]
        made = [r for r in self.changes.rewrites if r.rule == rows[0].name and r.old]
        if not made or not all(sets):
            return None
        scene = self.asker.scene(self.number - 1, sets[0][0])
        roots = {self.before.top.get(key(r.old[-1])): r for r in made}
        found = patterns.matched(rows, sets, scene, roots)
        if found is None:
            return None
        rewrite = roots[found]
        text = "the rule `{1}` matched {0} and created {2}"
        refusal = Refusal("", text, (tuple(s[0] for s in sets), rewrite.rule, rewrite.new))
        refusal.code_location = rewrite.source or self._pass_source()
        return self.answer(rewrite.rule, APPLIED, refusal)

    def _neighbours(self, fusion: Fusion) -> Iterator[Answer]:
        """Yield the answers of a fusion about one op: its fusions, and each unfused neighbour."""
        done = self._applied(lambda made: made == fusion.rule)
        if done is not None:
            yield done
        ops = self.after.ops(self.now[0])
        for unit in fusions.work_of(ops)[:1] if ops else ():
            rewriter = self.asker.rewriter(self.number, unit)
            fed = [feeder(value, rewriter) for value in unit.operands]
            makers = [f[0] for f in fed if not isinstance(f, Refusal)]
            for other in dict.fromkeys(makers):
                yield self.fusion(fusion, [other], [unit])
            for other in fusions.readers(unit, rewriter):
                yield self.fusion(fusion, [unit], [other])

    # -- rules with patterns ---------------------------------------------------------------------

    def rules(self, pass_: Pass, rule: str | None) -> Iterator[Answer]:
        """Yield each rule that could have taken the ops: fired, or how far its pattern matched."""
        by_name: dict[str, list] = {}
        for row in pass_.table():
            if rule is None or self.is_requested(rule, row.name):
                by_name.setdefault(row.name, []).append(row)
        for name, rows in by_name.items():
            done = None if len(self.sets) == 2 else self._applied(name.__eq__)
            done = done or self._matched(rows)
            if done is not None:
                yield done
                continue
            number = self.number if all(self.now) else self.number - 1
            index = self.stages.index(number)
            sets = [index.ops(s) for s in (self.now if all(self.now) else self.sets)]
            if not all(sets):
                continue
            scene = self.asker.scene(number, sets[0][0])
            found = patterns.closest(rows, sets, scene)
            if found is None and rule == name:
                kinds = tuple(dict.fromkeys(n.kind for n in patterns.nodes(rows[0].pattern)))
                text = "the rule applies to {1}, not to {0}"
                refusal = Refusal(
                    "pattern", text, (sets[0][0], " and ".join(kinds)), rows[0].location
                )
                yield self.answer(name, NOT_APPLICABLE, refusal)
            if found is not None:
                yield self.answer(name, found.outcome, found.refusal, found.held, found.ops)
