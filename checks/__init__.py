"""What a verdict needs and no practitioner calls: formulas as published, exact losses, worst cases, certificates.

Nothing in `helpers` imports from here. A module named after a chapter serves that chapter: its verdicts (`smote`
those of its appendix page app-smote), or what a main page shows of recorded tables (`skin_lesions`; with the ending
`_page` where the other name runs the trials). The others are shared: `two_gaussians`, `finite`, `enumeration`,
`arrangements` (of spheres), `exact_loss`, `exact_price`, `worst_case`, `noise_norm`, `printed_erm`,
`printed_bagging`, `wrapped_budget`, and trials of several chapters in `descent` and `skin`. Numbers are not checked
again here: they come from a chapter's parameters, whose ranges are checked, or stand in its cells.
"""
