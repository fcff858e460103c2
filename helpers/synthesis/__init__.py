"""Private synthetic data: learn a distribution once, under a budget, and draw as many records from it as you like.

`GEM`, `AIM`, `MST` and `PrivBayes` are the synthesisers; `BalancedSynthesizer` draws equally many records of every
class from any of them, for any learner. What records may look like is a public `Domain`; without one, a part of the
budget finds bins. No classifier is trained here.
"""

from helpers.data.domain import Attribute, Domain
from helpers.synthesis.aim import AIM
from helpers.synthesis.balanced import BalancedSynthesizer
from helpers.synthesis.gem import GEM, PAPER
from helpers.synthesis.mst import MST
from helpers.synthesis.privbayes import PrivBayes, mutual_information, mutual_information_sensitivity

__all__ = [
    "AIM",
    "GEM",
    "MST",
    "PAPER",
    "Attribute",
    "BalancedSynthesizer",
    "Domain",
    "PrivBayes",
    "mutual_information",
    "mutual_information_sensitivity",
]
