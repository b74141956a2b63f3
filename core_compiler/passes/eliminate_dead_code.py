"""Dead code: ops whose results nobody reads are removed."""

from __future__ import annotations

from dataclasses import dataclass

from core_compiler.passes.base import Pass


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Removes ops whose results are never used (the tensor level is pure)."""

    def run(self, module, context):
        def edit(rw):
            for op in reversed(rw.ops):
                if not any(rw.users(v) or rw.is_output(v) for v in op.results):
                    rw.erase(op, rule=f"unused {op.kind}")

        return context.rewrite(module, edit)
