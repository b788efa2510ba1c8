"""Refining: the exact solution of a closed-form method at large d, by passes over the stream [mathematics §4].

`refine_steps` makes one pass over a Source a step and hands out, after each, the projection so far, what is known about
it, and what is needed to go on: a NamedTuple of arrays that may be packed, stored, and given back as `resume`, in another
process too. Every first pass checks that the source is what the state has seen.

It stops when both the relative residual and the angle to the projection of the pass before are at most `tol` (the angle in
radians), when nothing is left to solve (whatever the angle), or after `max_passes`. The residual alone is a poor stop where
γ is small. The angle reported is the largest principal angle, π/2 where the number of components changed. A model whose
state holds the exact scatter, or whose method reads none, is exact already: there is nothing to refine.

Cost: a pass is O(entries · r), r ≤ the rank of XH; memory O(d · k), for PCA and its kin O(d · r · passes), bounded.

Why this way: the engine and `Estimator.refine` run the same generator; stopping, cancelling and resuming need nothing
else, because between two steps nothing is alive but a value.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from stream_dr.checks import WIDEST, finite, matrix, within
from stream_dr.errors import CannotRefine, InvalidParameter
from stream_dr.estimators.fitting.mapping import through
from stream_dr.estimators.fitting.moments import Moments, moments_of, unscaled
from stream_dr.estimators.fitting.not_fitted import NotFitted
from stream_dr.estimators.fitting.parameter_checks import check_number, check_positive_int
from stream_dr.estimators.fitting.refining_methods import METHODS
from stream_dr.estimators.fitting.replayed import RefineProgress, Replayed, Sums, unmapped
from stream_dr.rows.source import as_source
from stream_dr.solve.conjugate_gradient import angle
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.protocol import nested_state

PassSums = Callable[[np.ndarray, bool, Callable[[int], None] | None], Sums]
"""Gives what a pass sums for these columns (features, r); the flag: it is the first. Tells the rows so far."""


class Pass(NamedTuple):
    """What one pass has brought.

    number: from 1. rows: rows summed over. residual: relative. angle: radians to the pass before (π/2 in the first).
    components: found. seconds: wall time of the pass. converged: both residual and angle are at most tol.
    """

    number: int
    rows: int
    residual: float
    angle: float
    components: int
    seconds: float
    converged: bool


class RefineReport(NamedTuple):
    """What a refine did: its passes, whether it reached `tol`, and where to go on from if it did not."""

    passes: tuple[Pass, ...]
    converged: bool
    refining: "Refining | None" = None

    @property
    def residual(self) -> float:
        """Relative residual after the last pass."""
        return self.passes[-1].residual


@nested_state
class Refining(NamedTuple):
    """A refine between two passes: passes made, loadings (features, p) of the last, and a BlockSolve or Subspace."""

    number: int
    loadings: np.ndarray
    solve: Any

    def check(self) -> None:
        """Raise DamagedFile unless loadings and solve are of the same features."""
        within(self, 0, WIDEST, "number")
        features = matrix(self, "loadings")[0]
        finite(self, "loadings")
        self.solve.check(features)


class RefinePass(NamedTuple):
    """The outcome of a pass: its report, the projection so far (`solution` "refined"), and what goes on from here."""

    report: Pass
    projection: Any
    refining: Refining


def refine_steps(
    estimator: Any,
    state: Any,
    source: Any,
    *,
    tol: float = 1e-6,
    max_passes: int = 20,
    resume: Refining | None = None,
    names: tuple[str, ...] | None = None,
    progress: RefineProgress | None = None,
    guess: Any = None,
    threads: int = 1,
    sums: PassSums | None = None,
) -> Iterator[RefinePass]:
    """Refine `state` by passes over `source`; a Step a pass, the last one the best.

    estimator: the spec (parameters only are read). source: `events()` yields (position, Block) of exactly the rows learned;
    batches without targets are passed over, as learning does, where the method needs some. tol: for the residual and, in
    radians, the angle. max_passes: number of the last pass, those before `resume` counted. guess: an earlier projection of
    this stream to begin from, where no `resume` is given. threads: of the products. sums: what
    sums a pass in the place of `source`, elsewhere.
    progress(pass, rows) is called after each block. Raises CannotRefine (no out-of-core solution, or another stream),
    InvalidParameter, NotFitted.
    """
    check_number("tol", tol, low=0.0)
    check_positive_int("max_passes", max_passes)
    check_refinable(estimator, state)
    source, learned, moments = as_source(source), state, estimator.moments(state)
    estimator, state, source, names = unmapped(estimator, state, source, names)
    replayed = Replayed(estimator, state, moments, names, threads)
    method = METHODS[estimator.refined_by](estimator, moments, state, replayed.scale > 0)
    now = resume or Refining(0, np.zeros((state.n_features, 0)), method.start(_begin(guess, moments)))
    summed = sums or partial(replayed.sums, source)
    check = True
    while now.number < max_passes:
        began, number = time.monotonic(), now.number + 1
        told = None if progress is None else _numbered(progress, number)
        product, rows = replayed.checked(summed(now.solve.directions, check, told), now.solve.directions)
        check = False
        solve = method.take(now.solve, product)
        loadings, eigenvalues, residual = method.answer(solve)
        projection = estimator.finished(moments._replace(along=method.along), (loadings, eigenvalues), "refined")
        turned = angle(now.loadings, projection.loadings) if number > 1 else np.pi / 2
        done = solve.directions.shape[1] == 0 or (residual <= tol and turned <= tol)
        now = Refining(number, projection.loadings, solve)
        report = Pass(
            number, rows, residual, float(turned), projection.n_components, time.monotonic() - began, bool(done)
        )
        yield RefinePass(report, through(learned, projection), now)
        if done:
            return


def refine(
    estimator: Any,
    state: Any,
    source: Any,
    tol: float,
    max_passes: int,
    names: tuple[str, ...] | None = None,
    resume: Refining | None = None,
    guess: Any = None,
) -> tuple[Any, RefineReport]:
    """All passes at once: the last projection and the report. Warns (ConvergenceWarning) when `tol` was not reached;
    raises what refine_steps raises."""
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
        warnings.warn(not_reached(last.number, last.residual, last.angle, tol), ConvergenceWarning, stacklevel=3)
    return step.projection, RefineReport(tuple(passes), done, None if done else step.refining)


def not_reached(number: int, residual: float, angle: float, tol: float) -> str:
    """What to say of a refine whose last pass, of that number, residual and angle (radians), has not converged."""
    return (
        f"refine stopped after pass {number} with residual {residual:.3g} and angle {angle:.3g} rad, not "
        f"within tol={tol:g}. Go on with a larger max_passes, or take a larger tol or gamma."
    )


def check_refinable(estimator: Any, state: Any) -> None:
    """Raise CannotRefine or NotFitted where refine has nothing to do."""
    check_method(estimator)
    if state is None or state.rows == 0:
        who = type(estimator).__name__
        raise NotFitted(f"This {who} has learned no row so far: there is nothing to refine. Learn the stream first.")


def check_method(estimator: Any) -> None:
    """Raise CannotRefine where the method has no refine."""
    if getattr(estimator, "refined_by", None) is None:
        raise no_refine(estimator)


def no_refine(estimator: Any) -> CannotRefine:
    """What is told of an estimator that cannot be refined."""
    return CannotRefine(
        f"{type(estimator).__name__} has no out-of-core solution. LDA, OPLS, CCA, HSL, PCA, PLSDA, SKM, MMC and WMV have."
    )


def is_exact(estimator: Any, state: Any) -> bool:
    """Whether the state's own solution is exact, so that passes would change nothing."""
    inner = state.inner if isinstance(state, MappedState) else state
    return not estimator.reads_scatter() or moments_of(inner).scatter is not None


def _begin(guess: Any, moments: Moments) -> np.ndarray:
    """The columns (features, p) that an earlier projection begins from, in the solver's units; none where it is no linear
    one. Features that came since have zeros."""
    known = getattr(getattr(guess, "inner", guess), "loadings", np.zeros((0, 0)))
    columns = np.zeros((len(moments.mean), known.shape[1]))
    columns[: len(known)] = known
    return unscaled(columns, moments.scale)


def _numbered(progress: RefineProgress, number: int) -> Any:
    return lambda rows: progress(number, rows)
