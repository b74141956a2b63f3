"""The headless compiler: frontends, IR, passes, kernels, code generation, runtime, recording."""
