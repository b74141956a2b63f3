"""Schedules of kernels, and the loop transformations that they are made of."""
