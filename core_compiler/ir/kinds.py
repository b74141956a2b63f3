"""Kinds of ops that are known across the levels."""

#: Ops that hold a stored tensor and compute nothing.
CONSTANTS = frozenset({"core.constant", "target.constant", "onnx.initializer", "onnx.Constant"})

#: Ops that stand for their region: evaluating the region is evaluating the op.
MEANING_IN_REGION = frozenset({"core.group", "target.launch"})
