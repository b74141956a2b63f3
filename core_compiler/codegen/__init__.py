"""Kernel IR to target code: one folder a target."""
