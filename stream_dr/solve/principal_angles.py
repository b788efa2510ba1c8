"""Principal angles between the spaces that two projections' components span."""

import numpy as np

from stream_dr.projection import Projection, linear_part_or_none
from stream_dr.solve.orientation import pad_to_equal_rows
from stream_dr.solve.tall_qr import tall_qr


def principal_angles(before: Projection, after: Projection) -> np.ndarray | None:
    """Return the principal angles between two projections' components.

    The angles (p,) are between the two spaces that the loadings span, in radians, ascending. If
    only one projection has a feature, the other projection's loadings of this feature count as 0.
    Returns None if a projection is not linear or has no components.
    """
    old, new = linear_part_or_none(before), linear_part_or_none(after)
    if old is None or new is None or not old.n_components or not new.n_components:
        return None

    first, second = (tall_qr(loadings)[0] for loadings in pad_to_equal_rows(old.loadings, new.loadings))

    # Compute the cosine and the sine of each principal angle, in ascending order of the angles.
    cosines = np.clip(np.linalg.svd(first.T @ second, compute_uv=False), 0.0, 1.0)
    wide, narrow = (first, second) if first.shape[1] >= second.shape[1] else (second, first)
    sines = np.clip(np.linalg.svd(narrow - wide @ (wide.T @ narrow), compute_uv=False)[::-1], 0.0, 1.0)

    # Arcsine is accurate for small angles, arccosine for large angles.
    return np.asarray(np.where(cosines**2 > 0.5, np.arcsin(sines), np.arccos(cosines)))
