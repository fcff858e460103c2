"""How results are measured and compared: `metrics` and `experiments` (grids of trials with a store)."""
