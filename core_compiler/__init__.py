"""The headless compiler: frontends, IR, passes, kernels, code generation, runtime, recording."""

__version__ = "0.1.0"
