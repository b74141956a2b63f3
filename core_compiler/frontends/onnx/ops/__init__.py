"""How each ONNX op becomes tensor IR, a file a family; importing this fills the table."""
from core_compiler.frontends.onnx.ops import control, elementwise, network, reduction, shape

__all__ = ["control", "elementwise", "network", "reduction", "shape"]
