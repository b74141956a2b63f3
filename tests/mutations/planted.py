"""One fault of each class that its command must catch: a check of the harness itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """``before`` becomes ``after`` in ``file``, where it is found once; ``model`` shows it, and the
    command should blame one of ``passes``."""

    kind: str
    file: str
    before: str
    after: str
    model: str
    passes: tuple[str, ...] = ()


PLANTED: dict[str, Planted] = {}
for _fault in (
    Planted(
        "rules",
        "core_compiler/passes/canonicalise.py",
        'lambda b, m: b.add(m["x"], m["y"])',
        'lambda b, m: b.sub(m["x"], m["y"])',
        "algebra",
        ("canonicalise",),
    ),
    Planted(
        "constants",
        "core_compiler/kernels/pull.py",
        "CHUNK = 256\n",
        "CHUNK = 128\n",
        "product_long",
    ),
):
    PLANTED[_fault.kind] = _fault
