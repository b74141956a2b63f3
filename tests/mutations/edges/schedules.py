"""Sizes and shapes at which steps of schedules take another branch."""

from __future__ import annotations


