"""What the tests of helpers.synthesis share: a look at what a fit has spent."""

from helpers.synthesis import base
from helpers.synthesis.curator import Ledger


def ledgers(monkeypatch) -> list[Ledger]:
    """Every ledger that a fit makes from now on."""
    found = []

    class Kept(Ledger):
        def __init__(self):
            super().__init__()
            found.append(self)

    monkeypatch.setattr(base, "Ledger", Kept)
    return found
