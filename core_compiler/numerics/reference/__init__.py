"""Contract-exact reference functions on NumPy arrays: the executable meaning of the ops.

Generic in shape, bitwise defined by ``docs/numerics.md``. Nothing is compiled at import; the first
call of a function compiles it (or loads it from the cache on disk). NumPy does what integer
arithmetic or one IEEE operation per element defines exactly (comparisons, maxima over ordered keys,
element additions); every order of accumulation is explicit here.
"""
