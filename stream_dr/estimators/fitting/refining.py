"""Refining: the exact solution of a closed-form method at large d, by passes over the stream
[mathematics §4].

`refine_steps` makes one pass over a Source a step. After each it returns the projection so far, a
report, and the state of the solver: a NamedTuple of arrays that may be packed, stored, and given
back as `resume`, in another process, too. The engine and `Estimator.refine` run the same
generator. Between two steps nothing is alive but a value, so stopping, cancelling and resuming
need nothing else.

The angle reported is the largest principal angle, π/2 if the number of components changed. A pass
takes O(entries · r) time, r ≤ the rank of XH, and O(d · k) memory, for PCA and its kin O(d · r ·
passes), bounded.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from stream_dr.checks import WIDEST, check_finite_arrays, check_within, require_matrix
from stream_dr.errors import CannotRefine, InvalidParameter
from stream_dr.estimators.fitting.inputs import RefineSource
from stream_dr.estimators.fitting.mapping import add_map, inner_projection
from stream_dr.estimators.fitting.moments import Moments, divide_by_scale, moments_of
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.estimators.fitting.parameter_checks import check_number, check_positive_int
from stream_dr.estimators.fitting.refining_methods import METHODS
from stream_dr.estimators.fitting.replayed import RefineProgress, Replayed, Sums, without_feature_map
from stream_dr.projection import Projection
from stream_dr.rows.source import as_source
from stream_dr.solve.conjugate_gradient import BlockSolve, largest_angle
from stream_dr.solve.subspace import Subspace
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.protocol import State, nested_state

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.closed_form import ClosedForm
    from stream_dr.estimators.fitting.estimator import Estimator

PassSums = Callable[[np.ndarray, bool, Callable[[int], None] | None], Sums]
"""Function that computes the sums of a pass for columns (features, r).

The flag is True for the first pass. The callback receives the number of rows so far.
"""


class Pass(NamedTuple):
    """Report of one pass.

    Attributes
    ----------
    number : int
        From 1.
    rows : int
        Rows summed over.
    residual : float
        Relative residual.
    angle : float
        Angle to the pass before, in radians. π/2 in the first.
    components : int
        Number of components.
    seconds : float
        Wall time of the pass.
    converged : bool
        True if both residual and angle are at most tol.
    """

    number: int
    rows: int
    residual: float
    angle: float
    components: int
    seconds: float
    converged: bool


class RefineReport(NamedTuple):
    """Report of a refine.

    Attributes
    ----------
    passes : tuple of Pass
    converged : bool
        True if `tol` was reached.
    refining : Refining or None
        State to resume from, if it was not.
    """

    passes: tuple[Pass, ...]
    converged: bool
    refining: "Refining | None" = None

    @property
    def residual(self) -> float:
        """Relative residual after the last pass."""
        return self.passes[-1].residual


@nested_state
class Refining(NamedTuple):
    """State of a refine between two passes.

    Attributes
    ----------
    number : int
        Passes made.
    loadings : (features, p)
        Loadings after the last pass.
    solve : BlockSolve or Subspace
        State of the solver.
    """

    number: int
    loadings: np.ndarray
    solve: BlockSolve | Subspace

    def check(self) -> None:
        """Raise DamagedFile unless loadings and solve are of the same features."""
        check_within(self, 0, WIDEST, "number")
        features = require_matrix(self, "loadings")[0]
        check_finite_arrays(self, "loadings")
        self.solve.check(features)


class RefinePass(NamedTuple):
    """Outcome of a pass: its report, the projection so far, and the state to go on from.

    `solution` of the projection is "refined".
    """

    report: Pass
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
    names: tuple[str, ...] | None = None,
    progress: RefineProgress | None = None,
    guess: Projection | None = None,
    threads: int = 1,
    sums: PassSums | None = None,
) -> Iterator[RefinePass]:
    """Refine `state` by passes over `source`, and yield a RefinePass each. The last is the best.

    Stops when residual and angle (radians) are at most `tol`, when nothing remains to be solved,
    or after pass number `max_passes`. Raises CannotRefine (no out-of-core solution, or another
    stream), InvalidParameter, NotFitted.

    - source: `events()` yields (position, Block) of exactly the rows learned.
    - progress: called with (pass, rows) after each block.
    - guess: earlier projection of this stream to begin from, without `resume`.
    - sums: computes the sums of a pass elsewhere, in place of `source`.
    """
    check_number("tol", tol, low=0.0)
    check_positive_int("max_passes", max_passes)
    check_refinable(estimator, state)

    learned = state
    solver = cast("ClosedForm", estimator)
    moments = solver.moments(state)
    solver, state, source, names = without_feature_map(solver, state, as_source(source), names)
    replayed = Replayed(solver, state, moments, names, threads)
    method = METHODS[solver.refined_by or ""](solver, moments, state, replayed.scale > 0)

    now = resume or Refining(0, np.zeros((state.n_features, 0)), method.start(_initial_columns(guess, moments)))
    summed = sums or partial(replayed.sums, source)
    check = True
    while now.number < max_passes:
        began = time.monotonic()
        number = now.number + 1
        pass_progress = None if progress is None else _pass_progress(progress, number)
        product, rows = replayed.checked(summed(now.solve.directions, check, pass_progress), now.solve.directions)
        check = False

        solve = method.take(now.solve, product)
        loadings, eigenvalues, residual = method.current_solution(solve)
        projection = solver.make_projection(moments._replace(along=method.along), (loadings, eigenvalues), "refined")
        turned = largest_angle(now.loadings, projection.loadings) if number > 1 else np.pi / 2

        # The residual alone is a poor stop where γ is small.
        done = solve.directions.shape[1] == 0 or (residual <= tol and turned <= tol)

        now = Refining(number, projection.loadings, solve)
        seconds = time.monotonic() - began
        report = Pass(number, rows, residual, float(turned), projection.n_components, seconds, bool(done))
        yield RefinePass(report, add_map(learned, projection), now)
        if done:
            return


def run_all_passes(
    estimator: "ClosedForm",
    state: State,
    source: RefineSource,
    tol: float,
    max_passes: int,
    names: tuple[str, ...] | None = None,
    resume: Refining | None = None,
    guess: Projection | None = None,
) -> tuple[Projection, RefineReport]:
    """Run all passes and return the last projection and the report.

    Warns ConvergenceWarning if `tol` was not reached. Raises what refine_steps raises.
    """
    passes = []
    for step in refine_steps(
        estimator, state, source, tol=tol, max_passes=max_passes, names=names, resume=resume, guess=guess
    ):
        passes.append(step.report)

    if not passes:
        raise InvalidParameter(f"max_passes={max_passes}; the refine to go on from has made as many. Give more.")
    done = passes[-1].converged
    if not done:
        last = passes[-1]
        warnings.warn(
            not_converged_warning(last.number, last.residual, last.angle, tol), ConvergenceWarning, stacklevel=3
        )
    return step.projection, RefineReport(tuple(passes), done, None if done else step.refining)


def not_converged_warning(number: int, residual: float, angle: float, tol: float) -> str:
    """Return the warning for a refine whose last pass has not converged.

    angle: in radians.
    """
    return (
        f"refine stopped after pass {number} with residual {residual:.3g} and angle {angle:.3g} rad, not "
        f"within tol={tol:g}. Go on with a larger max_passes, or take a larger tol or gamma."
    )


def check_refinable(estimator: "Estimator", state: State) -> None:
    """Raise CannotRefine or NotFitted if refine has nothing to do."""
    check_method(estimator)
    if state is None or state.rows == 0:
        who = type(estimator).__name__
        raise NotFitted(f"This {who} has learned no row so far: there is nothing to refine. Learn the stream first.")


def check_method(estimator: "Estimator") -> None:
    """Raise CannotRefine if the method has no refine."""
    if estimator.refined_by is None:
        raise cannot_refine_error(estimator)


def cannot_refine_error(estimator: "Estimator") -> CannotRefine:
    """Return the error for an estimator that cannot be refined."""
    return CannotRefine(
        f"{type(estimator).__name__} has no out-of-core solution. LDA, OPLS, CCA, HSL, PCA, PLSDA, SKM, MMC and WMV have."
    )


def is_exact(estimator: "Estimator", state: State) -> bool:
    """True if the state's own solution is exact, so that passes would change nothing."""
    inner = state.inner if isinstance(state, MappedState) else state
    return not cast("ClosedForm", estimator).reads_scatter() or moments_of(inner).scatter is not None


def _initial_columns(guess: Projection | None, moments: Moments) -> np.ndarray:
    """Return the columns (features, p) that an earlier projection begins from.

    They are in the solver's units. There are none if the projection is not linear. Features that
    came since have zeros.
    """
    known = getattr(guess and inner_projection(guess), "loadings", np.zeros((0, 0)))
    columns = np.zeros((len(moments.mean), known.shape[1]))
    columns[: len(known)] = known
    return divide_by_scale(columns, moments.scale)


def _pass_progress(progress: RefineProgress, number: int) -> Callable[[int], None]:
    return lambda rows: progress(number, rows)
