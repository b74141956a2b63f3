"""StableHLO programs for branches that what JAX lowers does not reach."""

from __future__ import annotations

#: Name -> text of the module.
PROGRAMS: dict[str, str] = {}
