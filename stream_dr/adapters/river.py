"""River: every estimator as a river transformer, for dicts and data frames, alone or in a `compose.Pipeline`.

    from river import compose, linear_model
    model = compose.Pipeline(to_river(stream_dr.LDA()), linear_model.SoftmaxRegression())

A feature's name becomes a column when it is first seen; a feature missing from a row counts as 0. Rows are sparse inside, so
names may appear at any time. `transform_one` gives {"lda0": …, "lda1": …}, the names of `get_feature_names_out`, so that a
union of several keeps the components of all; as many as there are so far, and it follows
every row learned: nothing is put off. It is {} before the first row. As in every estimator, what is solved anew keeps the
signs and order of what was shown before it, or a classifier behind it would see its inputs flip.

With a feature map that goes by name (hashing) rows are passed on as dicts: a name's column is its hash, whichever names came
before, a string value is legal, and names never learned count.

Cost: `learn_one` is one `partial_fit` of one row (python benchmarks/recurrences.py one); a stream that has its rows in
batches learns them many times faster with `learn_many`.

Why this way: the adapter owns the names and nothing else; what an estimator learns and refuses is decided
where it always is.
"""

from collections.abc import Hashable, Mapping
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp
from river import base
from sklearn.base import clone

from stream_dr.errors import InvalidParameter, InvalidRows, NotFitted
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.rows.block import Block, Rows
from stream_dr.targets.targets import Targets

FIRST_CODE = np.zeros(1, dtype=np.int32)
FIRST_CODE.flags.writeable = False


class Layout:
    """Where a row's names stand among the columns; a name without a place is left out.

    names: of the row. width: of the rows. order: the known names' numbers, by column. columns: those columns.
    """

    def __init__(self, names: tuple[Hashable, ...], places: dict[Hashable, int]) -> None:
        found = np.array([places.get(name, -1) for name in names], dtype=np.int32)
        known = np.flatnonzero(found >= 0)
        self.names, self.width, self.order = names, len(places), known[np.argsort(found[known])]
        self.columns = found[self.order]
        self._one = sp.csr_matrix((np.zeros(len(known)), self.columns, [0, len(known)]), shape=(1, self.width))
        self._one.has_canonical_format = True

    def rows(self, values: np.ndarray) -> sp.csr_matrix:
        """Values (names,) or (rows, names) as CSR; one row is a shallow copy of one made beforehand."""
        values = values[..., self.order]
        if values.ndim == 1:
            row = copy(self._one)
            row.data = values
            return row
        n, k = values.shape
        parts = (values.ravel(), np.tile(self.columns, n), np.arange(n + 1, dtype=np.int32) * k)
        return sp.csr_matrix(parts, shape=(n, self.width))


class RiverTransformer(base.MiniBatchTransformer):
    """An unsupervised estimator as a river transformer.

    estimator: any stream_dr estimator that learns without targets. It is left as it is; a clone of it learns (`learner`).
    prefix: what the components' names begin with; None: the class's name in lower case, as in `get_feature_names_out`. Give
    one where a union holds two estimators of one class. Raises InvalidParameter for a supervised one.
    """

    supervised = False

    def __init__(self, estimator: Any, prefix: str | None = None) -> None:
        if bool(estimator.target_kinds) != self.supervised:
            raise InvalidParameter(
                f"{type(estimator).__name__} {'takes no' if self.supervised else 'needs'} targets; make its river "
                "transformer with to_river(estimator), which picks the right class."
            )
        self.estimator = estimator
        self.prefix = prefix
        self.learner = clone(estimator)
        self._by_name = bool(self.learner.columns_by_name())
        self._columns: dict[Hashable, int] = {}
        self._last = Layout((), {})

    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Learn one row: feature name → number."""
        self.learner.partial_fit(self._row(x, grow=True))
        self._name_columns()

    def learn_many(self, X: Rows) -> None:
        """Learn a data frame's rows, in order."""
        self.learner.partial_fit(self._rows(X, grow=True))
        self._name_columns()

    def transform_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
        """Project one row to {"lda0": …}; names never learned contribute nothing; {} before the first row was learned."""
        projected = self._project(self._row(x, grow=False))[0]
        return dict(zip(self._names(len(projected)), projected.tolist(), strict=True))

    def transform_many(self, X: Rows) -> Any:
        """Project a data frame's rows to a data frame of the same kind and index with columns lda0, lda1 …"""
        projected = self._project(self._rows(X, grow=False))
        columns = dict(zip(self._names(projected.shape[1]), projected.T, strict=True))
        return type(X)(columns, index=X.index) if hasattr(X, "index") else type(X)(columns)

    def _names(self, components: int) -> list[Hashable]:
        """The prefix with 0, 1 … or, where the estimator chooses features, their own names."""
        chosen = getattr(self.learner, "columns_", None) if components else None
        if chosen is None or getattr(self.learner, "feature_map", None) is not None:
            prefix = type(self.learner).__name__.lower() if self.prefix is None else self.prefix
            return [f"{prefix}{i}" for i in range(components)]
        names = list(self._columns)
        return [names[j] for j in chosen]

    def _name_columns(self) -> None:
        """Tell the learner its columns' names, by which `merge` knows whether another's are the same."""
        fitted = self.learner.fitted_
        if not self._by_name and len(fitted.names or ()) != len(self._columns):
            fitted.names = tuple(map(str, self._columns))

    def _project(self, rows: Any) -> np.ndarray:
        nothing = np.empty((len(rows) if self._by_name else rows.shape[0], 0))
        if not self._by_name and rows.shape[1] == 0:
            return nothing
        try:
            given = rows if self._by_name else Block(rows, width_stated=False)  # names grow by declaration
            return np.asarray(self.learner.project(self.learner.projection(), given))
        except NotFitted:
            return nothing

    def _row(self, x: Mapping[Hashable, Any], grow: bool) -> Any:
        """One row as CSR (1, columns so far); new names get columns when `grow`. By name: the dict, in a list."""
        if self._by_name:
            return [x]
        try:
            values = np.fromiter(x.values(), dtype=np.float64, count=len(x))
        except (TypeError, ValueError) as e:
            raise InvalidRows(f"a feature's value is not a number ({e}); encode it before this step.") from e
        return self._layout_of(tuple(x), grow).rows(values)

    def _rows(self, X: Rows, grow: bool) -> Any:
        """A data frame as CSR (rows, columns so far); new names get columns when `grow`. By name: a list of dicts."""
        if self._by_name:
            return X.to_dict("records") if hasattr(X, "index") else X.to_dicts()
        try:
            values = np.asarray(X.to_numpy(), dtype=np.float64)
        except (TypeError, ValueError) as e:
            raise InvalidRows(f"a column is not numeric ({e}); encode it before this step.") from e
        return self._layout_of(tuple(X.columns), grow).rows(values)

    def _layout_of(self, names: tuple[Hashable, ...], grow: bool) -> "Layout":
        """Where these names stand; the last answer is kept, since most rows have the names of the row before."""
        last = self._last
        if last.names != names or last.width != len(self._columns) or (grow and len(last.columns) < len(names)):
            if grow:
                for name in sorted(names, key=str):  # a random map goes by column, and a row's order says nothing
                    self._columns.setdefault(name, len(self._columns))
            last = self._last = Layout(names, self._columns)
        return last

    @classmethod
    def _unit_test_params(cls) -> Any:
        """What river asks for to make one in its estimator checks."""
        from stream_dr.estimators import ESTIMATORS

        yield {"estimator": ESTIMATORS["lda" if cls.supervised else "ccipca"]()}


class RiverSupervisedTransformer(base.SupervisedTransformer, RiverTransformer, base.MiniBatchSupervisedTransformer):  # type: ignore[misc]
    """A supervised estimator as a river transformer: `learn_one(x, y)`, `learn_many(X, y)`.

    y: a label, a number, or for several targets a row river's dict: label → bool, or name → number.
    """

    supervised = True

    def learn_one(self, x: Mapping[Hashable, Any], y: Any) -> None:  # type: ignore[override]
        """Learn one row with its target."""
        self.learner.partial_fit(self._row(x, grow=True), one_target(y, self.learner.target_kinds))
        self._name_columns()

    def learn_many(self, X: Rows, y: Any) -> None:  # type: ignore[override]
        """Learn a data frame's rows with their targets (rows,), in order."""
        self.learner.partial_fit(self._rows(X, grow=True), [target(v) for v in y])
        self._name_columns()


def to_river(estimator: Any, prefix: str | None = None) -> RiverTransformer:
    """A river transformer of any stream_dr estimator: a `base.SupervisedTransformer` where it learns from targets.

    prefix: what the components' names begin with; None: the class's name in lower case.

    Raises InvalidParameter for what is no such estimator.
    """
    if not isinstance(estimator, Estimator):
        raise InvalidParameter(
            f"an object of type {type(estimator).__name__} was given; give an estimator of stream_dr with a transform, say "
            "stream_dr.LDA()."
        )
    return (RiverSupervisedTransformer if estimator.target_kinds else RiverTransformer)(estimator, prefix)


def one_target(y: Any, kinds: tuple[str, ...]) -> Any:
    """The targets of one row: a plain label for an estimator of classes needs no parsing, which costs half a row's time."""
    if type(y) in (str, int, bool) and kinds == ("class",):
        return Targets("class", (y,), FIRST_CODE)
    return [target(y)]


def target(y: Any) -> Any:
    """River's target of one row as stream_dr takes it: a dict of bools is a set of labels, one of numbers a row of them."""
    if not isinstance(y, Mapping):
        return y
    if all(isinstance(v, bool | np.bool_) for v in y.values()):
        return [label for label, there in y.items() if there]
    return [float(v) for v in y.values()]
