"""Machine descriptions: what a target has, each figure with its source."""
