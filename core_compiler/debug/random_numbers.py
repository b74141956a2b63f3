"""Check of a compile's random numbers against the published answers of their generator.

No framework draws the same numbers, and the reference shares its source with every target, so
neither comparing two stages nor comparing with a framework reveals a generator that is not Philox.
"""

from __future__ import annotations

import functools

import numpy as np

from core_compiler.debug.alone import is_random
from core_compiler.debug.elementary import KIND
from core_compiler.ir import Module
from core_compiler.ir.events import CheckRecord
from core_compiler.numerics.reference.random import normal, random_bits, uniform

#: Counter, key and words of Philox4x32-10: known answers of the authors' library (Random123, Salmon
#: et al., SC 2011).
KNOWN_ANSWERS = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)
#: The number of compared values, and the absolute error of a normal one in f32.
_COUNT, _ERROR = 1 << 12, 5e-6


def checks(imported: Module, training: bool = False) -> list[CheckRecord]:
    """Return a failed check if the generator is wrong, at the first op of ``imported`` that draws.

    With ``training``, the generator is also checked without such an op, for the order of examples.
    """
    op = next((op for op in imported.walk() if op.results and is_random(op)), None)
    if (op is None and not training) or (fault := wrong()) is None:
        return []
    note, want, got = fault
    return [
        CheckRecord(
            None,
            "failed",
            float("inf"),
            value=None if op is None else op.results[0],
            old=want,
            new=got,
            note=note,
            kind=KIND,
        )
    ]


@functools.cache
def wrong() -> tuple[str, float, float] | None:
    """Return the error of the generator, the expected and the actual number; None if right."""
    for (index, stream, iteration, trip), (low, high), words in KNOWN_ANSWERS:
        made = random_bits((4,), low | high << 32, stream, iteration, trip, 4 * index)
        for want, got in zip(words, made, strict=True):
            if want != got:
                note = f"Philox4x32-10 returns {got:#010x}; its known answer is {want:#010x}"
                return note, float(want), float(got)
    fractions = np.floor(random_bits((_COUNT,), 5) / 256)
    radius = np.sqrt(-2 * np.log((fractions[0::2] + 1) * 2.0**-24))
    angle = 2 * np.pi * fractions[1::2] * 2.0**-24
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
    for name, draw, exact, error in (
        ("uniform", uniform, fractions * 2.0**-24, 0.0),
        ("normal", normal, pairs, _ERROR),
    ):
        drawn = draw((_COUNT,), 5)
        off = np.abs(drawn - exact)
        worst = int(np.argmax(np.where(np.isfinite(off), off, np.inf)))
        if not off[worst] <= error:
            note = f"a {name} number is {drawn[worst]:.9g}; its formula gives {exact[worst]:.9g}"
            return note, float(exact[worst]), float(drawn[worst])
    return None
