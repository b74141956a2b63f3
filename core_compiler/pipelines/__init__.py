"""Pipelines: which passes run in which order, and what a user changes about that."""
