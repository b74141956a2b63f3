"""Memory planning: live intervals, offsets in a memory block, and an independent check."""
