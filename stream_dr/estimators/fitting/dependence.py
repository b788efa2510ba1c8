"""DependenceMethod: the dependence of projected rows on the targets, for SPCA and SRP."""

import numpy as np

from stream_dr.errors import InvalidRows
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.moments import Moments


class DependenceMethod(ClosedForm):
    """Base of the methods that look for directions that depend on the targets.

    Attributes
    ----------
    hsic_ : float
        HSIC of the projected rows and the targets, over the rows learned [SRP eq. 1]. See
        `stream_dr.hsic`.
    """

    @property
    def hsic_(self) -> float:
        """HSIC of projected rows and targets: ‖Cxyᵀ W‖² / (N − 1)² ≥ 0.

        It is tr(K H L H) / (N − 1)² with the linear kernel K on projected rows. Needs N > 1.
        """
        projection = self.linear_projection()
        moments = self.moments(self.state_)
        return hsic_of_sums(moments, (projection.loadings / moments.scale[:, None]).T @ moments.cross)


def hsic_of_sums(moments: Moments, cross: np.ndarray) -> float:
    """Return HSIC from the cross sums (components, targets) of rows and targets."""
    if moments.weight <= 1.0:
        raise InvalidRows(
            f"HSIC divides by (n − 1)²; there are rows of weight {moments.weight:g} in all. Give two or more."
        )
    return float((cross**2).sum() / (moments.weight - 1.0) ** 2)
