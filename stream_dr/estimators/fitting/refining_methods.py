"""Two solvers that need only products with the scatter matrix Cxx [mathematics §4].

Cxx (features, features) is the scatter of the centred rows.

- FirstStage (LDA, OPLS, CCA, HSL) solves (aCxx + ρI) W1 = XH by block conjugate gradient. a and ρ
  are numbers, and XH is the product of the centred rows and the method's factor of the targets.
- OnSubspace (PCA, PLSDA, SKM, MMC, WMV) solves the method itself on a growing Krylov basis, on
  which the scatter is exact.

Both classes have the same methods:

- `start(guess)` returns the first state of the solver, a NamedTuple of arrays.
- `take(solve, product)` returns the next state. `product` is Cxx times `solve.directions`.
- `current_solution(solve)` returns the loadings, eigenvalues and relative residual so far.

The solvers do not depend on the method. After each pass they call the method's own `directions`,
so refine and the exact solution cannot disagree.
"""

from typing import TYPE_CHECKING

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.errors import CannotRefine
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.solve import conjugate_gradient as cg
from stream_dr.solve import subspace
from stream_dr.solve.spectral import EPS
from stream_dr.statistics.moments.accumulator import MomentState

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
    from stream_dr.estimators.fitting.two_stage_method import TwoStage

BASIS_BYTES = 400_000_000
"""Size in bytes above which a basis and its products are cut down to the solution.

The basis is never cut below 4 blocks, and not before there is a solution.
"""

Solved = tuple[np.ndarray, np.ndarray, float]
"""Loadings (features, components), eigenvalues (components,) and relative residual."""


class FirstStage:
    """Solver of the two-stage methods, by block conjugate gradient.

    varying: (features,) mask of columns that are not constant.
    """

    along = None

    def __init__(self, estimator: "TwoStage", moments: Moments, state: MomentState, varying: np.ndarray) -> None:
        self._estimator, self._moments, self._state = estimator, moments, state
        self._varying = varying
        if not estimator.ridge_terms(moments)[0]:
            raise CannotRefine(
                f"{type(estimator).__name__} with shrinkage=1 reads the trace of Cxx alone: there is nothing to refine."
            )

    def start(self, guess: np.ndarray) -> cg.BlockSolve:
        """Return the first state of the solve, which starts in the span of `guess`.

        If the method's right-hand sides are only rounding error, there is nothing to solve.

        guess: (features, p), columns of an earlier solution. p may be 0.
        """
        xh, h_norm = self._estimator.right_hand_side(self._moments, self._state)
        is_real = self._moments.significant(xh, h_norm).shape[1] > 0
        right = np.where(self._varying[:, None] & is_real, xh, 0.0)
        return cg.start_solve(right, 8 * EPS * self._offset(), np.where(self._varying[:, None], guess, 0.0))

    def take(self, solve: cg.BlockSolve, product: np.ndarray) -> cg.BlockSolve:
        """Return the state after one step of conjugate gradient.

        solve: state before the step.
        product: Cxx @ solve.directions (features, r), for the scatter Cxx of the rows.
        """
        share, ridge = self._estimator.ridge_terms(self._moments)
        return cg.solve_step(solve, share * product + ridge * solve.directions)

    def current_solution(self, solve: cg.BlockSolve) -> Solved:
        """Return the method's solution from the linear system solved so far."""
        moments = self._moments._replace(first_stage=solve)
        loadings, eigenvalues = self._estimator.directions(moments, self._state)
        return loadings, eigenvalues, cg.solve_residual(solve)

    def _offset(self) -> float:
        """Return max|x̄| / σ for the mean x̄ and the standard deviation σ of the rows.

        Sums about the mean are exact to eps times this value.
        """
        size = float(np.sqrt(self._moments.diagonal.sum()))
        return float(self._moments.rounding.shift.max(initial=0.0)) / size if size else 0.0


class OnSubspace:
    """Solver of the methods that are no linear systems, on a growing basis.

    The basis starts with the cross-scatter of rows and targets. If there are fewer targets than
    components, random directions are added.

    Attributes
    ----------
    along : (p,) or None
        wᵀ Cxx w of each component w of the last solution, for the scatter Cxx of the rows. None
        before the first solution.
    """

    along: np.ndarray | None = None

    def __init__(self, estimator: "ClosedForm", moments: Moments, state: MomentState, varying: np.ndarray) -> None:
        self._estimator, self._moments, self._state = estimator, moments, state
        self._varying = varying
        if isinstance(estimator.n_components, float):
            raise CannotRefine(
                f"n_components={estimator.n_components} is a share of all variance, and refine looks for a given number of "
                "components. State how many."
            )
        self._count = estimator.n_components or moments.cross.shape[1]
        if self._count == 0:
            self._refuse_all()

    def start(self, guess: np.ndarray) -> subspace.Subspace:
        """Return the first block of the Krylov basis, which contains the span of `guess`.

        guess: (features, p), columns of an earlier solution. p may be 0.
        """
        cross = self._moments.cross
        more = 0 if cross.shape[1] >= self._count else self._count + max(4, self._count // 2) - cross.shape[1]
        seed = self._estimator.random_state or 0
        drawn = np.random.default_rng(seed).standard_normal((len(cross), more))
        return subspace.start_basis(np.where(self._varying[:, None], np.hstack([cross, drawn, guess]), 0.0))

    def take(self, solve: subspace.Subspace, product: np.ndarray) -> subspace.Subspace:
        """Return the basis extended by one block.

        If the extended basis is too large, it is cut down to the span of its solution.

        solve: the basis before.
        product: Cxx @ solve.directions (features, r), for the scatter Cxx of the rows.
        """
        grown = subspace.extend_basis(solve, product)

        block = max(1, grown.directions.shape[1])
        most = max(4 * block, BASIS_BYTES // (16 * len(grown.basis)))
        if grown.basis.shape[1] <= most or grown.directions.shape[1] == 0:
            return grown

        answer = self._small(grown)[0][:, :block]
        return subspace.restart(grown, answer) if answer.shape[1] else grown

    def current_solution(self, solve: subspace.Subspace) -> Solved:
        """Return the method's solution on the basis and its relative residual."""
        small, eigenvalues = self._small(solve)
        if self._estimator.n_components is None and len(eigenvalues) > self._count:
            self._refuse_all()
        small, eigenvalues = small[:, : self._count], eigenvalues[: self._count]
        self.along = np.einsum("ij,ij->j", small, solve.scatter @ small)
        return solve.basis @ small, eigenvalues, subspace.subspace_residual(solve, small)

    def _small(self, solve: subspace.Subspace) -> "Directions":
        """Return the method's directions as coefficients in the basis, and their eigenvalues."""
        m = self._moments
        V = solve.basis
        scatter = solve.scatter

        small = m._replace(
            mean=V.T @ (m.mean * m.scale),
            diagonal=np.maximum(np.diagonal(scatter), 0.0),
            scatter=scatter,
            cross=V.T @ m.cross,
            scale=np.ones(V.shape[1]),
            rounding=m.rounding._replace(shift=np.abs(np.sqrt(m.weight) * (V.T @ (m.mean * m.scale)))),
        )
        return self._estimator.directions_on(small, self._state)

    def _refuse_all(self) -> None:
        raise CannotRefine(
            f"{type(self._estimator).__name__} with n_components=None would need every direction there is, that is the "
            "whole scatter matrix. State n_components."
        )


METHODS: JsonDict = {"first_stage": FirstStage, "subspace": OnSubspace}
"""Solver classes, by the value of an estimator's attribute `refined_by`."""
