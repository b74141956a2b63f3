"""The kernel level: ops with type rule and meaning, builder, verifier, interpreter."""
