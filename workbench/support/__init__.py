"""Figures, intervals and patterns as text: what everything else here may use."""
