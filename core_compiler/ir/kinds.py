"""Kinds of ops that are known at several levels."""

#: Ops that hold a stored tensor and compute nothing.
CONSTANTS = frozenset({"core.constant", "target.constant", "onnx.initializer", "onnx.Constant"})

#: Ops that are equivalent to their region: evaluating the region evaluates the op.
MEANING_IN_REGION = frozenset({"core.group", "target.launch"})
