"""The order in which the constants of a program are packed when it is loaded.

The one with most bytes is packed first, while little else is in memory, and pages of mapped files
are given back after each: a process holds the packed constants and one more at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from core_compiler.runtime.program import Program
from core_compiler.support import mapped


def pack(
    program: Program, constants: Sequence[np.ndarray], run: Callable[[int, int], None]
) -> None:
    """Run the launches of ``program.prepack``: ``run(start, end)`` runs those of this range."""
    launches = program.prepack
    read = [{ref.index for ref in launch.buffers if ref.space == "constant"} for launch in launches]
    writers = Counter(
        ref.index for launch in launches for ref in launch.buffers if ref.space == "packed"
    )

    def order(number: int) -> tuple[bool, int, int]:
        packed = [ref.index for ref in launches[number].buffers if ref.space == "packed"]
        is_alone = all(writers[index] == 1 for index in packed)
        size = sum(constants[index].nbytes for index in read[number])
        return not is_alone, -size if is_alone else 0, number

    left = Counter(index for indices in read for index in indices)
    for number in sorted(range(len(launches)), key=order):
        run(number, number + 1)
        left.subtract(read[number])
        for index in read[number]:
            if not left[index]:
                mapped.release(constants[index])
