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

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.not_fitted import NeedsRefine
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number_in_range
from stream_dr.estimators.fitting.ridge_path import check_gamma_cv_compatible, cross_validate_ridges
from stream_dr.estimators.fitting.state_error import PredictsHeldOut
from stream_dr.solve.conjugate_gradient import second_stage_components
from stream_dr.solve.spectral import EPS, zero_rounding
from stream_dr.solve.two_stage import condition_number, two_stage
from stream_dr.statistics.moments.state import MomentState
from stream_dr.uncertainty import CrossValidation


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


class RidgeTerms(NamedTuple):
    """Coefficients of the matrix share·Cxx + ridge·I that a method inverts.

    Cxx (features, features) is the
    scatter of the rows, and I the identity.

    Attributes
    ----------
    share : float
        Factor of the scatter.
    ridge : float
        Number that is added to the diagonal.
    """

    share: float
    ridge: float


@dataclass(eq=False, repr=False)
class TwoStage(PredictsHeldOut):
    """Base class of two-stage methods, with their common parameters.

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
        component, with the sum of weights as divisor. With "source", the paper's condition
        Wᵀ(Cxx + γI)W = I holds for the components W, and projected rows shrink as 1/√N for N rows.
        `eigenvalues_` do not depend on `scaling`.

    Attributes
    ----------
    gamma_ : float
        Ridge that was used. It is `gamma` itself, or the value that "cv" has chosen.
    condition_ : float
        Condition number of the matrix that is inverted, on the space in which the rows vary. The
        relative error of the solution is about 2e-16 times this number.
    """

    refined_by = "first_stage"
    cross_validates = "gamma"

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
            check_gamma_cv_compatible(self)

        if self.shrinkage is None:
            return
        # A string asks for an automatic shrinkage, as in scikit-learn.
        # Refuse a string, because Ledoit and Wolf's shrinkage needs fourth moments of the rows.
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

        If the method's right-hand side is only rounding error, there are no directions [2S,
        Algorithm 2].
        """
        # Compute the right-hand side of the linear system.
        # While `refine` is running, its solver has the system's solution, so do not solve here.
        xh, target_matrix_norm = self.right_hand_side(moments, state)
        if moments.first_stage is not None:
            return second_stage_components(moments.first_stage.solution, xh, moments.first_stage.expand)

        # Remove rounding errors from the right-hand side. The inversion would amplify them.
        significant_combinations = moments.significant_cross_sum_combinations(xh, target_matrix_norm)
        if significant_combinations.shape[1] == 0:
            return np.zeros((len(xh), 0)), np.zeros(0)

        share, ridge = self.ridge_terms(moments)
        if share == 0.0:
            return two_stage(np.full(len(xh), ridge), significant_combinations, 0.0, zero_rounding(len(xh)))
        scatter, gamma = moments.scatter_or_diagonal, ridge / share
        loadings, eigenvalues = two_stage(scatter, significant_combinations, gamma, moments.rounding)
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

    def ridge_terms(self, moments: Moments) -> RidgeTerms:
        """Return the numbers of the matrix that the method inverts.

        The matrix is share·Cxx + ridge·I. Cxx (features, features) is the scatter of the rows, and
        I the identity.
        """
        if self.shrinkage is None:
            return RidgeTerms(1.0, self.gamma_)
        share = float(self.shrinkage)
        return RidgeTerms(
            1.0 - share, share * self.scatter_trace_for_shrinkage(moments) / max(len(moments.diagonal), 1)
        )

    def cross_validate(self, states_by_fold: Sequence[MomentState]) -> CrossValidation:
        """Return the cross-validated error for each of 26 ridges.

        states_by_fold: the learned state of each fold. A fold is a part of the rows that is left
            out once.
        """
        return cross_validate_ridges(self, states_by_fold)

    @property
    def gamma_(self) -> float:
        """Ridge that was used, `gamma` itself or the value that "cv" has chosen."""
        return self.choice().chosen_value if self.gamma == "cv" else float(self.gamma)

    def scatter_trace_for_shrinkage(self, moments: Moments) -> float:
        """Return the trace of the scatter that `shrinkage` changes."""
        return float(moments.diagonal.sum())

    def scale_loadings(self, loadings: np.ndarray, moments: Moments, solution_kind: str) -> np.ndarray:
        """Return loadings (features, p) at the length that `scaling` requires.

        loadings: (features, p), loadings of p components, for features that are multiplied by
            `moments.scale`. They are overwritten.
        """
        if self.scaling == "source" or loadings.shape[1] == 0:
            return loadings
        sums = self.scatter_along_each_component(loadings, moments, solution_kind)
        loadings *= np.sqrt(np.divide(moments.weight, sums, out=np.ones_like(sums), where=sums > 0))
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
        flat: np.ndarray = np.einsum("i,ij,ij->j", moments.diagonal, loadings, loadings)
        if solution_kind != "refined":
            return flat
        # Compute the scatter wᵀ Cxx w along each refined component w.
        # The scatter follows from the equation wᵀ(share·Cxx + ridge·I)w = 1.
        share, ridge = self.ridge_terms(moments)
        remaining: np.ndarray = 1.0 - ridge * np.einsum("ij,ij->j", loadings, loadings)
        # Use the diagonal's scatter if a large ridge leaves `remaining` without correct digits.
        return np.where(remaining > np.sqrt(EPS), remaining / share, flat)

    @property
    def condition_(self) -> float:
        """Condition number of the matrix that is inverted.

        The matrix is the rows' scatter with a ridge. Directions in which the rows do not vary are
        not counted. The relative error of the solution is about 2e-16 times the condition number.
        Costs O(d³) for d features. Raises NeedsRefine if only the diagonal of the scatter is
        stored.
        """
        self.projection()
        moments = self.moments(self.state_)
        if moments.scatter is None:
            raise NeedsRefine(f"{type(self).__name__} keeps only the diagonal of Cxx; its condition is not known.")
        share, ridge = self.ridge_terms(moments)
        return condition_number(moments.scatter, ridge / share, moments.rounding) if share else 1.0
