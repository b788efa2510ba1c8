"""River transformers of all estimators, for dicts and data frames.

They work alone or in a `compose.Pipeline`:

    from river import compose, linear_model
    model = compose.Pipeline(to_river(stream_dr.LDA()), linear_model.SoftmaxRegression())

Columns. A feature's name gets a column when the name is first learned. A feature missing from a
row counts as 0. Rows are converted to sparse rows, so new names may appear at any time.

Results. `transform_one` returns one number for each component. For LDA the result is
{"lda0": …, "lda1": …}. The names are the names that `get_feature_names_out` returns. Each class of
estimators has other names, so a union of several transformers has the components of all of them.
The returned components are computed from all rows learned so far. Before the first row,
`transform_one` returns {}. Components keep their signs and order when they are solved again, as in
every estimator. So the inputs of a classifier after the transformer do not change signs.

Classifiers. The transformer of an estimator with `predict_proba` (LDA, ClassMeans) is also a
river classifier.

Feature maps by name. A feature map that identifies columns by name (hashing) receives rows as
dicts. The column of a name is then the name's hash, whatever names came before. A value may be a
string. A projected row may have a name that was never learned. Its value is used, because the name
has a hash. Without such a feature map, the value is ignored.

The adapter handles only names. The estimator decides what it learns and what raises an error.

Cost. `learn_one` costs one `partial_fit` of one row. `python benchmarks/recurrences.py one`
measures the time. A stream that comes in batches is learned many times faster by `learn_many`.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any, Self, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from river import base
from sklearn.base import clone

from stream_dr.batch.block import Block, Rows
from stream_dr.batch.rows import is_pandas
from stream_dr.batch.targets import Label
from stream_dr.errors import InvalidParameter, InvalidRows, NotFitted
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.predictor import LinearClassifier
from stream_dr.estimators.information_gain import InformationGain

RiverTarget = Label | float | Mapping[Hashable, bool] | Mapping[Hashable, float]
"""Target of a row in the form that river passes."""

RowTarget = Label | float | list[Hashable] | list[float]
"""Target of a row in the form that an estimator learns."""

Frame = TypeVar("Frame")
"""A pandas or polars data frame."""


class RowLayout:
    """Columns of a row's features, and their sorted order.

    river passes a row as a dict of names and values. `order` brings the dict's values into the
    order of the columns. Names without a column are left out.

    Attributes
    ----------
    names : tuple
        Names of the row's features, in the order of the dict.
    width : int
        Number of columns of the converted row.
    order : ndarray (k,)
        Indices in `names` of the k names that have a column. They are sorted by column.
    columns : ndarray (k,), int32
        Column indices of these k names, ascending.
    """

    def __init__(self, feature_names: tuple[Hashable, ...], column_by_name: dict[Hashable, int]) -> None:
        columns = np.array([column_by_name.get(name, -1) for name in feature_names], dtype=np.int32)
        known = np.flatnonzero(columns >= 0)
        self.names = feature_names
        self.width = len(column_by_name)
        self.order = known[np.argsort(columns[known])]
        self.columns = columns[self.order]

        # Build one CSR row as a template, which the method `rows` copies and fills with values.
        # To copy the template is faster than to call scipy's constructor for each row.
        parts = (np.zeros(len(known)), self.columns, [0, len(known)])
        self._template_row = sp.csr_matrix(parts, shape=(1, self.width))
        self._template_row.has_canonical_format = True

    def rows(self, feature_values: np.ndarray) -> sp.csr_matrix:
        """Return rows as CSR rows of `width` columns.

        feature_values: (features,) or (rows, features), in the order of the attribute `names`.
            Features without a column are omitted.
        """
        # Select the features that have a column, in the order of their columns.
        feature_values = feature_values[..., self.order]
        if feature_values.ndim == 1:
            # A copy of a row with the same columns is faster than a new CSR matrix.
            row = copy(self._template_row)
            row.data = feature_values
            return row

        # Each of the n rows has k values, in the same k columns.
        n, k = feature_values.shape
        indices = np.tile(self.columns, n)
        indptr = np.arange(n + 1, dtype=np.int32) * k
        return sp.csr_matrix((feature_values.ravel(), indices, indptr), shape=(n, self.width))


class RiverTransformer(base.MiniBatchTransformer):
    """River transformer of an unsupervised estimator.

    Raises InvalidParameter for a supervised estimator.

    Parameters
    ----------
    estimator : Estimator
        Estimator that learns without targets. A clone learns, so the estimator stays unchanged.
    prefix : str or None
        Start of the components' names. None takes the class name in lower case, as
        `get_feature_names_out` does. Set it if a union has two estimators of one class.

    Attributes
    ----------
    learner : Estimator
        Clone of the estimator that learns the rows.
    """

    supervised = False

    def __init__(self, estimator: Estimator, prefix: str | None = None) -> None:
        # Each class sets `supervised`: False here, and True for estimators with targets.
        if bool(estimator.target_kinds) != self.supervised:
            verb = "takes no" if self.supervised else "needs"
            raise InvalidParameter(
                f"{type(estimator).__name__} {verb} targets; make its river "
                "transformer with to_river(estimator), which picks the right class."
            )

        # river clones a transformer by the attributes `estimator` and `prefix`.
        self.estimator = estimator
        self.prefix = prefix

        # The clone learns, and the caller's estimator stays unchanged. Rows are dicts. If the
        # clone's feature map identifies columns by name (`_takes_dicts`), they stay dicts.
        # Otherwise they become arrays, and each name gets a column.
        self.learner: Estimator = clone(estimator)
        self._takes_dicts = bool(self.learner.identifies_columns_by_name())
        # Column of each feature name, in the order in which names came.
        self._columns: dict[Hashable, int] = {}
        # Layout of the last row: which value belongs to which column. At first, there are no names.
        self._last_layout = RowLayout((), {})

    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Learn one row, which is a dict of numbers by feature name."""
        self._learn(self._dict_to_row(x, add_new_names=True))

    def learn_many(self, X: Any) -> None:
        """Learn the rows of a data frame, in order."""
        self._learn(self._data_frame_to_rows(X, add_new_names=True))

    def transform_one(self, x: Mapping[Hashable, Any]) -> dict[Hashable, float]:
        """Project one row to a dict of components.

        The dict has entries such as "lda0": 1.5. Names that were never learned contribute nothing.
        Returns {} before the first row is learned.
        """
        projected = self._project_rows(self._dict_to_row(x, add_new_names=False))[0]
        return dict(zip(self._component_names(len(projected)), projected.tolist(), strict=True))

    def transform_many(self, X: Frame) -> Frame:
        """Project the rows of a data frame.

        The result is a data frame of the same library, with one column for each component. For
        LDA, the columns are called lda0, lda1 and so on. A pandas data frame keeps its index.
        """
        projected = self._project_rows(self._data_frame_to_rows(X, add_new_names=False))
        columns = dict(zip(self._component_names(projected.shape[1]), projected.T, strict=True))

        return cast(Frame, _frame_like(X, columns))

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> Self:
        """Return a transformer that has learned nothing, as in river.

        new_params: new values of `estimator` and `prefix`. For `estimator`, a dict of some of its
            parameters is allowed, as `river.utils.expand_param_grid` makes it.
        """
        params = dict(new_params or {})
        changes = params.get("estimator")
        if isinstance(changes, dict):
            params["estimator"] = clone(self.estimator).set_params(**changes)
        return super().clone(params, include_attributes)

    def _component_names(self, n_components: int) -> list[Hashable]:
        """Return the names of the components.

        A name is the prefix and the number of the component, such as "lda0". If the estimator
        selects some of the rows' own features, their names are returned.
        """
        # Information gain selects features of the rows. `_columns` has all names, in column order.
        # Before the first row there are no components, and `columns_` cannot be read.
        learner = self.learner
        if n_components and isinstance(learner, InformationGain) and learner.feature_map is None:
            names = list(self._columns)
            return [names[j] for j in learner.columns_]

        prefix = self.prefix
        if prefix is None:
            prefix = type(learner).__name__.lower()
        return [f"{prefix}{i}" for i in range(n_components)]

    def _learn(self, rows: Rows, targets: list[RowTarget] | None = None) -> None:
        """Learn rows with their targets, and set the learner's column names."""
        # targets: target of each row. None for an unsupervised estimator.
        # `merge` compares these names with the names of another learner. `_columns` only grows, so
        # the number of names tells if a name is new.
        self.learner.partial_fit(rows, targets)
        fitted = self.learner.fitted_
        if not self._takes_dicts and len(fitted.names or ()) != len(self._columns):
            fitted.names = tuple(map(str, self._columns))

    def _project_rows(self, rows: Rows) -> np.ndarray:
        """Return the projected rows (rows, components).

        If nothing has been learned yet, there are no components.
        """
        # Rows are a list of dicts if the estimator identifies columns by name, and CSR otherwise.
        if self._takes_dicts:
            empty = np.empty((len(rows), 0))
        else:
            empty = np.empty((rows.shape[0], 0))
            # CSR rows have a column for each name learned so far. There may be none.
            if rows.shape[1] == 0:
                return empty
        # The width of the rows is open, because the projection may not have the newest columns yet.
        try:
            projection = self.learner.projection()
            return np.asarray(self.learner.project(projection, self._with_open_width(rows)))
        except NotFitted:
            return empty

    def _with_open_width(self, rows: Rows) -> Rows | Block:
        """Return rows as a Block that lets later rows have more columns.

        Rows that are dicts have no columns, and are returned unchanged.
        """
        if self._takes_dicts:
            return rows
        return Block(rows, width_stated=False)

    def _dict_to_row(self, features: Mapping[Hashable, Any], add_new_names: bool) -> Rows:
        """Return one row as CSR (1, columns so far).

        For an estimator that identifies columns by name, return a list with the dict.

        add_new_names: if true, new names get columns.
        """
        if self._takes_dicts:
            return [features]
        try:
            values = np.fromiter(features.values(), dtype=np.float64, count=len(features))
        except (TypeError, ValueError) as e:
            raise InvalidRows(f"a feature's value is not a number ({e}); encode it before this step.") from e
        return self._layout_of_names(tuple(features), add_new_names).rows(values)

    def _data_frame_to_rows(self, data_frame: Any, add_new_names: bool) -> Rows:
        """Return a data frame as CSR (rows, columns so far).

        For an estimator that identifies columns by name, return a list of dicts.

        add_new_names: if true, new names get columns. If false, their values are left out.
        """
        if self._takes_dicts:
            if is_pandas(data_frame):
                return data_frame.to_dict("records")
            return data_frame.to_dicts()
        try:
            values = np.asarray(data_frame.to_numpy(), dtype=np.float64)
        except (TypeError, ValueError) as e:
            raise InvalidRows(f"a column is not numeric ({e}); encode it before this step.") from e
        return self._layout_of_names(tuple(data_frame.columns), add_new_names).rows(values)

    def _layout_of_names(self, names: tuple[Hashable, ...], add_new_names: bool) -> RowLayout:
        """Return the layout of rows with these names.

        The layout (RowLayout) has the column of each name.

        names: names of the row's features.
        add_new_names: if true, each new name gets a column. If false, new names have no column.
        """
        # Most rows have the same names as the row before, so the last layout is reused. It is not
        # reused if a name got a column since, or if a name without a column needs one now. The
        # attribute `columns` has the columns of those names that have one.
        last = self._last_layout
        is_current = last.names == names and last.width == len(self._columns)
        needs_columns = add_new_names and len(last.columns) < len(names)
        if is_current and not needs_columns:
            return last

        # Sort new names, because random feature maps depend on the order of columns.
        # The order of names in the dict then has no effect on the result.
        if add_new_names:
            for name in sorted(names, key=str):
                self._columns.setdefault(name, len(self._columns))
        self._last_layout = RowLayout(names, self._columns)
        return self._last_layout

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Estimator]]:
        """Yield constructor parameters for river's estimator checks."""
        from stream_dr.estimators import ESTIMATORS

        key = "lda" if cls.supervised else "ccipca"
        yield {"estimator": ESTIMATORS[key]()}


class RiverSupervisedTransformer(base.SupervisedTransformer, RiverTransformer, base.MiniBatchSupervisedTransformer):  # type: ignore[misc]
    """River transformer of a supervised estimator.

    It learns by `learn_one(x, y)` and `learn_many(X, y)`. The target y of a row is a label or a
    number. If a row has several targets, y is a dict as in river, {label: bool} or
    {name of the target: number}.
    """

    supervised = True

    def learn_one(self, x: Mapping[Hashable, Any], y: RiverTarget) -> None:  # type: ignore[override]
        """Learn one row with its target.

        The row is a dict of numbers by feature name.
        """
        self._learn(self._dict_to_row(x, add_new_names=True), [parse_river_target(y)])

    def learn_many(self, X: Any, y: Iterable[RiverTarget]) -> None:  # type: ignore[override]
        """Learn a data frame's rows with their targets, in order.

        The targets are (rows,).
        """
        targets = list(map(parse_river_target, y))
        self._learn(self._data_frame_to_rows(X, add_new_names=True), targets)


class RiverClassifier(RiverSupervisedTransformer, base.MiniBatchClassifier):
    """River transformer that is also a classifier.

    Before a row is learned, there is no label to predict. `predict_one` then returns None, and
    `predict_proba_one` returns {}.
    """

    learner: LinearClassifier  # type: ignore[assignment]

    @property
    def _multiclass(self) -> bool:
        return True

    def predict_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> Label | None:  # type: ignore[override]
        """Return the most probable label of a row.

        The row is a dict of numbers by feature name. Names that were never learned are ignored.
        """
        labels = self._labels(self._dict_to_row(x, add_new_names=False))
        if labels:
            return labels[0]
        return None

    def predict_proba_one(self, x: Mapping[Hashable, Any], **kwargs: Any) -> dict[Label, float]:  # type: ignore[override]
        """Return the posterior probability of each label for a row."""
        probabilities = self._probabilities(self._dict_to_row(x, add_new_names=False))
        return {label: float(column[0]) for label, column in probabilities.items()}

    def predict_many(self, X: Any) -> Any:
        """Return the most probable labels of a data frame's rows.

        The result is a series of the data frame's library. Until the model has learned a row, all
        labels are None.
        """
        labels = self._labels(self._data_frame_to_rows(X, add_new_names=False))
        return _frame_like(X, {"label": labels or [None] * len(X)})["label"]

    def predict_proba_many(self, X: Any) -> Any:
        """Return the posterior probabilities of a data frame's rows.

        The result is a data frame of the same library, with one column for each label. In a polars
        data frame, the column's name is the label as a string. Before a row is learned, there are
        no columns.
        """
        return _frame_like(X, self._probabilities(self._data_frame_to_rows(X, add_new_names=False)))

    def _labels(self, rows: Rows) -> list[Label]:
        """Return the predicted labels (rows,), or [] before a row is learned."""
        try:
            return cast(list[Label], self.learner.predict(self._with_open_width(rows)).tolist())
        except NotFitted:
            return []

    def _probabilities(self, rows: Rows) -> dict[Label, np.ndarray]:
        """Return each label's probabilities (rows,), or {} before a row is learned."""
        try:
            probabilities = self.learner.predict_proba(self._with_open_width(rows))
        except NotFitted:
            return {}
        return dict(zip(self.learner.classes_.tolist(), probabilities.T, strict=True))


def to_river(estimator: Estimator, prefix: str | None = None) -> RiverTransformer:
    """Return a river transformer of an estimator.

    The transformer is a `base.SupervisedTransformer` if the estimator learns from targets. It is
    also a `base.Classifier` if the estimator has `predict_proba`, as LDA has. Raises
    InvalidParameter if the object is no estimator of stream_dr.

    Parameters
    ----------
    estimator : Estimator
        Estimator to adapt. A clone learns, so the estimator stays unchanged.
    prefix : str or None
        Start of the components' names. None takes the class name in lower case.

    Examples
    --------
    >>> from stream_dr import ClassMeans, to_river
    >>> transformer = to_river(ClassMeans())
    >>> for x, y in [({"a": 0.0, "b": 1.0}, "no"), ({"a": 4.0, "b": 1.0}, "yes")]:
    ...     transformer.learn_one(x, y)
    >>> list(transformer.transform_one({"a": 4.0, "b": 1.0}))
    ['classmeans0']
    """
    if not isinstance(estimator, Estimator):
        raise InvalidParameter(
            f"an object of type {type(estimator).__name__} was given; give an estimator of stream_dr with a "
            "transform, say stream_dr.LDA()."
        )
    if isinstance(estimator, LinearClassifier):
        return RiverClassifier(estimator, prefix)
    if estimator.target_kinds:
        return RiverSupervisedTransformer(estimator, prefix)
    return RiverTransformer(estimator, prefix)


def parse_river_target(river_target: RiverTarget) -> RowTarget:
    """Return river's target of a row in an estimator's form.

    A dict of bools becomes the list of labels that are True. A dict of numbers becomes a list of
    numbers. Any other target is returned unchanged.
    """
    if not isinstance(river_target, Mapping):
        return river_target
    if all(isinstance(v, bool | np.bool_) for v in river_target.values()):
        return [label for label, present in river_target.items() if present]
    return [float(v) for v in river_target.values()]


def _frame_like(data_frame: Any, columns: Mapping[Any, Any]) -> Any:
    """Return columns as a data frame of the same library as another frame.

    data_frame: the other frame.
    columns: values (rows,) of each column by name.
    """
    # A pandas frame gets the same index. polars requires that names of columns are strings.
    if is_pandas(data_frame):
        return type(data_frame)(columns, index=data_frame.index)
    return type(data_frame)({str(name): values for name, values in columns.items()})
