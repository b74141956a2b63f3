"""The id of a test as the name of a file."""

from __future__ import annotations

import hashlib
import re

#: Longer ids are cut: a file name has at most 255 bytes, and something is added to it.
LONGEST = 150

_PLAIN = re.compile(r"[\w./]+(::\w+)*(\[[\w.\-]+\])?", re.ASCII)


def file_name(test: str) -> str:
    """``tests/test_a.py::TestB::test_c[1-f32]`` -> ``tests-test_a.py--TestB--test_c-1-f32``.

    Of ids with other characters, or longer than :data:`LONGEST`, a part and eight digits of a hash:
    two tests never share a name, and it needs no quotes in a shell.
    """
    made = test.replace("::", "--").replace("/", "-").replace("[", "-").removesuffix("]")
    if len(made) <= LONGEST and _PLAIN.fullmatch(test):
        return made
    kept = re.sub(r"[^A-Za-z0-9_.\-]+", "_", made)[:LONGEST]
    return f"{kept}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
