"""Base class of SPCA and SRP, with the dependence of projected rows on the targets."""

import numpy as np

from stream_dr.errors import InvalidRows
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.moments import Moments


class DependenceMethod(ClosedForm):
    """Base of the methods that look for directions that depend on the targets.

    Attributes
    ----------
    hsic_ : float
        Hilbert-Schmidt independence criterion (HSIC) of the projected rows and the targets, over
        the rows learned [SRP eq. 1]. See `stream_dr.hsic`.
    """

    @property
    def hsic_(self) -> float:
        """Hilbert-Schmidt independence criterion of projected rows and targets, ≥ 0.

        The value is ‖Cxyᵀ W‖² / (N − 1)². Cxy (features, targets) is the cross-scatter of rows and
        targets, W (features, components) are the loadings and N is the weight of the rows. The
        value equals tr(K H L H) / (N − 1)² for the linear kernel K of the projected rows, the
        kernel L of the targets and the centring matrix H. Needs N > 1.
        """
        projection = self.linear_projection()
        moments = self.moments(self.state_)
        return hsic_of_sums(moments, (projection.loadings / moments.scale[:, None]).T @ moments.cross)


def hsic_of_sums(moments: Moments, cross: np.ndarray) -> float:
    """Return the Hilbert-Schmidt independence criterion from cross sums.

    cross: (components, targets), cross-scatter of projected rows and targets.
    """
    check_hsic_weight(moments.weight)
    return float((cross**2).sum() / (moments.weight - 1.0) ** 2)


def check_hsic_weight(weight: float) -> None:
    """Raise InvalidRows if the rows' weight is too small for the criterion."""
    if weight <= 1.0:
        raise InvalidRows(f"HSIC divides by (n − 1)²; there are rows of weight {weight:g} in all. Give two or more.")
