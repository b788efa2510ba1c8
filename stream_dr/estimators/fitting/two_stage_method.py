"""TwoStage: the generalised eigenproblem that LDA, OPLS, CCA and HSL share.

`(aCxx + ρI)⁻¹ XH Hᵀ Xᵀ w = λ w` [2S, Algorithm 2]. A method's own file says what XH is.

The papers' W satisfies Wᵀ(Cxx + γI)W = I with Cxx *summed* over rows, so projected rows shrink as
1/√N, though nothing in the data does. `scaling="unit"` divides each component by the standard
deviation of the rows learned along it. It does so when solving, so states, merges and unlearning
are unaffected.
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
        Ridge added to Cxx, in the units of the *summed* scatter, as in [2S]. Its effect fades as
        rows come.
    shrinkage : float in [0, 1] or None, default None
        Ridge in place of gamma, whose effect does not fade as rows come: (1 − s) Cxx + s (tr Cxx /
        d) I is inverted, as in scikit-learn's `shrunk_covariance`.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the rows learned (counted by their weights, divisor N) have variance 1 along
        every component, whatever N is. With "source", the paper's Wᵀ(Cxx + γI)W = I holds, which
        shrinks as 1/√N. `eigenvalues_` are the paper's with either.

    Attributes
    ----------
    condition_ : float
        Condition number of Cxx + γI on the space that is stored. The solution's error is 2e-16 times
        it.
    """

    refined_by = "first_stage"

    _: KW_ONLY
    shrinkage: float | None = None
    scaling: Literal["unit", "source"] = "unit"

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range, or gamma and shrinkage are both given."""
        super().check_parameters()
        check_choice("scaling", self.scaling, ("unit", "source"))
        if self.shrinkage is None:
            return
        # Ledoit and Wolf's share needs Σ‖x − x̄‖⁴, and scikit-learn's LDA, which standardises each class first,
        # even the sums Σ x_i² x_j² of each class. No sum that is stored has these fourth moments.
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
        """Return XH (features, k), and √(tr HᵀH) with targets not centred.

        The second decides which part of XH is only rounding.
        """

    def directions(self, moments: Moments, state: MomentState) -> Directions:
        """Return the solution of [2S, Algorithm 2] for XH.

        There are no directions if XH is only rounding.
        """
        xh, h_norm = self.right_hand_side(moments, state)
        # (Cxx + γI)⁻¹ would magnify rounding.
        significant = moments.significant(xh, h_norm)
        if significant.shape[1] == 0:
            return np.zeros((len(xh), 0)), np.zeros(0)
        if moments.first_stage is not None:
            return second_stage(moments.first_stage(xh), xh)

        share, ridge = self.ridge_terms(moments)
        if share == 0.0:
            return two_stage(np.full(len(xh), ridge), significant, 0.0, exact_rounding(len(xh)))
        loadings, eigenvalues = two_stage(moments.scatter_or_diagonal, significant, ridge / share, moments.rounding)
        return loadings / np.sqrt(share), eigenvalues / share

    def ridge_terms(self, moments: Moments) -> tuple[float, float]:
        """Return (a, ρ), where a·Cxx + ρI is inverted."""
        if self.shrinkage is None:
            return 1.0, float(self.gamma)
        share = float(self.shrinkage)
        return 1.0 - share, share * self.shrunk_trace(moments) / max(len(moments.diagonal), 1)

    def shrunk_trace(self, moments: Moments) -> float:
        """Return the trace of the scatter that `shrinkage` shrinks."""
        return float(moments.diagonal.sum())

    def scale_loadings(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """Return loadings (features, p) of the scaled features at the length that `scaling` asks for."""
        if self.scaling == "source" or loadings.shape[1] == 0:
            return loadings
        sums = self.component_variances(loadings, moments, solution)
        return loadings * np.sqrt(np.divide(moments.weight, sums, out=np.ones_like(sums), where=sums > 0))

    def component_variances(self, loadings: np.ndarray, moments: Moments, solution: str) -> np.ndarray:
        """Return wᵀ Cxx w (p,), the summed squares of the projected rows.

        loadings: columns w with wᵀ(aCxx + ρI)w = 1. Costs O(d² p).
        """
        squares = loadings**2
        if moments.scatter is not None:
            return np.einsum("ij,ij->j", loadings, moments.scatter @ loadings)
        flat = moments.diagonal @ squares
        if solution != "refined":
            return flat
        share, ridge = self.ridge_terms(moments)
        remaining = 1.0 - ridge * squares.sum(axis=0)
        # A very large ridge leaves no digits of the difference.
        return np.where(remaining > np.sqrt(EPS), remaining / share, flat)

    @property
    def condition_(self) -> float:
        """Condition number of Cxx + γI on the space that is stored.

        The solution's error is 2e-16 times it. Costs O(d³). Raises NeedsRefine if only the
        diagonal of Cxx is stored.
        """
        self.projection()
        moments = self.moments(self.state_)
        if moments.scatter is None:
            raise NeedsRefine(f"{type(self).__name__} keeps only the diagonal of Cxx; its condition is not known.")
        share, ridge = self.ridge_terms(moments)
        return condition_number(moments.scatter, ridge / share, moments.rounding) if share else 1.0
