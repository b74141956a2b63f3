"""What passes over graphs nearly rewrite, fuse or keep."""

from __future__ import annotations


