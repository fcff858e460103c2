"""What a verdict needs and no practitioner calls: printed formulas, exact losses, worst cases, enumerations.

Methods never import from here. Modules: `excess_loss`, `two_gaussians`, `worst_case`.
"""
