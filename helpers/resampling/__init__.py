"""Rebalancing the data before a private learner sees them: copies and SMOTE, with their stability.

Modules: `oversampling`, `smote`, `kissing` (bounds on kissing numbers, on which SMOTE's worst case rests), and `base`,
what the samplers share. What their stability does to a guarantee is `helpers.privacy.ChangedRows`'s.
"""
