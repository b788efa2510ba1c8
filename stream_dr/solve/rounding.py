"""Rounding: what in a state's centred sums is no more than rounding [mathematics §3, rules 1 and 3].

A centred sum is as exact as the means it was formed with: its error grows with how far from zero the rows were (`shift`)
and with what unlearning has cancelled (`lost`). Below that a column does not vary, an eigenvalue is zero, a cross sum says
nothing; treating it as more makes components of noise.

Why this way: every solver asks the same three questions, so the constants stand here once.
"""

from typing import NamedTuple

import numpy as np

from stream_dr.solve.singular import singular
from stream_dr.solve.spectral import EPS


class Rounding(NamedTuple):
    """How exact the sums are.

    shift: (features,) √N·|x̄|, how far from zero the rows were. lost: relative error of the scatter that unlearning has
    left (0: nothing was unlearned). cancelled: √(N before / N now), by which that left more in the cross sums.
    """

    shift: np.ndarray
    lost: float = 0.0
    cancelled: float = 1.0

    def varying(self, diagonal: np.ndarray) -> np.ndarray:
        """Mask (features,) of the columns whose scatter, diagonal (features,), is more than a constant's rounding."""
        return np.asarray(diagonal > (8 * EPS * self.shift) ** 2)

    def floor(self, diagonal: np.ndarray) -> float:
        """Eigenvalues of the scatter at or below this are rounding: eps·‖√N x̄‖·√(tr Cxx), and what was lost.

        Smaller than the rank cut unless the rows' offset is large beside their spread; there it keeps directions in
        which no row differs from passing for small ones.
        """
        total = float(diagonal.sum())
        return EPS * float(np.linalg.norm(self.shift)) * float(np.sqrt(total)) + self.lost * total

    def cross_floor(self, target_size: float, diagonal: np.ndarray) -> float:
        """Cross sums of at most this norm are rounding, as all of them are when every row is of one class (rule 3).

        target_size: √(tr HᵀH) of what the rows were multiplied with, not centred.
        """
        spread, offset = float(np.sqrt(diagonal.sum())), float(np.abs(self.shift).max(initial=0.0))
        scale = (1e-12 + 8 * np.sqrt(EPS * self.lost)) * spread + 8 * EPS * offset
        return float(scale * self.cancelled * target_size)

    def noise(self, diagonal: np.ndarray) -> np.ndarray:
        """What each column's cross sums (features,) with targets of size 1 may be off by, measured by its own size."""
        own = 1e-12 * np.sqrt(np.count_nonzero(self.varying(diagonal)) * diagonal) + 8 * EPS * np.abs(self.shift)
        return np.asarray(self.cancelled * (own + 8 * np.sqrt(EPS * self.lost * float(diagonal.sum()))))

    def cleaned(self, cross: np.ndarray, target_size: float, diagonal: np.ndarray) -> np.ndarray:
        """Cross sums (features, k) with zeros for the columns that show nothing but rounding. O(d k).

        Beside columns of small scale the rounding of a large one would else be taken for what they show.
        """
        shows = np.linalg.norm(cross, axis=1) > self.noise(diagonal) * target_size
        return cross if shows.all() else np.where(shows[:, None], cross, 0.0)

    def significant(self, cross: np.ndarray, target_size: float, diagonal: np.ndarray) -> np.ndarray:
        """Cross sums (features, k) turned to (features, r), r ≤ k, without the combinations of targets that are rounding.

        M Mᵀ stays what it was, less rounding. Every column is measured by rounding of its own size, so that what shows in
        columns of small scale only is kept beside large ones, to as many digits. O(d k min(d, k)).
        """
        varying = self.varying(diagonal)
        noise = self.noise(diagonal)[varying]
        _, values, targets = singular(cross[varying] / noise[:, None])
        kept = values > max(target_size, EPS * max(cross.shape) * float(values.max(initial=0.0)))
        return cross if kept.sum() == cross.shape[1] else cross @ targets[kept].T


def exact_rounding(features: int) -> Rounding:
    """Rounding of sums whose rows lay about zero."""
    return Rounding(np.zeros(features))
