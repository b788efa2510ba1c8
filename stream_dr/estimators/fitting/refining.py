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
"""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from stream_dr.checks import FEATURE_COUNT_LIMIT, check_finite_arrays, check_within, shape_of_checked_matrix
from stream_dr.errors import CannotRefine, InvalidParameter
from stream_dr.estimators.fitting.inputs import RefineSource
from stream_dr.estimators.fitting.mapping import inner_projection, prepend_feature_map
from stream_dr.estimators.fitting.moments import Moments, compute_moments, divide_or_zero_by_feature_scale
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.estimators.fitting.parameter_checks import check_number_in_range, check_positive_int
from stream_dr.estimators.fitting.refining_methods import SOLVERS
from stream_dr.estimators.fitting.replayed import RefineProgress, RowReplay, Sums, strip_feature_map
from stream_dr.projection import Projection
from stream_dr.rows.source import as_source
from stream_dr.solve.conjugate_gradient import BlockSolve, largest_principal_angle
from stream_dr.solve.subspace import Subspace
from stream_dr.solve.tall_qr import tall_qr
from stream_dr.statistics.protocol import State, register_nested_state

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.closed_form import ClosedForm
    from stream_dr.estimators.fitting.estimator import Estimator

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
        """Relative residual after the last pass."""
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
    solve: BlockSolve | Subspace

    def check(self) -> None:
        """Raise DamagedFile unless the arrays fit together.

        `loadings` and `solve` must have the same number of features.
        """
        check_within(self, 0, FEATURE_COUNT_LIMIT, "number")
        features = shape_of_checked_matrix(self, "loadings")[0]
        check_finite_arrays(self, "loadings")
        self.solve.check(features)


class RefinePass(NamedTuple):
    """Result of one pass.

    Attributes
    ----------
    report : PassReport
        Report of the pass.
    projection : Projection
        Projection so far, with the attribute `solution` set to "refined".
    refining : Refining
        State from which another call can continue.
    """

    report: PassReport
    projection: Projection
    refining: Refining


def refine_steps(
    estimator: "Estimator",
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
    """Refine a solution, and yield a RefinePass after each pass.

    The passes end when residual and angle are at most `tol`, or when nothing remains to be solved.
    Raises CannotRefine, InvalidParameter, NotFitted.

    source: exactly the rows that the state has learned.
    tol: tolerance of the relative residual, and of the angle between two projections in radians.
    max_passes: maximum number of passes. Passes of the earlier refine in `resume` count, too.
    resume: state of an earlier refine to continue from, or None to start from `guess`.
    feature_names: names of the features, if the rows have named columns.
    progress: function that receives the number of the pass and the number of rows read so far.
    guess: earlier projection to start from, or None.
    n_threads: number of threads that compute products.
    compute_pass_sums: function that computes the sums of a pass, instead of reading `source`.
    """
    check_number_in_range("tol", tol, low=0.0)
    check_positive_int("max_passes", max_passes)
    check_refinable(estimator, state)
    solver, moments, sums, replayed, method = _prepare_problem(estimator, state, source, feature_names, n_threads)

    # Continue from the earlier refine, or start from the columns of the guess.
    now = resume or Refining(0, np.zeros((len(moments.mean), 0)), method.start(_loadings_or_empty(guess, moments)))
    summed = compute_pass_sums or sums
    basis = tall_qr(now.loadings)[0]
    first = now.number + 1
    for number in range(first, max_passes + 1):
        began = time.monotonic()
        pass_progress = None if progress is None else partial(progress, number)
        directions = now.solve.directions
        product, rows = replayed.checked_product(summed(directions, number == first, pass_progress), directions)

        # Update the solver, and compare the new projection with the projection of the last pass.
        solve = method.advance(now.solve, product)
        loadings, eigenvalues, residual = method.current_solution(solve)
        measured = moments._replace(along=method.along)
        projection = solver.make_projection(measured, (loadings, eigenvalues), "refined")
        last_basis, basis = basis, tall_qr(projection.loadings)[0]
        turned = largest_principal_angle(last_basis, basis) if number > 1 else np.pi / 2
        # Stop if residual and angle are small. The residual alone may be small too early.
        done = solve.directions.shape[1] == 0 or (residual <= tol and turned <= tol)

        now = Refining(number, projection.loadings, solve)
        report = PassReport(number, rows, residual, turned, projection.n_components, time.monotonic() - began, done)
        yield RefinePass(report, prepend_feature_map(state, projection), now)
        if done:
            return


class _MappedProblem(NamedTuple):
    """Problem that refine solves, in the space of mapped rows.

    Without a feature map, the mapped rows are the rows themselves.

    Attributes
    ----------
    solver : ClosedForm
        Estimator without a feature map.
    moments : Moments
        Centred sums of the mapped rows.
    sums : ComputePassSums
        Function that computes the sums of a pass over the mapped rows.
    replayed : RowReplay
        Reader of the mapped rows, which checks the sums of a pass.
    method : FirstStageSolver or SubspaceSolver
        Solver that is updated after each pass.
    """

    solver: "ClosedForm"
    moments: Moments
    sums: ComputePassSums
    replayed: RowReplay
    method: Any


def _prepare_problem(
    estimator: "Estimator", state: State, source: RefineSource, feature_names: tuple[str, ...] | None, n_threads: int
) -> _MappedProblem:
    """Return the problem that refine solves, for mapped rows.

    state: state that has learned the rows of the source.
    source: rows that are not mapped.
    feature_names: names of the features, if the rows have named columns.
    n_threads: number of threads that compute products.
    """
    closed_form = cast("ClosedForm", estimator)
    moments = closed_form.moments(state)
    solver, mapped_state, mapped_source, names = strip_feature_map(closed_form, state, as_source(source), feature_names)
    replayed = RowReplay(solver, mapped_state, moments, names, n_threads)
    method = SOLVERS[solver.refined_by or ""](solver, moments, mapped_state, replayed.scale > 0)
    return _MappedProblem(solver, moments, partial(replayed.sum_over_pass, mapped_source), replayed, method)


def run_passes_and_warn_if_unconverged(
    steps: Iterator[RefinePass], tol_of_steps: float, max_passes_of_steps: int
) -> tuple[Projection, RefineReport]:
    """Run all passes of refine, and return projection and report.

    If the tolerance was not reached, the warning ConvergenceWarning is issued. Raises
    InvalidParameter if there is no pass, and the errors of `refine_steps`.

    steps: the passes, as `refine_steps` yields them.
    tol_of_steps: tolerance of the passes, for the warning.
    max_passes_of_steps: maximum number of passes, for the error.
    """
    # Collect the reports of all passes. After the loop, `step` is the result of the last pass.
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
    return step.projection, RefineReport(tuple(passes), last.converged, None if last.converged else step.refining)


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


def check_refinable(estimator: "Estimator", state: State) -> None:
    """Raise CannotRefine or NotFitted if a state cannot be refined.

    CannotRefine is raised if the estimator has no method to make an approximate solution exact by
    further passes over the rows. NotFitted is raised if no row was learned.
    """
    check_has_refine(estimator)
    if state is None or state.rows == 0:
        who = type(estimator).__name__
        raise NotFitted(f"This {who} has learned no row so far: there is nothing to refine. Learn the stream first.")


def check_has_refine(estimator: "Estimator") -> None:
    """Raise CannotRefine if an estimator cannot be refined.

    Refining makes an approximate solution exact by further passes over the rows.
    """
    if estimator.refined_by is None:
        raise cannot_refine_error(estimator)


def cannot_refine_error(estimator: "Estimator") -> CannotRefine:
    """Return the error for an estimator that cannot be refined."""
    return CannotRefine(
        f"{type(estimator).__name__} has no out-of-core solution. LDA, OPLS, CCA, HSL, PCA, PLSDA, SKM, MMC and WMV have."
    )


def is_exact_without_refine(estimator: "Estimator", state: State) -> bool:
    """Return True if the solution is exact after one pass.

    Further passes over the rows (refine) would then change nothing.
    """
    return not cast("ClosedForm", estimator).reads_scatter() or compute_moments(state).scatter is not None


def _loadings_or_empty(earlier_projection: Projection | None, moments: Moments) -> np.ndarray:
    """Return the p columns (features, p) from which refine starts.

    The columns are the loadings of an earlier projection. Features that the projection does not
    have get zeros. If the projection is None or not linear, the result has no columns.

    earlier_projection: the earlier projection, or None.
    moments: centred sums. The columns are divided by the factors of the features in
        `moments.scale`.
    """
    known = getattr(earlier_projection and inner_projection(earlier_projection), "loadings", np.zeros((0, 0)))
    columns = np.zeros((len(moments.mean), known.shape[1]))
    columns[: len(known)] = known
    return divide_or_zero_by_feature_scale(columns, moments.scale)
