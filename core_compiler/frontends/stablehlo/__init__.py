"""StableHLO and JAX: programs in the form of XLA's tools, read through jaxlib's MLIR bindings."""

from core_compiler.frontends.stablehlo.importer import import_program
from core_compiler.frontends.stablehlo.isolated import import_file
from core_compiler.frontends.stablehlo.jax import import_function

__all__ = ["import_file", "import_function", "import_program"]
