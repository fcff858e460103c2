"""A private classifier that reads tables: what is learned from a file, how good it is, stored, and used on other files.

The schema of the table goes with the classifier, so that later files are read as the first one was. Everything stored
has been paid for, or is public; how it is shown is left to `helpers.book.card`. A stored classifier is a text of
numbers and names, and loading it runs no code of the file's.
"""

import dataclasses
import hashlib
import json
import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import attr
import numpy as np
import pandas as pd
from dp_accounting import NeighboringRelation, dp_event
from scipy.special import expit, logit

from helpers.data.domain import Attribute, Domain
from helpers.data.schema import Column, Schema
from helpers.data.tables import read
from helpers.erm.marginals import RankFeatures
from helpers.erm.moments import PrivateMomentClassifier, Shape, Sizes
from helpers.meta import quality
from helpers.meta.quality import Quality
from helpers.privacy import ADD_REMOVE, REPLACE_ONE, Guarantee, Ledger, noise_generator, secure_generator
from helpers.privacy.accounting import ApproximateDpEvent

COLUMNS_PUBLIC = "names of the columns public, and that the file can be read"
QUOTES_CLOSED = "no record opens a quote that it does not close"
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "dp-accounting", "randomgen", "dp-imbalance-book")
_FORMAT = "private classifier 2"
_MOST_BYTES = 1 << 28
# All that a stored classifier is made of; nothing else is made from a file.
_EVENTS = (dp_event.GaussianDpEvent, dp_event.ComposedDpEvent, dp_event.SelfComposedDpEvent, ApproximateDpEvent)
_PARTS = (
    Schema,
    Column,
    Domain,
    Attribute,
    PrivateMomentClassifier,
    RankFeatures,
    Sizes,
    Shape,
    Quality,
    Guarantee,
)
_KINDS: dict[str, type] = {kind.__name__: kind for kind in (*_PARTS, *_EVENTS)}


def _unit(schema: Schema) -> str:
    """Whom the guarantee protects: where nothing is known of persons, a row is a record and no more."""
    return "person" if schema.unit == "person" else "record"


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
    quality : Quality or None
        What it reached on persons who were held out; None if nobody was.
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
    quality: Quality | None = None
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
        measure: bool = True,
        recall: float | None = None,
        alarms: float | None = None,
        random_state: int | None = None,
        on_begin: Callable[[Guarantee], object] | None = None,
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
        measure : bool
            Whether a fifth of the persons is held out, to measure what the classifier is worth
            (`helpers.meta.quality`).
        recall, alarms : float, optional
            As of `PrivateMomentClassifier`: what is asked for instead of balanced accuracy.
        random_state : None or int
            None, except to reproduce a result: whoever knows the seed can take the noise off.
        on_begin : callable, optional
            Called with the guarantee when all checks are done and nothing is released yet; an exception stops the fit.

        Raises
        ------
        ValueError
            A parameter that is out of range or a schema that is too large, before the file is opened; then, a file that
            cannot be read, lacks columns, or has, under `REPLACE_ONE`, too few records or too many for delta.
        """
        budget = {"epsilon": epsilon, "delta": delta, "domain": schema.domain}
        budget |= {"rows_per_person": schema.rows_per_person or 1, "random_state": random_state}
        budget |= {"recall": recall, "alarms": alarms}
        nobody = pd.DataFrame({name: [] for name in schema.sources}, dtype=object)
        # A fit to no records refuses every parameter and schema that any fit would refuse, before the file is opened.
        PrivateMomentClassifier(**budget, neighbouring=ADD_REMOVE).fit(*schema.encode(nobody))
        promised = Guarantee(epsilon, delta, neighbouring, unit=_unit(schema))
        model = PrivateMomentClassifier(**budget, neighbouring=neighbouring)
        if not isinstance(table, pd.DataFrame):
            table = read(table, quoted_newlines=schema.quoted_newlines)
        X, y, persons = schema.encode(table)
        rows = np.arange(len(X)) if persons is None else persons
        n_persons = int(rows.max(initial=-1)) + 1
        if neighbouring is REPLACE_ONE:
            if round((1 - measure * quality.HELD_OUT) * n_persons) < 1:
                raise ValueError(f"table must have records of one or more persons to learn from, got {n_persons}")
            if delta * n_persons >= 1:
                raise ValueError(f"delta must be less than one over the number of records, {n_persons}, got {delta!r}")
        if on_begin:
            on_begin(promised)
        if not measure:
            return cls(schema, model.fit(X, y, persons))
        rng = secure_generator() if random_state is None else noise_generator(random_state, "held out", X, y)
        apart = quality.held_out(n_persons, neighbouring, rng)[rows]
        model.fit(X[~apart], y[~apart], None if persons is None else persons[~apart])
        parts = 1.0 / np.bincount(rows)[rows] if persons is not None else np.ones(len(X))
        said = model.predict(X[apart]) if apart.any() else y[apart]
        records = Ledger((y[apart], said, parts[apart]), neighbouring, rng)
        measured = quality.measured(records, len(schema.class_names), epsilon, schema.rows_per_person or 1)
        return cls(schema, model, measured)

    @property
    def guarantee(self) -> Guarantee:
        """For everything stored here, with respect to the records of the table that was learned from."""
        given = self.model.guarantee_
        # The model's guarantee starts from a matrix; here it starts from a file.
        assumes = [*given.assumes, COLUMNS_PUBLIC, *[QUOTES_CLOSED] * self.schema.quoted_newlines]
        source = given.source
        if self.quality is not None:
            source += "; parallel composition with the counts of the persons held out (McSherry 2009)"
        return replace(given, assumes=tuple(assumes), source=source, unit=_unit(self.schema))

    def predict(self, table: pd.DataFrame) -> pd.DataFrame:
        """Predictions for the records of a table, one for each, in their order; it needs no label.

        Returns
        -------
        DataFrame
            The columns of the table from which nothing is learned; `prediction`; and `probability of CLASS` for each
            class. Of two classes, `CLASS from` is the probability from which on the rare one is said. All are computed
            from these records without noise: the guarantee is not about them.

        Raises
        ------
        ValueError
            Columns of the schema that the table lacks or has twice, or one that is called like those above.
        """
        X, names = self.schema.features(table), self.schema.class_names
        features = set(self.schema.sources) - {self.schema.person}
        answer = table[[name for name in table.columns if str(name) not in features]].reset_index(drop=True)
        new = ["prediction", *(f"probability of {name}" for name in names)]
        if taken := sorted(set(new) & set(map(str, answer.columns))):
            raise ValueError(f"table must have no column called {', '.join(taken)}, which is what the answer has")
        codes, probabilities = np.zeros(0, dtype=int), np.zeros((0, len(names)))
        if len(X):
            codes, probabilities = self.model.predict(X), self.model.predict_proba(X)
        columns = dict(zip(new[1:], probabilities.T, strict=True))
        answer = answer.assign(prediction=np.array(names, dtype=object)[codes], **columns)
        return answer.assign(**{f"{names[1]} from": self.threshold}) if len(names) == 2 else answer

    @property
    def threshold(self) -> float:
        """The probability from which on the rare one of two classes is said."""
        return float(expit(self.model.cut_ + logit(self.model.priors_[1])))

    # ------------------------------------------------------------------------------------------------------- storing

    def to_text(self) -> str:
        """The classifier as JSON: a line with the SHA-256 of all that follows, then numbers and names."""
        content = {name.name: _plain(getattr(self, name.name)) for name in dataclasses.fields(self)}
        body = f'"content": {json.dumps(content, indent=None)}}}\n'
        return f'{{"format": "{_FORMAT}", "sha256": "{hashlib.sha256(body.encode()).hexdigest()}",\n{body}'

    def save(self, file: str | Path) -> None:
        """Store the classifier; the file appears when it is complete."""
        file = Path(file)
        # Written under another name and then renamed, so that an interrupted run leaves no half file under this one.
        part = file.with_name(file.name + ".part")
        try:
            part.write_text(self.to_text(), encoding="utf-8")
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, file: str | Path) -> "PublishedClassifier":
        """A stored classifier, as it was stored: a file with a changed bit is refused.

        Raises
        ------
        ValueError
            No such file, something else in it, or something that was changed.
        """
        file = Path(file)
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            raise ValueError(f"model must be a file of a stored classifier, got {file.name!r}")
        head, _, body = file.read_bytes().partition(b"\n")
        said = re.fullmatch(rb'\{"format": "%s", "sha256": "([0-9a-f]{64})",' % _FORMAT.encode(), head)
        if not said:
            raise ValueError(f"model must be a file of a stored classifier, got something else in {file.name!r}")
        if hashlib.sha256(body).hexdigest().encode() != said[1]:
            raise ValueError(f"model must be a file as it was stored, got changes in {file.name!r}")
        try:
            return cls(**_made(json.loads(b"{" + body)["content"]))
        except Exception as error:  # of what somebody wrote by hand, with a digest that fits, anything
            raise ValueError(
                f"model must be a stored classifier, got {type(error).__name__} in {file.name!r}"
            ) from None


def _plain(value: Any) -> Any:
    """What JSON can hold of the parts of a classifier; doubles are written with all their digits."""
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.str, "shape": value.shape}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, NeighboringRelation):
        return {"relation": value.name}
    if type(value) in (tuple, list):
        return {"tuple" if type(value) is tuple else "list": [_plain(item) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _plain(item) for key, item in value.items()}}
    if _KINDS.get(type(value).__name__) is type(value):
        return {"kind": type(value).__name__, "parts": {k: _plain(v) for k, v in _state(value).items()}}
    if not isinstance(value, bool | int | float | str | None):
        raise TypeError(f"a stored classifier cannot hold a {type(value).__name__}")
    return value


def _state(value: Any) -> dict[str, Any]:
    if isinstance(value, tuple):
        return value._asdict()  # type: ignore[attr-defined]  # a named one
    return attr.asdict(value, recurse=False) if attr.has(type(value)) else vars(value)


def _made(plain: Any) -> Any:
    """The inverse of `_plain`."""
    if not isinstance(plain, dict):
        return plain
    if "array" in plain:
        return np.array(plain["array"], dtype=np.dtype(plain["dtype"])).reshape(plain["shape"])
    if "relation" in plain:
        return NeighboringRelation[plain["relation"]]
    if "dict" in plain:
        return {key: _made(item) for key, item in plain["dict"].items()}
    for name, make in (("tuple", tuple), ("list", list)):
        if name in plain:
            return make(_made(item) for item in plain[name])
    if "kind" not in plain:
        return {key: _made(item) for key, item in plain.items()}
    kind, parts = _KINDS[plain["kind"]], {key: _made(item) for key, item in plain["parts"].items()}
    if issubclass(kind, tuple) or attr.has(kind):
        return kind(**parts)
    made: Any = object.__new__(kind)
    vars(made).update(parts)
    return made
