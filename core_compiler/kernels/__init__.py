"""Kernels: the numerics contract, kernel IR, schedules."""
