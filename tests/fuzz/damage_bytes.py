"""Damage to any file: bytes changed, put in, cut out, repeated, taken from another file."""

from __future__ import annotations

from random import Random

#: Bytes that mean something to a reader of variable-length numbers and of texts.
_TELLING = (
    b"\0",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 4 + b"\x0f",
    b"\x80" * 4,
    b"\x00\x00\x00\x80",
    b"\xff\xff\xff\x7f",
)


def damaged(data: bytes, other: bytes, random: Random) -> bytes:
    """``data`` with one to eight places changed; ``other`` is where foreign parts come from."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        random.choice(_KINDS)(made, other, random)
    return bytes(made)


def _place(made: bytearray, random: Random) -> int:
    return random.randrange(len(made) + 1)


def _length(random: Random) -> int:
    return random.choice((1, 1, 2, 4, 8, 16, 64, 256, 1024))


def _flip(made: bytearray, other: bytes, random: Random) -> None:
    if made:
        made[random.randrange(len(made))] ^= 1 << random.randrange(8)


def _change(made: bytearray, other: bytes, random: Random) -> None:
    if made:
        made[random.randrange(len(made))] = random.randrange(256)


def _insert(made: bytearray, other: bytes, random: Random) -> None:
    at = _place(made, random)
    made[at:at] = (
        random.choice(_TELLING) if random.random() < 0.5 else (random.randbytes(_length(random)))
    )


def _overwrite(made: bytearray, other: bytes, random: Random) -> None:
    at, new = _place(made, random), random.choice(_TELLING)
    made[at : at + len(new)] = new


def _cut(made: bytearray, other: bytes, random: Random) -> None:
    at = _place(made, random)
    del made[at : at + _length(random)]


def _truncate(made: bytearray, other: bytes, random: Random) -> None:
    del made[_place(made, random) :]


def _repeat(made: bytearray, other: bytes, random: Random) -> None:
    at = _place(made, random)
    part = bytes(made[at : at + _length(random)])
    made[at:at] = part * random.choice((1, 2, 10, 100))


def _splice(made: bytearray, other: bytes, random: Random) -> None:
    at, begin = _place(made, random), random.randrange(len(other) + 1)
    part = other[begin : begin + _length(random)]
    made[at : at + random.choice((0, len(part)))] = part


_KINDS = (_flip, _flip, _change, _insert, _overwrite, _cut, _truncate, _repeat, _splice)
