"""Base class of SPCA and SRP, which find target-dependent directions."""

from typing import ClassVar

import numpy as np

from stream_dr.errors import InvalidRows
from stream_dr.estimators.fitting.closed_form import ClosedForm
from stream_dr.estimators.fitting.moments import Moments


class DependenceMethod(ClosedForm):
    """Base class of SPCA and SRP, with the attribute `hsic_`.

    Both methods look for directions that depend on the targets.

    Attributes
    ----------
    hsic_ : float
        Hilbert-Schmidt independence criterion (HSIC) of the projected rows and the targets, over
        the rows learned [SRP eq. 1]. See `stream_dr.hsic`.
    """

    eigenvalue_growth: ClassVar[int] = 2

    @property
    def hsic_(self) -> float:
        """Hilbert-Schmidt independence criterion of projected rows and targets, ≥ 0.

        Raises InvalidRows if the weight of the rows is at most 1. See `stream_dr.hsic` for the
        definition.
        """
        projection = self.linear_projection()
        moments = self.moments(self.state_)
        return hsic_from_moments(moments, (projection.loadings / moments.scale[:, None]).T @ moments.cross)


def hsic_from_moments(moments: Moments, projected_cross_scatter: np.ndarray) -> float:
    """Return the Hilbert-Schmidt independence criterion of projected rows and targets.

    moments: centred sums of the rows, with the weight of the rows.
    projected_cross_scatter: (components, targets), cross-scatter of projected rows and targets.
    """
    # Compute the criterion tr(K H L H) / (N − 1)², for the weight N of the rows.
    # K and L are the linear kernels of projected rows and targets, and H is the centring matrix.
    # The trace is the sum of the squared entries of the cross-scatter.
    check_weight_above_one(moments.weight)
    return float((projected_cross_scatter**2).sum() / (moments.weight - 1.0) ** 2)


def check_weight_above_one(total_weight: float) -> None:
    """Check that the rows' total weight is above 1.

    Raises InvalidRows if it is not. The Hilbert-Schmidt independence criterion divides by the
    total weight minus 1.
    """
    if total_weight <= 1.0:
        raise InvalidRows(f"HSIC divides by (n − 1)²; the rows' weight is {total_weight:g} in all. Give two or more.")
