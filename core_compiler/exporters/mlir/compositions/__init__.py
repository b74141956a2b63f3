"""Ops said in other ops of ours, where a dialect has no word for them.

Each is a formula as a declared decomposition is, ``(builder, op) -> value(s)``.  The tests hold it
against the op's own meaning by evaluating both: exact where it only moves, compares and counts.
"""
