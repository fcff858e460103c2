"""How many functions of the package one fit passes through: what a reader follows who wants to understand it.

Prints, for three fits on made-up records, the number of distinct functions of `helpers` that were called, the number of
files that they are in, and with `--list` their names. What is nested in a function, a lambda or a generator expression
included, is read where it stands and not counted. Seconds are not measured here.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import helpers
from helpers.data.domain import Domain
from helpers.erm import ObjectivePerturbationClassifier, PrivateMomentClassifier
from helpers.synthesis import GEM

PACKAGE = Path(helpers.__file__).resolve().parent


def reached(work: Callable[[], object]) -> list[tuple[str, str]]:
    """File and qualified name of every function of the package that `work` calls, each once, in order of first call."""
    found = {}

    def called(frame, event, argument):
        code = frame.f_code
        file = Path(code.co_filename)
        if (
            event == "call"
            and PACKAGE in file.parents
            and not {"<locals>", "<module>"} & set(code.co_qualname.split("."))
        ):
            found[str(file.relative_to(PACKAGE)), code.co_qualname, code.co_firstlineno] = None

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return [(file, name) for file, name, _ in found]


def fits() -> dict[str, Callable[[], object]]:
    """Name to a fit with default parameters, as far as there are any."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (2000, 4))
    y = (X[:, 0] + 0.2 * rng.standard_normal(len(X)) > 0.3).astype(int)
    domain = Domain.from_bounds([[-0.5, 0.5]] * 4)
    return {
        "objective perturbation": lambda: ObjectivePerturbationClassifier().fit(X, y),
        "moment classifier": lambda: PrivateMomentClassifier(epsilon=1.0).fit(X, y),
        "GEM": lambda: GEM(1.0, domain=domain, T=3).fit(X, y),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name the functions")
    listed = parser.parse_args().list
    for name, fit in fits().items():
        found = reached(fit)
        print(f"{name}: {len(found)} functions in {len({file for file, _ in found})} files")
        for file, function in found if listed else ():
            print(f"    {file}: {function}")


if __name__ == "__main__":
    main()
