"""Training: gradients, losses, optimisers, the training step."""
