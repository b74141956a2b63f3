"""Ops at which lowering, index arithmetic and placement take another branch."""

from __future__ import annotations


