"""Helper package of the book "Learning from rare and private records".

It holds what two chapters or a test need: guarantees and mechanisms, data sets, metrics, private learners, and the
plumbing of an executable book. Import the modules by name (`from helpers import data, privacy`).
"""

__version__ = "0.1.0"
