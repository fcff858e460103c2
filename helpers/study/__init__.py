"""How results are measured and compared.

`metrics` has the numbers, `comparison` gains, ranks and tests, `experiments` grids of trials with a store. What the
trials of single chapters share: `benchmark` (a registry of pipelines), `descent` and `skin`.
"""
