"""The PyTorch frontend: ``torch.export`` programs (live modules and ``.pt2`` archives)."""

from core_compiler.frontends.pytorch.importer import import_exported, import_module

__all__ = ["import_exported", "import_module"]
