"""Schedules of kernels, and the loop transformations that they consist of."""
