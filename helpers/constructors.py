"""Constructors of estimators that leave parameters to their base's.

scikit-learn reads an estimator's parameters from the signature of `__init__`, which is therefore written out in full.
Where many estimators of one family have the same twenty parameters, each of them stands here once, with its default, in
the constructor of a base.
"""

import inspect


class SharedParameters:
    """`**shared` in the constructor of a subclass stands for its base's parameters, in its signature too.

    The subclass passes `**shared` on, with those of the base's that it names itself. What it does not name is given by
    keyword. `get_params`, `clone`, `repr` and `help` see one list.

    >>> class Base(SharedParameters):
    ...     def __init__(self, epsilon=1.0, radius=2.0):
    ...         self.epsilon, self.radius = epsilon, radius
    >>> class Method(Base):
    ...     def __init__(self, epsilon=1.0, n_steps=5, **shared):
    ...         super().__init__(epsilon=epsilon, **shared)
    ...         self.n_steps = n_steps
    >>> str(inspect.signature(Method)), Method(0.5, radius=3.0).radius
    ('(epsilon=1.0, n_steps=5, *, radius=2.0)', 3.0)
    """

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        init = vars(cls).get("__init__")
        if init is None:
            return
        written = inspect.signature(init)
        own = [one for one in written.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        if len(own) == len(written.parameters):
            return
        named = {one.name for one in own}
        # The constructor that `super().__init__` in the class itself will call.
        inherited = inspect.signature(super(cls, cls).__init__).parameters.values()
        shared = [one.replace(kind=one.KEYWORD_ONLY) for one in inherited if one.name not in named]
        init.__signature__ = written.replace(parameters=[*own, *shared])
