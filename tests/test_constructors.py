"""Parameters that a base's constructor has are a subclass's own: listed, cloned, shown, and refused when misspelt."""

import inspect

import pytest
from sklearn.base import BaseEstimator, clone

from helpers.constructors import SharedParameters


class Base(SharedParameters, BaseEstimator):
    def __init__(self, epsilon=1.0, radius=2.0):
        self.epsilon, self.radius = epsilon, radius


class Middle(Base):
    def __init__(self, step=0.5, **shared):
        super().__init__(**shared)
        self.step = step


class Method(Middle):
    def __init__(self, epsilon=3.0, n_steps=5, **shared):
        super().__init__(epsilon=epsilon, **shared)
        self.n_steps = n_steps


class Heir(Method):
    """Has no constructor of its own."""


@pytest.mark.parametrize("cls", [Method, Heir])
def test_there_is_one_list_of_parameters(cls):
    defaults = {"epsilon": 3.0, "n_steps": 5, "step": 0.5, "radius": 2.0}
    assert {p.name: p.default for p in inspect.signature(cls).parameters.values()} == defaults
    assert cls().get_params() == defaults
    model = cls(7.0, radius=4.0)
    assert clone(model).get_params() == defaults | {"epsilon": 7.0, "radius": 4.0}
    assert repr(model) == f"{cls.__name__}(epsilon=7.0, radius=4.0)"
    assert model.set_params(step=0.1).step == 0.1


def test_the_base_keeps_its_own_list():
    assert list(inspect.signature(Base).parameters) == ["epsilon", "radius"]
    assert list(inspect.signature(Middle).parameters) == ["step", "epsilon", "radius"]


@pytest.mark.parametrize(("arguments", "named"), [((), {"colour": 1}), ((1.0, 2, 0.5), {})])
def test_what_is_not_in_the_list_is_refused(arguments, named):
    with pytest.raises(TypeError):
        Method(*arguments, **named)
