"""principal_angles: how far two versions of a projection span other spaces."""

import numpy as np

from stream_dr.projection import Projection
from stream_dr.solve.tall_qr import tall_qr


def principal_angles(before: Projection, after: Projection) -> np.ndarray | None:
    """Principal angles (radians, ascending) between the spans of two linear projections' components; features that one has
    not count as 0 [Björck, Golub 1973]. None where one is not linear. O(features · p²)."""
    old, new = getattr(before, "loadings", None), getattr(after, "loadings", None)
    if old is None or new is None or not old.shape[1] or not new.shape[1]:
        return None
    d = max(len(old), len(new))
    first, second = (tall_qr(np.pad(loadings, ((0, d - len(loadings)), (0, 0))))[0] for loadings in (old, new))
    cosines = np.clip(np.linalg.svd(first.T @ second, compute_uv=False), 0.0, 1.0)
    wide, narrow = (first, second) if first.shape[1] >= second.shape[1] else (second, first)
    sines = np.clip(np.linalg.svd(narrow - wide @ (wide.T @ narrow), compute_uv=False)[::-1], 0.0, 1.0)
    found: np.ndarray = np.where(
        cosines**2 > 0.5, np.arcsin(sines), np.arccos(cosines)
    )  # each where it keeps its digits
    return found
