"""Exporters of modules and compilations for notebooks, other compilers and reports."""
