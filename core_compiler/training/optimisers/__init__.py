"""Optimisers as ops: updates, learning rates, loss scaling, the state as torch keeps it."""
