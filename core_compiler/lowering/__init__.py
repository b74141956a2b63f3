"""From groups of tensor ops to kernels: plain loops that spell out the meaning."""
