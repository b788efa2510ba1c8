"""The scikit-learn interface that all estimators share.

A subclass provides:

- its parameters, as fields of a dataclass,
- `accumulator(state)`, which returns an accumulator that is empty or continues from a State,
- `solve(state)`, a pure function that returns the Projection of a State,
- the class attributes `target_kinds` and `additive`.

The base class parses rows, targets and weights, caches the projection, and has the fitted
attributes and the methods `merge`, `unlearn` and `save`. A MappedMethod learns rows after an
optional feature map, without folds. The states of an AdditiveEstimator are sums over rows.
Estimators that are updated row by row (CCIPCA, IncrementalSKM) have another base class, and their
methods have no argument `sample_weight`.
"""

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Generic, Literal, NoReturn, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block
from stream_dr.batch.rows import TableStream, as_block, is_dask, open_rows, take_target_column
from stream_dr.batch.targets import Label, label_array, no_row_has_target
from stream_dr.errors import (
    CannotMerge,
    CannotRefine,
    CannotUnlearn,
    FewerComponents,
    InvalidParameter,
    StreamDRError,
    WidthMismatch,
)
from stream_dr.estimators.fitting.dask_collections import project_dask_collection
from stream_dr.estimators.fitting.inputs import GroupsLike, RefineSource, RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.mapping import (
    make_accumulator,
    map_reads_tables,
    max_bytes_with_map,
    max_bytes_within,
    merged_mapped_state,
    prepend_feature_map,
)
from stream_dr.estimators.fitting.parameters import docstring_with_inherited
from stream_dr.estimators.fitting.sklearn_bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from stream_dr.estimators.fitting.stream_learner import FittedState, NotFitted, StreamLearner
from stream_dr.feature_maps import feature_map, spec_of_map, spec_without_defaults, widths
from stream_dr.feature_maps.table import Table, TableState
from stream_dr.projection import Linear, Mapped, Projection
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.moments.folds import FoldedState
from stream_dr.statistics.protocol import Accumulator, State, register_nested_state
from stream_dr.statistics.row_hashes import group_hashes


class StateType:
    """Descriptor of an attribute whose value is the class of the estimator's state.

    The class depends on the parameters. It is MappedState if the estimator has a feature map.
    Otherwise it is FoldedState if the estimator divides its rows into folds for cross-validation.
    Otherwise it is `unmapped_type`, the argument of the descriptor.
    """

    def __init__(self, unmapped_type: type) -> None:
        self.plain = register_nested_state(unmapped_type)

    def __get__(self, instance: "Estimator | None", owner: type) -> type:
        if instance is None:
            return self.plain
        if instance.feature_map is not None:
            return MappedState
        if instance.fold_count:
            return FoldedState
        return self.plain


class Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, StreamLearner, ABC):
    """Base class of all estimators.

    If a method raises an error, the estimator is unchanged. When more rows are learned, the
    components get the signs and order of the last projection that was read. After `clone` or
    `fit`, signs and order are chosen again. So two estimators with equal states may have
    components of different sign, if their projections were read at different times.

    Attributes
    ----------
    components_ : ndarray (components, features), float64
        Directions, one a row. `transform` is (X − mean_) · components_ᵀ.
    eigenvalues_ : ndarray (components,), float64
        One value for each component. The class's Notes say what it means.
    mean_ : ndarray (features,), float64
        Point that rows are centred on. Zeros if the method does not centre.
    rank_ : int
        Number of components.
    solution_ : str
        Kind of solution. "exact" is the method's exact solution. "diagonal" is an approximation
        from the diagonal of the rows' scatter. "refined" is the result of `refine`. "recurrence"
        is a solution that is updated row by row.
    n_samples_seen_ : int
        Number of rows learned.
    n_features_in_ : int
        Number of features of the rows learned so far.
    target_column_ : str or None
        Name of the column of X with the targets, which `transform` and others leave out. None if
        the targets were no column of X.
    feature_names_in_ : ndarray (features,), object
        Names of the features, if the first rows were a table of named columns.
    classes_ : ndarray (classes,)
        Labels learned so far, sorted. Empty if there are none.
    mapped_names_ : ndarray (mapped features,), object
        Names of the columns that the feature map `table` returns, such as `age`, `age missing` or
        `sex=female`.
    state_ : State
        Everything that was learned from the rows, immutable.
    fitted_ : FittedState
        Accumulator and last projection. Internal; use `state_`.
    """

    state_type: ClassVar[StateType]
    """Class of the estimator's State."""
    additive: ClassVar[bool] = False
    """True if the state is a sum over rows.

    If true, states can be merged, rows can be unlearned and rows can have weights.
    """
    is_linear: ClassVar[bool] = True
    """True if the projection is a linear map of the rows, or of mapped rows."""
    eigenvalue_growth: ClassVar[int] = 0
    """Exponent g, if eigenvalues grow as N^g with the summed weight N of the rows.

    The eigenvalues are multiplied by 2^g if every row is learned twice and the ridge `gamma` is
    doubled. The ridge must be doubled, because it is added to a sum over rows.
    """
    refines: ClassVar[bool] = False
    """True if `refine` makes an approximate projection exact."""
    limit: ClassVar[str] = "there are no more directions of positive eigenvalue"
    """Text for a warning, which says why there are fewer components than n_components."""

    # Defaults for estimators that do not have these parameters.
    n_components: int | float | None = None
    radius: float | None = None
    random_state: int | None = None
    decay: float = 1.0

    @property
    def fold_count(self) -> int:
        """Number of cross-validation folds, or 0 without folds."""
        return 0

    def __init_subclass__(cls, **options: Any) -> None:
        """Add inherited parameters and attributes to the subclass's docstring."""
        super().__init_subclass__(**options)
        cls.__doc__ = docstring_with_inherited(cls)

    @abstractmethod
    def solve(self, state: State) -> Projection:
        """Return the projection computed from `state`, without changing anything."""

    @abstractmethod
    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the size in bytes of a state.

        n_features: number of features.
        n_targets: number of labels, or of columns of numbers as targets.
        """

    def stored_scatter(self) -> Literal["exact", "diagonal", "auto", ""]:
        """Return how the state stores the rows' scatter, a matrix (features, features).

        "exact" stores the whole matrix, and "diagonal" only its diagonal. "" stores neither. "auto"
        is "exact" or "diagonal", as the first batch decides. It becomes "exact" if there are at
        most 4,096 features, except for sparse rows of undeclared width.
        """
        return ""

    def max_width(self, sparse: bool, declared_width: int) -> int | None:
        """Return the largest number of features allowed in a batch, or None.

        None means no limit. A batch of more features raises an error.

        sparse: True if the rows are sparse.
        declared_width: number of features that sparse rows declare, or 0 if they declare none.
        """
        return None

    def scatter_product(self, state: State, columns: np.ndarray) -> np.ndarray:
        """Return the product of the rows' scatter and given columns.

        The product has the shape of `columns`, and may have a constant factor. The product is used
        to compare components with the components of the previous projection. The default
        implementation returns `columns`, as if the scatter were the identity. If there is
        a feature map, the scatter of the mapped rows is used.

        columns: (features, m), m columns.
        """
        return columns

    def block_to_learn(self, block: Block) -> Block:
        """Return a block of rows, without targets that are not needed.

        The targets are removed if the estimator is unsupervised, or if no row has a target. If the
        estimator assigns rows to cross-validation folds by id, the returned block also has the
        hashes of the rows' ids, from which the folds follow.
        """
        y = block.y if self.target_kinds else None
        if y is not None and no_row_has_target(y):
            y = None
        hashes = self.unit_hashes(block, block.rows)
        if y is block.y and hashes is None:
            return block
        return block._replace(y=y, hashes=hashes)

    def max_state_bytes(
        self, n_features: int, n_targets: int, known_columns: dict[str, str] | TableState | None
    ) -> int:
        """Return the largest size in bytes of a state of these columns.

        known_columns: columns of a table, or None if the rows are no table. The columns are given
            in one of two forms. The first is a dict from column name to kind of column ("" if it
            is not known). The second is the statistics that the feature map has learned of the
            columns.
        """
        mapping = feature_map(self.feature_map)
        if known_columns is None or not isinstance(mapping, Table):
            return self.state_bytes(n_features, n_targets)
        if isinstance(known_columns, TableState):
            width = widths.max_table_width(mapping, known_columns.columns)
        else:
            width = widths.max_width_of_kinds(mapping, known_columns)
        # `width` is the largest number of columns that the map may make of these columns.
        # `without_map` has the same parameters but no feature map, so it learns mapped rows.
        # Add 64 bytes for each mapped column, because the map stores statistics of the columns.
        without_map = type(self)(**(self.get_params() | {"feature_map": None}))
        return max_bytes_within(without_map.state_bytes, width, n_targets) + 64 * width

    def _merge_equal(self, other: "Estimator") -> Self:
        """Add the rows of an estimator of the same class and parameters, or raise CannotMerge."""
        if type(other) is not type(self) or _comparable_parameters(other) != _comparable_parameters(self):
            raise CannotMerge(
                f"{other!r} cannot be merged into {self!r}: merge states of one estimator and parameters."
            )
        return self.merge_state(other)

    def solve_bytes(self) -> int:
        """Return the largest memory that solving takes, in bytes.

        The result is 0 if solving takes about as much memory as the state.
        """
        return 0

    def add_fold_uncertainty(self, projection: Projection, state: State) -> Projection:
        """Return the projection with the uncertainty of its components.

        The uncertainty is computed if rows are in folds. The default implementation returns the
        projection unchanged.

        state: state from which the projection was solved.
        """
        return projection

    def classes_waiting(self, state_or_accumulator: State | Accumulator) -> tuple[Label, ...]:
        """Return labels with too few rows to be classes, sorted.

        The default implementation returns no labels.

        state_or_accumulator: a state or an accumulator.
        """
        return ()

    def fit(self, X: RowsLike, y: TargetsLike = None) -> Self:
        """Forget learned rows, then learn rows X with targets y.

        Issues the warning FewerComponents if the rows cannot have n_components components.

        Parameters
        ----------
        X : rows (rows, features)
            Arrays, sparse matrices, tables, streams of tables or Dask collections.
        y : array (rows,), str or None
            Targets, for a supervised method. For a table or a stream of tables, y may be the name
            of the column with the targets. Rows to transform or predict may have this column or
            not. For a Dask collection, y may be a Dask collection, too.
        """
        return self._fit(X, y, None)

    def partial_fit(self, X: RowsLike, y: TargetsLike = None) -> Self:
        """Learn more rows X (rows, features) with targets y.

        A batch without rows is allowed. If an error is raised, the state is unchanged.
        """
        return self._partial_fit(X, y, None)

    def transform(self, X: RowsLike) -> np.ndarray:
        """Project rows X (rows, features) to components (rows, components).

        The result is float32 for float32 rows, and otherwise float64. If there are fewer
        components than n_components, the warning FewerComponents is issued once after each fit.

        Raises
        ------
        NotFitted
            If no row was learned yet.
        SchemaMismatch
            If X has other named columns than the learned rows.
        WidthMismatch
            If X has another number of features than the learned rows. No error is raised for
            `Block(X, width_stated=False)` and for a feature map that identifies columns by name.
            Additional features are then ignored.
        NotFinite
            If X has NaN or an infinity.
        """
        projection = self.projection()
        self._warn_fewer_components(projection.n_components)
        X = open_rows(X)
        if is_dask(X):
            names = list(self.get_feature_names_out())
            return project_dask_collection(X, self.transform, names)  # type: ignore[no-any-return]
        if isinstance(X, TableStream):
            return np.concatenate([self.project(projection, part, keep_float32=True) for part in X])
        return self.project(projection, X, keep_float32=True)

    def merge(self, other: "Estimator") -> Self:
        """Raise CannotMerge, because this estimator is updated row by row."""
        raise CannotMerge(
            f"{type(self).__name__} is a sequential recurrence: two of its states cannot be merged into that of one "
            "stream. Use an additive estimator: PCA or SKM."
        )

    def unlearn(self, X: RowsLike, y: TargetsLike = None) -> Self:
        """Raise CannotUnlearn, because this estimator is updated row by row."""
        raise CannotUnlearn(
            f"{type(self).__name__} is a sequential recurrence: rows cannot be taken out again. "
            "Use an additive estimator (PCA or SKM), or rebuild from the log without those rows."
        )

    def refine(self, source: RefineSource, tol: float = 1e-6, max_passes: int = 20, resume: Any = None) -> Self:
        """Raise CannotRefine, because this estimator cannot be refined.

        Other estimators replace an approximate projection by the exact projection.
        """
        raise self.cannot_refine_error()

    def cannot_refine_error(self) -> CannotRefine:
        """Return the error for an estimator that cannot be refined."""
        return CannotRefine(
            f"{type(self).__name__} has no out-of-core solution. LDA, OPLS, CCA, HSL, PCA, PLSDA, SKM, MMC and WMV have."
        )

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the constructor call, without parameters at their defaults.

        The spec of a feature map is shown without entries that have their default value.
        """
        shown: Any = copy(self)
        if self.feature_map is not None:
            shown.feature_map = spec_without_defaults(shown.feature_map)
        return super(Estimator, shown).__repr__(N_CHAR_MAX)

    @property
    def learn_one(self) -> NoReturn:
        """Attribute that raises AttributeError, because this is no River model.

        River's models learn one row with a method of this name. The error names `partial_fit` and
        `to_river`, which makes a River model.
        """
        raise AttributeError(
            f"{type(self).__name__} has no learn_one: learn batches with partial_fit, or make a river model with "
            "stream_dr.to_river(estimator)."
        )

    @property
    def components_(self) -> np.ndarray:
        """Directions that rows are projected on, float64 (components, features)."""
        return self._linear_projection_array("components")

    @property
    def eigenvalues_(self) -> NDArray[np.float64]:
        """Eigenvalue of each component, float64 (components,).

        They are in the order of `components_`. The Notes of the estimator's class say of which
        matrix they are the eigenvalues.
        """
        return self._linear_projection_array("eigenvalues")

    @property
    def mean_(self) -> np.ndarray:
        """Point (features,) float64 that rows are centred on.

        Zeros if the method does not centre.
        """
        return self._linear_projection_array("mean")

    @property
    def rank_(self) -> int:
        """Number of components."""
        return self.projection().n_components

    @property
    def solution_(self) -> str:
        """How the components were computed, as a name.

        - "exact": the method's equations were solved exactly.
        - "diagonal": only the diagonal of the scatter matrix was used.
        - "refined": an approximate solution was improved by further passes over the rows.
        - "recurrence": the components are updated after each row.
        """
        return self.projection().solution

    @property
    def classes_(self) -> np.ndarray:
        """Labels learned so far, sorted.

        Labels with too few rows to be classes are not included. Labels whose rows were all
        unlearned are not included, either.
        """
        accumulator = self.fitted().accumulator
        labels = set(accumulator.remaining_labels)
        return label_array(sorted(labels - set(self.classes_waiting(accumulator))))

    @property
    def state_(self) -> State:
        """Everything learned from the rows, as an immutable State."""
        with self.lock:
            return self.fitted().accumulator.freeze()

    @property
    def mapped_names_(self) -> np.ndarray:
        """Names (mapped features,) of the columns of `components_`.

        The feature map `table` returns columns with these names. Raises AttributeError if the
        estimator does not have this feature map.
        """
        names = getattr(self.projection(), "feature_names", None)
        if names is None:
            raise AttributeError(f"{type(self).__name__} has no map that gives its columns names.")
        return np.asarray(names, dtype=object)

    @property
    def _n_features_out(self) -> int:
        return self.rank_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = bool(self.target_kinds) and self.unlabelled == "skip"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        if map_reads_tables(self.feature_map):
            tags.input_tags.sparse = False
            tags.input_tags.allow_nan = True
            tags.input_tags.categorical = True
            tags.input_tags.string = True
        return tags

    def _fit(self, X: RowsLike, y: TargetsLike, weights: WeightsLike) -> Self:
        super()._fit(X, y, weights)
        # To save time, solve only if there are too few rows, features or labels for n_components.
        learned = self.fitted_.accumulator
        enough = min(learned.rows, learned.n_features)
        if self.target_kinds:
            enough = min(enough, len(learned.labels))
        if self._asks_for_more_than(enough - 1):
            # Solve by reading `rank_`. If this raises an error, no warning is needed.
            with suppress(StreamDRError):
                self._warn_fewer_components(self.rank_)
        return self

    def _warn_fewer_components(self, n_available: int) -> None:
        """Issue the warning FewerComponents if there are too few components.

        The warning is issued if the projection has fewer components than the caller has set as the
        parameter n_components. It is not repeated until the parameter changes.

        n_available: number of components of the projection.
        """
        fitted = self.fitted()
        if not self._asks_for_more_than(n_available) or fitted.last_warned_n_components == self.n_components:
            return

        # Store the parameter, so that the next call issues no second warning.
        fitted.last_warned_n_components = self.n_components
        # In the message, `limit` says in words how many components the method can have.
        learned = fitted.accumulator
        labels = ""
        if learned.labels:
            labels = f" and {len(learned.labels)} labels"
        # Level 4 is the line that calls `fit` or `transform`. Levels 2 and 3 are `_fit` and `fit`,
        # or `transform` and the function in which scikit-learn wraps it.
        warnings.warn(
            f"{type(self).__name__} has {n_available} components, not the n_components={self.n_components} asked "
            f"for: {self.limit} (so far {learned.rows} rows of {learned.n_features} features{labels}). transform answers "
            f"with {n_available}.",
            FewerComponents,
            stacklevel=4,
        )

    def _asks_for_more_than(self, n_available: int) -> bool:
        """True if the caller, not a default, set n_components above `n_available`."""
        asked = self.n_components
        if not isinstance(asked, Integral) or asked <= n_available:
            return False
        return bool(asked != inspect.signature(type(self)).parameters["n_components"].default)

    def project(self, projection: Any, X: RowsLike, keep_float32: bool = False) -> np.ndarray:
        """Return the projected rows (rows, components) float64.

        If columns have names, they are first put into the order of the learned rows.

        projection: projection to apply.
        X: rows (rows, features), or a Block of rows.
        keep_float32: if true, the result is float32 for float32 rows.
        """
        # This puts the columns in the order of the learned rows.
        block = self._rows_to_project(X)
        # A feature map that knows its columns by name may get others, and needs their names.
        if self.identifies_columns_by_name():
            z = np.asarray(projection.apply(block.X, block.names))
        else:
            z = np.asarray(projection.apply(block.X))
        # The columns of a table are not of one float type, so its result stays float64.
        if keep_float32 and not block.table:
            return z.astype(block.X.dtype, copy=False)
        return z

    def fitted(self) -> FittedState:
        """Return the FittedState, with the accumulator and the cached projection.

        Raises NotFitted before `fit` or `partial_fit`.
        """
        if "fitted_" not in vars(self):
            raise NotFitted(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' or 'partial_fit' with rows first."
            )
        return self.fitted_

    def projection(self) -> Projection:
        """Return the projection of the rows learned.

        The projection is cached until more rows are learned. Raises NotFitted before any row is
        learned.
        """
        cached = self.fitted().projection
        if cached is not None:
            return cached

        with self.lock:
            fitted = self.fitted()
            if fitted.accumulator.rows == 0:
                raise NotFitted(f"This {type(self).__name__} instance is not fitted yet: it has learned no row so far.")
            self.check_parameters()
            fitted.check_learning_parameters_unchanged(self)
            state = fitted.accumulator.freeze()
            # `refined` is the projection that `refine` computed, or None. It needs no solution.
            refined = fitted.refined
            version = fitted.version

        # Solve without the lock, so that other threads can learn rows meanwhile.
        projection = refined or self.solve(state)
        # `cache_projection` gives components the signs and order of those returned before. To match
        # them, it correlates rows projected on both, for which it multiplies by the rows' scatter.
        multiply = partial(self.scatter_product, state)
        # If rows were learned meanwhile, the version differs. The projection is then not cached.
        with self.lock:
            return fitted.cache_projection(projection, multiply, version)

    def linear_projection(self) -> Linear | Mapped:
        """Return the projection of the rows learned, declared as linear.

        The method `projection` returns the same object, declared as any projection.
        """
        return cast(Linear | Mapped, self.projection())

    def _checked_components(self, Z: ArrayLike) -> np.ndarray:
        """Return components Z (rows, components) as float64, for `inverse_transform`.

        Raises InvalidParameter if there is a feature map, because a map cannot be inverted. Raises
        WidthMismatch if Z has another number of columns than the estimator has components.
        """
        if self.feature_map is not None:
            raise InvalidParameter(
                "rows went through a feature map, which cannot be turned back; leave feature_map out."
            )
        Z = np.asarray(Z, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != self.rank_:
            raise WidthMismatch(
                f"Z has the shape {Z.shape}; {type(self).__name__} has {self.rank_} components. Pass a column each."
            )
        return Z

    def _linear_projection_array(self, name: str) -> np.ndarray:
        array: np.ndarray | None = getattr(self.projection(), name, None)
        if array is None:
            raise AttributeError(
                f"{type(self).__name__} has no {name}_: its map is not linear, and rows are placed by the sampled rows "
                "nearest to them. Read eigenvalues_, and project with transform."
            )
        return array


class AdditiveEstimator(Estimator):
    """Base class of estimators whose states are sums over rows.

    Rows may have weights, states can be merged and rows can be unlearned.
    """

    additive: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    # A splitter of a cross-validation asks for `groups`, too. It alone gets them, unless the
    # caller calls `set_fit_request(groups=True)`.
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": False}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"groups": False}

    def fit(
        self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None, *, groups: GroupsLike = None
    ) -> Self:
        """Forget all learned rows, then learn rows X (rows, features).

        y: targets (rows,).
        sample_weight: weights (rows,).
        groups: group (rows,) of each row, if the estimator has the parameter `folds`. Rows of one
            group are in the same fold.
        """
        if groups is not None:
            X = self.block_with_group_hashes(X, groups)
        return self._fit(X, y, sample_weight)

    def partial_fit(
        self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None, *, groups: GroupsLike = None
    ) -> Self:
        """Learn more rows X (rows, features).

        If an error is raised, the state is unchanged.

        y: targets (rows,).
        sample_weight: weights (rows,).
        groups: group (rows,) of each row, if the estimator has the parameter `folds`. Rows of one
            group are in the same fold.
        """
        if groups is not None:
            X = self.block_with_group_hashes(X, groups)
        return self._partial_fit(X, y, sample_weight)

    def block_with_group_hashes(self, X: RowsLike, groups: Iterable[object]) -> Block:
        """Return rows as a Block with hashes of their groups.

        X: rows (rows, features).
        groups: group (rows,) of each row.

        Raises InvalidParameter if the estimator does not store rows in cross-validation folds, or
        if X is read batch by batch, as streams of tables and Dask collections are.
        """
        if not self.fold_count:
            raise InvalidParameter(
                f"groups were given, but {type(self).__name__} does not store rows in folds. Set folds=5, if it has this "
                "parameter."
            )
        group_array = np.asarray(groups)
        if group_array.ndim != 1:
            raise InvalidParameter(f"groups={groups!r}; it must be a list or array of one group a row.")
        # The groups cannot be assigned to batches whose numbers of rows are not known yet.
        block = as_block(X)
        if isinstance(block.X, TableStream) or is_dask(block.X):
            raise InvalidParameter(
                "groups were given with rows that are read batch by batch: pass one batch a call, or Blocks with ids to an "
                "estimator of folds_by='id'."
            )
        return block._replace(hashes=group_hashes(group_array.tolist()))

    def merge(self, other: Estimator) -> Self:
        """Add another estimator's learned rows to this estimator.

        `other` is unchanged. After the merge, components have the signs that this estimator's
        components had before. Columns are matched by position. Either both estimators have
        column names or neither has. The shorter list of names must be the beginning of the longer
        list.

        Raises CannotMerge if the estimators differ in class, parameters or column names.
        """
        return self._merge_equal(other)

    def unlearn(
        self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None, *, groups: GroupsLike = None
    ) -> Self:
        """Remove rows X (rows, features) that were learned before.

        The targets and weights must be those with which the rows were learned. Raises
        CannotUnlearn if decay < 1, or if the rows cannot be removed.

        y: targets (rows,).
        sample_weight: weights (rows,).
        groups: group (rows,) of each row, with which the rows were learned.
        """
        with self.lock:
            fitted = self.fitted()
            fitted.check_learning_parameters_unchanged(self)

            if groups is not None:
                X = self.block_with_group_hashes(X, groups)
            # If y is the name of a column of X, this column becomes the targets.
            rows = as_block(X, y, sample_weight)
            block = self.parse(fitted, take_target_column(rows))
            fitted.accumulator.remove(block)

            # Projections of the rows before the removal are no longer valid.
            fitted.forget_projection()
            fitted.refined = None
        return self


def _comparable_parameters(estimator: Estimator) -> JsonDict:
    """Return the parameters by name, with a feature map's defaults filled in."""
    # The spec of the feature map has all its parameters here, also those that the user left out.
    parameters = estimator.get_params()
    if estimator.feature_map is not None:
        parameters["feature_map"] = spec_of_map(feature_map(estimator.feature_map))
    return parameters


InnerState = TypeVar("InnerState", bound=State)
"""State of the mapped rows, or of the rows themselves if there is no feature map."""


class MappedMethod(Estimator, Generic[InnerState]):
    """Base class that adds the feature map to an estimator.

    A subclass learns and projects mapped rows only. Without a feature map, these are the rows
    themselves.
    """

    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return an accumulator that maps rows, then learns them.

        The feature map maps the rows. Without a feature map, the rows are learned as they are.

        state: state from which the accumulator continues. None means an empty accumulator.
        """
        return make_accumulator(self.feature_map, self.inner_accumulator, state)

    def solve(self, state: State) -> Projection:
        """Return the projection computed from `state`, without changing anything."""
        inner = cast(InnerState, merged_mapped_state(state))
        return prepend_feature_map(state, self.solve_inner(inner))

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the largest size of a state in bytes, including its feature map."""
        return max_bytes_with_map(self.feature_map, self.inner_bytes, n_features, n_targets)

    @abstractmethod
    def inner_accumulator(self, state: InnerState | None) -> Accumulator:
        """Return an accumulator that learns rows which the feature map has mapped.

        state: state from which the accumulator continues. None means an empty accumulator.
        """

    @abstractmethod
    def solve_inner(self, state: InnerState) -> Projection:
        """Return the projection that is applied to mapped rows.

        state: state that has learned the mapped rows, from which the projection is computed.
        """

    @abstractmethod
    def inner_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the number of bytes of a state that learns mapped rows.

        n_features: number of columns of the mapped rows.
        """
