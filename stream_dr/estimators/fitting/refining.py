"""Refine: exact solutions by passes over the rows [mathematics §4].

Refine solves closed-form methods. By default, an estimator of more than 4,096 features stores only
the diagonal of the rows' scatter matrix. The projection is then an approximation, or there is no
projection. `refine_steps` reads the rows again in several passes. Each pass multiplies the scatter
matrix by a few columns. After each pass, `refine_steps` yields the projection so far, a report and
the state of the solver.

The state of the solver is a NamedTuple of arrays. It may be stored and later passed as `resume`,
also in another process.

For d features and k targets, a pass takes O(entries · k) time and O(d · k) memory. For PCA, PLSDA,
SKM, MMC and WMV, the memory also grows with the number of passes, up to a limit.

There are two solvers. Both need only products with the rows' scatter.

- FirstStageSolver (in two_stage_method.py) is the solver of LDA, OPLS, CCA and HSL. These methods
  solve a linear system first. The solver is block conjugate gradient.
- SubspaceSolver is the solver of PCA, PLSDA, SKM, MMC and WMV. These methods are solved on a basis
  of directions, to which each pass adds directions.

Both classes have the same methods:

- `start(initial_columns)` returns the first state of the solver, a NamedTuple of arrays.
- `advance(solver_state, scatter_product)` returns the next state. `scatter_product` is the rows'
  scatter times `solver_state.directions`.
- `current_solution(solver_state)` returns the loadings, eigenvalues and relative residual so far.

After each pass, the solvers call the estimator's own method `directions`, or for a basis
`weighted_directions`. So refine and the exact solution agree.

In a pass, the rows are read again from a source. They are treated as when they were learned. For
example, rows without targets are skipped if the method needs targets, and weights and decay are
the same.

The first pass checks that the source has the rows that were learned. Another stream would give the
solution of another problem [mathematics §4]. For the check, the rows are learned again by a new
accumulator. The number of rows, their weight, the means, the cross-scatter and the class weights
must agree with the state up to rounding. If they differ, an error is raised.

A pass takes O(entries · r) time for r directions, and the first pass also the time of learning. A
pass takes O(d · (r + k)) memory for d features and k targets.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar, NamedTuple, NoReturn, Self, cast

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from stream_dr.batch.block import Block
from stream_dr.batch.rows import Source, as_source
from stream_dr.batch.targets import drop_rows_without_target, targets_without_labels
from stream_dr.checks import FEATURE_COUNT_LIMIT, check_finite_arrays, check_within, shape_of_checked_matrix
from stream_dr.errors import CannotRefine, InvalidParameter
from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.inputs import RefineSource
from stream_dr.estimators.fitting.mapping import inner_projection, merged_mapped_state, prepend_feature_map
from stream_dr.estimators.fitting.moments import Moments, compute_moments, divide_by_scale
from stream_dr.estimators.fitting.parameters import check_number_in_range, check_positive_int
from stream_dr.estimators.fitting.stream_learner import FittedState, NotFitted
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.table import clear_counts_keep_columns, map_table_rows, update_statistics
from stream_dr.projection import Linear, Projection
from stream_dr.solve import subspace
from stream_dr.solve.conjugate_gradient import BlockSolve, largest_principal_angle
from stream_dr.solve.spectral import tall_qr
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.moments.clock import decayed_weights
from stream_dr.statistics.moments.state import MomentState
from stream_dr.statistics.protocol import State, register_nested_state

MAX_BASIS_BYTES = 400_000_000
"""Size in bytes above which a basis and its products are cut down to the solution.

A basis of at most 4 blocks is never cut. A block is the directions that one pass adds.
"""


class SubspaceSolver:
    """Solver with which `refine` makes PCA, PLSDA, SKM, MMC and WMV exact.

    `refine` reads the rows again in passes. Solutions are linear combinations of a few vectors
    (features,), the basis:

    - The first pass adds the cross-scatter of rows and targets to the basis, and random vectors if
      there are fewer targets than components.
    - Each later pass adds the product of the rows' scatter and the vectors that the pass before
      has added.
    - After each pass, the method is solved for rows projected on the basis.

    Attributes
    ----------
    along : (p,) or None
        Scatter of the rows along each of the p components of the last solution. None before the
        first solution.
    """

    along: np.ndarray | None = None

    def __init__(
        self, estimator: ClosedForm, moments: Moments, state: MomentState, varying_columns: np.ndarray
    ) -> None:
        self._estimator = estimator
        self._moments = moments
        self._state = state
        self._varying = varying_columns
        if isinstance(estimator.n_components, float):
            raise CannotRefine(
                f"n_components={estimator.n_components} is a share of all variance, and refine looks for a given number of "
                "components. State how many."
            )
        # Number of components. If it is not set, there are as many as targets or labels. If there
        # are no targets, either, the number is not known.
        self._count = estimator.n_components or moments.cross.shape[1]
        if self._count == 0:
            self._raise_needs_n_components()

    def start(self, initial_columns: np.ndarray) -> subspace.Subspace:
        """Return the first state of the solver.

        The basis has no vectors yet. The state's directions are the vectors that the first pass
        adds to the basis. They span three sorts of columns: the cross-scatter of rows and targets,
        random columns if there are fewer targets than components, and `initial_columns`.

        initial_columns: (features, p), columns of an earlier solution. p may be 0.
        """
        # If there are fewer columns of `cross` (features, targets) than components, add random
        # columns. A reserve of more columns than components makes the solver need fewer passes.
        cross = self._moments.cross
        n_random = 0
        if cross.shape[1] < self._count:
            reserve = max(4, self._count // 2)
            n_random = self._count + reserve - cross.shape[1]
        seed = self._estimator.random_state or 0
        drawn = np.random.default_rng(seed).standard_normal((len(cross), n_random))
        # Features that do not vary (False in `_varying`) have no part in any direction.
        columns = np.where(self._varying[:, None], np.hstack([cross, drawn, initial_columns]), 0.0)
        return subspace.start_subspace(columns)

    def advance(self, solver_state: subspace.Subspace, scatter_product: np.ndarray) -> subspace.Subspace:
        """Return the basis extended by the directions of one pass.

        The next directions are the part of `scatter_product` outside the extended basis. If the
        extended basis is too large, it is cut down to the span of the best solution in it.

        solver_state: basis before the pass.
        scatter_product: (features, r), product of the rows' scatter and the r columns of
            `solver_state.directions`.
        """
        # `grown.basis` (features, m) now includes the directions of this pass. `grown.directions`
        # are those of the next pass. If there are none, no pass follows.
        grown = subspace.extend_subspace(solver_state, scatter_product)
        n_directions = grown.directions.shape[1]
        if n_directions == 0:
            return grown

        # The basis may have the vectors of four passes, or as many as fit in MAX_BASIS_BYTES. A
        # basis vector and its product with the scatter take 16 bytes for each feature.
        most = max(4 * n_directions, MAX_BASIS_BYTES // (16 * len(grown.basis)))
        if grown.basis.shape[1] <= most:
            return grown

        # Each column of `solution` has a component of the method, as coefficients of the m basis
        # vectors, best first. Reduce the basis to as many components as a pass has directions.
        solution, _ = self._directions_in_basis(grown)
        if solution.shape[1]:
            return subspace.restart_from_solution(grown, solution[:, :n_directions])
        # There is no component if the basis has only rounding errors.
        return grown

    def current_solution(self, solver_state: subspace.Subspace) -> tuple[np.ndarray, np.ndarray, float]:
        """Return loadings, eigenvalues and relative residual after the passes so far."""
        small, eigenvalues = self._directions_in_basis(solver_state)
        if self._estimator.n_components is None and len(eigenvalues) > self._count:
            self._raise_needs_n_components()
        small = small[:, : self._count]
        eigenvalues = eigenvalues[: self._count]
        self.along = np.einsum("ij,ij->j", small, solver_state.scatter @ small)
        residual = subspace.relative_subspace_residual(solver_state, small)
        return solver_state.basis @ small, eigenvalues, residual

    def _directions_in_basis(self, basis_state: subspace.Subspace) -> Directions:
        """Return the method's directions and eigenvalues in the span of a basis.

        The method is solved for rows projected on the basis (Rayleigh-Ritz). The result has p
        directions (m, p), as coefficients of the m basis vectors, and the eigenvalues (p,) of the
        method's eigenproblem, largest first.
        """
        # V (features, m) is the orthonormal basis of scaled features, x·scale. The sums in the
        # moments are of scaled features, too, but the mean is not. `scatter` (m, m) is Vᵀ Cxx V.
        m = self._moments
        V = basis_state.basis
        scatter = basis_state.scatter

        # Rounding errors depend on √N·|mean| (`shift`), where N is the weight of the rows.
        mean = V.T @ (m.mean * m.scale)
        rounding = m.rounding._replace(shift=np.abs(np.sqrt(m.weight) * mean))
        # The moments of the projected rows. Their m coordinates are not scaled again.
        small = m._replace(
            mean=mean,
            diagonal=np.maximum(np.diagonal(scatter), 0.0),
            scatter=scatter,
            cross=V.T @ m.cross,
            scale=np.ones(V.shape[1]),
            rounding=rounding,
        )
        return self._estimator.weighted_directions(small, self._state)

    def _raise_needs_n_components(self) -> NoReturn:
        """Raise CannotRefine, because n_components is None and must be a number."""
        raise CannotRefine(
            f"{type(self._estimator).__name__} with n_components=None would need every direction there is, that is the "
            "whole scatter matrix. State n_components."
        )


RELATIVE_TOLERANCE = 1e-8
"""Largest relative difference of two sums that counts as rounding error.

The differences of means are relative to the columns' standard deviations. If one row of a million
is changed, the difference is far larger.
"""

RefineProgress = Callable[[int, int], None]
"""Function that is called after each block of rows.

The arguments are the number of the pass and the number of rows that this pass has read.
"""


class Sums(NamedTuple):
    """Sums that one pass of refine computes over all rows.

    Attributes
    ----------
    product : (features, r)
        Product of the rows' scatter and the columns of the pass.
    rows : int
        Number of rows read.
    fresh : MomentState or None
        In the first pass, the state of a new accumulator that has learned these rows. In later
        passes None.
    """

    product: np.ndarray
    rows: int
    fresh: MomentState | None

    def merge(self, newer: "Sums") -> "Sums":
        """Return the sums over two parts of the stream.

        newer: sums over the later part.
        """
        if self.fresh is None or newer.fresh is None:
            fresh = None
        else:
            fresh = self.fresh.merge(newer.fresh)
        return Sums(self.product + newer.product, self.rows + newer.rows, fresh)


class RowReplay:
    """Reader of a state's learned rows, for passes of refine.

    A pass reads all rows again, and multiplies their scatter by some columns.

    estimator: estimator with the parameters with which the state was learned.
    state: state that has learned the rows.
    moments: centred sums of the state.
    feature_names: names of the features, if the rows have named columns.
    n_threads: number of threads that compute products.
    """

    def __init__(
        self,
        estimator: ClosedForm,
        state: MomentState,
        moments: Moments,
        feature_names: tuple[str, ...] | None = None,
        n_threads: int = 1,
    ) -> None:
        # In the first pass, a copy of the estimator learns the rows again, to compare its sums with
        # the state. This needs no whole scatter and no cross-validation folds (`folds=0`).
        self._estimator: ClosedForm = clone(estimator).set_params(scatter="diagonal", folds=0)
        self._state = state
        self._moments = moments
        self._names = feature_names
        self._threads = n_threads
        # Number of rows that the first pass has read. Each later pass must read as many.
        self._first_pass_rows = 0
        # Some methods multiply the scatter of each label's rows by a factor, others have None here.
        self._factors = self._estimator.label_weight_factors(moments)
        # Number of rows that the state has learned. With decay, the weight of a row depends on the
        # number of rows after it.
        self._clock = int(state.clock)
        # Factor of each feature, 0 for features that do not vary.
        self.scale = np.where(moments.rounding.varying_columns(moments.diagonal), moments.scale, 0.0)

    def sum_over_pass(
        self, source: Source, columns: np.ndarray, relearn_rows: bool, progress: Callable[[int], None] | None = None
    ) -> Sums:
        """Return the sums of a pass over a source.

        The source may be a part of a larger source. The sums include the product of the rows'
        scatter and `columns`, that is Σ (x − x̄)(x − x̄)ᵀ columns over the rows x with the mean x̄.
        Raises CannotRefine if rows have another number of features than the state. Sparse rows may
        have fewer features.

        source: rows to read.
        columns: (features, r), the r columns to multiply.
        relearn_rows: True for the first pass, in which a new accumulator learns the rows again. Its
            state shows if the source has other rows than those learned.
        progress: function that is called with the number of rows read so far, or None.
        """
        # `fresh` has no rows yet. It has the names of the features, which `parse` needs. Its
        # accumulator learns the rows only if `relearn_rows` is true.
        fresh = FittedState(self._estimator.accumulator(), self._names)
        rows = 0

        # `total` sums the product of the scatter and `columns` over blocks of rows.
        with subspace.ScatterProduct(self._moments.mean, columns, self.scale, self._threads) as total:
            for position, event in source.events():
                block = self._estimator.parse(fresh, event, raise_if_no_targets=False)
                self._check_width(position, block)
                if relearn_rows:
                    fresh.accumulator.add(block)

                learned = self._learned_rows(block)
                # The weights of the block's rows may depend on how many rows were read before: with
                # decay, later rows count more. `rows` is the number up to the end of the block.
                rows += learned.rows
                total.add(learned, self._scatter_weights(learned, rows))
                if progress is not None:
                    progress(rows)
        relearned = cast(MomentState, fresh.accumulator.freeze()) if relearn_rows else None
        return Sums(total.result(), rows, relearned)

    def _check_width(self, position: int, block: Block) -> None:
        """Raise CannotRefine if rows have another number of features than the state."""
        # Sparse rows may be narrower than the state: later features have not occurred yet.
        width = self._state.n_features
        if block.features > width or (not block.sparse and block.features < width):
            raise CannotRefine(
                f"the source's event {position} has {block.features} features; the state has seen {width}. "
                "Give the stream this estimator has learned."
            )

    def _learned_rows(self, block: Block) -> Block:
        """Return the rows that the estimator learns."""
        # A method without kinds of targets is unsupervised and learns all rows.
        if not self._estimator.target_kinds or self._estimator.unlabelled == "use":
            return block
        return drop_rows_without_target(block)[0]

    def checked_product(self, pass_sums: Sums, columns: np.ndarray) -> np.ndarray:
        """Return the product (features, r) of a pass, after checking its rows.

        The product is that of the rows' scatter and `columns`. Raises CannotRefine if the rows are
        not the rows that the state has learned.

        pass_sums: sums of the pass.
        columns: (features, r), the r columns that were multiplied.
        """
        # Only the first pass learns the rows again, in the state `fresh`.
        if pass_sums.fresh is not None:
            self._check_first_pass(pass_sums.fresh)
            self._first_pass_rows = pass_sums.rows
        else:
            self._check_later_pass(pass_sums.rows)

        # The moments leave out the means of waiting labels, but the pass sums all rows.
        return np.asarray(pass_sums.product - self._waiting_product(columns))

    def _waiting_product(self, columns: np.ndarray) -> np.ndarray:
        """Return M Mᵀ columns for the means M of waiting labels."""
        # A label waits while it has too few rows to be a class. M (features, waiting labels) are
        # the centred means of these labels, times the root of their weight.
        # Features that do not vary have the scale 0, and no part in the scatter.
        M = np.where(self.scale[:, None] > 0, self._moments.scaled_waiting_means, 0.0)
        weighted = M
        # Some methods multiply the scatter of each label's rows by a factor.
        if self._factors is not None:
            weighted = M * [self._factors.get(label, 0.0) for label in self._moments.waiting]
        return np.asarray(weighted @ (M.T @ columns))

    def _check_first_pass(self, relearned: MomentState) -> None:
        """Raise CannotRefine if the first pass has read other rows than those learned.

        Its sums may differ from the state's sums only by rounding errors.

        relearned: state that has learned the rows of the first pass.
        """
        learned = self._state
        if relearned.rows != learned.rows or relearned.n_features != learned.n_features:
            raise CannotRefine(
                f"the source has {relearned.rows} rows of {relearned.n_features} features; this state has seen "
                f"{learned.rows} of {learned.n_features}. Give exactly the rows it has learned, once each."
            )
        differs = name_differing_sum(learned, relearned)
        if differs is not None:
            # Only with decay does the order of rows change the sums.
            order = ", in their order"
            if float(self._estimator.decay) == 1.0:
                order = ""
            raise CannotRefine(
                f"the source is not what this state has seen: its {differs} differ by more than rounding. "
                f"Give the rows, targets and weights it has learned{order}."
            )

    def _check_later_pass(self, n_rows: int) -> None:
        """Raise CannotRefine if a later pass has read more or fewer rows than the first."""
        if n_rows != self._first_pass_rows:
            raise CannotRefine(
                f"the source gave {n_rows} rows in this pass and {self._first_pass_rows} in the first one. Give one "
                "that can be read as often as needed: a list of batches, or an object whose events() begins anew at "
                "every call."
            )

    def _scatter_weights(self, block: Block, n_rows_including_block: int) -> np.ndarray | None:
        """Return the weights of a block's rows in the scatter.

        The weights have the shape (rows,). The result is None if all weights are 1. A weight is
        the row's own weight, times its decay, times the factor that the method gives to the
        scatter of the row's class.

        n_rows_including_block: number of rows of this pass so far, including the block's rows.
            The decay of a row depends on the number of later rows.
        """
        # Multiply the weights by the decay, by which older rows have smaller weights.
        decay = float(self._estimator.decay)
        weights = block.weights
        if decay != 1.0:
            if weights is None:
                weights = np.ones(block.rows)
            # `_clock` rows were learned in total, so `age` is the number of rows after the block.
            age = max(0, self._clock - n_rows_including_block)
            weights = decayed_weights(weights, decay, age)
        if self._factors is None:
            return weights

        # `_factors` has the factor of each label's rows, by label.
        y = block.y or targets_without_labels(block.rows)
        # The code −1 of a row without a label selects the last factor, which has the key None.
        by_label = np.array([self._factors.get(label, 0.0) for label in (*y.labels, None)])
        factors: np.ndarray = by_label[y.codes]
        return factors if weights is None else factors * weights


class MappedSource:
    """Source of events, with rows mapped by a feature map.

    estimator: estimator with the feature map.
    state: state that has learned the rows. It also has the statistics that the map computed from
        the rows, such as the categories of a table's columns.
    source: source of the original rows, before the map.
    feature_names: names of the features, if the rows have named columns.
    """

    def __init__(
        self, estimator: ClosedForm, state: MappedState, source: Source, feature_names: tuple[str, ...] | None
    ) -> None:
        self._estimator = estimator
        self._source = source
        self._map = feature_map(state.feature_map)
        self._width = state.n_features
        self._table = state.table
        self._on_landmarks = state.landmarks is not None
        self._known = FittedState(estimator.accumulator(state), feature_names)

    def events(self, after: int = -1, until: int | None = None) -> Iterator[tuple[int, Block]]:
        """Yield the mapped rows of each event, as pairs (position, Block).

        A Block also has the targets and weights of the rows. Only events with
        after < position ≤ until are yielded. If `until` is None, there is no upper limit.
        """
        # Maps of tables use statistics of the rows so far, and Nystroem's map a sample (landmarks).
        # Start with both as before the first row, to map each row as when it was learned.
        table = None
        if self._table is not None:
            table = clear_counts_keep_columns(self._table)
        landmarks = None
        if self._on_landmarks:
            landmarks = self._map.initial_landmarks()

        for position, event in self._source.events(after, until):
            # `_known` has the names of the source's columns, and `_width` is their number.
            block = self._estimator.parse(self._known, event, raise_if_no_targets=False)
            if table is not None:
                table = update_statistics(self._map, table, block.X)
                rows = map_table_rows(self._map, table, block.X)
            elif landmarks is not None:
                landmarks = self._map.add_landmarks_from_batch(landmarks, block)
                rows = self._map.coordinates(landmarks, block.X)
            else:
                rows = self._map.apply(block.X, self._width, block.names)
            yield position, block._replace(X=rows, names=None, width_stated=True)


def strip_feature_map(
    estimator: "Refinable", state: State, source: Source, feature_names: tuple[str, ...] | None
) -> tuple["Refinable", MomentState, Source, tuple[str, ...] | None]:
    """Return an estimator, a state, a source and names without feature map.

    - The estimator has the same parameters, but no feature map.
    - The state is that of the mapped rows. If rows are in folds, it is the sum over all folds.
    - The source maps the rows while it reads them.
    - The names are None, because mapped columns have no names.

    If the estimator has no feature map, estimator, source and names are returned unchanged.

    estimator: estimator with or without a feature map.
    state: state that has learned the rows.
    source: source of the original rows, before the map.
    feature_names: names of the features, if the rows have named columns.
    """
    inner = cast(MomentState, merged_mapped_state(state))
    if not isinstance(state, MappedState):
        return estimator, inner, source, feature_names
    plain = clone(estimator).set_params(feature_map=None)
    mapped_source = MappedSource(estimator, state, source, feature_names)
    return plain, inner, mapped_source, None


def name_differing_sum(learned_state: MomentState, relearned_state: MomentState) -> str | None:
    """Return the name of a sum in which two states differ.

    `refine` reads the learned rows again, and its first pass learns them in a new state. The two
    states differ if `refine` was given other rows. The name is "weights", "means", "labels", "class
    weights" or "targets", or None if no sum differs. Differences by rounding errors are ignored.
    Both states have the same number of rows and features.

    learned_state: state of the estimator.
    relearned_state: state that has learned the rows which `refine` was given.
    """
    # Compare means relative to the columns' standard deviations, and other sums to their own size.
    # `a` and `b` are the moments (centred sums) of the learned and of the relearned rows.
    a = compute_moments(learned_state)
    b = compute_moments(relearned_state)
    if abs(a.weight - b.weight) > RELATIVE_TOLERANCE * a.weight:
        return "weights"

    if a.weight:
        deviations = np.sqrt(a.diagonal / a.weight)
    else:
        deviations = np.zeros(len(a.mean))
    # A mean itself has a rounding error, of less than 1e-12 of its size.
    mean_tolerance = RELATIVE_TOLERANCE * deviations + 1e-12 * np.abs(a.mean)
    if np.any(np.abs(a.mean - b.mean) > mean_tolerance):
        return "means"

    if set(a.labels) != set(b.labels) or a.cross.shape != b.cross.shape:
        return "labels"
    # Compare the target columns in the order of the labels of `learned_state`.
    order = [b.labels.index(label) for label in a.labels] if a.labels else slice(None)
    if np.any(np.abs(a.label_weights - b.label_weights[order]) > RELATIVE_TOLERANCE * a.label_weights):
        return "class weights"

    # Compare `cross` (features, targets), the cross-scatter of rows and targets.
    if np.linalg.norm(a.cross - b.cross[:, order]) > _cross_tolerance(a):
        return "targets"
    return None


def _cross_tolerance(m: Moments) -> float:
    """Return the norm up to which a difference of two cross-scatters is ignored."""
    norm_bound = np.sqrt(np.trace(m.target_scatter)) * np.sqrt(m.diagonal.sum())
    # The rounding error is less than 1e-12·N·|x̄| for N rows with the mean x̄ and targets of about
    # size 1, such as indicators. `shift` is √N times the absolute mean of each feature.
    mean_size = np.linalg.norm(m.rounding.shift) * np.sqrt(m.weight)
    return float(RELATIVE_TOLERANCE * norm_bound + 1e-12 * mean_size)


ComputePassSums = Callable[[np.ndarray, bool, Callable[[int], None] | None], Sums]
"""Function that computes the sums of one pass.

It has three arguments:

1. the columns (features, r) by which the scatter is multiplied,
2. True for the first pass, otherwise False,
3. a function that is called with the number of rows read so far, or None.
"""


class PassReport(NamedTuple):
    """Report of one pass.

    Attributes
    ----------
    number : int
        Number of the pass, from 1.
    rows : int
        Number of rows read.
    residual : float
        Relative residual of the solution, which is 0 for an exact solution.
    angle : float
        Largest principal angle to the projection of the previous pass, in radians. π/2 in the
        first pass, and if the number of components has changed.
    components : int
        Number of components.
    seconds : float
        Wall time of the pass.
    converged : bool
        True if residual and angle are both at most the tolerance, or if nothing remains to be
        solved.
    """

    number: int
    rows: int
    residual: float
    angle: float
    components: int
    seconds: float
    converged: bool


class RefineReport(NamedTuple):
    """Report of all passes of one call of refine.

    Attributes
    ----------
    passes : tuple of PassReport
        Reports of the passes.
    converged : bool
        True if the tolerance was reached.
    refining : Refining or None
        State from which another call can continue. None if the tolerance was reached.
    """

    passes: tuple[PassReport, ...]
    converged: bool
    refining: "Refining | None" = None

    @property
    def residual(self) -> float:
        """Relative residual of the solution after the last pass, 0 if it is exact."""
        return self.passes[-1].residual


@register_nested_state
class Refining(NamedTuple):
    """State of refine between two passes.

    Attributes
    ----------
    number : int
        Number of passes so far.
    loadings : (features, p)
        Loadings after the last pass.
    solve : BlockSolve or Subspace
        State of the solver.
    """

    number: int
    loadings: np.ndarray
    solve: BlockSolve | subspace.Subspace

    def check(self) -> None:
        """Raise DamagedFile unless the arrays fit together.

        `solve`, the stored state of the solver, must have as many features as `loadings`.
        """
        check_within(self, 0, FEATURE_COUNT_LIMIT, "number")
        features = shape_of_checked_matrix(self, "loadings")[0]
        check_finite_arrays(self, "loadings")
        self.solve.check(features)


class RefinePass(NamedTuple):
    """Result of one pass of `refine` over all rows.

    Attributes
    ----------
    report : PassReport
        How far the solution is from the exact one, and whether the passes have converged.
    projection : Projection
        Projection after this pass, with the attribute `solution` set to "refined".
    refining : Refining
        State from which a later call of `refine` can continue with the next pass.
    """

    report: PassReport
    projection: Projection
    refining: Refining


def refine_steps(
    estimator: Estimator,
    state: State,
    source: RefineSource,
    *,
    tol: float = 1e-6,
    max_passes: int = 20,
    resume: Refining | None = None,
    feature_names: tuple[str, ...] | None = None,
    progress: RefineProgress | None = None,
    guess: Projection | None = None,
    n_threads: int = 1,
    compute_pass_sums: ComputePassSums | None = None,
) -> Iterator[RefinePass]:
    """Refine a solution, and yield a RefinePass after each pass over the rows.

    The passes end when residual and angle are at most `tol`, or when nothing remains to be solved.
    Raises CannotRefine, InvalidParameter, NotFitted.

    source: exactly the rows that the state has learned.
    tol: tolerance of the relative residual, and of the angle (radians) to the last pass's solution.
    max_passes: maximum number of passes. Passes of the earlier refine in `resume` count, too.
    resume: state of an earlier refine to continue from. None: start from the projection `guess`.
    feature_names: names of the features, if the rows have named columns.
    progress: function that receives the number of the pass and the number of rows read so far.
    guess: earlier projection in whose span the solver starts, or None.
    n_threads: number of threads that multiply rows.
    compute_pass_sums: function that computes the sums of a pass, instead of reading `source`.
    """
    check_number_in_range("tol", tol, low=0.0)
    check_positive_int("max_passes", max_passes)
    # The estimator `solver` has no feature map. Columns that do not vary have the scale 0.
    refinable = check_refinable(estimator, state)
    solver, mapped_state, mapped_source, names = strip_feature_map(refinable, state, as_source(source), feature_names)
    moments = refinable.moments(state)
    row_reader = RowReplay(solver, mapped_state, moments, names, n_threads)
    method = solver.refine_solver(solver, moments, mapped_state, row_reader.scale > 0)
    sum_pass = compute_pass_sums or partial(row_reader.sum_over_pass, mapped_source)

    refining = resume or Refining(0, np.zeros((len(moments.mean), 0)), method.start(_scaled_loadings(guess, moments)))
    first = refining.number + 1
    for number in range(first, max_passes + 1):
        began = time.monotonic()
        pass_progress = partial(progress, number) if progress else None
        directions = refining.solve.directions
        # Multiply the scatter by the directions. In the first pass, also learn the rows again.
        sums = sum_pass(directions, number == first, pass_progress)
        solve = method.advance(refining.solve, row_reader.checked_product(sums, directions))
        loadings, eigenvalues, residual = method.current_solution(solve)
        # `along` is the rows' scatter along each component, which scales the components.
        measured = moments._replace(along=method.along)
        projection = solver.make_projection(measured, (loadings, eigenvalues), "refined")
        angle = _angle_to_last_pass(refining, projection)
        # Stop if residual and angle are small. The residual alone may be small too early.
        done = solve.directions.shape[1] == 0 or (residual <= tol and angle <= tol)
        report = PassReport(number, sums.rows, residual, angle, projection.n_components, time.monotonic() - began, done)
        refining = Refining(number, projection.loadings, solve)
        yield RefinePass(report, prepend_feature_map(state, projection), refining)
        if done:
            return


def _angle_to_last_pass(last: Refining, projection: Linear) -> float:
    """Return the largest angle, in radians, between two passes' components."""
    if last.number == 0:
        return np.pi / 2
    return largest_principal_angle(tall_qr(last.loadings)[0], tall_qr(projection.loadings)[0])


def run_passes(
    steps: Iterator[RefinePass], tol_of_steps: float, max_passes_of_steps: int
) -> tuple[Projection, RefineReport]:
    """Run all passes of refine, and return projection and report.

    If the tolerance was not reached, the warning ConvergenceWarning is issued. Raises
    InvalidParameter if there is no pass, and the errors of `refine_steps`.

    steps: the passes, as `refine_steps` yields them.
    tol_of_steps: tolerance of the passes, for the warning.
    max_passes_of_steps: maximum number of passes, for the error.
    """
    # The loop makes all passes: a pass is made when its step is needed. Collect their reports.
    # After the loop, `step` is the result of the last pass.
    passes = []
    for step in steps:
        passes.append(step.report)

    if not passes:
        raise InvalidParameter(
            f"max_passes={max_passes_of_steps}; the refine to go on from has made as many. Give more."
        )
    last = passes[-1]
    if not last.converged:
        message = not_converged_message(last.number, last.residual, last.angle, tol_of_steps)
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    unfinished = None if last.converged else step.refining
    return step.projection, RefineReport(tuple(passes), last.converged, unfinished)


def not_converged_message(pass_number: int, residual: float, angle: float, tol: float) -> str:
    """Return the warning that refine stopped before it converged.

    pass_number: number of the last pass.
    residual: relative residual after this pass.
    angle: angle between the last two projections, in radians.
    tol: tolerance of residual and angle.
    """
    return (
        f"refine stopped after pass {pass_number} with residual {residual:.3g} and angle {angle:.3g} rad, not "
        f"within tol={tol:g}. Go on with a larger max_passes, or take a larger tol or gamma."
    )


def check_refinable(estimator: Estimator, state: State) -> "Refinable":
    """Return the estimator, or raise an error if it cannot be refined.

    CannotRefine is raised if the estimator has no method to make an approximate solution exact by
    further passes over the rows. NotFitted is raised if no row was learned.
    """
    check_has_refine(estimator)
    if state is None or state.rows == 0:
        who = type(estimator).__name__
        raise NotFitted(f"This {who} has learned no row so far: there is nothing to refine. Learn the stream first.")
    return cast("Refinable", estimator)


def check_has_refine(estimator: Estimator) -> None:
    """Raise CannotRefine if an estimator cannot be refined.

    Refining makes an approximate solution exact by further passes over the rows.
    """
    if not estimator.refines:
        raise estimator.cannot_refine_error()


def is_exact_without_refine(estimator: Estimator, state: State) -> bool:
    """Return True if the solution is exact after one pass.

    Further passes over the rows (refine) would then change nothing.
    """
    return not cast(ClosedForm, estimator).reads_scatter() or compute_moments(state).scatter is not None


def _scaled_loadings(earlier_projection: Projection | None, moments: Moments) -> np.ndarray:
    """Return an earlier projection's loadings (features, p), divided by `moments.scale`."""
    # Without a projection, or if it is not linear, there are no loadings, and p is 0. Features that
    # the earlier projection does not have get zeros.
    known = getattr(earlier_projection and inner_projection(earlier_projection), "loadings", np.zeros((0, 0)))
    columns = np.zeros((len(moments.mean), known.shape[1]))
    columns[: len(known)] = known
    return divide_by_scale(columns, moments.scale)


class Refinable(ClosedForm):
    """Base class of methods that have `refine`.

    If only the diagonal of the rows' scatter matrix is stored, a solution is approximate. `refine`
    reads the rows again in several passes, and makes the solution exact. These methods need only
    products of the scatter and some columns.
    """

    refines: ClassVar[bool] = True
    refine_solver: ClassVar[type] = SubspaceSolver
    """Class of the solver that is updated after each pass."""

    def refine(
        self, source: RefineSource, tol: float = 1e-6, max_passes: int = 20, resume: Refining | None = None
    ) -> Self:
        """Replace the projection by the exact solution of the method.

        The rows are read again from `source`, in several passes. The refined projection stays when
        `partial_fit` learns more rows. `refine_report_` has the residual and the angle of every
        pass. If the solution is already exact, a warning is issued. Then `source` is not read, and
        nothing is changed [mathematics §4].

        Parameters
        ----------
        source : (X, y), iterable of (X, y) or (X, y, weights), or source of events
            Exactly the rows that were learned. A source of events is an object with a method
            events(after=-1, until=None), which yields (position, stream_dr.Block(X, y, weights)).
        tol : float
            Tolerance. Refine stops when the relative residual is at most tol and the angle (in
            radians) to the projection of the previous pass is at most tol. Refine also stops when
            nothing remains to be solved.
        max_passes : int
            Maximum number of passes, including the passes of `resume`.
        resume : Refining or None
            State of an earlier call from which to continue, `refine_report_.refining`. None means
            to start from the last refined projection, or from the beginning.

        Raises
        ------
        CannotRefine
            If the rows of the source are not the rows that were learned. The estimator is then
            unchanged.

        Notes
        -----
        For d features and k targets, a pass takes O(entries · k) time and O(d k) memory.
        """
        with self.lock:
            self.check_parameters()
            fitted = self.fitted()
            fitted.check_learning_parameters_unchanged(self)
            state = fitted.accumulator.freeze()
            version = fitted.version

            check_refinable(self, state)
            if is_exact_without_refine(self, state):
                warnings.warn(
                    f"{type(self).__name__} is exact already, from one pass: nothing was changed.", stacklevel=2
                )
                return self

            names = fitted.names
            guess = fitted.refined
            steps = refine_steps(
                self, state, source, tol=tol, max_passes=max_passes, resume=resume, feature_names=names, guess=guess
            )
            projection, self.refine_report_ = run_passes(steps, tol, max_passes)
            multiply = partial(self.scatter_product, state)
            fitted.refined = fitted.cache_projection(projection, multiply, version)
        return self
