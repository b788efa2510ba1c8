"""Check of the components that `inverse_transform` turns back into rows."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from stream_dr.errors import InvalidParameter, WidthMismatch

if TYPE_CHECKING:
    from stream_dr.estimators.fitting.estimator import Estimator


def checked_components(estimator: "Estimator", Z: ArrayLike) -> np.ndarray:
    """Return components Z (rows, components) as float64.

    Raises InvalidParameter if there is a feature map, because a map cannot be inverted. Raises
    WidthMismatch if Z has another number of columns than the estimator has components.
    """
    if estimator.feature_map is not None:
        raise InvalidParameter("rows went through a feature map, which cannot be turned back; leave feature_map out.")
    Z = np.asarray(Z, dtype=np.float64)
    if Z.ndim != 2 or Z.shape[1] != estimator.rank_:
        who = type(estimator).__name__
        raise WidthMismatch(f"Z has the shape {Z.shape}; {who} has {estimator.rank_} components. Pass a column each.")
    return Z
