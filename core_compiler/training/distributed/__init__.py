"""Data parallelism in several processes."""
