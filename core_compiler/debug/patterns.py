"""The best partial match of a rule's pattern at given ops, and the condition that ended it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core_compiler.ir import Op, Rewriter
from core_compiler.ir.refusal import Refusal
from core_compiler.passes.base import RefusalContext
from core_compiler.passes.rules import MOVES, Either, Match, Node, Rule, view_of
from core_compiler.support.errors import UserError


@dataclass(frozen=True)
class Closest:
    """The best attempt; ``refusal`` ended it after ``held`` ops of the pattern had matched."""

    outcome: str
    refusal: Refusal
    held: int
    ops: tuple[Op, ...]


def nodes(pattern: Node) -> Iterator[Node]:
    """Yield the ops of a pattern, root first, including all alternatives."""
    yield pattern
    for operand in _nodes_below(pattern):
        yield from nodes(operand)


def _nodes_below(pattern: Node | Either) -> Iterator[Node]:
    for part in pattern.operands if isinstance(pattern, Node) else pattern.options:
        if isinstance(part, Node):
            yield part
        elif isinstance(part, Either):
            yield from _nodes_below(part)


def depth(pattern: Node) -> int:
    """Return the number of ops on a pattern's longest path; ``through`` counts as two more."""
    below = max(map(depth, _nodes_below(pattern)), default=0)
    return 1 + below + (2 if pattern.through else 0)


def size(pattern: Node | Either | Any) -> int:
    """Return the number of ops in a match, without skipped ones; for alternatives the maximum."""
    if isinstance(pattern, Either):
        return max(map(size, pattern.options))
    return 1 + sum(map(size, pattern.operands)) if isinstance(pattern, Node) else 0


def kinds_of(rule: Rule) -> set[str]:
    """Return the kinds of the ops that a rule is about."""
    found = {node.kind for node in nodes(rule.pattern)}
    return found | (MOVES if any(node.through for node in nodes(rule.pattern)) else frozenset())


def closest(
    rows: Sequence[Rule], sets: Sequence[Sequence[Op]], scene: RefusalContext
) -> Closest | None:
    """Return the attempt that got furthest with one op of each set, or None.

    ``rows`` are the variants of one rule; None if no variant has ops of their kinds.  A rule is
    tried at every op that could be its root: one of the given ops, or one that they feed within the
    depth of the pattern.
    """
    view = view_of(rows, scene.rewriter, scene.module.weights)
    given = {op for some in sets for op in some}
    best: tuple[tuple[int, int, int], Refusal, Rule] | None = None
    is_applicable = False
    for rule in rows:
        kinds = kinds_of(rule)
        if not all(any(op.kind in kinds for op in some) for some in sets):
            continue
        is_applicable = True
        for root in _roots(rule, sets, scene.rewriter, kinds):
            try:
                found = rule.attempt(root, view)
            except UserError as missing:  # a weight that the recording only names
                return Closest("not applicable", Refusal("weights", "{0}", (str(missing),)), 0, ())
            if isinstance(found, Match):
                if not all(any(op in found.ops for op in some) for some in sets):
                    continue
                text = "the whole pattern matches at {0} in the pass's result: it stopped before"
                text += " this (a limit on its rewrites), or the rewrite itself declined"
                found = Refusal("a rewrite left", text, (root,), rule.location, 1_001, found.ops)
            # The rule is not about ops whose kind does not occur in the pattern.
            concerned = set(found.matched) | (
                set() if found.condition == "pattern" else set(found.ops)
            )
            reached = given & concerned
            if not all(any(op in concerned for op in some) for some in sets) and len(sets) == 2:
                continue
            score = len(reached), len(found.matched), found.depth
            if best is None or score > best[0]:
                best = score, found, rule
    if best is None:
        if not is_applicable or len(sets) == 2:
            return None
        roots = " or ".join(sorted({rule.pattern.kind for rule in rows}))
        text = "the root of the rule is {1}, and {0} feeds none within reach"
        return Closest(
            "refused",
            Refusal("pattern", text, (sets[0][0], roots), rows[0].location),
            0,
            tuple(sets[0][:1]),
        )
    _, refused, rule = best
    return _describe(refused, rule)


def matched(
    rows: Sequence[Rule], sets: Sequence[Sequence[Op]], scene: RefusalContext, roots: Container
) -> Op | None:
    """Return the one of ``roots`` at which one of ``rows`` matches an op of each set, or None."""
    view = view_of(rows, scene.rewriter, scene.module.weights)
    for rule in rows:
        kinds = kinds_of(rule)
        for root in _roots(rule, sets, scene.rewriter, kinds):
            if root not in roots:
                continue
            try:
                found = rule.attempt(root, view)
            except UserError:  # a weight that the recording only names
                continue
            if isinstance(found, Match) and all(any(o in found.ops for o in s) for s in sets):
                return root
    return None


def _describe(refused: Refusal, rule: Rule) -> Closest:
    """Return the refusal with the number of ops that had matched."""
    matched = tuple(dict.fromkeys(refused.matched))
    whole, wanted = size(rule.pattern), {node.kind for node in nodes(rule.pattern)}
    held = sum(op.kind in wanted for op in refused.matched)
    if not matched or refused.condition in ("check", "a rewrite left"):
        return Closest("refused", refused, len(refused.matched), matched)
    kinds = ", ".join(op.kind.partition(".")[2] for op in refused.matched)
    count = len(refused.about)
    text = f"matched {{{count}}} ({{{count + 1}}} of {{{count + 2}}} ops): {refused.text}"
    about = (*refused.about, kinds, min(held, whole), whole)
    with_counts = Refusal(
        refused.condition, text, about, refused.code_location, refused.depth, refused.matched
    )
    return Closest("refused", with_counts, len(refused.matched), matched)


def _roots(rule: Rule, sets, rewriter: Rewriter, kinds: set[str]) -> list[Op]:
    """Return ops of the root's kind that every set reaches within the pattern's depth.

    The nearest come first.
    """
    reach = depth(rule.pattern) - 1
    found: dict[Op, None] | None = None
    for some in sets:
        near = dict.fromkeys(op for op in some if op in rewriter and op.kind in kinds)
        frontier = list(near)
        for _ in range(reach):
            frontier = [
                user
                for op in frontier
                for value in op.results
                for user in rewriter.users(value)
                if user not in near and user.kind in kinds
            ]
            near |= dict.fromkeys(frontier)
        found = near if found is None else {op: None for op in found if op in near}
    return [op for op in found or () if op.kind == rule.pattern.kind]
