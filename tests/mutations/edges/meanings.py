"""Values and sizes at which the meanings of ops differ from nearly right ones."""

from __future__ import annotations


