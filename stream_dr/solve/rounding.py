"""Rounding: bounds below which parts of a state's centred sums are noise.

A centred sum is as exact as the means that it was formed with. Its error grows with the distance
of the rows from zero (`shift`) and with the cancellation by unlearning (`lost`). Below that error
a column does not vary, an eigenvalue is zero, and a cross sum means nothing. Components made of it
would be noise [mathematics §3, rules 1 and 3].
"""

from typing import NamedTuple

import numpy as np

from stream_dr.solve.singular import thin_svd
from stream_dr.solve.spectral import EPS


class Rounding(NamedTuple):
    """Exactness of the sums.

    Attributes
    ----------
    shift : (features,) float64
        √N·|x̄|, the distance of the rows from zero.
    lost : float
        Relative error of the scatter by unlearning. 0 if nothing was unlearned.
    cancelled : float
        √(N before / N now), the factor by which unlearning raised the error of the cross sums.
    """

    shift: np.ndarray
    lost: float = 0.0
    cancelled: float = 1.0

    def varying(self, diagonal: np.ndarray) -> np.ndarray:
        """Return the mask (features,) of the columns that vary.

        diagonal: (features,) scatter of each column. That of a constant column is only rounding.
        """
        return np.asarray(diagonal > (8 * EPS * self.shift) ** 2)

    def floor(self, diagonal: np.ndarray) -> float:
        """Return the size up to which eigenvalues of the scatter are rounding.

        It is eps·‖√N x̄‖·√(tr Cxx) plus the part lost by unlearning. It is below the rank cut
        unless the rows' offset is large beside their standard deviation. diagonal: (features,).
        """
        total = float(diagonal.sum())
        return EPS * float(np.linalg.norm(self.shift)) * float(np.sqrt(total)) + self.lost * total

    def cross_floor(self, target_size: float, diagonal: np.ndarray) -> float:
        """Return the norm up to which cross sums are rounding (rule 3).

        If every row is of one class, all cross sums are. target_size: √(tr HᵀH) of the factor H
        that rows were multiplied by, not centred.
        """
        spread = float(np.sqrt(diagonal.sum()))
        offset = float(np.abs(self.shift).max(initial=0.0))
        scale = (1e-12 + 8 * np.sqrt(EPS * self.lost)) * spread + 8 * EPS * offset
        return float(scale * self.cancelled * target_size)

    def noise(self, diagonal: np.ndarray) -> np.ndarray:
        """Return the error (features,) of each column's cross sums with targets of size 1.

        It is relative to the size of the column itself.
        """
        own = 1e-12 * np.sqrt(np.count_nonzero(self.varying(diagonal)) * diagonal) + 8 * EPS * np.abs(self.shift)
        return np.asarray(self.cancelled * (own + 8 * np.sqrt(EPS * self.lost * float(diagonal.sum()))))

    def cleaned(self, cross: np.ndarray, target_size: float, diagonal: np.ndarray) -> np.ndarray:
        """Return cross sums with zeros for columns of rounding only.

        cross: (features, k). Costs O(d k).
        """
        # Beside columns of small scale, the rounding of a large one would pass for a signal.
        shows = np.linalg.norm(cross, axis=1) > self.noise(diagonal) * target_size
        return cross if shows.all() else np.where(shows[:, None], cross, 0.0)

    def significant(self, cross: np.ndarray, target_size: float, diagonal: np.ndarray) -> np.ndarray:
        """Return cross sums rotated to (features, r), r ≤ k, without rounding.

        Combinations of targets that are rounding are dropped, so M Mᵀ stays the same for the cross
        sums M. Each column is measured by rounding of its own size, so signals in columns of small
        scale stay beside large ones. Costs O(d k min(d, k)).
        """
        varying = self.varying(diagonal)
        noise = self.noise(diagonal)[varying]
        _, values, targets = thin_svd(cross[varying] / noise[:, None])
        real = values > max(target_size, EPS * max(cross.shape) * float(values.max(initial=0.0)))
        return cross if real.sum() == cross.shape[1] else cross @ targets[real].T


def exact_rounding(features: int) -> Rounding:
    """Return the rounding of sums of rows about zero."""
    return Rounding(np.zeros(features))
