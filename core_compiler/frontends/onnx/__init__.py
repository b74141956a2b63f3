"""The ONNX frontend: ``.onnx`` files with external data, opsets 6 and newer."""

from core_compiler.frontends.onnx.importer import import_file, import_proto

__all__ = ["import_file", "import_proto"]
