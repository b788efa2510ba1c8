"""Projection: the immutable result of solving a State, applied to rows.

- `Linear` subtracts a mean and multiplies by loadings.
- `Columns` selects features.
- `Mapped` runs a feature map first.
- Projections of reservoir methods are in `stream_dr/solve`, with their solvers.

Each projection has `kind`, `solution`, `n_features`, `n_components` and `apply(X)`, which returns
(rows, components). In sparse rows, columns that the projection has not learned are ignored. Dense
rows with another number of columns than `n_features` raise an error.

Why this way: a projection never changes. Publishing replaces a model's projection by another
object. So a thread that reads a projection needs no lock.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from stream_dr import checks
from stream_dr.batch.block import Rows
from stream_dr.batch.table import drop_unused_texts, refuse_table, table_from_array
from stream_dr.errors import WidthMismatch
from stream_dr.feature_maps import FeatureMap, feature_map
from stream_dr.feature_maps.nystroem import Landmarks, Nystroem
from stream_dr.feature_maps.table import (
    Table,
    TableState,
    Text,
    map_table_rows,
    mapped_column_names,
    slices_within_memory_limit,
)
from stream_dr.readout import Readout
from stream_dr.uncertainty import ComponentSpread, CrossValidation

ProjectionKind = Literal["linear", "columns", "mapped", "landmarks"]
"""Form of a projection.

- "linear": subtract a mean and multiply by loadings.
- "columns": select features.
- "mapped": run a feature map first.
- "landmarks": compare rows with sampled rows.
"""


@runtime_checkable
class Projection(Protocol):
    """Interface of every projection."""

    @property
    def kind(self) -> ProjectionKind:
        """Name of the form: "linear", "columns", "mapped" or "landmarks"."""
        ...

    @property
    def solution(self) -> str:
        """How the projection was computed, as a name.

        - "exact": the method's equations were solved exactly.
        - "diagonal": only the diagonal of the scatter matrix was used.
        - "refined": an approximate solution was improved by further passes over the rows.
        - "recurrence": the projection is updated after each row.
        """
        ...

    @property
    def n_features(self) -> int:
        """Number of features of the rows learned."""
        ...

    @property
    def n_components(self) -> int:
        """Number of components that `apply` returns."""
        ...

    def apply(self, X: Rows) -> np.ndarray:
        """Project rows (rows, features) to (rows, components) float64."""
        ...

    def check(self) -> None:
        """Raise DamagedFile unless the projection's arrays fit each other.

        Arrays that are read from a file may not fit (see checks.py).
        """
        ...


class Orientable(Projection, Protocol):
    """Projection whose components can be reordered and multiplied by −1."""

    @property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues (components,) of the problem that the estimator solved."""
        ...

    def orient_components(self, order: np.ndarray, signs: np.ndarray) -> Projection:
        """Return the projection with components reordered and signs changed.

        order: (components,) indices of the components.
        signs: (components,) of ±1.
        """
        ...


SOLUTIONS = ("exact", "diagonal", "refined", "recurrence")
"""Ways in which a projection was computed.

- "exact": the method's equations were solved exactly.
- "diagonal": only the diagonal of the scatter matrix was used.
- "refined": an approximate solution was improved by further passes over the rows.
- "recurrence": the projection is updated after each row.
"""


class Linear(NamedTuple):
    """Linear projection z = (x − mean) · loadings.

    x is a row and z the projected row.

    Attributes
    ----------
    mean : (features,) float64
        Zeros if the method does not centre.
    loadings : (features, components) float64, C-ordered
        Its transpose is `components_`.
    eigenvalues : (components,) float64
        Eigenvalues of the problem that the estimator solved.
    solution : str
        "exact", "diagonal", "refined" or "recurrence", see SOLUTIONS.
    offset : (components,) float64 or None
        mean · loadings. If None, `apply` computes it each time.
    readout : Readout or None
        Function that predicts targets from z. None if the method predicts nothing.
    choice : CrossValidation or None
        Cross-validated errors, if the value of a parameter was chosen by them.
    spread : ComponentSpread or None
        Uncertainty of the components. None if it was not computed.
    turn : (p, components) float64 or None
        R, if `loadings` is W R for a solution W (features, p). `eigenvalues` (p,) and `spread` are
        those of W. None if `loadings` is W.
    """

    mean: np.ndarray
    loadings: np.ndarray
    eigenvalues: np.ndarray
    solution: str
    offset: np.ndarray | None = None
    readout: Readout | None = None
    choice: CrossValidation | None = None
    spread: ComponentSpread | None = None
    turn: np.ndarray | None = None

    def check(self) -> None:
        """Raise DamagedFile unless the arrays' shapes fit each other."""
        checks.check_one_of(self, "solution", SOLUTIONS)
        d, p = checks.shape_of_checked_matrix(self, "loadings")
        n_eigenvalues = p
        if self.turn is not None:
            n_eigenvalues = checks.shape_of_checked_matrix(self, "turn")[0]
            checks.check_dtype_and_shapes(self, np.float64, turn=(n_eigenvalues, p))
        checks.check_dtype_and_shapes(self, np.float64, mean=(d,), eigenvalues=(n_eigenvalues,))
        if self.offset is not None:
            checks.check_dtype_and_shapes(self, np.float64, offset=(p,))
        checks.check_finite_arrays(self, "mean", "loadings", "eigenvalues", "offset", "turn")
        if self.readout is not None:
            self.readout.check(d, p)
        for nested in (self.choice, self.spread):
            if nested is not None:
                nested.check()

    @property
    def kind(self) -> ProjectionKind:
        """Name of the form, "linear"."""
        return "linear"

    @property
    def n_features(self) -> int:
        """Number of features of the rows learned."""
        return int(self.loadings.shape[0])

    @property
    def n_components(self) -> int:
        """Number of components that `apply` returns."""
        return int(self.loadings.shape[1])

    @property
    def components(self) -> np.ndarray:
        """Directions (components, features), a view of the loadings."""
        return self.loadings.T

    def orient_components(self, order: np.ndarray, signs: np.ndarray) -> "Linear":
        """Return the projection with components reordered and signs changed.

        order: (components,) indices of the components.
        signs: (components,) of ±1.
        """
        is_unchanged = np.array_equal(order, np.arange(self.n_components)) and bool((signs > 0).all())
        if is_unchanged and self.loadings.flags.c_contiguous:
            return self._replace(offset=None)

        loadings = np.ascontiguousarray(self.loadings[:, order] * signs)
        readout = None if self.readout is None else self.readout.orient_components(order, signs)
        eigenvalues = self.eigenvalues[order]
        # The spread belongs to the components in their earlier order.
        return self._replace(loadings=loadings, eigenvalues=eigenvalues, offset=None, readout=readout, spread=None)

    def turned(self, turn: np.ndarray) -> "Linear":
        """Return the projection with its components turned.

        turn: R (components, new components), with orthonormal rows, or rows and columns. Columns of
            zeros give components that are 0.
        """
        loadings = np.ascontiguousarray(self.loadings @ turn)
        readout = None if self.readout is None else self.readout.turned(turn)
        return self._replace(loadings=loadings, offset=None, readout=readout, turn=turn)

    @property
    def canonical(self) -> "Linear":
        """The projection before `turned`, with a component for each eigenvalue."""
        return self if self.turn is None else self.turned(self.turn.T)._replace(turn=None)

    def with_offset(self) -> "Linear":
        """Return the projection with mean · loadings in `offset`.

        Projecting a sparse row then costs O(entries · components). Without the offset, the cost
        grows with the number of features.
        """
        return self._replace(offset=self.mean @ self.loadings)

    def apply(self, X: Rows) -> np.ndarray:
        """Project rows (rows, features), dense or CSR.

        Returns (rows, components). Costs O(entries · components). Raises WidthMismatch.
        """
        if sp.issparse(X):
            X = _drop_extra_columns(X, self.n_features)
            offset = self.mean @ self.loadings if self.offset is None else self.offset
            return np.asarray(X @ self.loadings[: X.shape[1]] - offset)
        check_n_features(X.shape[1], self.n_features)
        return np.asarray((X.astype(np.float64, copy=False) - self.mean) @ self.loadings)

    def target_score_projection(self) -> "ScoreProjection":
        """Return the projection of rows to scores that predict targets."""
        return ScoreProjection(self)


class ScoreProjection(NamedTuple):
    """Projection of rows to scores, from which targets are predicted.

    The scores are linear in a row. There is one score for each label or target column.

    linear: a projection with a readout (the function that predicts targets from components).
    """

    linear: Linear

    @property
    def n_components(self) -> int:
        """Number of scores of a row, one for each label or target column."""
        return len(self.linear.readout.offset) if self.linear.readout else 0

    def apply(self, X: Rows) -> np.ndarray:
        """Return the scores (rows, k) of rows (rows, features), dense or CSR.

        k: number of scores of a row (`n_components`). 0 if the projection has no readout.

        Costs O(entries · components). Raises WidthMismatch.
        """
        linear = self.linear
        readout = linear.readout
        if readout is None:
            return np.zeros((X.shape[0], 0))

        # The readout may also use components that the projection does not return (`rest`).
        z = linear.apply(X)
        if readout.rest is not None:
            z = np.hstack([z, linear._replace(loadings=readout.rest, offset=None).apply(X)])
        return np.asarray(z @ readout.weights + readout.offset)


class Columns(NamedTuple):
    """Projection that selects features.

    Attributes
    ----------
    columns : (components,) int64
        Indices of the selected features, best first.
    scores : (components,) float64
        Score of each selected feature.
    width : int
        Number of features of the rows learned.
    solution : str
        Way in which the features were selected, one of SOLUTIONS.
    """

    columns: np.ndarray
    scores: np.ndarray
    width: int
    solution: str = "exact"

    def check(self) -> None:
        """Raise DamagedFile unless all selected features are below `width`."""
        checks.check_one_of(self, "solution", SOLUTIONS)
        checks.check_within(self, 0, checks.FEATURE_COUNT_LIMIT, "width")
        checks.check_dtype_and_shapes(self, np.int64, columns=(self.columns.size,))
        checks.check_dtype_and_shapes(self, np.float64, scores=(len(self.columns),))
        checks.check_within(self, 0, self.width, "columns")
        checks.check_finite_arrays(self, "scores")

    @property
    def kind(self) -> ProjectionKind:
        """Name of the form, "columns"."""
        return "columns"

    @property
    def n_features(self) -> int:
        """Number of features of the rows learned."""
        return self.width

    @property
    def n_components(self) -> int:
        """Number of components that `apply` returns."""
        return len(self.columns)

    def apply(self, X: Rows) -> np.ndarray:
        """Return the selected columns of dense or CSR rows X (rows, features).

        The result is dense, (rows, components). Raises WidthMismatch.
        """
        if sp.issparse(X):
            X = _drop_extra_columns(X, self.width)
            out = np.zeros((X.shape[0], self.n_components))
            # Rows may have fewer columns than the projection. Missing columns are zeros.
            present = self.columns < X.shape[1]
            out[:, present] = X[:, self.columns[present]].toarray()
            return out
        check_n_features(X.shape[1], self.width)
        return np.asarray(X[:, self.columns], dtype=np.float64)


class Mapped(NamedTuple):
    """Feature map, followed by a projection learned from mapped rows.

    Attributes
    ----------
    feature_map : str
        Spec of the map as JSON.
    names : tuple of str or None
        Names of the columns. None if the map uses no names, or if batches had different names.
    width : int
        Number of features of the rows learned, before the map.
    inner : Projection
        Projection of mapped rows. Attributes such as `loadings` and `mean` are read from this
        projection.
    table : TableState or None
        Statistics of a table's columns when the projection was solved, if the map uses them.
    landmarks : Landmarks or None
        Landmarks (rows that others are compared with) when the projection was solved, if the map
        uses landmarks.
    """

    feature_map: str
    names: tuple[str, ...] | None
    width: int
    inner: Any
    table: TableState | None = None
    landmarks: Landmarks | None = None

    def check(self) -> None:
        """Raise DamagedFile unless the feature map and `inner` are complete.

        The map must have the statistics of columns that it needs. `inner` must be a projection of
        mapped rows, and must be valid itself.
        """
        checks.check_within(self, 0, checks.FEATURE_COUNT_LIMIT, "width")
        mapping = checked_feature_map(self, self.width)
        if isinstance(self.inner, Mapped) or not isinstance(self.inner, Projection):
            raise checks.field_error(self, "inner", type(self.inner).__name__, "a projection of mapped rows")
        if mapping.learns and self.table is None:
            raise checks.field_error(self, "table", "None", "there, rows having been learned")
        self.inner.check()

    @property
    def kind(self) -> ProjectionKind:
        """Name of the form, "mapped"."""
        return "mapped"

    @property
    def solution(self) -> str:
        """Kind of solution of the mapped rows' projection, from SOLUTIONS."""
        return str(self.inner.solution)

    @property
    def n_features(self) -> int:
        """Number of features of the rows learned, before mapping."""
        return self.width

    @property
    def n_components(self) -> int:
        """Number of components that `apply` returns."""
        return int(self.inner.n_components)

    def __getattr__(self, name: str) -> np.ndarray:
        """Return an array of the mapped rows' projection, by name."""
        if name not in ("loadings", "components", "eigenvalues", "mean", "columns", "scores"):
            raise AttributeError(f"a mapped projection has no {name!r}")
        return np.asarray(getattr(self.inner, name))

    @property
    def readout(self) -> Readout | None:
        """Function that predicts targets from the components, or None."""
        return self.inner.readout if isinstance(self.inner, Linear) else None

    def target_score_projection(self) -> "Mapped":
        """Return the projection of rows to scores that predict targets."""
        return self._replace(inner=self.inner.target_score_projection())

    def orient_components(self, order: np.ndarray, signs: np.ndarray) -> "Mapped":
        """Return the projection with components reordered and signs changed.

        order: (components,) indices of the components.
        signs: (components,) of ±1.
        """
        return self._replace(inner=self.inner.orient_components(order, signs))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the map's output columns. None without names.

        The names belong to the rows of `loadings`. A column of a table may have had values only in
        rows without a target, which are not learned. Its mapped columns come last, and their names
        are dropped.
        """
        if self.table is None:
            return None
        return mapped_column_names(feature_map(self.feature_map), self.table)[: self.inner.n_features]

    def apply(self, X: Rows, names: tuple[str, ...] | None = None) -> np.ndarray:
        """Map rows (rows, features), dense or CSR, and project them.

        A few thousand rows are mapped at a time. Raises WidthMismatch.

        X: rows. X may be the rows of a table if the feature map is `table` or `text`.
        names: names of X's columns, for the map `table`. Unknown names are allowed.
        """
        out = np.empty((X.shape[0], self.n_components))
        for part, rows in self.map_in_slices(X, names):
            out[part] = self.inner.apply(rows)
        return out

    def map_in_slices(self, X: Rows, names: tuple[str, ...] | None = None) -> Iterator[tuple[slice, Rows]]:
        """Yield mapped rows, a few thousand rows at a time.

        Each item is a pair (slice of the rows, mapped rows). The mapped rows are an array (rows,
        mapped features).

        X: rows. For a map with statistics, X may be the rows of a table.
        names: names of X's columns, for a map that uses names. None takes the learned names.
        """
        mapping = feature_map(self.feature_map)
        names = names or self.names

        # A map with statistics encodes the columns of a table.
        if self.table is not None:
            if isinstance(X, np.ndarray) and X.shape[1] != len(names or ()):
                check_n_features(X.shape[1], self.width)
            raw = table_from_array(X, names)
            parts = slices_within_memory_limit(mapping, self.table, raw)
            for part in parts:
                rows = raw if len(parts) == 1 else drop_unused_texts(raw[part])
                yield part, map_table_rows(mapping, self.table, rows)
            return

        # A map without the statistics of a table needs rows of numbers.
        refuse_table(X)
        if names is None or not mapping.by_name:
            if not sp.issparse(X):
                check_n_features(X.shape[1], self.width)
            X = _drop_extra_columns(X, self.width)
        for part in row_slices_to_map(X.shape[0], mapping, PROJECTING_SLICE_VALUES):
            if self.landmarks is None:
                yield part, mapping.apply(X[part], self.width, names)
            else:
                yield part, mapping.coordinates(self.landmarks, X[part])


def replace_linear_part(projection: Projection, linear: "Linear") -> Projection:
    """Return a projection with another linear part (see `linear_part_or_none`)."""
    return projection._replace(inner=linear) if isinstance(projection, Mapped) else linear


def canonical_projection(projection: Projection) -> Projection:
    """Return a projection whose components are those of its eigenvalues, in their order."""
    linear = linear_part_or_none(projection)
    return projection if linear is None else replace_linear_part(projection, linear.canonical)


def linear_part_or_none(projection: Projection | None) -> Linear | None:
    """Return the linear part of a projection, or None.

    The linear part of a linear projection is the projection itself. The linear part of a mapped
    projection is its projection of mapped rows, if that projection is linear.
    """
    inner = projection.inner if isinstance(projection, Mapped) else projection
    return inner if isinstance(inner, Linear) else None


class _MapFields(Protocol):
    """Fields of a state or projection that describe its feature map, as in Mapped."""

    @property
    def feature_map(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...] | None: ...
    @property
    def table(self) -> TableState | None: ...
    @property
    def landmarks(self) -> Landmarks | None: ...


def checked_feature_map(state: _MapFields, n_features: int) -> FeatureMap:
    """Return a state's or projection's feature map, after checking it.

    state: the state or projection.
    n_features: number of features of the rows before the map. 0 if no row was learned.

    Raises DamagedFile if the map lacks a parameter, or if the names, statistics or landmarks do
    not fit the map.
    """
    mapping: FeatureMap = feature_map(state.feature_map)
    # The map of learned rows has all its parameters, and column names only if the map uses them.
    if n_features and not mapping.has_final_parameters:
        needed = "that of rows that were learned, with all its numbers"
        raise checks.field_error(state, "feature_map", state.feature_map, needed)
    if state.names is not None and (not mapping.by_name or len(state.names) != n_features):
        needed = f"{n_features} of a map that goes by name, or None"
        raise checks.field_error(state, "names", f"{len(state.names)} names", needed)

    # Only the maps Table and Text read tables, so only they have statistics of columns.
    if not isinstance(mapping, Table | Text):
        checks.check_field_equals(state, "table", None)
    elif state.table is not None:
        state.table.check(mapping)
        checks.check_field_equals(state, "names", state.table.names)

    # Only the map nystroem has landmarks.
    if isinstance(mapping, Nystroem) != (state.landmarks is not None):
        stored = "there" if state.landmarks else "None"
        raise checks.field_error(state, "landmarks", stored, "there where the map has some")
    if isinstance(mapping, Nystroem) and state.landmarks is not None:
        state.landmarks.check(n_features, mapping.max_landmarks)
    return mapping


def rows_for_loadings(projection: Projection, X: Rows) -> Iterator[Rows]:
    """Yield rows with one column for each row of the loadings.

    If the projection has a feature map, mapped rows are yielded, a few thousand at a time. If the
    projection has no feature map, all rows are yielded at once, without columns that it never saw.

    X: (rows, features).
    """
    if isinstance(projection, Mapped):
        for _, rows in projection.map_in_slices(X):
            yield _drop_extra_columns(rows, projection.inner.n_features)
    else:
        yield _drop_extra_columns(X, projection.n_features)


LEARNING_SLICE_VALUES = 1 << 22
"""Number of mapped values that are in memory at a time while learning (32 MB).

Mapped rows may be much wider than the rows before the map.
"""

PROJECTING_SLICE_VALUES = 1 << 20
"""Number of mapped values that are in memory at a time while projecting (8 MB).

The number is smaller than LEARNING_SLICE_VALUES, because several requests may project at one time.
"""


def row_slices_to_map(n_rows: int, mapping: FeatureMap, max_mapped_values: int = LEARNING_SLICE_VALUES) -> list[slice]:
    """Return slices of rows, each small enough to be mapped.

    n_rows: number of rows.
    max_mapped_values: maximum number of mapped values in a slice. If the map's result is sparse, a
        slice has 4,096 rows instead.
    """
    step = 4096 if mapping.sparse else max(1, max_mapped_values // mapping.max_mapped_columns(0))
    return [slice(start, start + step) for start in range(0, n_rows, step)]


def check_n_features(n_features: int, n_known_features: int, learner_name: str = "this projection") -> None:
    """Raise WidthMismatch unless rows have the known number of features.

    n_features: number of features of the rows.
    n_known_features: number of features of the learned rows.
    learner_name: name of the estimator or projection, for the message.
    """
    if n_features != n_known_features:
        raise WidthMismatch(
            f"X has {n_features} features, but {learner_name} is expecting {n_known_features} features as input. "
            "Send those columns or start a new model."
        )


def _drop_extra_columns(X: sp.csr_matrix, n_features: int) -> sp.csr_matrix:
    """Return CSR rows without the columns past n_features.

    The projection has no loadings for the removed columns.
    """
    return X if X.shape[1] <= n_features else X[:, :n_features]
