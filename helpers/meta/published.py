"""A private classifier that reads tables: what is learned from a file, stored, and used on other files.

The schema of the table goes with the classifier, so that later files are read as the first one was. Everything stored
has been paid for, or is public; how it is shown is left to `helpers.book.card`.
"""

import platform
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

import joblib
import pandas as pd
from dp_accounting import NeighboringRelation

from helpers.data.schema import Schema
from helpers.data.tables import read
from helpers.erm.moments import PrivateMomentClassifier
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Guarantee

COLUMNS_PUBLIC = "names of the columns public, and that the file can be read"
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "dp-accounting", "randomgen", "dp-imbalance-book")


def _versions() -> dict[str, str]:
    return {"Python": platform.python_version()} | {name: metadata.version(name) for name in _LIBRARIES}


@dataclass(frozen=True)
class PublishedClassifier:
    """A `PrivateMomentClassifier` with the public schema through which it reads tables; made by `fit` or `load`.

    Attributes
    ----------
    schema : Schema
    model : PrivateMomentClassifier
        Fitted; without a seed, so nobody can draw its noise again.
    versions : dict
        Of the libraries it was made with.

    >>> schema = Schema.parse('''
    ... basis: an example
    ... rows_per_person: 1
    ... label: {column: ill, levels: [no, yes], minority: yes}
    ... columns: {age: {kind: integer, low: 0, high: 99}}
    ... ''')
    >>> table = pd.DataFrame({"age": [20, 90] * 500, "ill": ["no", "yes"] * 500})
    >>> classifier = PublishedClassifier.fit(table, schema, epsilon=5.0)
    >>> classifier.predict(table[:2])["prediction"].tolist()
    ['no', 'yes']
    """

    schema: Schema
    model: PrivateMomentClassifier
    versions: dict[str, str] = field(default_factory=_versions)

    @classmethod
    def fit(
        cls,
        table: str | Path | pd.DataFrame,
        schema: Schema,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        neighbouring: NeighboringRelation = REPLACE_ONE,
    ) -> "PublishedClassifier":
        """Learn from the records of a file or data frame; cells that break the schema are read as `Schema.features`
        says, so that no record can make this fail.

        Parameters
        ----------
        table : str, Path or DataFrame
        schema : Schema
        epsilon, delta : float
            The budget. Under `REPLACE_ONE` delta has to be less than one over the number of records, which is public.
        neighbouring : NeighboringRelation

        Raises
        ------
        ValueError
            A parameter that is out of range or a schema that is too large, before the file is opened; then, a file that
            cannot be read, lacks columns, or has, under `REPLACE_ONE`, no records or too many for delta.
        """
        budget = {"epsilon": epsilon, "delta": delta, "domain": schema.domain}
        nobody = pd.DataFrame({name: [] for name in schema.sources}, dtype=object)
        # A fit to no records refuses every parameter and schema that any fit would refuse, before the file is opened.
        PrivateMomentClassifier(**budget, neighbouring=ADD_REMOVE).fit(*schema.encode(nobody)[:2])
        model = PrivateMomentClassifier(**budget, neighbouring=neighbouring)
        X, y, _ = schema.encode(table if isinstance(table, pd.DataFrame) else read(table))
        if neighbouring is REPLACE_ONE:
            if not len(X):
                raise ValueError("table must have one or more records, got none")
            if delta * len(X) >= 1:
                raise ValueError(f"delta must be less than one over the number of records, {len(X)}, got {delta!r}")
        return cls(schema, model.fit(X, y))

    @property
    def guarantee(self) -> Guarantee:
        """For everything stored here, with respect to the records of the table that was learned from."""
        given = self.model.guarantee_
        # The model's guarantee starts from a matrix; here it starts from a file.
        return replace(given, assumes=(*given.assumes, COLUMNS_PUBLIC))

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Predictions for the records of a table, which needs no label.

        Returns
        -------
        DataFrame
            `prediction`, the class that is more likely than its share; and `probability of CLASS` for each. They are
            computed from these records without noise: the guarantee is not about them.
        """
        X, names = self.schema.features(table), self.schema.class_names
        if not len(X):
            return pd.DataFrame(columns=["prediction", *(f"probability of {name}" for name in names)])
        answer = pd.DataFrame({"prediction": [names[code] for code in self.model.predict(X)]})
        return answer.join(pd.DataFrame(self.model.predict_proba(X), columns=[f"probability of {n}" for n in names]))

    def save(self, file: str | Path) -> None:
        """Store the classifier; the file appears when it is complete."""
        file = Path(file)
        # Written under another name and then renamed, so that an interrupted run leaves no half file under this one.
        part = file.with_name(file.name + ".part")
        joblib.dump(self, part)
        part.replace(file)

    @staticmethod
    def load(file: str | Path) -> "PublishedClassifier":
        """A stored classifier. Loading runs code that is in the file: load only what you trust.

        Raises
        ------
        ValueError
            No such file, or something else in it.
        """
        try:
            found = joblib.load(file)
        except Exception as error:  # of a file that is something else, anything
            raise ValueError(f"model must be a file of a stored classifier, got {type(error).__name__}") from None
        if not isinstance(found, PublishedClassifier):
            raise ValueError(f"model must be a file of a stored classifier, got one of {type(found).__name__}")
        return found
