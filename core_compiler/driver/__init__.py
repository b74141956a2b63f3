"""The compile: from a model through its passes to an executable, with checks and records."""
