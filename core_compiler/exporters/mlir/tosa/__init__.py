from core_compiler.exporters.mlir.context import Context
class Tosa(Context):
    NAME="TOSA"
