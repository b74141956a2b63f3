"""An independent check of a memory plan: a sweep over time, sharing no code with the planners."""

from __future__ import annotations

from bisect import bisect_left, insort

from core_compiler.placement.problem import Plan


def verify(plan: Plan) -> list[str]:
    """Return the errors of a plan as text; empty if there are none.

    Checks offsets against alignment and the block's ends, and that no two buffers live at the same
    step share a byte.  Of overlaps, those of the first step that has any are listed.
    """
    if len(plan.offsets) != len(plan.lifetimes):
        return [f"{len(plan.offsets)} offsets for {len(plan.lifetimes)} buffers"]
    wrong, highest = [], 0
    events: list[tuple[int, int, int]] = []  # (step, 0 dies or 1 is born, buffer): deaths first
    for number, (b, offset) in enumerate(zip(plan.lifetimes, plan.offsets, strict=True)):
        if b.size == 0 or b.start >= b.end:
            continue
        if offset < 0 or offset % b.alignment:
            wrong.append(f"{b.name} is at {offset}, not a multiple of {b.alignment} from 0")
        if offset + b.size > plan.peak:
            wrong.append(f"{b.name} ends at {offset + b.size}, past the block of {plan.peak} bytes")
        highest = max(highest, offset + b.size)
        events += ((b.start, 1, number), (b.end, 0, number))
    if plan.peak < plan.lower_bound and not wrong:
        wrong.append(f"the peak {plan.peak} is below the lower bound {plan.lower_bound}")
    return wrong or _overlaps(plan, sorted(events))


def _overlaps(plan: Plan, events: list[tuple[int, int, int]]) -> list[str]:
    live: list[tuple[int, int, int]] = []  # (low, high, buffer), sorted; disjoint so far
    for step, born, number in events:
        low = plan.offsets[number]
        entry = (low, low + plan.lifetimes[number].size, number)
        if not born:
            live.pop(bisect_left(live, entry))
            continue
        at = bisect_left(live, entry)
        beside = live[max(0, at - 1) : at + 1]
        if any(other[0] < entry[1] and entry[0] < other[1] for other in beside):
            name = plan.lifetimes[number].name
            return [
                f"{name} [{entry[0]}, {entry[1]}) and {plan.lifetimes[other].name} [{a}, {b}) "
                f"share bytes at step {step}"
                for a, b, other in live
                if a < entry[1] and entry[0] < b
            ]
        insort(live, entry)
    return []
