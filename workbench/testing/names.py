"""File names for the ids of tests."""

from __future__ import annotations

import hashlib
import re

#: Longer ids are truncated: a file name has at most 255 bytes, and a suffix is added to it.
LONGEST = 150

_PLAIN = re.compile(r"[\w./]+(::\w+)*(\[[\w.\-]+\])?", re.ASCII)


def file_name(test: str) -> str:
    """Return the id of a test as a file name.

    ``tests/test_a.py::TestB::test_c[1-f32]`` becomes ``tests-test_a.py--TestB--test_c-1-f32``.

    An id with other characters, or longer than :data:`LONGEST`, is reduced to a part and eight
    digits of a hash: two tests never share a name, and it needs no quotes in a shell.
    """
    made = test.replace("::", "--").replace("/", "-").replace("[", "-").removesuffix("]")
    if len(made) <= LONGEST and _PLAIN.fullmatch(test):
        return made
    kept = re.sub(r"[^A-Za-z0-9_.\-]+", "_", made)[:LONGEST]
    return f"{kept}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
