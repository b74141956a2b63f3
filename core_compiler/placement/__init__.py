"""Where buffers live: lifetimes, offsets in a block of memory, and an independent check of both."""
