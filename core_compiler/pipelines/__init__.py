"""Pipelines: the passes of a compile, their order, and the user's changes."""
