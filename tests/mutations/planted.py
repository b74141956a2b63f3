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
