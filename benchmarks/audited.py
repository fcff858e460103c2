"""Default and documented calls of public libraries, one function a row of the table of audits.

Each takes records X (n, d) and labels y (n,), or none, and returns what the library hands out; `benchmarks.audits` says
what is claimed. The file is loaded by the interpreter that has the libraries, and imports each where it is used.
"""

import warnings

import numpy as np

LOW, HIGH = -1.0, 1.0


def _new_accountant():
    """As in a new process: diffprivlib's accountant keeps every fit, and each takes longer than the one before."""
    from diffprivlib import BudgetAccountant

    BudgetAccountant().set_default()


def gaussian_nb():
    _new_accountant()
    from diffprivlib.models import GaussianNB

    return GaussianNB(epsilon=1.0, bounds=(LOW, HIGH))


def gaussian_nb_far(X, y):
    """The sums that whoever gets the model computes from its means and counts."""
    _new_accountant()
    from diffprivlib.models import GaussianNB

    model = GaussianNB(epsilon=1.0, bounds=(305, 315)).fit(X, y)
    return model.theta_ * model.class_count_[:, None]


def logistic_regression():
    _new_accountant()
    from diffprivlib.models import LogisticRegression

    return LogisticRegression(epsilon=1.0, data_norm=10.0)


def logistic_regression_norm(X, y):
    """The size of the coefficient, on a scale that shows small ones."""
    _new_accountant()
    from diffprivlib.models import LogisticRegression

    model = LogisticRegression(epsilon=1.0, data_norm=100.0, fit_intercept=False).fit(X, y)
    return float(np.log(np.abs(model.coef_[0, 0])))


def linear_regression(X, y):
    """The label is the number that is predicted; bounds and no intercept as its documentation allows."""
    _new_accountant()
    from diffprivlib.models import LinearRegression

    return LinearRegression(epsilon=1.0, bounds_X=(0, 100), bounds_y=(0, 2), fit_intercept=False).fit(X, y)


def forest():
    """As many trees as records, which are dealt to the trees by their places."""
    _new_accountant()
    from diffprivlib.models import RandomForestClassifier

    return RandomForestClassifier(n_estimators=20, epsilon=1.0, bounds=(LOW, HIGH), classes=[0, 1], max_depth=1)


# Five public records, of which the last is rare, and what an attacker thinks the table is.
FIVE = np.array([[-0.5], [-0.25], [0.0], [0.25], [0.5]]), np.array([0, 0, 0, 0, 1])


def forest_redrawn(X, y):
    """A forest of one tree, and what whoever gets it finds out: is it the tree that its own seed gives on `FIVE`?"""
    _new_accountant()
    from diffprivlib.models import RandomForestClassifier
    from sklearn.base import clone

    model = RandomForestClassifier(
        n_estimators=1, epsilon=0.1, bounds=(LOW, HIGH), classes=[0, 1], max_depth=1, shuffle=True
    ).fit(X, y)
    tree = model.estimators_[0]
    again = clone(tree).fit(*FIVE)
    return {"same as redrawn": bool(np.array_equal(tree.tree_.value, again.tree_.value))}


def standard_scaler(X, y):
    _new_accountant()
    from diffprivlib.models import StandardScaler

    return StandardScaler(epsilon=1.0, bounds=(LOW, HIGH)).fit(X)


def _opacus(X, y, model, *, loss=None, batch_size=10, noise=1.0):
    """One epoch of DP-SGD as the tutorial has it; what is handed out is how far training moved the model's state.

    Where it started is public, as everybody who sees the model from the beginning knows.
    """
    import torch
    from opacus import PrivacyEngine

    torch.manual_seed(int.from_bytes(np.random.default_rng().bytes(6), "big"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.int64)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=noise, max_grad_norm=1.0
    )
    loss = loss or torch.nn.CrossEntropyLoss()
    with warnings.catch_warnings(action="ignore"):  # of PyTorch, one a batch
        for rows, labels in loader:
            optimizer.zero_grad()
            loss(model(rows), labels).backward()
            optimizer.step()
    return {name: (value - before[name]).numpy() for name, value in model._module.state_dict().items()}


def opacus_batches(X, y):
    import torch

    return _opacus(X, y, torch.nn.Linear(X.shape[1], 2), batch_size=50, noise=20.0)


def opacus_class_weights(X, y):
    """Weights that are inverse to the counts of the classes, as scikit-learn has "balanced"."""
    import torch

    counts = np.maximum(np.bincount(y, minlength=2), 1)
    weights = torch.tensor(len(y) / (2 * counts), dtype=torch.float32)
    return _opacus(
        X, y, torch.nn.Linear(X.shape[1], 2), loss=torch.nn.CrossEntropyLoss(weight=weights), batch_size=20, noise=4.0
    )


def opacus_fixed_weights(X, y):
    """Public weights (1, 50), but a mean over the batch's weights, which ties all gradients together."""
    import torch

    weights = torch.tensor([1.0, 50.0])
    return _opacus(
        X, y, torch.nn.Linear(X.shape[1], 2), loss=torch.nn.CrossEntropyLoss(weight=weights), batch_size=20, noise=4.0
    )


def opacus_batch_norm(X, y):
    import torch

    d = X.shape[1]
    return _opacus(X, y, torch.nn.Sequential(torch.nn.BatchNorm1d(d, affine=False), torch.nn.Linear(d, 2)), noise=4.0)


def opacus(X, y):
    import torch

    return _opacus(X, y, torch.nn.Linear(X.shape[1], 2), noise=4.0)


def _described(X, y, **options):
    """A description by DataSynthesizer in correlated mode, all columns said to be categorical or not."""
    import json
    import tempfile

    import pandas as pd
    from DataSynthesizer.DataDescriber import DataDescriber

    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(y=y)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        table.to_csv(file.name, index=False)
        describer = DataDescriber(histogram_bins=5)
        describer.describe_dataset_in_independent_attribute_mode(
            file.name, epsilon=1.0, attribute_to_is_categorical={"y": True}, **options
        )
        with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
            describer.save_dataset_description_to_file(out.name)
            return json.load(out)


def data_synthesizer(X, y):
    return _described(X, y)


def data_synthesizer_seeded(X, y):
    return _described(X, y, seed=int.from_bytes(np.random.default_rng().bytes(4), "big"))


def _ebm(**options):
    from interpret.privacy import DPExplainableBoostingClassifier

    return DPExplainableBoostingClassifier(
        epsilon=1.0, delta=1e-5, feature_types=["continuous"] * 2, n_jobs=1, max_rounds=5, random_state=None, **options
    )


def ebm():
    return _ebm()


def ebm_bounds():
    return _ebm(privacy_bounds=np.array([[LOW, HIGH], [LOW, HIGH]]))


def opendp_mean(X, y):
    """A Laplace mean and a noisy count of the rare class, by OpenDP's measurements."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    numbers = dp.vector_domain(dp.atom_domain(bounds=(LOW, HIGH)), size=len(X)), dp.symmetric_distance()
    total = numbers >> dp.t.then_sum()
    scale = dp.binary_search_param(lambda s: total >> dp.m.then_laplace(s), d_in=2, d_out=0.5)
    flags = dp.vector_domain(dp.atom_domain(bounds=(0, 1)), size=len(X)), dp.symmetric_distance()
    count = flags >> dp.t.then_sum()
    count_scale = dp.binary_search_param(lambda s: count >> dp.m.then_laplace(s), d_in=2, d_out=0.5)
    column = np.clip(np.nan_to_num(X[:, 0]), LOW, HIGH).tolist()
    return {
        "sum": (total >> dp.m.then_laplace(scale))(column),
        "count": (count >> dp.m.then_laplace(count_scale))([int(one == 1) for one in y]),
    }


def _dpmm(model, X, y, domain):
    """A model by dpmm of two coded columns and the label, and ten records from it; few steps, since only inference,
    which is no release, takes more."""
    import pandas as pd

    codes = np.clip((np.nan_to_num(X) - LOW) * 4 / (HIGH - LOW), 0, 3).astype(int)
    table = pd.DataFrame(codes, columns=["a", "b"]).assign(ill=y)
    if domain:
        model.set_domain({"a": 4, "b": 4, "ill": 2})
    model.fit(table)
    return {"records": model.generate(n_records=10).to_numpy(int), "model": model}


def dpmm_privbayes(X, y):
    from dpmm.models.priv_bayes import PrivBayesGM

    return _dpmm(PrivBayesGM(epsilon=1.0, delta=1e-5, n_iters=10), X, y, True)


def dpmm_privbayes_inferred(X, y):
    from dpmm.models.priv_bayes import PrivBayesGM

    return _dpmm(PrivBayesGM(epsilon=1.0, delta=1e-5, n_iters=10), X, y, False)


def dpmm_aim(X, y):
    from dpmm.models.aim import AIMGM

    return _dpmm(AIMGM(epsilon=1.0, delta=1e-5, n_iters=10), X, y, True)
