"""How results are measured and compared.

`metrics` has the numbers, `comparison` gains and tests, `experiments` grids of trials with a store.
"""
