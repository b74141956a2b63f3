"""Exploration rules that move views past other ops.  All keep every bit.

A pipeline of rewrites needs one direction for these, and no direction is right everywhere; an
e-graph holds both sides.  Views sink below elementwise ops (there they meet their inverse, and a
broadcast repeats results instead of operands); slices rise above them (less is computed), and so do
transposes if one operand may be their inverse.
"""

from __future__ import annotations

from core_compiler.ops.base import REGISTRY, definition
from core_compiler.ops.traits import kinds_with
from core_compiler.passes.patterns import Any_, Match, op
from core_compiler.passes.rules import Rule

_SINKING = tuple(definition(kind).name for kind in reversed(kinds_with("shape_only")))


def _kinds(count: int) -> tuple[str, ...]:
    """Return the elementwise ops of ``count`` operands."""
    return tuple(
        declared.name
        for declared in REGISTRY.values()
        if "elementwise" in declared.traits
        and len(declared.operands) == count
        and not declared.operands[-1].startswith("*")
    )


def _same_view(m: Match) -> str | None:
    """Check that all operands are moved alike."""
    first, *others = [m.named[name] for name in sorted(m.named)]
    for other in others:
        alike = first.attributes == other.attributes
        if not alike or first.operands[0].type.shape != other.operands[0].type.shape:
            return "the views of the operands differ"
    return None


def _sunk(m: Match):
    return [m[name] for name in sorted(m.values)]


def _below(kind: str, view: str):
    def rewrite(b, m: Match):
        made = b.op(f"core.{kind}", _sunk(m), **m.root.attributes)
        return b.op(f"core.{view}", (made,), **m.named["v0"].attributes)

    return rewrite


def _sink(kind: str, count: int, view: str) -> Rule:
    operands = [op(view, Any_(f"x{i}"), name=f"v{i}") for i in range(count)]
    given = ", ".join(f"{view}({'xyz'[i]})" for i in range(count))
    return Rule(
        f"{kind}({given}) => {view}({kind}({', '.join('xyz'[:count])}))",
        op(kind, *operands),
        _below(kind, view),
        _same_view,
    )


def _splat(m: Match) -> str | None:
    """Check that a single number is repeated: it looks the same before and after a view."""
    kind = m["c"].type
    return None if kind.is_static and kind.elements == 1 else "it is not a single number"


def _with_number(kind: str, view: str, first: bool) -> Rule:
    moved, number = op(view, "x", name="v"), op("broadcast", "c", name="spread")

    def rewrite(b, m: Match):
        x, c = m["x"], m["c"]
        c = c if c.type.shape == () else b.reshape(c, shape=())
        pair = (x, b.expand(c, x.type.shape))
        made = b.op(f"core.{kind}", pair if first else pair[::-1], **m.root.attributes)
        return b.op(f"core.{view}", (made,), **m.named["v"].attributes)

    operand_text = f"{view}(x), c" if first else f"c, {view}(x)"
    pair = (moved, number) if first else (number, moved)
    return Rule(
        f"{kind}({operand_text}) => {view}({kind}({'x, c' if first else 'c, x'}))",
        op(kind, *pair),
        rewrite,
        _splat,
    )


def _along_one_axis(m: Match) -> str | None:
    """Check that the other operand is repeated from at most one axis.

    Its transpose is then a broadcast.
    """
    return None if m["c"].type.rank == 1 else "the other operand does not have exactly one axis"


def _with_vector(kind: str, first: bool) -> Rule:
    """Return a rule that sinks a transpose below an op with one number per channel."""
    moved, vector = op("transpose", "x", name="v"), op("broadcast", "c", name="spread")

    def rewrite(b, m: Match):
        x, order = m["x"], m.named["v"]["permutation"]
        (axis,) = m.named["spread"]["dims"]
        c = b.broadcast(m["c"], shape=x.type.shape, dims=(order[axis],))
        made = b.op(f"core.{kind}", (x, c) if first else (c, x), **m.root.attributes)
        return b.transpose(made, permutation=order)

    operand_text = "transpose(x), v" if first else "v, transpose(x)"
    pair = (moved, vector) if first else (vector, moved)
    return Rule(
        f"{kind}({operand_text}) => transpose({kind}({'x, v' if first else 'v, x'}))",
        op(kind, *pair),
        rewrite,
        _along_one_axis,
    )


def _one_is_transposed(m: Match) -> str | None:
    """Check that a rising transpose may cancel on one operand, leaving one transpose for two."""
    for name in sorted(m.values):
        if any(producer.kind == "core.transpose" for producer in m.view.producers(m[name])):
            return None
    return "no operand is a transpose"


def _rise(kind: str, count: int, view: str, check=None) -> Rule:
    inner = op(kind, *(f"x{i}" for i in range(count)), name="f")

    def rewrite(b, m: Match):
        moved = [b.op(f"core.{view}", (m[f"x{i}"],), **m.root.attributes) for i in range(count)]
        return b.op(f"core.{kind}", moved, **m.named["f"].attributes)

    names = ", ".join("xyz"[:count])
    given = ", ".join(f"{view}({n})" for n in "xyz"[:count])
    return Rule(f"{view}({kind}({names})) => {kind}({given})", op(view, inner), rewrite, check)


def _of_number(view: str) -> Rule:
    """Return a rule that a view of a uniform value is a uniform value."""

    def rewrite(b, m: Match):
        c = m["c"] if m["c"].type.shape == () else b.reshape(m["c"], shape=())
        return b.broadcast(c, shape=m.root.result.type.shape, dims=())

    return Rule(
        f"{view}(broadcast(number)) => broadcast(number)",
        op(view, op("broadcast", "c")),
        rewrite,
        _splat,
    )


def _rules() -> tuple[Rule, ...]:
    rules = [_of_number(view) for view in ("transpose", "reshape", "slice")]
    for count in (1, 2, 3):
        for kind in _kinds(count):
            rules += [_sink(kind, count, view) for view in _SINKING]
            rules.append(_rise(kind, count, "slice"))
            if count > 1:
                rules.append(_rise(kind, count, "transpose", _one_is_transposed))
    for kind in _kinds(2):
        commutes = "commutative" in REGISTRY[f"core.{kind}"].traits
        for first in (True,) if commutes else (True, False):
            rules += [_with_number(kind, view, first) for view in _SINKING]
            rules.append(_with_vector(kind, first))
    return tuple(rules)


RULES = _rules()
