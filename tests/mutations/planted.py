"""One fault of each class that its command must catch: a check of the harness itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """``before`` becomes ``after`` in ``file``, where it is found once; ``model`` shows it, and the
    command should blame one of ``passes`` (where it can name the right one today)."""

    kind: str
    file: str
    before: str
    after: str
    model: str
    passes: tuple[str, ...] = ()


_TRANSFORMS, _PASSES = "core_compiler/scheduling/transforms", "core_compiler/passes"

PLANTED: dict[str, Planted] = {
    fault.kind: fault
    for fault in (
        Planted("rules", f"{_PASSES}/canonicalise.py", 'lambda b, m: b.add(m["x"], m["y"])',
                'lambda b, m: b.sub(m["x"], m["y"])', "algebra", ("canonicalise",)),
        Planted("constants", "core_compiler/lowering/element_expressions.py", "CHUNK = 256\n",
                "CHUNK = 128\n", "product_long"),
        Planted("axes", f"{_TRANSFORMS}/edit.py",
                "high = self[op.operands[1]] if upper", "high = self[op.operands[2]] if upper",
                "onnx_shifts", ("schedule_kernels",)),
        Planted("strides", "core_compiler/codegen/expressions.py",
                "step = str(int(step) * int(dim))", "step = str(int(step) + int(dim))",
                "conv_bn_relu"),
        Planted("comparisons", f"{_TRANSFORMS}/ragged.py",
                "copier.kb.add(copier[lower], size) if o is target",
                "copier.kb.add(copier[lower], size) if o is not target", "onnx_conv_same_lower",
                ("schedule_kernels",)),
        Planted("gradients", "core_compiler/ops/gradients/elementwise.py",
                "lambda x, y, dy: dy * (1 - y * y)", "lambda x, y, dy: dy * (1 + y * y)",
                "train_unary"),
        Planted("translations", "core_compiler/frontends/onnx/ops/network.py",
                "square = b.mul(x, x)", "square = b.div(x, x)", "onnx_batch_norm"),
        Planted("meanings", "core_compiler/ops/reduction.py",
                "return b.div(total, b.scalar_like(size_of(x, axes), total))",
                "return b.mul(total, b.scalar_like(size_of(x, axes), total))", "onnx_reductions"),
        Planted("schedules", f"{_TRANSFORMS}/loops.py", "base = kb.mul(io, size)",
                "base = kb.add(io, size)", "product_tiles", ("schedule_kernels",)),
        Planted("planners", f"{_PASSES}/plan_memory.py",
                'placement["offset"] = int(offsets[interval.value])',
                'placement["offset"] = 0', "onnx_rnn",
                ("plan_memory",)),
        Planted("emitted", "core_compiler/codegen/cpu/source.py",
                'self.line(f"for {places[0]} in range(lo, hi):"',
                'self.line(f"for {places[0]} in range(lo + 1, hi):"', "onnx_shifts"),
    )
}  # fmt: skip
