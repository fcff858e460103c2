"""What a verdict needs and no practitioner calls: printed formulas, exact losses, worst cases, enumerations.

Methods never import from here. Modules: `printed_resampling`, `printed_bagging`, `enumeration`, `kissing_certificates`,
`two_gaussians` (resampling, bagging, known populations); `printed_erm`, `exact_loss`, `exact_price`, `worst_case`,
`excess_loss` (empirical risk minimisation); `printed_descent`, `printed_neural`, `printed_schedules`,
`printed_synthesis`, `fairness` (coordinate descent, DP-SGD, noise schedules, synthetic data, group
gaps).
"""
