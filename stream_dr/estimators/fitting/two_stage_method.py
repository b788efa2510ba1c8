"""Base class of LDA, OPLS, CCA and HSL.

These methods share one generalised eigenproblem.

The eigenproblem is `(aCxx + ρI)⁻¹ XH (XH)ᵀ w = λ w` [2S, Algorithm 2]:

* Cxx (features, features) is the scatter of the centred rows.
* The numbers a and ρ are computed from the parameter `gamma` or `shrinkage`.
* XH (features, k) is the product of the centred rows and a matrix H (rows, k), which each method
  computes from the targets.

In the papers, the solution W satisfies Wᵀ(Cxx + γI)W = I, where Cxx is a *sum* over N rows. So
projected rows become smaller with more rows, as 1/√N. With scaling="unit", each component is
divided by the standard deviation of the learned rows along the component. The state does not
depend on `scaling`.
"""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

import numpy as np

from stream_dr.errors import CannotRefine, InvalidParameter
from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.folds import aligned_folds
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range
from stream_dr.estimators.fitting.state_error import Predictors, PredictsHeldOut, cross_validation_errors
from stream_dr.estimators.fitting.stream_learner import NeedsRefine
from stream_dr.solve import conjugate_gradient as cg
from stream_dr.solve.spectral import EPS, nonzero_semidefinite_eigenpairs, zero_rounding
from stream_dr.solve.two_stage import condition_number, scatter_of_varying_features, two_stage
from stream_dr.statistics.moments.state import MomentState
from stream_dr.uncertainty import CrossValidation

RELATIVE_RIDGES = np.concatenate([[0.0], np.logspace(-6.0, 3.0, 25)])
"""Ridges that are compared, divided by the mean scatter of a feature."""


class RightHandSide(NamedTuple):
    """Right-hand side of the linear system of a two-stage method.

    Attributes
    ----------
    xh : (features, k)
        Product XH. The columns of X (features, rows) are the centred rows. The method computes H
        (rows, k) from the targets. Its k columns are, for example, the class indicators. The solver
        may overwrite the product.
    target_matrix_norm : float
        Frobenius norm of H, which is not centred. The norm decides which part of XH is only
        rounding error.
    """

    xh: np.ndarray
    target_matrix_norm: float


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
        self._estimator = estimator
        self._moments = moments
        self._state = state
        self._varying = varying_columns
        if not estimator.ridge_terms(moments)[0]:
            raise CannotRefine(
                f"{type(estimator).__name__} with shrinkage=1 reads the trace of Cxx alone: there is nothing to refine."
            )

    def start(self, initial_columns: np.ndarray) -> cg.BlockSolve:
        """Return the first state of block conjugate gradient.

        The linear system is (share·Cxx + ridge·I) V = XH, the first stage of the method. Cxx is the
        rows' scatter, share and ridge are numbers that follow from `gamma` or `shrinkage`, and XH
        (features, k) is computed from rows and targets. If XH is only rounding error, it is
        replaced by 0, and so is the solution.

        initial_columns: (features, p), columns of an earlier solution, in whose span the solver
            starts. p may be 0.
        """
        # `xh` (features, k) are the centred rows X times a matrix H of the targets.
        # `significant` (features, r) are combinations of its columns that exceed rounding errors.
        xh, target_matrix_norm = self._estimator.right_hand_side(self._moments, self._state)
        significant = self._moments.significant_cross_sum_combinations(xh, target_matrix_norm)
        if significant.shape[1] == 0:
            xh = np.zeros_like(xh)
        # Features that do not vary (False in `_varying`) have no part in the solution.
        right = np.where(self._varying[:, None], xh, 0.0)
        guess = np.where(self._varying[:, None], initial_columns, 0.0)
        # The solver does not fit errors of the size of the noise.
        return cg.start_block_solve(right, relative_noise=_centring_error(self._moments), guess_columns=guess)

    def advance(self, solver_state: cg.BlockSolve, scatter_product: np.ndarray) -> cg.BlockSolve:
        """Return the state after one step of conjugate gradient.

        solver_state: state before the step.
        scatter_product: (features, r), product of the rows' scatter and the r columns of
            `solver_state.directions`.
        """
        share, ridge = self._estimator.ridge_terms(self._moments)
        return cg.advance_linear_solve(solver_state, share * scatter_product + ridge * solver_state.directions)

    def current_solution(self, solver_state: cg.BlockSolve) -> tuple[np.ndarray, np.ndarray, float]:
        """Return loadings, eigenvalues and relative residual after the steps so far."""
        moments = self._moments._replace(first_stage=solver_state)
        loadings, eigenvalues = self._estimator.directions(moments, self._state)
        return loadings, eigenvalues, cg.relative_solve_residual(solver_state)


@dataclass(eq=False, repr=False)
class TwoStage(PredictsHeldOut):
    """Base class of two-stage methods, with their common parameters.

    The first stage solves a linear system (Cxx + γI) V = XH, where Cxx is the rows' scatter, γ a
    ridge, and XH computed from rows and targets. The second stage solves a small eigenproblem, to
    find the components W in the span of V. [2S] is Sun, Ceran and Ye, A Scalable Two-Stage Approach
    for a Class of Dimensionality Reduction Techniques.

    Parameters
    ----------
    gamma : float ≥ 0 or "cv", default 0.0
        Ridge that is added to the diagonal of the rows' scatter matrix, as in [2S]. The scatter is
        a *sum* over rows, so the effect of the ridge decreases with more rows. "cv" chooses it by
        cross-validation on the folds, of which there are 5 unless `folds` is set.
    shrinkage : float in [0, 1] or None, default None
        Regularisation s that is used instead of `gamma`. Its effect does not depend on the number
        of rows. The matrix (1 − s) Cxx + s (tr Cxx / d) I is inverted, where Cxx is the scatter of
        the rows and d the number of features, as in scikit-learn's `shrunk_covariance`.
    scaling : {"unit", "source"}, default "unit"
        Length of the components. With "unit", the learned rows have variance 1 along every
        component, with the sum of weights as divisor. With "source", Wᵀ(Cxx + γI)W = I holds for
        the components W, as in [2S]. Then projected rows shrink as 1/√N for N rows.
        `eigenvalues_` do not depend on `scaling`.

    Attributes
    ----------
    gamma_ : float
        Ridge that was used. It is `gamma` itself, or the value that "cv" has chosen.
    condition_ : float
        Condition number of the matrix that is inverted, on the space in which the rows vary. The
        relative error of the solution is about 2e-16 times this number.
    """

    cross_validates = "gamma"
    refine_solver = FirstStageSolver

    _: KW_ONLY
    shrinkage: float | None = None
    scaling: Literal["unit", "source"] = "unit"

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range.

        Also raises InvalidParameter if gamma and shrinkage are both set.
        """
        super().check_parameters()
        check_choice("scaling", self.scaling, ("unit", "source"))
        if self.is_cross_validated:
            self._check_chosen_gamma()
        if self.shrinkage is not None:
            self._check_shrinkage()

    def _check_chosen_gamma(self) -> None:
        """Raise InvalidParameter if cross-validation cannot choose `gamma`."""
        # The method inverts share·Cxx + ridge·I, with share = 1 − shrinkage. Except for its length,
        # the solution is that of Cxx + (ridge/share)·I. So a shrinkage below 1 acts as some gamma.
        if self.shrinkage is not None:
            raise InvalidParameter(
                f"gamma='cv' and shrinkage={self.shrinkage!r} are two ways to choose the ridge; give one of them. The "
                "components of each shrinkage are also those of a gamma, so gamma='cv' leaves none out."
            )
        # HSL's laplacian "clique" or "star" computes targets from all rows' sets of labels. A
        # fold's targets would depend on the rows of other folds.
        if self.keeps_label_sets():
            raise InvalidParameter(
                f"gamma='cv' was given to {self!r}, and the targets of 'clique' and 'star' depend on all rows together, "
                "so the error on some of the rows is not defined. Give laplacian='zhou', or a number as gamma."
            )

    def _check_shrinkage(self) -> None:
        """Raise InvalidParameter if `shrinkage` is no share, or if `gamma` is set, too."""
        # A string asks for an automatic shrinkage, as in scikit-learn.
        if isinstance(self.shrinkage, str):
            raise InvalidParameter(
                f"shrinkage={self.shrinkage!r}; it must be None or a number in [0, 1]. Ledoit and Wolf's share needs fourth "
                "moments of the rows, which are not kept."
            )
        check_number_in_range("shrinkage", self.shrinkage, low=0.0, high=1.0)
        if self.gamma:
            raise InvalidParameter(
                f"gamma={self.gamma!r} and shrinkage={self.shrinkage!r} are two ways to say one thing; give one of them."
            )

    @abstractmethod
    def right_hand_side(self, moments: Moments, state: MomentState) -> RightHandSide:
        """Return the right-hand side of the method's linear system.

        moments: centred sums of the rows and targets.
        state: state from which the moments were computed.
        """

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return loadings and eigenvalues of the method, largest eigenvalue first.

        The eigenproblem is XH (XH)ᵀ w = λ A w, where A is the rows' scatter with a ridge, and XH
        the product of rows and targets from `right_hand_side`. If XH is only rounding error, there
        are no directions.
        """
        # The first stage solves A V = XH. The second stage computes the eigenvectors U and
        # eigenvalues λ of the small matrix Vᵀ XH. The loadings are V U, with columns divided by √λ.
        xh, target_matrix_norm = self.right_hand_side(moments, state)
        # `refine` has computed V, as the product of `solution` (features, r) and `expand` (r, k).
        if moments.first_stage is not None:
            return cg.second_stage_components(moments.first_stage.solution, xh, moments.first_stage.expand)

        # Take the combinations (features, r) of the columns that are more than rounding errors. The
        # inversion would amplify these.
        significant_combinations = moments.significant_cross_sum_combinations(xh, target_matrix_norm)
        if significant_combinations.shape[1] == 0:
            return np.zeros((len(xh), 0)), np.zeros(0)

        # A is share·Cxx + ridge·I, where Cxx is the scatter. If share is 0, A is diagonal, and
        # `two_stage` takes its diagonal as a vector.
        share, ridge = self.ridge_terms(moments)
        if share == 0.0:
            return two_stage(np.full(len(xh), ridge), significant_combinations, 0.0, zero_rounding(len(xh)))
        # If not, A is share·(Cxx + gamma·I). So solve with Cxx + gamma·I. Then wᵀ A w = 1 requires
        # loadings divided by √share, and the eigenvalues of A⁻¹ XH (XH)ᵀ are divided by share.
        gamma = ridge / share
        loadings, eigenvalues = two_stage(
            moments.scatter_or_diagonal, significant_combinations, gamma, moments.rounding
        )
        loadings /= np.sqrt(share)
        return loadings, eigenvalues / share

    def inverted_matrix_product(self, moments: Moments, columns: np.ndarray) -> np.ndarray:
        """Multiply columns by the matrix that the method inverts.

        The result has the shape (features, m). The matrix is a·Cxx + ρI. Cxx (features,
        features) is the scatter of the rows, and the numbers a and ρ are `share` and
        `ridge` of `ridge_terms`.

        columns: (features, m), m columns.
        """
        share, ridge = self.ridge_terms(moments)
        return share * moments.scatter_product(columns) + ridge * columns

    def ridge_terms(self, moments: Moments) -> tuple[float, float]:
        """Return `share` and `ridge` of the matrix share·Cxx + ridge·I.

        The method inverts this matrix. Cxx (features, features) is the scatter of the rows, and I
        the identity. With `gamma`, the numbers are 1 and gamma.
        """
        if self.shrinkage is None:
            return 1.0, self.gamma_
        share = float(self.shrinkage)
        return 1.0 - share, share * self.scatter_trace_for_shrinkage(moments) / max(len(moments.diagonal), 1)

    def cross_validate(self, states_by_fold: Sequence[MomentState]) -> CrossValidation:
        """Return the cross-validated error for each of 26 ridges.

        The ridge of least error is chosen. With `one_standard_error`, it is the largest ridge
        whose error exceeds the least error by at most the standard error of the least error. Costs
        O(K d³) for K folds and d features. The parameters `gamma` and `shrinkage` are not used.

        A UserWarning is issued if the chosen ridge is the first, the second or the last one,
        because the best ridge may then be outside the compared ones. Raises NotFitted if fewer
        than three folds have rows. Raises InvalidParameter if there are more than 2,048 features,
        if only the diagonal of the rows' scatter is stored, or if errors overflow.

        states_by_fold: the learned state of each fold. A fold is a part of the rows that is left
            out once. Labels may be in different order. Folds without rows are ignored.
        """
        full, folds = aligned_folds(states_by_fold, "gamma")
        whole = self.moments(full)

        # With eigenvectors V and eigenvalues λ of the scatter, the predictor of a ridge ρ is
        # V diag(1 / (λ + ρ)) Vᵀ Cxy. Ridges are relative to the mean scatter of a feature.
        def fit_ridges(train: Moments) -> Predictors:
            values, vectors = _varying_scatter_eigenpairs(train)
            return Predictors(vectors, 1.0 / (values + RELATIVE_RIDGES[:, None] * _mean_varying_scatter(train)))

        # Choose the ridge of least error, or the largest ridge within one standard error of it.
        mean, std_error = cross_validation_errors(self, folds, whole, fit_ridges)
        chosen = int(mean.argmin())
        if self.one_standard_error:
            chosen = int(np.flatnonzero(mean <= mean[chosen] + std_error[chosen])[-1])

        ridges = RELATIVE_RIDGES * _mean_varying_scatter(whole)
        path = CrossValidation("gamma", ridges, mean, std_error, chosen, RELATIVE_RIDGES.copy())
        # Warn that the best ridge may be outside the compared ridges.
        # If all errors are equal, no ridge is better than the first.
        if chosen in (0, 1, len(RELATIVE_RIDGES) - 1) and mean.min() < mean.max():
            # Ridges are relative to the mean scatter, which features of large unit dominate.
            # Then all but the smallest ridges are too large for the other features.
            may_be_units = chosen < 2 and not self.standardize
            advice = ""
            if may_be_units:
                advice = " Features of very different units cause this. Try standardize=True."
            warnings.warn(
                f"gamma='cv' chose gamma={path.chosen_value:.3g}, at an end of the compared values (0, and "
                f"{path.values[1]:.3g} to {path.values[-1]:.3g}). A gamma that was not compared may be better.{advice}",
                stacklevel=2,
            )
        return path

    @property
    def gamma_(self) -> float:
        """Ridge that was used, `gamma` itself or the value that "cv" has chosen."""
        if self.gamma == "cv":
            return self.choice().chosen_value
        return float(self.gamma)

    def scatter_trace_for_shrinkage(self, moments: Moments) -> float:
        """Return the trace of the scatter that sets the unit of `shrinkage`.

        The shrinkage s adds the ridge s · trace / d for d features. The default implementation
        returns the trace of the rows' total scatter.
        """
        return float(moments.diagonal.sum())

    def scale_loadings(self, loadings: np.ndarray, moments: Moments, solution_kind: str) -> np.ndarray:
        """Return loadings (features, p) at the length that `scaling` requires.

        With scaling="unit", the rows get variance 1 along each component (for LDA, within classes).
        With "source", loadings are not changed.

        loadings: (features, p), loadings of p components, for the scaled features of `moments`.
            They are overwritten.
        solution_kind: kind of solution, "exact", "diagonal" (computed from only the diagonal of the
            scatter) or "refined" (computed by `refine`).
        """
        if self.scaling == "source" or loadings.shape[1] == 0:
            return loadings
        sums = self.scatter_along_each_component(loadings, moments, solution_kind)
        factors = np.divide(moments.weight, sums, out=np.ones_like(sums), where=sums > 0)
        loadings *= np.sqrt(factors)
        return loadings

    def scatter_along_each_component(self, loadings: np.ndarray, moments: Moments, solution_kind: str) -> np.ndarray:
        """Return the scatter (p,) of the rows along each component.

        The scatter along a component is the sum of squares of the centred projected rows. Costs
        O(d² p) for d features.

        loadings: (features, p), the p components, as `directions` returns them.
        solution_kind: kind of solution, "exact", "diagonal" or "refined".
        """
        if moments.scatter is not None:
            return np.asarray(np.einsum("ij,ij->j", loadings, moments.scatter @ loadings))
        # `from_diagonal` is the scatter along each component if features are uncorrelated.
        from_diagonal: np.ndarray = np.einsum("i,ij,ij->j", moments.diagonal, loadings, loadings)
        if solution_kind != "refined":
            return from_diagonal
        # For refined components w, compute wᵀ Cxx w from wᵀ(share·Cxx + ridge·I)w = 1. `directions`
        # gives each component the length for which this equation holds.
        share, ridge = self.ridge_terms(moments)
        remaining: np.ndarray = 1.0 - ridge * np.einsum("ij,ij->j", loadings, loadings)
        # `remaining` is share·wᵀ Cxx w. If it is only √EPS of the 1 or less, not half of its digits
        # are correct. Then use the scatter from the diagonal.
        return np.where(remaining > np.sqrt(EPS), remaining / share, from_diagonal)

    @property
    def condition_(self) -> float:
        """Condition number of the matrix that is inverted.

        The matrix is the rows' scatter with a ridge. Directions in which the rows do not vary are
        not counted. The relative error of the solution is about 2e-16 times the condition number.
        Costs O(d³) for d features. Raises NeedsRefine if only the diagonal of the scatter is
        stored.
        """
        # The call checks that the estimator is fitted, and chooses gamma if gamma is "cv".
        self.projection()
        moments = self.moments(self.state_)
        if moments.scatter is None:
            raise NeedsRefine(f"{type(self).__name__} keeps only the diagonal of Cxx; its condition is not known.")
        # If share is 0, the matrix share·Cxx + ridge·I is the identity times `ridge`.
        share, ridge = self.ridge_terms(moments)
        if share:
            return condition_number(moments.scatter, ridge / share, moments.rounding)
        return 1.0


def _varying_scatter_eigenpairs(moments: Moments) -> tuple[np.ndarray, np.ndarray]:
    """Return the nonzero eigenvalues and eigenvectors of the rows' scatter.

    The eigenvalues are (r,), and the eigenvectors (features, r). Eigenvalues that are only rounding
    errors count as 0 [mathematics §3, rule 1]. Constant features are left out of the scatter, so
    the eigenvectors are 0 for them.
    """
    assert moments.scatter is not None
    varying_columns, scatter, rounding = scatter_of_varying_features(moments.scatter, moments.rounding)
    values, inner = nonzero_semidefinite_eigenpairs(scatter, rounding.eigenvalue_floor(np.diagonal(scatter)))
    vectors = np.zeros((len(moments.diagonal), len(values)))
    vectors[varying_columns] = inner
    return values, vectors


def _mean_varying_scatter(moments: Moments) -> float:
    """Return the sum of squared deviations, averaged over the columns that vary."""
    varying = np.count_nonzero(moments.rounding.varying_columns(moments.diagonal))
    return float(moments.diagonal.sum()) / max(int(varying), 1)


def _centring_error(moments: Moments) -> float:
    """Return a bound of XH's relative rounding error, 0 if no feature varies."""
    # Centring rows far from 0 cancels digits. The error is about EPS·√N·|mean| relative to
    # √N·deviation, for N rows. 8 is a safety factor.
    root_scatter = float(np.sqrt(moments.diagonal.sum()))
    if not root_scatter:
        return 0.0
    distance = float(moments.rounding.shift.max(initial=0.0)) / root_scatter
    return 8 * EPS * distance
