"""The two solvers of refine [mathematics §4].

Both need only products with the rows' scatter.

- FirstStageSolver is the solver of LDA, OPLS, CCA and HSL. These methods solve a linear system
  first. The solver is block conjugate gradient.
- SubspaceSolver is the solver of PCA, PLSDA, SKM, MMC and WMV. These methods are solved on a basis
  of directions, to which each pass adds directions.

Both classes have the same methods:

- `start(initial_columns)` returns the first state of the solver, a NamedTuple of arrays.
- `advance(solver_state, scatter_product)` returns the next state. `scatter_product` is the rows'
  scatter times `solver_state.directions`.
- `current_solution(solver_state)` returns the loadings, eigenvalues and relative residual so far.

After each pass, the solvers call the estimator's own method `directions`. So refine and the exact
solution agree.
"""

from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.errors import CannotRefine
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.solve import conjugate_gradient as cg
from stream_dr.solve import subspace
from stream_dr.solve.spectral import EPS
from stream_dr.statistics.moments.state import MomentState

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
    from stream_dr.estimators.fitting.two_stage_method import TwoStage

MAX_BASIS_BYTES = 400_000_000
"""Size in bytes above which a basis and its products are cut down to the solution.

A basis of at most 4 blocks is never cut. A block is the directions that one pass adds.
"""


class RefinedSolution(NamedTuple):
    """Solution of a method after some passes of refine.

    Attributes
    ----------
    loadings : (features, components)
        Loadings of the components.
    eigenvalues : (components,)
        Eigenvalues of the components.
    residual : float
        Relative residual of the solution.
    """

    loadings: np.ndarray
    eigenvalues: np.ndarray
    residual: float


class FirstStageSolver:
    """Solver of refine for LDA, OPLS, CCA and HSL.

    These methods solve a linear system first. The solver is block conjugate gradient.

    estimator: estimator with the parameters of the method.
    moments: centred sums of the rows and targets.
    state: state from which the moments were computed.
    varying_columns: (features,) bool, True for columns that are not constant.
    """

    along = None

    def __init__(
        self, estimator: "TwoStage", moments: Moments, state: MomentState, varying_columns: np.ndarray
    ) -> None:
        self._estimator, self._moments, self._state = estimator, moments, state
        self._varying = varying_columns
        if not estimator.ridge_terms(moments)[0]:
            raise CannotRefine(
                f"{type(estimator).__name__} with shrinkage=1 reads the trace of Cxx alone: there is nothing to refine."
            )

    def start(self, initial_columns: np.ndarray) -> cg.BlockSolve:
        """Return the first state of the solver.

        If the method's right-hand sides are only rounding error, there is nothing to solve.

        initial_columns: (features, p), columns of an earlier solution, in whose span the solver
            starts. p may be 0.
        """
        xh, target_matrix_norm = self._estimator.right_hand_side(self._moments, self._state)
        is_real = self._moments.significant_cross_sum_combinations(xh, target_matrix_norm).shape[1] > 0
        right = np.where(self._varying[:, None] & is_real, xh, 0.0)
        guess = np.where(self._varying[:, None], initial_columns, 0.0)
        return cg.start_block_solve(right, 8 * EPS * self._mean_to_total_deviation_ratio(), guess)

    def advance(self, solver_state: cg.BlockSolve, scatter_product: np.ndarray) -> cg.BlockSolve:
        """Return the state after one step of conjugate gradient.

        solver_state: state before the step.
        scatter_product: (features, r), product of the rows' scatter and the r columns of
            `solver_state.directions`.
        """
        share, ridge = self._estimator.ridge_terms(self._moments)
        return cg.advance_linear_solve(solver_state, share * scatter_product + ridge * solver_state.directions)

    def current_solution(self, solver_state: cg.BlockSolve) -> RefinedSolution:
        """Return loadings, eigenvalues and relative residual after the steps so far."""
        moments = self._moments._replace(first_stage=solver_state)
        loadings, eigenvalues = self._estimator.directions(moments, self._state)
        return RefinedSolution(loadings, eigenvalues, cg.relative_solve_residual(solver_state))

    def _mean_to_total_deviation_ratio(self) -> float:
        """Return the mean's distance from zero, in standard deviations.

        The distance is the largest absolute mean of a feature. The standard deviation is the root
        of the sum of the features' variances. The relative rounding error of centred sums is about
        eps times the returned value.
        """
        size = float(np.sqrt(self._moments.diagonal.sum()))
        return float(self._moments.rounding.shift.max(initial=0.0)) / size if size else 0.0


class SubspaceSolver:
    """Solver of refine for PCA, PLSDA, SKM, MMC and WMV.

    These methods are solved on a growing basis of directions. The basis starts with the
    cross-scatter of rows and targets. If there are fewer targets than components, random
    directions are added.

    Attributes
    ----------
    along : (p,) or None
        Scatter of the rows along each component of the last solution. None before the first
        solution.
    """

    along: np.ndarray | None = None

    def __init__(
        self, estimator: "ClosedForm", moments: Moments, state: MomentState, varying_columns: np.ndarray
    ) -> None:
        self._estimator, self._moments, self._state = estimator, moments, state
        self._varying = varying_columns
        if isinstance(estimator.n_components, float):
            raise CannotRefine(
                f"n_components={estimator.n_components} is a share of all variance, and refine looks for a given number of "
                "components. State how many."
            )
        self._count = estimator.n_components or moments.cross.shape[1]
        if self._count == 0:
            self._raise_needs_n_components()

    def start(self, initial_columns: np.ndarray) -> subspace.Subspace:
        """Return the first state of the solver.

        The basis has no vectors yet. The state's directions are the vectors that the first pass
        adds to the basis.

        initial_columns: (features, p), columns of an earlier solution, which are among the first
            directions. p may be 0.
        """
        cross = self._moments.cross
        more = 0 if cross.shape[1] >= self._count else self._count + max(4, self._count // 2) - cross.shape[1]
        seed = self._estimator.random_state or 0
        drawn = np.random.default_rng(seed).standard_normal((len(cross), more))
        columns = np.where(self._varying[:, None], np.hstack([cross, drawn, initial_columns]), 0.0)
        return subspace.start_subspace(columns)

    def advance(self, solver_state: subspace.Subspace, scatter_product: np.ndarray) -> subspace.Subspace:
        """Return the basis extended by the directions of one pass.

        If the extended basis is too large, the basis is cut down to the span of the current
        solution.

        solver_state: basis before the pass.
        scatter_product: (features, r), product of the rows' scatter and the r columns of
            `solver_state.directions`.
        """
        grown = subspace.extend_subspace(solver_state, scatter_product)

        # Limit the basis to four blocks, or to more if they fit in MAX_BASIS_BYTES.
        block = max(1, grown.directions.shape[1])
        most = max(4 * block, MAX_BASIS_BYTES // (16 * len(grown.basis)))
        if grown.basis.shape[1] <= most or grown.directions.shape[1] == 0:
            return grown

        answer = self._directions_in_basis(grown)[0][:, :block]
        return subspace.restart_from_solution(grown, answer) if answer.shape[1] else grown

    def current_solution(self, solver_state: subspace.Subspace) -> RefinedSolution:
        """Return loadings, eigenvalues and relative residual after the passes so far."""
        small, eigenvalues = self._directions_in_basis(solver_state)
        if self._estimator.n_components is None and len(eigenvalues) > self._count:
            self._raise_needs_n_components()
        small, eigenvalues = small[:, : self._count], eigenvalues[: self._count]
        self.along = np.einsum("ij,ij->j", small, solver_state.scatter @ small)
        residual = subspace.relative_subspace_residual(solver_state, small)
        return RefinedSolution(solver_state.basis @ small, eigenvalues, residual)

    def _directions_in_basis(self, basis_state: subspace.Subspace) -> "Directions":
        """Return the method's directions and eigenvalues on a basis.

        The directions are (m, p) and the eigenvalues (p,). The p directions are coefficients of
        the m vectors of the basis.

        basis_state: the basis, and the scatter of the rows projected on the basis.
        """
        m = self._moments
        V = basis_state.basis
        scatter = basis_state.scatter

        small = m._replace(
            mean=V.T @ (m.mean * m.scale),
            diagonal=np.maximum(np.diagonal(scatter), 0.0),
            scatter=scatter,
            cross=V.T @ m.cross,
            scale=np.ones(V.shape[1]),
            rounding=m.rounding._replace(shift=np.abs(np.sqrt(m.weight) * (V.T @ (m.mean * m.scale)))),
        )
        return self._estimator.directions_from_class_weighted_scatter(small, self._state)

    def _raise_needs_n_components(self) -> NoReturn:
        """Raise CannotRefine, because n_components is None.

        A refinement computes a given number of components, and not all of them.
        """
        raise CannotRefine(
            f"{type(self._estimator).__name__} with n_components=None would need every direction there is, that is the "
            "whole scatter matrix. State n_components."
        )


SOLVERS: JsonDict = {"first_stage": FirstStageSolver, "subspace": SubspaceSolver}
"""Solver classes, by the value of an estimator's attribute `refined_by`."""
