"""How results are measured and compared.

`metrics` has the numbers, `comparison` gains and tests, `experiments` grids of trials with a store,
`tuning` the protocol by which settings are chosen before methods are compared.
"""
