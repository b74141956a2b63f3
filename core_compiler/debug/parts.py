"""The facts of main's arguments and results, kept for a part cut out of it.

Examples are a state that shares memory with its next value, and a parameter and its gradient.
Passes read these facts, which name positions.  A part has other positions, its arguments include
intermediate values, and a training step needs a loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core_compiler.ir import Function, Op, TensorType, Value, WeightStore
from core_compiler.ops.builder import Builder
from core_compiler.training.graph.roles import Roles

#: Facts of a function that refer to its arguments and results by position.
PLACES = ("aliases", "arguments", "results")
#: Results that a training step must keep if it has them.
_ALWAYS = ("loss", "scaled", "finite")

#: A result, and its position among those of the whole (None: a result of the part alone).
Result = tuple[Value, int | None]


def bare_facts(main: Function) -> dict[str, Any]:
    """Return the facts of main that do not refer to positions."""
    return {k: v for k, v in main.attributes.items() if k not in PLACES}


def _roles(main: Function) -> Roles | None:
    """Return the roles of a training step's arguments and results, or None if main is not one."""
    return Roles.of(main) if "arguments" in main.attributes else None


def differentiated(main: Function) -> list[int]:
    """Return the positions of the results that a training step must keep; [] if main is not one."""
    roles = _roles(main)
    return [] if roles is None else [i for i, r in enumerate(roles.results) if r[0] in _ALWAYS]


def _is_forward(roles: Roles) -> bool:
    """Return whether no gradient has been computed yet: differentiation is still to come."""
    return not any(
        role == "gradient" or (role == "next" and roles.arguments[of][0] == "parameter")
        for role, of in roles.results
    )


def step_results(
    main: Function, ops: Sequence[Op], live: Sequence[Value], weights: WeightStore
) -> tuple[tuple[Op, ...], list[Result]] | None:
    """Return the ops and the results of a part of ``main``, of which ``live`` is read elsewhere.

    Before differentiation, the loss is the sum of all values read elsewhere; later the loss stays
    what it is, computed in the part or an input.  None if nothing would be left to differentiate.
    """
    roles = _roles(main)
    position_of = {v: i for i, v in reversed(list(enumerate(main.outputs)))}
    position_of |= {main.outputs[i]: i for i, _ in main.attributes.get("aliases", ())}
    if roles is None:
        return tuple(ops), [(v, position_of.get(v)) for v in live]
    made = {v for op in ops for v in op.results}
    rows: list[Result] = [
        (v, i)
        for i, ((role, _), v) in enumerate(zip(roles.results, main.outputs, strict=True))
        if role in _ALWAYS or v in made
    ]
    included = {v for v, _ in rows}
    rest = [v for v in live if v not in included]
    if not _is_forward(roles):
        return tuple(ops), [*rows, *((v, None) for v in rest)]
    scaled = roles.result("scaled")
    at = roles.result("loss") if scaled is None else scaled
    assert at is not None
    loss = main.outputs[at]
    b = Builder(weights)
    terms = [loss] if loss in made else []
    terms += [_total(b, v, loss.type) for v in rest if _is_float(v)]
    if not terms:
        return None
    total = terms[0]
    for term in terms[1:]:
        total = b.add(total, term)
    rows = [(total if i == at else v, i) for v, i in rows]
    rows += [(v, None) for v in rest if not _is_float(v)]
    return (*ops, *b.ops), rows


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


def _total(b: Builder, value: Value, like: TensorType) -> Value:
    """Return the sum of a value's elements, a scalar of the type ``like``."""
    axes = tuple(range(value.type.rank))
    total = b.reduce_sum(value, axes=axes) if axes else value
    return total if total.type.dtype is like.dtype else b.cast(total, dtype=like.dtype)


def part_interface(
    main: Function, results: Sequence[Result], read: Iterable[Value]
) -> tuple[tuple[Value, ...], dict[str, Any]]:
    """Return the arguments and the facts of a part of ``main`` with these ``results``.

    ``read`` are the values from outside, in the order in which those that were not arguments become
    arguments.  Arguments that a result refers to stay: the owner of its memory, the parameter of a
    gradient, the state of an optimiser and its numbers.
    """
    facts, roles, read = bare_facts(main), _roles(main), list(read)
    shared: Mapping[int, int] = dict(main.attributes.get("aliases", ()))
    kept = {shared[p] for _, p in results if p is not None and p in shared}
    number = {v: i for i, v in enumerate(main.arguments)}
    kept |= {number[v] for v in read if v in number}
    if roles is not None:
        kept |= {roles.results[p][1] for _, p in results if p is not None} - {-1}
        kept |= set(roles.numbers("scalar"))
        kept |= {roles.arguments[i][2] for i in kept} - {-1}
        kept |= {slot for i in kept for slot in roles.slots(i).values()}
    old = [main.arguments[i] for i in sorted(kept)]
    arguments = (*old, *dict.fromkeys(v for v in read if v not in number))
    at = {number[v]: i for i, v in enumerate(old)}
    if "aliases" in main.attributes:
        facts["aliases"] = tuple(
            (i, at[shared[p]]) for i, (_, p) in enumerate(results) if p is not None and p in shared
        )
    if roles is not None:
        new = "parameter" if _is_forward(roles) else "batch"
        facts["arguments"] = (
            *(
                (role, name, at.get(of, -1))
                for role, name, of in (roles.arguments[i] for i in sorted(kept))
            ),
            *(
                (new if _is_float(v) else "batch", v.name or f"value{i}", -1)
                for i, v in enumerate(arguments[len(old) :], len(main.arguments))
            ),
        )
        rows = (
            ("metric", i) if p is None else roles.results[p] for i, (_, p) in enumerate(results)
        )
        facts["results"] = tuple((role, _renumbered(role, of, at)) for role, of in rows)
    return arguments, facts


def _renumbered(role: str, of: int, at: Mapping[int, int]) -> int:
    return of if role == "metric" else at.get(of, -1)
