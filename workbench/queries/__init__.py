"""Queries over a recording; each returns plain data for views, advice and commands."""
