"""The tests mirror the tree of the packages they test; shared helpers lie beside them."""
