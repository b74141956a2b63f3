"""Training tasks for gradients at branches that ordinary tasks do not reach."""

from __future__ import annotations


