"""Checks after each pass, bisecting, op history: what answers "which pass broke my numbers?"."""
