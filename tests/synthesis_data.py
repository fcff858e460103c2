"""What the tests of helpers.synthesis share: a look at what a fit has spent."""

from helpers.privacy import Ledger
from helpers.synthesis import base


def ledgers(monkeypatch) -> list[Ledger]:
    """Every ledger that a fit makes from now on."""
    found = []

    class Kept(Ledger):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            found.append(self)

        @property
        def events(self):
            return [event for event, n in self.bill.items() for _ in range(n)]

    monkeypatch.setattr(base, "Ledger", Kept)
    return found
