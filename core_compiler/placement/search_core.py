"""The compiled core of :mod:`core_compiler.placement.search`; importing it imports Numba.

It has its own stack: Numba's on-disk cache crashes on recursive functions.
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: Fields of a frame: the positions of its buffers and its ordering in the heap and their counts;
#: its sections; the canonical bounds; candidates; cursor; ceiling; then the placement being tried:
#: its rank, what is to be undone, and where the next part begins (-1: not split).
(PART, PART_COUNT, ORDER, ORDER_COUNT, FIRST, LAST, BOTTOM, RANK, CANDIDATES, COUNT, CURSOR,
 CEILING, PLACE, CHANGES, CHANGE_COUNT, FROM, TO, FLOORS, BEGIN, HEAP) = range(20)  # fmt: skip


@njit(nogil=True, cache=True)
def descend(size, alignment, low, high, members, member_start, overlaps, overlap_start, twins,
            capacity, sequence, total, cuts, found, budget, cancel):  # fmt: skip
    """Return 0: no plan in ``capacity``, 1: a plan in ``found``, 2: budget spent or cancelled.

    Per buffer: size, alignment, sections ``[low, high)``, twin.  Per section: members, ``total`` of
    unplaced sizes.  ``cuts[i]``: unplaced buffers that span sections i and i + 1.
    """
    n, sections = len(size), len(total)
    offsets = np.full(n, -1, np.int64)
    lowest = np.zeros(n, np.int64)  # the lowest possible offset of each unplaced buffer
    floor = np.zeros(sections, np.int64)
    frames = np.zeros((2 * n + 2, 20), np.int64)
    heap = np.empty(n * n + 4 * n + 8, np.int64)  # parts and candidate lists, stacked
    undo = np.empty(2 * n * n + n * sections + 8, np.int64)
    heap[:n] = sequence
    for i in range(n):
        heap[n + i] = i
    depth, undo_top = 0, 0
    f = frames[0]
    f[PART], f[PART_COUNT], f[ORDER], f[ORDER_COUNT] = 0, n, n, n
    f[FIRST], f[LAST], f[BOTTOM], f[RANK], f[HEAP] = 0, sections, 0, 0, 2 * n
    entering, result = True, 0
    while True:
        f = frames[depth]
        part = f[PART]
        placed = False  # whether a child of this frame's placement has just returned
        if entering:
            entering = False
            budget[0] -= 1
            if budget[0] < 0 or cancel[0] != 0:
                return 2
            candidates, count, ceiling = f[HEAP], 0, capacity + 1
            for q in range(f[ORDER], f[ORDER] + f[ORDER_COUNT]):
                place = heap[q]
                b = heap[part + place]
                if offsets[b] >= 0:
                    continue
                # Insertion sort by (lowest, place): the parent's order is nearly right.
                i = candidates + count
                while i > candidates:
                    other = heap[i - 1]
                    c = heap[part + other]
                    if lowest[c] < lowest[b] or (lowest[c] == lowest[b] and other < place):
                        break
                    heap[i] = other
                    i -= 1
                heap[i] = place
                count += 1
                # A placement at or above another buffer's lowest top would leave a gap for that
                # buffer.
                ceiling = min(ceiling, lowest[b] + size[b])
            # Later offsets are no lower, so a placement at `offset` leaves each section with at
            # least offset + total.
            for i in range(f[FIRST], f[LAST]):
                ceiling = min(ceiling, capacity - total[i] + 1)
            f[CANDIDATES], f[COUNT], f[CURSOR], f[CEILING] = candidates, count, 0, ceiling
            if count == 0:
                result = 1
                if depth == 0:
                    return 1
                depth -= 1
                continue
        else:
            placed = True
        while True:  # over the candidates of this frame
            if not placed:
                if f[CURSOR] == f[COUNT]:
                    result = 0
                    break
                place = heap[f[CANDIDATES] + f[CURSOR]]
                f[CURSOR] += 1
                b = heap[part + place]
                offset = lowest[b]
                if offset >= f[CEILING]:
                    result = 0
                    break
                top = offset + size[b]
                if offset < f[BOTTOM] or (offset == f[BOTTOM] and place < f[RANK]):
                    continue
                if twins[b] >= 0 and offsets[twins[b]] < 0:
                    continue
                offsets[b] = offset
                f[PLACE], f[CHANGES] = place, undo_top
                from_, to, changes = low[b], high[b], 0
                for k in range(overlap_start[b], overlap_start[b + 1]):
                    c = overlaps[k]
                    if offsets[c] >= 0 or lowest[c] >= top:
                        continue
                    undo[undo_top], undo[undo_top + 1] = c, lowest[c]
                    undo_top += 2
                    changes += 1
                    lowest[c] = -(-top // alignment[c]) * alignment[c]
                    from_, to = min(from_, low[c]), max(to, high[c])
                f[CHANGE_COUNT], f[FROM], f[TO], f[FLOORS] = changes, from_, to, undo_top
                for i in range(from_, to):
                    undo[undo_top] = floor[i]
                    undo_top += 1
                for i in range(low[b], high[b]):
                    floor[i] = top
                    total[i] -= size[b]
                fits = True
                for i in range(from_, to):
                    # A section starts no lower than the lowest possible offset of its unplaced
                    # buffers.
                    least = capacity + 1
                    for k in range(member_start[i], member_start[i + 1]):
                        c = members[k]
                        if offsets[c] < 0 and lowest[c] < least:
                            least = lowest[c]
                            if least <= floor[i]:
                                break
                    if floor[i] < least <= capacity:
                        floor[i] = least
                    if floor[i] + total[i] > capacity:
                        fits = False
                        break
                if fits:
                    found[b] = offset
                    f[BEGIN] = -1
                    for i in range(low[b], high[b] - 1):
                        cuts[i] -= 1
                        if cuts[i] == 0:
                            f[BEGIN] = f[FIRST]
                    if f[BEGIN] < 0:
                        child = frames[depth + 1]
                        child[PART], child[PART_COUNT] = part, f[PART_COUNT]
                        child[ORDER], child[ORDER_COUNT] = f[CANDIDATES], f[COUNT]
                        child[FIRST], child[LAST] = f[FIRST], f[LAST]
                        child[BOTTOM], child[RANK] = offset, place
                        child[HEAP] = f[CANDIDATES] + f[COUNT]
                        entering = True
                        break
                    result = 1  # "the part before the first one is solved"
                else:
                    result = -1  # nothing was entered: undo the placement
            else:
                place = f[PLACE]
                b = heap[part + place]
            placed = False
            if result == 1 and f[BEGIN] >= 0:
                # Split at the cuts that this placement freed: enter the next part with buffers.
                begin = f[BEGIN]
                at = f[CANDIDATES] + f[COUNT]
                inside, end = 0, begin
                while begin < f[LAST] and inside == 0:
                    end = begin + 1
                    while end < f[LAST] and (
                        cuts[end - 1] != 0 or end - 1 < low[b] or end >= high[b]
                    ):
                        end += 1
                    for q in range(f[PART_COUNT]):
                        c = heap[part + q]
                        if offsets[c] < 0 and low[c] < end and begin < high[c]:
                            heap[at + inside] = c
                            inside += 1
                    if inside == 0:
                        begin = end
                if inside > 0:
                    f[BEGIN] = end
                    for q in range(inside):
                        heap[at + inside + q] = q
                    child = frames[depth + 1]
                    child[PART], child[PART_COUNT] = at, inside
                    child[ORDER], child[ORDER_COUNT] = at + inside, inside
                    child[FIRST], child[LAST] = begin, end
                    child[BOTTOM], child[RANK] = 0, 0
                    child[HEAP] = at + 2 * inside
                    entering = True
                    break
            # Undo the placement of b.
            if result >= 0:
                for i in range(low[b], high[b] - 1):
                    cuts[i] += 1
            for i in range(low[b], high[b]):
                total[i] += size[b]
            for i in range(f[FROM], f[TO]):
                floor[i] = undo[f[FLOORS] + i - f[FROM]]
            for k in range(f[CHANGE_COUNT]):
                at = f[CHANGES] + 2 * k
                lowest[undo[at]] = undo[at + 1]
            undo_top = f[CHANGES]
            offsets[b] = -1
            if result == 1:
                break
        if entering:
            depth += 1
            continue
        if depth == 0:
            return result
        depth -= 1
