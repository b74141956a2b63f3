"""Utilities for all parts of the compiler: errors, callers' arrays, files, subprocesses."""
