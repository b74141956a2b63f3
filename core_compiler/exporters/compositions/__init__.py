"""Compositions of core ops that replace ops that a format lacks.

Each is a formula in the form of a declared decomposition, ``(builder, view) -> value(s)``.  The
tests compare it with the op itself by evaluating both; it is exact if it only moves, compares and
counts.
"""
