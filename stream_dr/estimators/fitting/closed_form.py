"""Base class of estimators solved from centred sums [mathematics §1-3].

A subclass provides:

- the kinds of targets from which it learns,
- the encoding of targets as numeric columns,
- `directions(moments, state)`, which computes the components.

The base class has the common parameters and the accumulator, and makes the projection from the
components.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import ClassVar, Literal, Self, cast

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.batch.block import Block
from stream_dr.batch.targets import KINDS, Label, label_array
from stream_dr.checks import MAX_EXACT_WIDTH
from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting import mapping
from stream_dr.estimators.fitting.estimator import AdditiveEstimator, StateType
from stream_dr.estimators.fitting.folds import jackknife_components
from stream_dr.estimators.fitting.moments import Moments, compute_moments, waiting_labels
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range, check_positive_int
from stream_dr.feature_maps.feature_map import check_seed_or_none
from stream_dr.projection import Linear, Projection
from stream_dr.readout import Readout
from stream_dr.solve.spectral import rotate_equal_components, with_fixed_signs
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.moments.encoding import Encoding
from stream_dr.statistics.moments.folds import FoldedAccumulator
from stream_dr.statistics.moments.state import MomentState, check_stored_optional_sums, moment_bytes
from stream_dr.statistics.protocol import Accumulator, State
from stream_dr.statistics.row_hashes import group_hashes
from stream_dr.uncertainty import ComponentSpread, CrossValidation

DEFAULT_CV_FOLDS = 5
"""Number of folds if a parameter is "cv" and `folds` is 0."""

Directions = tuple[np.ndarray, np.ndarray]
"""Pair of loadings (features, components) and eigenvalues (components,).

The largest eigenvalue comes first, except in methods whose docstring says otherwise.
"""


@dataclass(eq=False, repr=False)
class ClosedForm(AdditiveEstimator):
    """Base class of closed-form estimators, with their common parameters.

    Parameters
    ----------
    n_components : int or None, default None
        Number of components. None means all components with an eigenvalue above 0.
    gamma : float ≥ 0, default 0.0
        Ridge that is added to the diagonal of the rows' scatter matrix, which is a sum over rows.
        The ridge has no effect in methods that do not invert the scatter matrix.
    scatter : {"auto", "exact", "diagonal"}, default "auto"
        Part of the rows' scatter matrix that is stored. "exact" stores the whole matrix, and
        "diagonal" only the diagonal. "auto" means "exact" if there are at most 4,096 features and
        the rows are dense, or sparse with a declared width. Otherwise "auto" means "diagonal". The
        first batch decides. "exact" takes 8 · features² bytes. Sparse rows may then have at most
        4,096 features, because their number of features may grow.
    standardize : bool, default False
        Solve as if every feature had variance 1.
    decay : float in (0, 1], default 1.0
        Forgetting factor. A row weighs decay^(number of rows learned after it).
    min_class_rows : int ≥ 1, default 2
        Number of rows that a label needs before it becomes a class. Only rows of weight above 0
        are counted. The parameter applies to targets of one label a row, as soon as two labels
        have this many rows. A label with fewer rows is not yet a class (see `classes_waiting_`).
        Until then, the label's mean has no influence on the components. For example, a misspelt
        label of one row changes nothing until its second row comes. With 1, every label is a class
        from its first row on.
    target : {"auto", "class", "multilabel", "continuous"}, default "auto"
        Kind of targets. "auto" takes the kind of the first batch.
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first. Specs are made by
        `stream_dr.nystroem()`, `random_fourier()`, `polynomial()`, `hashing()`, `table()` and
        `text()`. The first three make the estimator a kernel method.
    random_state : int or None, default None
        Seed of random numbers. None means 0, so that states of several machines agree.
    folds : int, default 0
        Number of folds in which the learned rows are stored, each with its own sums. 0 stores one
        sum of all rows. A row's fold follows from a hash of its values and its target. A feature
        map's own statistics (means, frequencies, landmarks) are shared by the folds. Memory and
        the time of merges grow with the number of folds. Other results change by rounding errors
        only.
    folds_by : {"row", "id"}, default "row"
        What decides a row's fold. "row" is the row's values and its target. "id" is the row's id,
        so that rows with the same id are in the same fold. Use "id" if many rows are equal, or if
        rows depend on each other, as the rows of one person do. The fold of a row without an id
        follows from the row's values. The argument `groups` of `fit` has the same effect as ids.

    Attributes
    ----------
    fold_rows_ : ndarray (folds,), int64
        Number of rows in each fold.
    eigenvalues_std_ : ndarray (components,), float64
        Standard error of each eigenvalue. This and the next three attributes need `folds`. They
        come from the jackknife, which solves once without each fold [mathematics §14].
    components_std_ : ndarray (components, features), float64
        Standard error of each entry of `components_`.
    angles_ : ndarray (components,), float64
        Typical error of each component, in degrees. The error is the angle to the component that
        an infinite number of rows would give.
    plane_angles_ : ndarray (components − 1,), float64
        Typical error of the plane of two neighbouring components, in degrees. If two eigenvalues
        are almost equal, the rows hardly determine the two components, but only their plane. NaN
        where the eigenvalues of the two components differ by 5 % or more.
    classes_waiting_ : ndarray (waiting,)
        Labels with fewer rows than `min_class_rows`, which are not yet classes, sorted.
    """

    state_type: ClassVar[StateType] = StateType(MomentState)
    fixed: ClassVar[tuple[str, ...]] = ("scatter", "decay", "feature_map", "fold_count", "folds_by")
    encoding: ClassVar[str] = "indicator"
    """Encoding of targets as numeric columns, by default one column of 0 and 1 for each label."""
    needs_scatter: ClassVar[bool] = True
    """True if the method needs the whole scatter matrix of the rows, and not only its diagonal."""
    solves_eigenproblem: ClassVar[bool] = True
    """True if components of equal eigenvalue may be rotated within their span."""
    predicts_with_all: ClassVar[bool] = False
    """True if predictions also use components that n_components excludes."""
    cross_validates: ClassVar[str] = ""
    """Name of the parameter that may be "cv", or "" if there is none."""
    standardize_choices: ClassVar[tuple[bool | None, ...]] = (False, True)
    """Values that `standardize` may have."""

    n_components: int | None = None
    _: KW_ONLY
    gamma: float | Literal["cv"] = 0.0
    scatter: Literal["auto", "exact", "diagonal"] = "auto"
    standardize: bool = False
    decay: float = 1.0
    min_class_rows: int = 2
    target: Literal["auto", "class", "multilabel", "continuous"] = "auto"
    feature_map: JsonDict | None = None
    random_state: int | None = None
    folds: int = 0
    folds_by: Literal["row", "id"] = "row"

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        self.check_n_components()
        # If the method can choose `gamma` by cross-validation, the value "cv" is allowed, too.
        if not (self.cross_validates == "gamma" and self.gamma == "cv"):
            check_number_in_range("gamma", self.gamma, low=0.0)
        check_choice("scatter", self.scatter, ("auto", "exact", "diagonal"))
        check_choice("standardize", self.standardize, self.standardize_choices)
        check_number_in_range("decay", self.decay, low=0.0, high=1.0, exclude_low=True)
        check_positive_int("min_class_rows", self.min_class_rows)
        check_choice("target", self.target, ("auto", *KINDS))

        if self.target_kinds and self.target != "auto" and self.target not in self.target_kinds:
            raise InvalidParameter(
                f"target={self.target!r}; {type(self).__name__} learns from {' or '.join(self.target_kinds)} targets."
            )

        check_seed_or_none(self.random_state)
        # The type is compared, because True and False are instances of int, too.
        if type(self.folds) is not int or not (self.folds == 0 or 2 <= self.folds <= 100):
            raise InvalidParameter(
                f"folds={self.folds!r}; it must be 0 (rows are not divided) or an integer from 2 to 100, such as 5."
            )
        check_choice("folds_by", self.folds_by, ("row", "id"))

        # If the rows' whole scatter matrix is stored, the feature map may make at most
        # MAX_EXACT_WIDTH columns, because the matrix takes columns² numbers.
        max_columns = None
        if self.stored_scatter() == "exact":
            max_columns = MAX_EXACT_WIDTH
        mapping.check_feature_map(self.feature_map, max_columns)

    def check_n_components(self) -> None:
        """Raise InvalidParameter if n_components is outside its range."""
        if not (self.cross_validates == "n_components" and self.is_cross_validated):
            check_positive_int("n_components", self.n_components, allow_none=True)

    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return a new accumulator of centred sums.

        Raises InvalidParameter if the state is stored in another number of folds than the current
        parameters need.

        state: state from which the accumulator continues. None means an empty accumulator.
        """
        if state is not None and (have := len(mapping.count_rows_in_folds(state))) != self.fold_count:
            raise InvalidParameter(
                f"what was learned is stored in {have} folds, and these parameters need {self.fold_count}. Set "
                f"folds={have}, or call fit with the rows again."
            )
        # Rows are learned by one accumulator, or by one for each fold.
        # With a feature map, the map is applied before (`make_accumulator`).
        make_inner: Callable[..., Accumulator] = self._make_moment_accumulator
        if self.fold_count:
            # With decay, the weight of a row depends on the number of later rows, in all folds. So
            # FoldedAccumulator applies it, and the accumulators of single folds have none (1.0).
            make_fold = partial(self._make_moment_accumulator, decay=1.0)
            make_inner = partial(FoldedAccumulator, self.fold_count, make_fold, self.decay)
        return mapping.make_accumulator(self.feature_map, make_inner, state)

    def _make_moment_accumulator(self, state: MomentState | None, decay: float | None = None) -> MomentAccumulator:
        if decay is None:
            decay = self.decay
        return MomentAccumulator(
            self.target_encoding(),
            self.stored_scatter(),
            decay,
            state,
            label_sets=self.keeps_label_sets(),
            class_scatter=self.keeps_scatter_per_class(),
        )

    @property
    def fold_count(self) -> int:
        """Number of cross-validation folds, or 0 without folds."""
        if self.is_cross_validated:
            return self.folds or DEFAULT_CV_FOLDS
        return self.folds

    @property
    def is_cross_validated(self) -> bool:
        """True if a parameter is "cv", so cross-validation chooses its value."""
        return bool(self.cross_validates) and getattr(self, self.cross_validates) == "cv"

    def unit_hashes(self, block: Block, n_rows: int) -> np.ndarray | None:
        """Return the hash (rows,) of each row's unit, or None.

        A unit is a group of rows or a row's id. All rows of one unit are in the same
        cross-validation fold, because a row's fold follows from the hash. If the result is None,
        rows have no units, and a row's fold follows from its values. Raises InvalidParameter if
        there is not one group or id for each row.

        block: rows, with the hashes of their groups, or with their ids.
        n_rows: number of rows.
        """
        # A user gives groups only to decide the folds, so their hashes (`block.hashes`) come first.
        # Ids may be given for another purpose. So they count only with folds_by="id".
        hashes = block.hashes
        uses_ids = self.fold_count > 0 and self.folds_by == "id"
        if hashes is None and uses_ids and block.ids is not None:
            hashes = group_hashes(block.ids)
        if hashes is not None and len(hashes) != n_rows:
            raise InvalidParameter(f"there are {len(hashes)} groups or ids for {n_rows} rows; give one a row.")
        return hashes

    @property
    def fold_rows_(self) -> np.ndarray:
        """Number of rows in each fold, int64 (folds,)."""
        return np.array(mapping.count_rows_in_folds(self.state_), dtype=np.int64)

    def stored_scatter(self) -> Literal["exact", "diagonal", "auto", ""]:
        """Return the part of the rows' scatter that is stored.

        "exact" is the whole matrix (features, features), and "diagonal" only its diagonal. "auto"
        is "exact" or "diagonal", as the first batch decides. It becomes "exact" if there are at
        most 4,096 features, except for sparse rows of undeclared width.
        """
        if self.reads_scatter():
            return self.scatter
        return "diagonal"

    def keeps_label_sets(self) -> bool:
        """True if the state sums rows separately for each label set.

        The label set of a row is the set of all its labels.
        """
        return False

    def keeps_scatter_per_class(self) -> bool:
        """True if the state stores each class's scatter matrix."""
        return False

    def reads_scatter(self) -> bool:
        """True if the current parameters need the rows' scatter."""
        return self.needs_scatter

    def target_encoding(self) -> Encoding:
        """Return the encoding of targets as numeric columns.

        If rows without a target are learned, too, the encoding is "partial", in which the columns
        of such a row are 0. Otherwise it is the class attribute `encoding`.
        """
        if self.unlabelled == "use":
            return "partial"
        return self.encoding

    def solve(self, state: State) -> Projection:
        """Return the projection computed from `state`, without changing anything.

        If the sums in the state are only rounding error, the projection has no component.
        """
        # `state` may have a feature map, and one set of sums for each cross-validation fold.
        # `sums` has neither: it has the sums of all folds together, for mapped rows.
        sums = cast(MomentState, mapping.merged_mapped_state(state))
        # Some methods need optional sums, which are stored only if the parameters ask for them.
        label_sets = self.keeps_label_sets()
        class_scatter = self.keeps_scatter_per_class()
        check_stored_optional_sums(sums, self.target_encoding(), label_sets, class_scatter)

        # `moments` may need the feature map, but not the folds, so `sums` takes their place.
        state = mapping.replace_inner_state(state, sums)
        moments = self.moments(state)

        # The solution is "diagonal" if the whole scatter is needed but only its diagonal is known.
        kind = "exact"
        if self.reads_scatter() and moments.scatter is None:
            kind = "diagonal"
        # The optional sums are not in the moments, so `directions` gets `sums`, too.
        projection = self.make_projection(moments, self.directions(moments, sums), kind)
        return mapping.prepend_feature_map(state, projection)

    def moments(self, state: State) -> Moments:
        """Return a state's moments (centred sums of rows and targets).

        The components are computed from the moments.
        """
        return compute_moments(state, bool(self.standardize), self.min_class_rows)

    def classes_waiting(self, state_or_accumulator: State | Accumulator) -> tuple[Label, ...]:
        """Return the labels with fewer rows than `min_class_rows`, sorted.

        state_or_accumulator: a state or an accumulator.
        """
        at = np.flatnonzero(waiting_labels(cast(MomentState, state_or_accumulator), self.min_class_rows))
        return tuple(sorted(state_or_accumulator.labels[j] for j in at))

    @property
    def classes_waiting_(self) -> np.ndarray:
        """Labels (waiting,) with fewer rows than `min_class_rows`, sorted."""
        return label_array(self.classes_waiting(self.fitted().accumulator))

    def scatter_product(self, state: State, columns: np.ndarray) -> np.ndarray:
        """Return the product of the rows' scatter and given columns.

        The product has the shape of `columns`. If only the diagonal of the scatter is stored,
        columns are multiplied by the diagonal. Costs O(d k) for d features and k targets, and O(d²
        m) in addition if the whole scatter is stored.

        columns: (features, m), m columns.
        """
        scatter = compute_moments(state, min_class_rows=self.min_class_rows).scatter_or_diagonal
        # A feature that the state has not learned has no scatter.
        d = min(len(columns), len(scatter))
        product = np.zeros(columns.shape)
        if scatter.ndim == 2:
            product[:d] = scatter[:d, :d] @ columns[:d]
        else:
            product[:d] = scatter[:d, None] * columns[:d]
        return product

    def make_projection(self, moments: Moments, directions: Directions, solution_kind: str) -> Linear:
        """Return the projection to at most n_components directions.

        This method decides the length and sign of each component. It also chooses the basis of
        components with the same eigenvalue.

        moments: centred sums from which the directions were computed.
        directions: loadings and eigenvalues.
        solution_kind: kind of solution, "exact", "diagonal" or "refined".
        """
        loadings, eigenvalues = directions
        # The pair would keep these loadings in memory after they are replaced below.
        del directions
        # Components of the same eigenvalue may be rotated freely, so choose one rotation.
        if self.solves_eigenproblem:
            loadings = rotate_equal_components(loadings, eigenvalues)

        # The projection has p components. Predictions use q ≥ p components.
        p = self.component_count(eigenvalues, moments)
        q = p
        if self.predicts_with_all:
            q = len(eigenvalues)
        # The directions are for columns that were multiplied by `moments.scale`.
        # Multiply the loadings by `scale`, so that they apply to the columns of the rows.
        loadings = self.scale_loadings(loadings[:, :q], moments, solution_kind)
        loadings = with_fixed_signs(loadings * moments.scale[:, None])

        # The readout predicts targets from q components. It is None if the method does not predict.
        # The projection has the first p loadings, and the readout has the others (`rest`).
        readout = self.readout(moments, loadings, eigenvalues[:q])
        if readout is not None and p < q:
            readout = readout._replace(rest=np.ascontiguousarray(loadings[:, p:]))
            loadings = np.ascontiguousarray(loadings[:, :p])

        return Linear(self.centre(moments), loadings, eigenvalues[:p].copy(), solution_kind, readout=readout)

    def component_count(self, eigenvalues: np.ndarray, moments: Moments) -> int:
        """Return the number of components, at most n_components.

        eigenvalues: eigenvalues of all components, largest first.
        """
        if self.n_components is None:
            return len(eigenvalues)
        return min(self.n_components, len(eigenvalues))

    def readout(self, moments: Moments, loadings: np.ndarray, eigenvalues: np.ndarray) -> Readout | None:
        """Return the predictor of targets from components, a `Readout`.

        The result is None if the method does not predict.

        loadings: (features, q), loadings of q components, in the units of the rows (already
            multiplied by `moments.scale`).
        eigenvalues: (q,), eigenvalues of the components.
        """
        return None

    @abstractmethod
    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the method's loadings and eigenvalues, largest eigenvalue first.

        moments: centred sums of rows and targets, from which directions are computed.
        state: state from which the moments were computed.
        """

    def weighted_directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return loadings and eigenvalues from an already weighted scatter.

        `refine`, which makes a solution exact by several passes over the rows, calls this method
        after each pass. It has projected the problem on m basis vectors, so the loadings (m, p)
        are coefficients of the basis vectors. In its scatter, rows are weighted by their label (see
        `label_weight_factors`). A method that weights rows in `directions` must override this
        method, and not weight them again.

        moments: centred sums of m features, the rows' coordinates in the basis, and of the targets.
        state: state of the rows in all features, with the optional sums that `moments` has not.
        """
        return self.directions(moments, state)

    def label_weight_factors(self, moments: Moments) -> Mapping[Label | None, float] | None:
        """Return a factor for each label, by which its rows are weighted.

        `refine` reads the rows again and sums their scatter. For this sum, it multiplies the weight
        of each row by the factor of the row's label. The key None is for rows without a label. If
        the result is None, all rows have the factor 1.
        """
        return None

    def scale_loadings(self, loadings: np.ndarray, moments: Moments, solution_kind: str) -> np.ndarray:
        """Return loadings (features, p) scaled to their final length.

        A subclass may choose, for example, the length at which projected rows have variance 1. The
        default implementation returns the loadings unchanged.

        loadings: (features, p), loadings of p components. They apply to rows whose features were
            multiplied by `moments.scale`, for example to standardise them.
        """
        return loadings

    @property
    def eigenvalues_std_(self) -> np.ndarray:
        """Standard error (components,) float64 of each eigenvalue, by the jackknife."""
        return self._cached_component_spread().eigenvalues_std

    @property
    def components_std_(self) -> np.ndarray:
        """Standard error of each entry of `components_`, float64 (components, features)."""
        return self._cached_component_spread().components_std

    @property
    def angles_(self) -> np.ndarray:
        """Typical error (components,) float64 of each component, in degrees.

        The error is the angle to the component that an infinite number of rows would give.
        """
        return self._cached_component_spread().angles

    @property
    def plane_angles_(self) -> np.ndarray:
        """Typical error (components − 1,) float64 of planes, in degrees.

        Plane i is spanned by the components i and i + 1. The error is the angle to the plane that
        an infinite number of rows would give. NaN where the eigenvalues of the two components
        differ by 5 % or more.
        """
        return self._cached_component_spread().plane_angles

    def _cached_component_spread(self) -> ComponentSpread:
        """Return the uncertainty of the components, computed once per projection.

        Raises AttributeError if rows are not in folds, or if the projection was refined.
        """
        if not self.fold_count:
            raise AttributeError(f"{type(self).__name__} has no folds: set folds=5 before the rows are learned.")
        # Solving takes long, so solve without the lock. The second call finds the cached result.
        self.projection()
        # In the lock, no rows are learned, so the projection, state and version belong together.
        # The version is a number that changes each time that rows are learned.
        with self.lock:
            projection = self.projection()
            fitted = self.fitted()
            state = fitted.accumulator.freeze()
            version = fitted.version

        # `linear` is the projection without its feature map. Its attribute `spread` is the
        # uncertainty, or None if it was not computed yet.
        linear = mapping.inner_linear_projection(projection)
        if linear.solution == "refined":
            raise AttributeError("the projection was refined, and the folds have no refined solutions to compare with.")
        if linear.spread is not None:
            return linear.spread

        projection = self.add_fold_uncertainty(projection, state)
        # Cache the projection with its uncertainty, unless rows were learned meanwhile.
        with self.lock:
            if fitted.version == version:
                fitted.projection = projection
        return cast(ComponentSpread, mapping.inner_linear_projection(projection).spread)

    def add_fold_uncertainty(self, projection: Projection, state: State) -> Projection:
        """Return the projection with the uncertainty of its components.

        The uncertainty (`ComponentSpread`) is estimated by the jackknife. For K folds, the model is
        solved again K times, each time from all folds but one. If rows are not in folds, or if the
        projection was refined, the projection is returned unchanged. Raises NotFitted if fewer than
        three folds have rows.

        state: state from which the projection was solved.
        """
        # `linear` is the projection without its feature map. `folds` has one state for each fold,
        # without the map. It is empty if rows are not in folds.
        linear = mapping.inner_linear_projection(projection)
        folds = mapping.inner_states_of_folds(state)
        if not folds or linear.solution == "refined":
            return projection

        # If there is a feature map, add it to each fold's state, with its statistics of all rows.
        states = [mapping.replace_inner_state(state, fold) for fold in folds]
        # `choice` has the parameter value that cross-validation chose, or is None without
        # cross-validation. The value is not chosen again for each solution.
        estimator = self.with_chosen_parameter(linear.choice)
        spread = jackknife_components(estimator, states, projection)
        return mapping.replace_inner_fields(projection, spread=spread)

    def with_chosen_parameter(self, cross_validation: CrossValidation | None) -> Self:
        """Return a copy with the parameter value that cross-validation chose.

        cross_validation: result of the cross-validation, with the parameter's name and the chosen
            value. If None, the estimator itself is returned.
        """
        if cross_validation is None:
            return self
        chosen = copy(self)
        setattr(chosen, cross_validation.parameter, cross_validation.chosen_value)
        return chosen

    def centre(self, moments: Moments) -> np.ndarray:
        """Return the point (features,) subtracted from rows before projecting."""
        return moments.mean

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the largest possible size of the state in bytes.

        The size is 8·(d·(k + 5) + k² + 4·k) for d features and k targets, and 8·d² more if the
        whole scatter matrix is stored. If there are folds, each of them has this size. If there is
        a feature map, d is the number of columns that the map returns. The sums of rows that HSL
        stores for sets of labels are not included.
        """
        return mapping.max_bytes_with_map(self.feature_map, self.moment_bytes, n_features, n_targets)

    def max_width(self, sparse: bool, declared_width: int) -> int | None:
        """Return the largest number of features allowed in a batch, or None.

        None means no limit. A batch of more features raises an error.

        sparse: True if the rows are sparse.
        declared_width: number of features that sparse rows declare, or 0 if they declare none.
        """
        if self.feature_map is not None or not self.reads_scatter() or not sparse:
            return None
        exact = self.scatter == "exact" or (self.scatter == "auto" and 0 < declared_width <= MAX_EXACT_WIDTH)
        if exact:
            return MAX_EXACT_WIDTH
        return None

    def moment_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the size of the centred sums in bytes.

        `n_features` is the number of features after the feature map, if there is one.
        """
        scatter = self.stored_scatter()
        exact = scatter == "exact" or (scatter == "auto" and n_features <= MAX_EXACT_WIDTH)
        size = moment_bytes(self.target_encoding(), n_features, n_targets, exact, self.keeps_scatter_per_class())
        return size * max(self.fold_count, 1)
