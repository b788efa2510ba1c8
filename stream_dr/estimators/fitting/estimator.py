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
from collections.abc import Iterable, Sized
from contextlib import suppress
from copy import copy
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Generic, Literal, NoReturn, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import Tags

from stream_dr.aliases import JsonDict
from stream_dr.errors import (
    CannotMerge,
    CannotRefine,
    CannotUnlearn,
    EmptyInput,
    FewerComponents,
    InvalidParameter,
    InvalidWeights,
    StreamDRError,
    TargetsRequired,
    WidthMismatch,
    nothing_to_fit_error,
)
from stream_dr.estimators.fitting import named_columns
from stream_dr.estimators.fitting.dask_collections import learn_blocks, project_dask_collection, split_into_blocks
from stream_dr.estimators.fitting.inputs import GroupsLike, RefineSource, RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.mapping import (
    feature_map_or_none,
    make_accumulator,
    map_reads_tables,
    mapped_state_of_all_folds,
    max_bytes_up_to_width,
    max_bytes_with_map,
    prepend_feature_map,
    warn_if_columns_differ,
)
from stream_dr.estimators.fitting.parameters import docstring_with_inherited
from stream_dr.estimators.fitting.sklearn_bases import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from stream_dr.estimators.fitting.stream_learner import FittedState, NotFitted, StreamLearner, new_fitted_state
from stream_dr.feature_maps import feature_map, spec_of_map, spec_without_defaults, widths
from stream_dr.feature_maps.nystroem import Nystroem
from stream_dr.feature_maps.table import Table, TableState
from stream_dr.projection import Linear, Mapped, Projection, check_n_features
from stream_dr.rows.batches import as_block, batches, move_named_column_to_targets
from stream_dr.rows.block import Block, as_weights
from stream_dr.rows.frames import iterate_arrow_tables
from stream_dr.rows.kinds import DASK, Kind, rows_kind
from stream_dr.rows.raw_rows import default_column_names
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.moments.folds import FoldedState
from stream_dr.statistics.protocol import Accumulator, State, register_nested_state
from stream_dr.statistics.row_hashes import group_hashes
from stream_dr.targets.label_codes import Label, label_array
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import Targets, check_label_type


class StateType:
    """Descriptor that returns the class of an estimator's state.

    The class is MappedState if the estimator has a feature map. Otherwise it is FoldedState if the
    estimator stores rows in folds, and `plain` if not.
    """

    def __init__(self, unmapped_type: type) -> None:
        self.plain = register_nested_state(unmapped_type)

    def __get__(self, instance: "Estimator | None", owner: type) -> type:
        if instance is None:
            return self.plain
        if instance.feature_map is not None:
            return MappedState
        return FoldedState if instance.fold_count else self.plain


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
    target_kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of targets that the estimator learns from. Empty for methods that ignore y."""
    additive: ClassVar[bool] = False
    """True if the state is a sum over rows.

    If true, states can be merged, rows can be unlearned and rows can have weights.
    """
    merges: ClassVar[bool] = False
    """True if the states of two streams can be merged."""
    merges_as: ClassVar[str] = ""
    """Name of a similar estimator whose states can be merged, or "".

    Set only if states of this class cannot be merged.
    """
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
    feature_map: JsonDict | None = None
    n_components: int | float | None = None
    radius: float | None = None
    unlabelled: Literal["skip", "use"] = "skip"
    random_state: int | None = None
    target: str = ""
    decay: float = 1.0
    folds_by: Literal["row", "id"] = "row"

    @property
    def fold_count(self) -> int:
        """Number of cross-validation folds, or 0 without folds."""
        return 0

    def group_or_id_hashes(self, block: Block, n_rows: int) -> np.ndarray | None:
        """Return the hashes (rows,) of rows' groups or ids.

        The hash decides a row's cross-validation fold. The result is None if groups or ids are not
        used. The row's values then decide.

        block: rows, with their groups or ids.
        n_rows: number of rows.
        """
        return None

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
        """Return the part of the rows' scatter that is stored.

        The result is "exact", "diagonal" or "auto", or "" if the method stores no scatter matrix.
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

    def max_state_bytes(
        self, n_features: int, n_targets: int, known_columns: dict[str, str] | TableState | None
    ) -> int:
        """Return the largest size in bytes of a state of these columns.

        known_columns: columns of a table, or None if the rows are no table. The columns are given
            in one of two forms. The first is a dict from column name to kind of column ("" if it
            is not known). The second is the statistics that the feature map has learned of the
            columns.
        """
        mapping = feature_map_or_none(self.feature_map)
        if known_columns is None or not isinstance(mapping, Table):
            return self.state_bytes(n_features, n_targets)
        if isinstance(known_columns, TableState):
            width = widths.max_mapped_columns_of_table(mapping.encoding(), known_columns.columns)
        else:
            width = widths.max_mapped_columns_of_kinds(mapping.encoding(), mapping.column_overrides(), known_columns)
        plain = type(self)(**(self.get_params() | {"feature_map": None}))
        return max_bytes_up_to_width(plain.state_bytes, width, n_targets) + 64 * width

    def _merge_equal(self, other: "Estimator") -> Self:
        """Add the rows of an estimator of the same class and parameters, or raise CannotMerge."""
        if type(other) is not type(self) or _comparable_parameters(other) != _comparable_parameters(self):
            raise CannotMerge(
                f"{other!r} cannot be merged into {self!r}: merge states of one estimator and parameters."
            )
        return self.merge_state(other)

    def can_merge_parts(self) -> bool:
        """Return True if states of a stream's parts can be merged.

        The states cannot be merged if the feature map chooses something from the rows of each
        part. Examples are landmarks (sampled rows with which other rows are compared) and the
        width of a kernel.
        """
        mapping = feature_map_or_none(self.feature_map)
        if mapping is None or not self.merges:
            return self.merges
        draws = isinstance(mapping, Nystroem) and mapping.draws_landmarks
        return mapping.has_final_parameters and not draws

    def solve_bytes(self) -> int:
        """Return the largest memory that solving takes, in bytes.

        The result is 0 if solving takes about as much memory as the state.
        """
        return 0

    def with_uncertainty_if_in_folds(self, projection: Projection, state: State) -> Projection:
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
        WidthMismatch
            If X has another number of features than the learned rows. No error is raised for
            `Block(X, width_stated=False)` and for a feature map that identifies columns by name.
            Additional features are then ignored.
        NotFinite
            If X has NaN or an infinity.
        """
        projection = self.projection()
        self._warn_if_fewer_components(projection.n_components)
        if (kind := rows_kind(X)) in DASK:
            names = list(self.get_feature_names_out())
            return project_dask_collection(X, self.transform, names)  # type: ignore[no-any-return]
        if kind is Kind.STREAM:
            parts = [self.project(projection, part, keep_float32=True) for part in iterate_arrow_tables(X)]
            return np.concatenate(parts)
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
        """River's method, which is missing here.

        Reading it raises AttributeError. The message names `to_river`.
        """
        raise AttributeError(
            f"{type(self).__name__} has no learn_one: learn batches with partial_fit, or make a river model with "
            "stream_dr.to_river(estimator)."
        )

    @property
    def components_(self) -> np.ndarray:
        """Directions (components, features) float64."""
        return self._linear_projection_array("components")

    @property
    def eigenvalues_(self) -> NDArray[np.float64]:
        """Eigenvalues (components,) float64."""
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
        with self.lock:
            self.check_parameters()
            rows = as_block(X, y, weights)
            kind = rows_kind(rows.X)

            # Learn in a new state, so that the estimator is unchanged if an error is raised.
            if kind in DASK:
                fitted = self._learn_collections(move_named_column_to_targets(rows, kind))
            else:
                fitted = new_fitted_state(self)
                for block in batches(rows, kind):
                    self._parse_and_learn(fitted, block, kind if block.X is rows.X else None, raise_if_empty=True)
            self.fitted_ = fitted
            self.target_column_ = rows.y if isinstance(rows.y, str) else None

        # To save time, solve only if there are too few rows, features or labels for n_components.
        learned = fitted.accumulator
        enough = min(learned.rows, learned.n_features, len(learned.labels) if self.target_kinds else learned.rows)
        if self._asks_for_more_than(enough - 1):
            # Solve by reading `rank_`. If this raises an error, no warning is needed.
            with suppress(StreamDRError):
                self._warn_if_fewer_components(self.rank_)
        return self

    def _warn_if_fewer_components(self, n_components: int) -> None:
        """Issue the warning FewerComponents if there are too few components.

        The warning is issued if there are fewer components than the caller has set as n_components.
        It is not repeated until n_components changes.

        n_components: number of components of the projection.
        """
        fitted = self.fitted()
        if not self._asks_for_more_than(n_components) or fitted.last_warned_n_components == self.n_components:
            return

        # Remember the value, so that the next call issues no second warning.
        fitted.last_warned_n_components = self.n_components
        learned = fitted.accumulator
        labels = f" and {len(learned.labels)} labels" if learned.labels else ""
        warnings.warn(
            f"{type(self).__name__} has {n_components} components, not the n_components={self.n_components} asked "
            f"for: {self.limit} (so far {learned.rows} rows of {learned.n_features} features{labels}). transform answers "
            f"with {n_components}.",
            FewerComponents,
            stacklevel=4,
        )

    def _asks_for_more_than(self, n_available: int) -> bool:
        """True if the caller set n_components above `n_available`.

        The default value of n_components does not count as set by the caller.
        """
        asked = self.n_components
        if not isinstance(asked, Integral) or asked <= n_available:
            return False
        return bool(asked != inspect.signature(type(self)).parameters["n_components"].default)

    def _partial_fit(self, X: RowsLike, y: TargetsLike, weights: WeightsLike) -> Self:
        with self.lock:
            try:
                fitted = self.fitted_
            except AttributeError:
                self.check_parameters()
                fitted = new_fitted_state(self)
            else:
                fitted.check_parameters(self)

            rows = as_block(X, y, weights)
            kind = rows_kind(rows.X)
            target_column = rows.y if isinstance(rows.y, str) else self.target_column_
            # Learn a Dask collection separately, and merge the two states.
            if kind in DASK:
                learned = self._learn_collections(move_named_column_to_targets(rows, kind))
                # Columns without names go by their position, as those of an array.
                learned.names = learned.names or fitted.names
                parts = copy(self)
                parts.fitted_ = learned
                self.fitted_ = fitted
                self.merge(parts)
                self.target_column_ = target_column
                return self

            # Learn a stream in a copy, so that an error in a later batch leaves the state unchanged.
            fitted = fitted.copy(self) if kind is Kind.STREAM else fitted
            for block in batches(rows, kind):
                self._parse_and_learn(fitted, block, kind if block.X is rows.X else None)
            self.fitted_ = fitted
            self.target_column_ = target_column
        return self

    def _learn_collections(self, rows: Block) -> FittedState:
        """Return the fitted state that has learned Dask collections.

        The estimator is unchanged. Raises CannotMerge if states of the estimator cannot be merged,
        because the blocks of a collection are learned separately.
        """
        if not self.can_merge_parts():
            if self.merges:
                raise CannotMerge(
                    "every block would draw landmarks of its own; give them: nystroem(landmarks=rows), or call partial_fit "
                    "with one block after the other."
                )
            raise CannotMerge(
                f"{type(self).__name__} learns one row after the other; blocks of a Dask collection are learned side by "
                f"side. Use {self.merges_as or 'one'}, whose states merge, or call partial_fit with one block after the "
                "other."
            )
        blocks = split_into_blocks(rows)

        # Learn all blocks with the kind of targets of the first block.
        learner: Estimator = clone(self)
        first_targets = blocks[0][1]
        if first_targets is not None and self.target == "auto" and self.target_kinds:
            y = first_targets.compute()
            learner.set_params(target=parse_targets(y, len(y), self.target_kinds, "auto", None).kind)

        merged = learn_blocks(blocks, partial(_fit_clone_on_block, learner), _merge_into_copy)
        return new_fitted_state(self, merged.state_, merged.fitted_.names)

    def _parse_and_learn(
        self, fitted: FittedState, rows: Block, rows_kind_if_known: Kind | None, raise_if_empty: bool = False
    ) -> None:
        block, names = self.parse(fitted, rows, rows_kind_if_known, raise_if_empty)
        if raise_if_empty and block.weights is not None and not block.weights.any():
            raise InvalidWeights("every weight is zero, so there is nothing to fit; pass a weight > 0 for some row.")
        fitted.accumulator.add(block)
        if raise_if_empty and fitted.accumulator.rows == 0:
            raise nothing_to_fit_error(type(self).__name__)
        fitted.names = names
        fitted.forget_projection()

    def parse(
        self,
        fitted: FittedState,
        rows: Block,
        rows_kind_if_known: Kind | None = None,
        raise_if_empty: bool = False,
        raise_if_no_targets: bool = True,
    ) -> tuple[Block, tuple[str, ...] | None]:
        """Check rows, targets and weights, and return a Block.

        The names of the features are returned, too, or None. The block's columns are in the order
        of the first learned rows.

        fitted: fitted state of the estimator, with the names of its features.
        rows: rows, targets and weights as the caller has passed them.
        rows_kind_if_known: type of the rows (array, table, dicts and so on), or None if it is not
            known.
        raise_if_empty: if true, raise EmptyInput if there are no rows or no features.
        raise_if_no_targets: if true, raise TargetsRequired if the method is supervised and the
            rows have no targets.
        """
        accumulator = fitted.accumulator
        block = self._read_rows(fitted, rows, rows_kind_if_known)
        n_rows, n_features = block.X.shape
        if raise_if_empty:
            named_columns.raise_if_no_rows_or_features(block.X)
        if 0 < accumulator.n_features != n_features and not block.sparse and not self._may_have_new_columns(block):
            check_n_features(n_features, accumulator.n_features, type(self).__name__)
        if n_rows and not n_features and not (block.sparse and self._may_lack_columns()):
            raise EmptyInput("batch has 0 features; dense rows and mapped rows need at least one.")
        if accumulator.table_names:
            warn_if_columns_differ(accumulator, block)

        weights = None
        if rows.weights is not None:
            weights = as_weights(rows.weights, n_rows)
        reads_targets = raise_if_no_targets or rows.y is not None
        targets = self._parse_used_targets_or_raise(accumulator, rows.y, n_rows) if reads_targets else None
        # Call `group_or_id_hashes` only if it returns hashes, to save a call when single rows come.
        hashes = self.group_or_id_hashes(rows, n_rows) if rows.hashes is not None or self.folds_by == "id" else None
        block = block._replace(y=targets, weights=weights, hashes=hashes)
        if self.feature_map is not None and self.identifies_columns_by_name():
            return block, None
        return block, block.names

    def _read_rows(self, fitted: FittedState, rows: Block, rows_kind_if_known: Kind | None = None) -> Block:
        """Return rows with their columns in the order of the learned rows.

        Columns that the feature map identifies by name keep their order.
        """
        by_name = reads_tables = False
        if self.feature_map is not None:
            by_name = self.identifies_columns_by_name()
            reads_tables = map_reads_tables(self.feature_map)
        X, names = named_columns.read_rows_and_names(rows, by_name, reads_tables, rows_kind_if_known, fitted.names)
        if not by_name and names != fitted.names and fitted.accumulator.n_features > 0:
            X, names = named_columns.reorder_columns_by_name(fitted.names, names, X, type(self).__name__)
        return Block(X, names=names, width_stated=rows.width_stated)

    def _may_lack_columns(self) -> bool:
        """True if sparse rows without any column can be learned."""
        return self.feature_map is None or self.identifies_columns_by_name()

    def _may_have_new_columns(self, block: Block) -> bool:
        """True if a block's columns may differ from learned columns.

        A block may have other columns if it has column names and the feature map identifies
        columns by name.
        """
        return self.identifies_columns_by_name() and bool(block.names) and block.names != default_column_names(block.X)

    def _parse_used_targets_or_raise(self, accumulator: Accumulator, y: TargetsLike, n_rows: int) -> Targets | None:
        if not self.target_kinds:
            return None
        if y is None and self.unlabelled == "use":
            return None

        if y is None:
            raise TargetsRequired(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it learns from "
                f"{' or '.join(self.target_kinds)} targets. Pass one target a row."
            )
        if n_rows == 0 and isinstance(y, Sized) and not isinstance(y, Targets) and len(y) == 0:
            # A batch without rows does not decide the kind of targets (class, numbers and so on).
            return None

        targets = parse_targets(y, n_rows, self.target_kinds, self.target or "auto", accumulator.target_kind)
        check_label_type(accumulator.labels, targets.labels)
        return targets

    def project(self, projection: Any, X: RowsLike, keep_float32: bool = False) -> np.ndarray:
        """Return the projected rows (rows, components) float64.

        If columns have names, they are first put into the order of the learned rows.

        projection: projection to apply.
        X: rows (rows, features), or a Block of rows.
        keep_float32: if true, the result is float32 for float32 rows.
        """
        fitted = self.fitted()
        block = self._read_rows(fitted, self.without_target_column(as_block(X)))
        by_name = self.identifies_columns_by_name()

        # Check the number of features, which may differ if rows are sparse or columns have names.
        grows = block.sparse and (by_name or not block.width_stated)
        if not grows and not self._may_have_new_columns(block):
            check_n_features(block.features, fitted.accumulator.n_features, type(self).__name__)
        warn_if_columns_differ(fitted.accumulator, block)

        z = np.asarray(projection.apply(block.X, block.names) if by_name else projection.apply(block.X))
        return z.astype(block.X.dtype, copy=False) if keep_float32 and not block.table else z

    def identifies_columns_by_name(self) -> bool:
        """True if a feature map identifies columns by name.

        Later batches may then have new columns.
        """
        return self.feature_map is not None and feature_map(self.feature_map).by_name

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
            refined = fitted.refined
            version = fitted.version

        # Solve without the lock, so that other threads can learn rows meanwhile.
        projection = refined or self.solve(state)
        with self.lock:
            return fitted.orient_and_cache_projection(projection, partial(self.scatter_product, state), version)

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


def _fit_clone_on_block(estimator: Estimator, X: RowsLike, y: TargetsLike, weights: WeightsLike) -> Estimator:
    options = {} if weights is None else {"sample_weight": weights}
    learner: Estimator = clone(estimator)
    return learner.partial_fit(X, y, **options)


def _merge_into_copy(older: Estimator, newer: Estimator) -> Estimator:
    return copy(older).merge(newer)


class AdditiveEstimator(Estimator):
    """Base class of estimators whose states are sums over rows.

    Rows may have weights, states can be merged and rows can be unlearned.
    """

    additive: ClassVar[bool] = True
    merges: ClassVar[bool] = True

    # A splitter of a cross-validation asks for `groups`, too. It alone gets them, unless the caller
    # calls `set_fit_request(groups=True)`.
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
        return self._fit(X if groups is None else self.block_with_group_hashes(X, groups), y, sample_weight)

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
        return self._partial_fit(X if groups is None else self.block_with_group_hashes(X, groups), y, sample_weight)

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
        names = np.asarray(groups)
        if names.ndim != 1:
            raise InvalidParameter(f"groups={groups!r}; it must be a list or array of one group a row.")
        block = as_block(X)
        if (kind := rows_kind(block.X)) is Kind.STREAM or kind in DASK:
            raise InvalidParameter(
                "groups were given with rows that are read batch by batch: pass one batch a call, or Blocks with ids to an "
                "estimator of folds_by='id'."
            )
        return block._replace(hashes=group_hashes(names.tolist()))

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

            rows = as_block(X if groups is None else self.block_with_group_hashes(X, groups), y, sample_weight)
            block, _ = self.parse(fitted, move_named_column_to_targets(rows))
            fitted.accumulator.remove(block)

            # Projections of the rows before the removal are no longer valid.
            fitted.forget_projection()
            fitted.refined = None
        return self


def _comparable_parameters(estimator: Estimator) -> JsonDict:
    """Return an estimator's parameters, with all entries of its feature map."""
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
        """Return an accumulator of rows before the feature map.

        state: state from which the accumulator continues. None means an empty accumulator.
        """
        return make_accumulator(self.feature_map, self.inner_accumulator, state)

    def solve(self, state: State) -> Projection:
        """Return the projection computed from `state`, without changing anything."""
        inner = cast(InnerState, mapped_state_of_all_folds(state))
        return prepend_feature_map(state, self.solve_inner(inner))

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the largest size of a state in bytes, including its feature map."""
        return max_bytes_with_map(self.feature_map, self.inner_bytes, n_features, n_targets)

    @abstractmethod
    def inner_accumulator(self, state: InnerState | None) -> Accumulator:
        """Return an accumulator of mapped rows."""

    @abstractmethod
    def solve_inner(self, state: InnerState) -> Projection:
        """Return the projection of mapped rows."""

    @abstractmethod
    def inner_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the size of a state of mapped rows in bytes."""
