"""Estimator: the scikit-learn face shared by all; an estimator's own file says what it remembers and how it is solved.

A subclass gives its parameters (fields of a dataclass, stored as given: scikit-learn and type checkers read them off
`__init__`), `accumulator(state)` (a new accumulator, or one that goes on from a State), `solve(state)` (State → Projection,
pure) and the class attributes `target_kinds`, `additive`. Everything else is here: parsing of rows, targets and weights,
the kind of targets fixed by the first batch, fitted attributes, the cached projection, merge, unlearn, save.

The engine uses four things only: `check_parameters`, `accumulator`, `solve`, `state_bytes`; it never sees this face.

Signs and order: components are oriented like those shown before (solve/orientation.py), whatever is learned in between, for
their signs are arbitrary and what stands behind them rests on them. A first projection has its largest loadings positive.
`save` and pickle keep what was shown last, `merge`, `unlearn` and `refine` go on from self's; `clone` and `fit` start anew.
So two estimators with one state may differ in signs, where they were asked at different times.

Why this way: all checks are made before the accumulator is touched, the accumulator makes its own before its first write,
and `fit` swaps in a new holder only at its end; so after any error the estimator is what it was before.
"""

from abc import ABC, abstractmethod
from copy import copy
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from stream_dr.errors import CannotMerge, CannotUnlearn, InvalidWeights, TargetsRequired, unknown_parameter
from stream_dr.estimators.fitting.dask_collections import holder_of, projected
from stream_dr.estimators.fitting.documented import documented
from stream_dr.estimators.fitting.fewer_components import tell_fewer, tell_fewer_early
from stream_dr.estimators.fitting.holder import Holder, held
from stream_dr.estimators.fitting.mapping import takes_tables, tell_columns
from stream_dr.estimators.fitting.named_columns import in_order, parsed, refuse_empty_rows, refuse_width
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.estimators.fitting.parameter_checks import NamedParameters
from stream_dr.estimators.fitting.sklearn_bases import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from stream_dr.feature_maps import brief_spec, feature_map
from stream_dr.projection import Projection
from stream_dr.rows.batches import as_block, batches, split
from stream_dr.rows.block import Block, as_weights
from stream_dr.rows.frames import tables_of
from stream_dr.rows.kinds import DASK, Kind, kind_of
from stream_dr.rows.raw_rows import places
from stream_dr.targets.label_codes import Label, label_array
from stream_dr.targets.parsing import parse_targets
from stream_dr.targets.targets import Targets, check_label_type


class Estimator(NamedParameters, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of all estimators. See the module's text.

    Attributes
    ----------
    components_ : ndarray (components, features), float64
        Directions, one a row: `transform` is (X − mean_) · components_ᵀ.
    eigenvalues_ : ndarray (components,), float64
        One value per component; the text above says what it is.
    mean_ : ndarray (features,), float64
        What rows are centred on; zeros where the method does not centre.
    rank_ : int
        Number of components found.
    solution_ : str
        What the components were solved from: "exact", "diagonal", "refined" or "recurrence".
    n_samples_seen_ : int
        Rows learned.
    n_features_in_ : int
        Width of the rows learned so far.
    feature_names_in_ : ndarray (features,), object
        Names of the features, where the first rows were a table of named columns.
    classes_ : ndarray (classes,)
        Labels learned so far, sorted; empty where there are none.
    mapped_names_ : ndarray (mapped features,), object
        Names of the columns that a feature map of tables makes: `age`, `age missing`, `sex=female`.
    state_ : State
        All that is remembered, immutable: what snapshots hold and `merge` adds.
    holder_ : Holder
        The accumulator and the last solution from it. Internal; `state_` is the public one.
    """

    state_type: ClassVar[Any]
    """Class of its State."""
    target_kinds: ClassVar[tuple[str, ...]] = ()
    """Kinds of targets it learns from; empty for unsupervised ones, which ignore y."""
    additive: ClassVar[bool] = False
    """Whether its state is a sum: mergeable, unlearnable, weighted."""
    merges: ClassVar[bool] = False
    """Whether two of its states can be merged into that of one stream."""
    merges_as: ClassVar[str] = ""
    """Of one whose states do not merge: the estimator that answers the same question, and whose states do."""
    fixed: ClassVar[tuple[str, ...]] = ()
    """Parameters that the accumulator is made with, and that may not change once rows were learned."""
    limit: ClassVar[str] = "there are no more directions of positive eigenvalue"
    """Why there may be fewer components than asked for."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Let the class's docstring show what it inherits."""
        super().__init_subclass__(**options)
        cls.__doc__ = documented(cls)

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""

    @abstractmethod
    def accumulator(self, state: Any = None) -> Any:
        """A new accumulator, or one that goes on from `state`."""

    @abstractmethod
    def solve(self, state: Any) -> Projection:
        """The projection of `state`; pure."""

    @abstractmethod
    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Bytes its state takes at this width and number of labels or target columns."""

    def spread(self, state: Any, columns: np.ndarray) -> np.ndarray:
        """Cxx @ columns (features, m), up to a factor, of the rows learned (mapped, where there is a map) as far as it is
        known: components are compared by it when they are given signs and order. Here as if Cxx were I."""
        return columns

    def solve_bytes(self) -> int:
        """Bytes that solving takes at most, where that may be many times what the state takes; else 0."""
        return 0

    def classes_waiting(self, learned: Any) -> tuple[Label, ...]:
        """Labels of a state or an accumulator that have too few rows to count as classes yet, sorted; here none."""
        return ()

    def most_label_sets(self, n_features: int, sparse: bool) -> int | None:
        """Distinct label sets past which a batch of such a stream would be refused; None: no bound."""
        return None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Forget everything, then learn rows X (rows, features), with targets y where the method is supervised.

        X may be a stream of tables (kinds.py), of which y names the column of targets; so it may of any table. It may be a
        Dask array or dataframe, and y another (dask_collections.py). Warns FewerComponents where n_components is more than
        there can be."""
        return self._fit(X, y, None)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on learning: rows X (rows, features), targets y. An empty batch is legal. The state is unchanged on error."""
        return self._partial_fit(X, y, None)

    def transform(self, X: Any) -> np.ndarray:
        """Project rows X (rows, features) to (rows, components): float32 for float32 rows, otherwise float64.

        X of another width than learned is refused, dense or sparse. Features that grow by declaration are those of
        `Block(X, width_stated=False)` (sparse rows whose number of columns is only their largest index so far) and of a
        feature map that goes by name (hashing): there an index never learned contributes nothing. Raises NotFitted before
        any row, WidthMismatch, NotFinite. Warns FewerComponents, once a fit, where there are fewer than n_components.
        """
        projection = self.projection()
        tell_fewer(self, projection.n_components)
        if (kind := kind_of(X)) in DASK:
            return projected(self, X)  # type: ignore[no-any-return]  # lazily, as a collection
        if kind is Kind.STREAM:
            return np.concatenate([self.project(projection, part, keep_dtype=True) for part in tables_of(X)])
        return self.project(projection, X, keep_dtype=True)

    def merge(self, other: "Estimator") -> Self:
        """Add what `other` has learned to self; `other` is left alone. Raises CannotMerge."""
        raise CannotMerge(
            f"{type(self).__name__} is a sequential recurrence: two of its states cannot be merged into that of one "
            "stream. Use an additive estimator: PCA or SKM."
        )

    def unlearn(self, X: Any, y: Any = None) -> Self:
        """Take rows out again. Raises CannotUnlearn."""
        raise CannotUnlearn(
            f"{type(self).__name__} is a sequential recurrence: rows cannot be taken out again. "
            "Use an additive estimator (PCA or SKM), or rebuild from the log without those rows."
        )

    def refine(self, source: Any, tol: float = 1e-6, max_passes: int = 20) -> Self:
        """Replace the projection by the exact one through passes over `source`. Raises CannotRefine."""
        from stream_dr.estimators.fitting.refining import no_refine

        raise no_refine(self)

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those that only matter when solving (gamma, standardize …) count from the next projection on,
        those that rows were learned with (decay, feature_map …) from the next `fit` on: until then they are refused. Raises
        InvalidParameter."""
        if error := unknown_parameter(type(self).__name__, params, self.get_params()):
            raise error
        super().set_params(**params)
        if "holder_" in vars(self):
            self.holder_.projection = None
        return self

    def save(self, path: Any) -> None:
        """Write spec, state and the projection shown last, whose signs and order the next one keeps, to one file, from which
        `stream_dr.load` gives this estimator back, bit-equal."""
        import stream_dr

        stream_dr.save(self, path)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters that are not as by default, and of a feature map's spec what is not."""
        shown: Any = copy(self)
        if getattr(self, "feature_map", None) is not None:
            shown.feature_map = brief_spec(shown.feature_map)
        return super(Estimator, shown).__repr__(N_CHAR_MAX)

    @property
    def components_(self) -> np.ndarray:
        """(components, features) float64."""
        return self._linear("components")

    @property
    def eigenvalues_(self) -> np.ndarray:
        """(components,) float64."""
        return self._linear("eigenvalues")

    @property
    def mean_(self) -> np.ndarray:
        """(features,) float64; zeros where the method does not centre."""
        return self._linear("mean")

    @property
    def rank_(self) -> int:
        """Number of components there are."""
        return self.projection().n_components

    @property
    def solution_(self) -> str:
        """ "exact", "diagonal", "refined" or "recurrence"."""
        return self.projection().solution

    @property
    def n_samples_seen_(self) -> int:
        """Rows learned."""
        return int(self.holder().accumulator.rows)

    @property
    def n_features_in_(self) -> int:
        """Width of the rows learned so far."""
        return int(self.holder().accumulator.n_features)

    @property
    def feature_names_in_(self) -> np.ndarray:
        """Names of the features, where the first batch was a table of named columns."""
        names = getattr(self.holder().accumulator, "table_names", None) or self.holder().names
        if names is None:
            raise AttributeError(f"{type(self).__name__} was given rows without feature names.")
        return np.asarray(names, dtype=object)

    @property
    def classes_(self) -> np.ndarray:
        """Labels seen so far, sorted, without those that wait and those whose rows were all unlearned."""
        accumulator = self.holder().accumulator
        labels = set(getattr(accumulator, "labels_left", accumulator.labels))
        return label_array(sorted(labels - set(self.classes_waiting(accumulator))))

    @property
    def state_(self) -> Any:
        """The State: all that is remembered, immutable."""
        return self.holder().accumulator.freeze()

    @property
    def mapped_names_(self) -> np.ndarray:
        """Names (mapped features,) of the columns that a map of tables makes, which `components_` has as columns."""
        names = getattr(self.projection(), "feature_names", None)
        if names is None:
            raise AttributeError(f"{type(self).__name__} has no map that gives its columns names.")
        return np.asarray(names, dtype=object)

    @property
    def _n_features_out(self) -> int:
        return self.rank_

    def __sklearn_is_fitted__(self) -> bool:
        return "holder_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = bool(self.target_kinds)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _fit(self, X: Any, y: Any, weights: Any) -> Self:
        self.check_parameters()
        given = as_block(X, y, weights)
        if kind_of(given.X) in DASK:
            holder = holder_of(self, split(given))
        else:
            holder = held(self)
            for block in batches(given):
                self._learn(holder, block, refuse_empty=True)
        self.holder_ = holder
        tell_fewer_early(self)
        return self

    def _partial_fit(self, X: Any, y: Any, weights: Any) -> Self:
        self.check_parameters()
        holder = self.holder_ if "holder_" in vars(self) else held(self)
        holder.check(self)
        given = as_block(X, y, weights)
        if (kind := kind_of(given.X)) in DASK:
            parts = copy(self)
            self.holder_, parts.holder_ = holder, holder_of(self, split(given))
            return self.merge(parts)
        holder = holder.copy(self) if kind is Kind.STREAM else holder
        for block in batches(given):
            self._learn(holder, block)
        self.holder_ = holder
        return self

    def _learn(self, holder: Holder, given: Block, refuse_empty: bool = False) -> None:
        block, names = self.parse(holder, given, refuse_empty)
        if refuse_empty and block.weights is not None and not block.weights.any():
            raise InvalidWeights("every weight is zero, so there is nothing to fit; pass a weight > 0 for some row.")
        holder.accumulator.add(block)
        if refuse_empty and holder.accumulator.rows == 0:
            raise TargetsRequired(
                f"every row's target is absent; {type(self).__name__} has nothing to fit. Label some rows."
            )
        holder.names = names
        holder.projection = None

    def parse(
        self, holder: Holder, given: Block, refuse_empty: bool = False, need_targets: bool = True
    ) -> tuple[Block, tuple[str, ...] | None]:
        """A checked Block in the holder's column order, and the stream's feature names. need_targets: refuse rows of which
        none has a target, where the method learns from targets."""
        accumulator, by_name = holder.accumulator, self.goes_by_name()
        block = parsed(given, by_name, takes_tables(self))
        if refuse_empty:
            refuse_empty_rows(block.X)

        names = block.names
        if accumulator.n_features > 0 and not self._any_columns(block):
            if not by_name:
                rows, names = in_order(holder.names, names, block.X, type(self).__name__)
                block = block._replace(X=rows)
            if not block.sparse and block.features != accumulator.n_features:
                refuse_width(block.features, accumulator.n_features, type(self).__name__)
        tell_columns(accumulator, block)

        weights = as_weights(block.weights, block.rows)
        targets = self._parse_targets(accumulator, block.y, block.rows) if need_targets or block.y is not None else None
        return block._replace(y=targets, weights=weights, ids=None, names=names), None if by_name else names

    def _any_columns(self, block: Block) -> bool:
        """Whether the block's columns may be any, since each has a name that it goes by."""
        return self.goes_by_name() and bool(block.names) and block.names != places(block.X)

    def _parse_targets(self, accumulator: Any, y: Any, rows: int) -> Any:
        if not self.target_kinds:
            return None
        if y is None:
            raise TargetsRequired(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it learns from "
                f"{' or '.join(self.target_kinds)} targets. Pass one target a row."
            )
        if rows == 0 and not isinstance(y, Targets) and len(y) == 0:
            return None  # an empty batch decides no kind
        targets = parse_targets(
            y, rows, self.target_kinds, getattr(self, "target", "auto"), getattr(accumulator, "target_kind", None)
        )
        check_label_type(accumulator.labels, targets.labels)
        return targets

    def project(self, projection: Any, X: Any, keep_dtype: bool = False) -> np.ndarray:
        """X, rows or a Block of them, projected in float64; keep_dtype: float32 rows give float32. Named columns come in the
        stream's order or, with a map that goes by name, as they are."""
        by_name, learned = self.goes_by_name(), self.n_features_in_
        block = parsed(as_block(X), by_name, takes_tables(self))
        if not by_name:
            rows, _ = in_order(self.holder().names, block.names, block.X, type(self).__name__)
            block = block if rows is block.X else block._replace(X=rows)
        grows = block.sparse and (by_name or not block.width_stated)
        if not self._any_columns(block) and not grows and block.features != learned:
            refuse_width(block.features, learned, type(self).__name__)
        tell_columns(self.holder().accumulator, block)
        z = np.asarray(projection.apply(block.X, block.names) if by_name else projection.apply(block.X))
        return z.astype(block.X.dtype, copy=False) if keep_dtype else z

    def goes_by_name(self) -> bool:
        """Whether columns are told apart by name, by a feature map, so that any may come."""
        spec = getattr(self, "feature_map", None)
        return spec is not None and feature_map(spec).by_name

    def holder(self) -> Holder:
        """What fit made: the accumulator and what was solved of it. Raises NotFitted."""
        if "holder_" not in vars(self):
            raise NotFitted(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' or 'partial_fit' with rows first."
            )
        return self.holder_

    def projection(self) -> Projection:
        """The projection of what was learned, kept until more is. Raises NotFitted before any row."""
        holder = self.holder()
        if holder.accumulator.rows == 0:
            raise NotFitted(f"This {type(self).__name__} instance is not fitted yet: it has learned no row so far.")
        if holder.projection is not None:
            return holder.projection
        self.check_parameters()
        holder.check(self)
        state = holder.accumulator.freeze()
        return holder.show(holder.refined or self.solve(state), partial(self.spread, state))

    def _linear(self, name: str) -> np.ndarray:
        projection = self.projection()
        if not hasattr(projection, name):
            raise AttributeError(
                f"{type(self).__name__} has no {name}_: its map is not linear, and rows are placed by the sampled rows "
                "nearest to them. Read eigenvalues_, and project with transform."
            )
        return getattr(projection, name)
