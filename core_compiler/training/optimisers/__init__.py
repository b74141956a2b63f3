"""Optimisers as ops: updates, learning rates, loss scaling, and state in torch's layout."""
