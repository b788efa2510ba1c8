"""Base class of LDA, OPLS, CCA and HSL, which share one generalised eigenproblem.

The problem is `(aCxx + ρI)⁻¹ XH Hᵀ Xᵀ w = λ w` [2S, Algorithm 2]. X are the centred rows, Cxx is
their scatter, and H is the method's factor of the targets. The numbers a and ρ follow from `gamma`
or `shrinkage`. The file of each method says what XH is.

The solution W in the papers satisfies Wᵀ(Cxx + γI)W = I, where Cxx is *summed* over N rows. So
projected rows shrink as 1/√N, although the data does not change. `scaling="unit"` divides each
component by the standard deviation of the rows learned along it. The division happens when
solving, so states, merging and unlearning do not depend on `scaling`.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np

from stream_dr.errors import InvalidParameter
from stream_dr.estimators.fitting.closed_form import ClosedForm, Directions
from stream_dr.estimators.fitting.moments import Moments
from stream_dr.estimators.fitting.not_fitted import NeedsRefine
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number
from stream_dr.solve.conjugate_gradient import second_stage
from stream_dr.solve.rounding import exact_rounding
from stream_dr.solve.spectral import EPS
from stream_dr.solve.two_stage import condition_number, two_stage
from stream_dr.statistics.moments.accumulator import MomentState


@dataclass(eq=False, repr=False)
class TwoStage(ClosedForm):
    """Base of the two-stage methods, with their common parameters.

    Parameters
    ----------
    gamma : float ≥ 0, default 0.0
        Ridge added to the scatter Cxx of the rows, in the units of the *summed* scatter, as in
        [2S]. Its effect fades with more rows.
    shrinkage : float in [0, 1] or None, default None
        Ridge that is used instead of gamma and whose effect does not fade with more rows. The
        matrix (1 − s) Cxx + s (tr Cxx / d) I is inverted, for d features, as in scikit-learn's
        `shrunk_covariance`.
    scaling : {"unit", "source"}, default "unit"
        Length of the components. With "unit", the rows learned have variance 1 along every
        component, whatever their number (divisor N, the sum of weights). With "source", the
        paper's condition Wᵀ(Cxx + γI)W = I holds, and projected rows shrink as 1/√N.
        `eigenvalues_` are the same with either.

    Attributes
    ----------
    condition_ : float
        Condition number of the matrix that is inverted, on the space in which the rows vary. The
        relative error of the solution is about 2e-16 times this number.
    """

    refined_by = "first_stage"

    _: KW_ONLY
    shrinkage: float | None = None
    scaling: Literal["unit", "source"] = "unit"

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range.

        Also raises InvalidParameter if gamma and shrinkage are both set.
        """
        super().check_parameters()
        check_choice("scaling", self.scaling, ("unit", "source"))
        if self.shrinkage is None:
            return
        # The share of Ledoit and Wolf needs Σ‖x − x̄‖⁴, which no state stores.
        # scikit-learn's LDA standardises each class first, and so needs Σ x_i² x_j² of each class.
        if isinstance(self.shrinkage, str):
            raise InvalidParameter(
                f"shrinkage={self.shrinkage!r}; it must be None or a number in [0, 1]. Ledoit and Wolf's share needs fourth "
                "moments of the rows, which are not kept."
            )
        check_number("shrinkage", self.shrinkage, low=0.0, high=1.0)
        if self.gamma:
            raise InvalidParameter(
                f"gamma={self.gamma!r} and shrinkage={self.shrinkage!r} are two ways to say one thing; give one of them."
            )

    @abstractmethod
    def right_hand_side(self, moments: Moments, state: MomentState) -> tuple[np.ndarray, float]:
        """Return XH (features, k) and the size √(tr HᵀH) of the targets' factor H.

        X are the centred rows, and H (rows, k) is computed from the targets by the method. The
        size is that of H before centring. It decides which part of XH is only rounding error.
        """

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return loadings and eigenvalues of the method [2S, Algorithm 2].

        The right-hand side XH is the product of the centred rows X and the method's factor H of
        the targets. If XH is only rounding error, there are no directions.
        """
        xh, h_norm = self.right_hand_side(moments, state)
        if moments.first_stage is not None:
            return second_stage(moments.first_stage.solution, xh, moments.first_stage.expand)

        # The inversion would magnify rounding errors in XH, so they are removed first.
        significant = moments.significant(xh, h_norm)
        if significant.shape[1] == 0:
            return np.zeros((len(xh), 0)), np.zeros(0)

        share, ridge = self.ridge_terms(moments)
        if share == 0.0:
            return two_stage(np.full(len(xh), ridge), significant, 0.0, exact_rounding(len(xh)))
        loadings, eigenvalues = two_stage(moments.scatter_or_diagonal, significant, ridge / share, moments.rounding)
        return loadings / np.sqrt(share), eigenvalues / share

    def ridge_terms(self, moments: Moments) -> tuple[float, float]:
        """Return the numbers a and ρ of the matrix a·Cxx + ρI that is inverted.

        Cxx (features, features) is the scatter of the rows.
        """
        if self.shrinkage is None:
            return 1.0, float(self.gamma)
        share = float(self.shrinkage)
        return 1.0 - share, share * self.shrunk_trace(moments) / max(len(moments.diagonal), 1)

    def shrunk_trace(self, moments: Moments) -> float:
        """Return the trace of the scatter that `shrinkage` mixes with the identity."""
        return float(moments.diagonal.sum())

    def scale_loadings(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """Return loadings (features, p) at the length that `scaling` requires.

        loadings: loadings for features that are multiplied by `moments.scale`.
        """
        if self.scaling == "source" or loadings.shape[1] == 0:
            return loadings
        sums = self.component_variances(loadings, moments, solution)
        return loadings * np.sqrt(np.divide(moments.weight, sums, out=np.ones_like(sums), where=sums > 0))

    def component_variances(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """Return wᵀ Cxx w (p,) for each component w, the summed squares of the projected rows.

        Cxx (features, features) is the scatter of the rows. Costs O(d² p) for d features.

        loadings: (features, p), components w with wᵀ(aCxx + ρI)w = 1. a and ρ are those of
            `ridge_terms`.
        """
        squares = loadings**2
        if moments.scatter is not None:
            return np.einsum("ij,ij->j", loadings, moments.scatter @ loadings)
        flat = moments.diagonal @ squares
        if solution != "refined":
            return flat
        share, ridge = self.ridge_terms(moments)
        remaining = 1.0 - ridge * squares.sum(axis=0)
        # If the ridge is very large, the difference `remaining` has no correct digits.
        return np.where(remaining > np.sqrt(EPS), remaining / share, flat)

    @property
    def condition_(self) -> float:
        """Condition number of the inverted matrix, on the space in which the rows vary.

        The inverted matrix is the scatter of the rows with its ridge. The relative error of the
        solution is about 2e-16 times this number. Costs O(d³) for d features. Raises NeedsRefine
        if only the diagonal of the scatter is stored.
        """
        self.projection()
        moments = self.moments(self.state_)
        if moments.scatter is None:
            raise NeedsRefine(f"{type(self).__name__} keeps only the diagonal of Cxx; its condition is not known.")
        share, ridge = self.ridge_terms(moments)
        return condition_number(moments.scatter, ridge / share, moments.rounding) if share else 1.0
