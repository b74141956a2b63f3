"""What nearly is a composite that recompose rules look for."""

from __future__ import annotations


