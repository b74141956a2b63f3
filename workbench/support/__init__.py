"""Formatting of figures, intervals and patterns, for all other packages here."""
