"""Rules: pattern, check and rewrite; the driver that applies a table of them.

A rule is one row of a table: its name says what it does, the pattern is a small tree, the rewrite a
function that builds the replacement.  ``check`` refuses with a reason.  Refusals are not recorded:
:func:`explain` runs the same matcher again on a stage's snapshot when the user asks.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from core_compiler.ir import Module, Op, Rewriter, Value, WeightStore
from core_compiler.ir.refusal import Refusal
from core_compiler.passes.patterns import (
    LEVELS,
    MOVES,
    Any_,
    Check,
    Const,
    Either,
    Match,
    MatchFailure,
    Node,
    View,
    all_of,
    code_of,
    either,
    fits,
    furthest,
    is_all,
    is_float,
    matches,
    one_wide_float,
    op,
    view_of,
    views,
    wide,
)
from core_compiler.support.errors import InternalError

__all__ = [  # the vocabulary of a table of rules
    "LEVELS",
    "MOVES",
    "Any_",
    "Check",
    "Const",
    "Either",
    "Match",
    "MatchFailure",
    "Node",
    "Rule",
    "View",
    "all_of",
    "apply_at",
    "apply_rules",
    "dead_ops",
    "either",
    "explain",
    "fits",
    "is_all",
    "is_float",
    "one_wide_float",
    "op",
    "reuse_results",
    "view_of",
    "views",
    "wide",
]  # fmt: skip


def _caller_location() -> tuple[CodeType, int]:
    """Return the source position of a rule: the caller of the dataclass's ``__init__``."""
    frame = sys._getframe(2)
    return frame.f_code, frame.f_lasti


@dataclass(frozen=True)
class Rule:
    """A rule ``pattern`` => result of ``rewrite(builder, match)`` (None: a late refusal).

    ``check(match)`` returns None, or the reason to refuse.  ``tolerance`` is the relative bound of
    a rule that changes values (None: exact, bit for bit; 0.0: equal numbers, as +0 and -0).
    ``changes_subgradient``: the result has another subgradient where the branches of the original
    meet.
    ``except_for``: classes of values for which it differs (``nan``, ``infinities``, ``largest``:
    see `debug.adversarial.CLASSES`); every other class is tried whenever the rule fires.
    ``in_f64``: the difference of both sides in f64 if one approximates the other.
    """

    name: str
    pattern: Node
    rewrite: Callable[[Any, Match], Any]
    check: Callable[[Match], str | None] | None = None
    tolerance: float | None = None
    changes_subgradient: bool = False
    except_for: tuple[str, ...] = ()
    in_f64: float = 0.0
    #: The position of the row: code and instruction.
    code_location: tuple[CodeType, int] | str = field(
        default_factory=_caller_location, compare=False, repr=False
    )

    @property
    def source(self) -> str:
        """Return ``file:line`` of the rewrite function, relative to the package."""
        return Refusal("", "", code_location=code_of(inspect.unwrap(self.rewrite))).location

    @property
    def location(self) -> str:
        """Return ``file:line`` of the row."""
        return Refusal("", "", code_location=self.code_location).location

    def attempt(self, root: Op, view: View) -> Match | Refusal:
        """Return the first match at ``root`` that the check accepts, else the best refusal.

        That is the refusal of the attempt that got furthest.
        """
        best: Refusal | None = None
        for found in matches(self.pattern, root, view):
            if isinstance(found, Match):
                reason = self.check(found) if self.check is not None else None
                if not reason:
                    return found
                check_location = code_of(self.check) if self.check is not None else ""
                found = Refusal(
                    "check",
                    "{0}",
                    (reason, root),
                    check_location or self.location,
                    1_000,
                    found.ops,
                )
            best = furthest(best, found)
        if best is None:
            return Refusal("pattern", "{0} does not match", (root,), self.location)
        best.code_location = best.code_location or self.location
        return best


def apply_at(rule: Rule, root: Op, rewriter: Rewriter, view: View) -> list[Op] | None:
    """Apply ``rule`` at ``root`` and return the new ops, or None if it does not fire."""
    found = rule.attempt(root, view)
    if isinstance(found, Refusal):
        return None
    builder = view.builder()
    result = rule.rewrite(builder, found)
    if result is None:
        return None
    results = (result,) if isinstance(result, Value) else tuple(result)
    new, values = reuse_results(root, results, builder.ops)
    # A pattern may bind a matched op's own result (a in ``a + (-b)`` may be that ``-b``).
    needed = {v for o in new for v in o.uses()} | set(values.values())
    return rewriter.replace(
        dead_ops(found.ops, rewriter, needed),
        new,
        values,
        rule=rule.name,
        source=rule.source,
        tolerance=rule.tolerance,
        at=root,
        except_for=rule.except_for,
        in_f64=rule.in_f64,
    )


def reuse_results(root: Op, results: Sequence[Value], ops: list[Op]) -> tuple[list[Op], Mapping]:
    """Let the new ops define ``root``'s own values if types agree, so its users do not change."""
    renamed = {}
    made = {v for op_ in ops for v in op_.results}
    for old, new in zip(root.results, results, strict=True):
        if new in made and new.type is old.type and new not in renamed:
            renamed[new] = old
    ops = [
        o.substitute(renamed).with_(results=tuple(renamed.get(v, v) for v in o.results))
        if any(v in renamed for v in (*o.uses(), *o.results))
        else o
        for o in ops
    ]
    return ops, {old: renamed.get(new, new) for old, new in zip(root.results, results, strict=True)}


def dead_ops(matched: Sequence[Op], rewriter: Rewriter, needed: set[Value]) -> list[Op]:
    """Return the matched ops that become dead once the root is gone, root last.

    They are in program order; ``needed`` are values that the replacement reads.
    """
    root, gone = matched[0], {matched[0]}
    left = list(dict.fromkeys(matched[1:]))
    before = 0
    while before != len(gone):  # an op may stand before one of its users in the match
        before = len(gone)
        for op_ in left:
            users = {u for v in op_.results for u in rewriter.users(v)}
            kept = any(rewriter.is_output(v) or v in needed for v in op_.results)
            if users <= gone and not kept:
                gone.add(op_)
        left = [op_ for op_ in left if op_ not in gone]
    return [o for o in reversed(list(dict.fromkeys(matched))) if o in gone and o is not root] + [
        root
    ]


def apply_rules(rewriter: Rewriter, rules: Sequence[Rule], weights: WeightStore) -> int:
    """Apply rules in program order until none fires; return the number of rewrites.

    The new ops of a rewrite are tried next, so that an op that reads them later finds their final
    form.
    """
    table: dict[str, list[Rule]] = {}
    for rule in rules:
        table.setdefault(rule.pattern.kind, []).append(rule)
    view = view_of(rules, rewriter, weights)
    work = deque(rewriter.ops)
    queued = set(work)
    count = 0
    limit = 100 * len(work) + 1000
    while work:
        current = work.popleft()
        queued.discard(current)
        if current not in rewriter:
            continue
        for rule in table.get(current.kind, ()):
            users = [u for v in current.results for u in rewriter.users(v)]
            feeders = [p for v in current.uses() if (p := rewriter.producer(v)) is not None]
            new_ops = apply_at(rule, current, rewriter, view)
            if new_ops is None:
                continue
            count += 1
            if count > limit:
                raise InternalError(f"rules do not terminate (last: {rule.name})")
            candidates = [*new_ops, *feeders]
            for op_ in new_ops or ():
                candidates += [u for v in op_.results for u in rewriter.users(v)]
            for user in users:
                candidates += [user] if user in rewriter else []
            for value in rewriter.events[-1].values.values():
                candidates += rewriter.users(value)
            for op_ in reversed(candidates):  # before later ops, which may match them
                if op_ in rewriter and op_ not in queued:
                    work.appendleft(op_)
                    queued.add(op_)
            break
    return count


def explain(rules: Sequence[Rule], module: Module, root: Op) -> list[tuple[str, str, Op | None]]:
    """Return ``(rule, answer, op concerned)`` for each rule that may fire at ``root``."""
    view = view_of(rules, Rewriter(module.main.body), module.weights)
    answers = []
    for rule in rules:
        found = rule.attempt(root, view)
        if isinstance(found, Refusal):
            answers.append((rule.name, found.reason, found.op))
        else:
            answers.append((rule.name, "fires here", root))
    return answers
