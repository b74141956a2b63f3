"""Code generation from kernel IR: one folder per target."""
