"""Arguments of torch's ops that ordinary models do not give."""

from __future__ import annotations


