"""Constants packed when a program is loaded: which programs share them, and in which order.

The one with most bytes is packed first, while little else is in memory, and pages of mapped files
are given back after each: a process holds the packed constants and one more at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence

import numpy as np

from core_compiler.runtime.program import Launch, Program
from core_compiler.support import mapped


def identities(program: Program) -> list[Hashable | None]:
    """Return what each packed buffer contains: equal for programs that may share it, else None.

    That is one kernel over constants. A buffer of several launches, or of packed ones, has none.
    """
    kernels = {kernel.name: (kernel.key, kernel.symbol) for kernel in program.kernels}
    found: list[Hashable | None] = [None] * len(program.packed)
    for launch, written in zip(program.prepack, _written(program), strict=True):
        if written is None:
            continue
        read = tuple(
            (program.constants[ref.index], ref.offset) if ref.space == "constant" else ref.offset
            for ref in launch.buffers
        )
        code = tuple(kernels[name] for name in (launch.kernel, *launch.callees))
        found[written] = code, read, launch.indices, launch.work_items, program.packed[written]
    return found


def missing(program: Program, known: Collection[int]) -> list[int]:
    """Return the packing launches, in order, that fill the packed buffers that are not ``known``.

    That with most bytes is first; those that read packed buffers are last.
    """
    written = _written(program)

    def order(number: int) -> tuple[bool, int, int]:
        is_alone = written[number] is not None
        size = sum(program.constants[i].bytes for i in constants_of(program.prepack[number]))
        return not is_alone, -size if is_alone else 0, number

    needed = (n for n, index in enumerate(written) if index is None or index not in known)
    return sorted(needed, key=order)


def pack(
    launches: Sequence[Launch], constants: Sequence[np.ndarray | None], run: Callable[[int], None]
) -> None:
    """Run packing launches, ``run(number)`` one; give back pages of mapped files after their last.

    The constants are those of the launches' program; None: not read by them.
    """
    left = Counter(index for launch in launches for index in constants_of(launch))
    for number, launch in enumerate(launches):
        run(number)
        read = constants_of(launch)
        left.subtract(read)
        for index in read:
            array = constants[index]
            if not left[index] and array is not None:
                mapped.release(array)


def constants_of(launch: Launch) -> set[int]:
    """Return the constants that a launch reads."""
    return {ref.index for ref in launch.buffers if ref.space == "constant"}


def _written(program: Program) -> list[int | None]:
    """Return the packed buffer of each packing launch; None if others use it too."""
    used = [
        [ref.index for ref in launch.buffers if ref.space == "packed"] for launch in program.prepack
    ]
    counts = Counter(index for indices in used for index in indices)
    return [i[0] if len(i) == 1 and counts[i[0]] == 1 else None for i in used]
