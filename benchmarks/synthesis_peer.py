"""Runs in the peer's environment: one fit of a synthesiser of dpmm on coded records, and balanced records from it.

Takes a file with `codes` (n, m; the label last) and `sizes` (m), and writes codes and the fit's CPU seconds to another.
The codes are the caller's, so that bins and the public schema are those of the other contenders.
"""

import sys
import time
import warnings

import numpy as np
import pandas as pd
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM
from dpmm.models.priv_bayes import PrivBayesGM
from numpy.random import RandomState

MODELS = {"AIM": AIMGM, "MST": MSTGM, "PrivBayes": PrivBayesGM}


def main(name: str, source: str, target: str, epsilon: str, delta: str, seed: str, n_samples: str) -> None:
    """All arguments are those of the command line."""
    warnings.simplefilter("ignore")
    records = np.load(source)
    columns = [f"c{j}" for j in range(records["codes"].shape[1])]
    frame = pd.DataFrame(records["codes"], columns=columns)
    model = MODELS[name](epsilon=float(epsilon), delta=float(delta))
    model.set_random_state(RandomState(int(seed)))
    model.set_domain(dict(zip(columns, (int(size) for size in records["sizes"]), strict=True)))
    started = time.process_time()
    model.fit(frame)
    seconds = time.process_time() - started
    wanted = pd.DataFrame({columns[-1]: np.arange(int(n_samples)) % int(records["sizes"][-1])})
    drawn = model.generate(condition_records=wanted)
    np.savez(target, codes=drawn[columns].to_numpy(int), seconds=seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
