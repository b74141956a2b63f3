"""Machine descriptions: the resources of a target, each figure with its source."""
