"""Schedules: for each family of kernels a readable list of transformation steps."""
