"""Moments: the centred sums a closed-form method is solved from [mathematics §1-3].

The moments of standardised rows are those of the rows times 1/σ, with σ = 1 for a constant column.
So `standardize` is exact at any time and has no lag.
"""

from collections.abc import Callable
from itertools import compress
from typing import NamedTuple, cast

import numpy as np

from stream_dr.solve.rounding import Rounding
from stream_dr.solve.spectral import EPS, left_singular
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.moments.accumulator import MomentAccumulator, MomentState
from stream_dr.statistics.protocol import State
from stream_dr.targets.label_codes import Label

TINY = float(np.finfo(np.float64).tiny / EPS)
"""Scatter below which a column counts as constant, since no digits remain to solve with."""


class Moments(NamedTuple):
    """Centred sums that a method is solved from. float64.

    Columns of classes that wait or have no weight are left out.

    Attributes
    ----------
    weight : float
        N, the sum of weights.
    mean : (features,)
        Mean of the rows.
    diagonal : (features,)
        Diagonal of Cxx, the scatter of the rows.
    scatter : (features, features) or None
        Cxx, if it is stored.
    present : (k,) bool
        The state's target columns that are not left out.
    label_weights : (k',)
        Class weights n_j. Ones if targets are continuous.
    target_mean : (k',)
        Mean of the targets.
    cross : (features, k')
        Cxy, the cross-scatter of rows and targets.
    target_scatter : (k', k')
        Cyy, the scatter of the targets.
    labelled : bool
        True if targets are labels.
    scale : (features,)
        Factor that each column was multiplied by.
    rounding : Rounding
        Size of the sums' rounding errors.
    waiting_means : (features, waiting)
        √n_j (m_j − mean) in scaled columns, for the labels that wait. The scatter about `mean` of
        all rows is Cxx plus the product of this with its own transpose.
    labels : tuple of Label
        Labels (k',) of the columns, () if targets are numbers.
    kind : str or None
        Kind of targets, None if there were none.
    along : (p,) or None
        wᵀ Cxx w of the components, if refine has measured it.
    first_stage : callable or None
        XH (features, k') → W1, if refine has solved (Cxx + γI) W1 = XH.
    waiting : tuple of Label
        Labels that wait for more rows. Their means are taken out of all sums.
    """

    weight: float
    mean: np.ndarray
    diagonal: np.ndarray
    scatter: np.ndarray | None
    present: np.ndarray
    label_weights: np.ndarray
    target_mean: np.ndarray
    cross: np.ndarray
    target_scatter: np.ndarray
    labelled: bool
    scale: np.ndarray
    rounding: Rounding
    waiting_means: np.ndarray
    labels: tuple[Label, ...] = ()
    kind: str | None = None
    along: np.ndarray | None = None
    first_stage: Callable[[np.ndarray], np.ndarray] | None = None
    waiting: tuple[Label, ...] = ()

    @property
    def scatter_or_diagonal(self) -> np.ndarray:
        """Cxx if it is stored, else its diagonal."""
        return self.diagonal if self.scatter is None else self.scatter

    def scatter_product(self, columns: np.ndarray) -> np.ndarray:
        """Return Cxx @ columns (features, m), by its diagonal if no more is stored."""
        return self.diagonal[:, None] * columns if self.scatter is None else self.scatter @ columns

    @property
    def offsets(self) -> np.ndarray:
        """Class means less the mean of the rows (features, k'), in scaled columns."""
        return self.cross / self.label_weights

    def between_eigenpairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return eigenvectors (features, r) and roots of eigenvalues (r,) of Sb.

        Sb is weighted by priors, and r < classes.
        """
        vectors, values = self.reduced(self.cross / np.sqrt(self.label_weights), self.cross.shape[1] ** 0.5)
        return vectors, values / np.sqrt(self.weight) if self.weight > 0 else values

    @property
    def target_size(self) -> float:
        """Size of the targets: √(Σ w |y|²) = √(tr Cyy + N |ȳ|²), not centred."""
        return float(np.sqrt(np.trace(self.target_scatter) + self.weight * (self.target_mean @ self.target_mean)))

    def cleaned(self, cross: np.ndarray, target_size: float) -> np.ndarray:
        """Return cross sums (features, k), with zeros in columns of only rounding.

        target_size: size of the targets that the sums are with.
        """
        return self.rounding.cleaned(cross, target_size, self.diagonal)

    def significant(self, cross: np.ndarray, target_size: float) -> np.ndarray:
        """Return cross sums (features, r), r ≤ k, without combinations of only rounding."""
        # The decomposition takes long for many sums. It is not needed if they are far above rounding.
        floor = self.rounding.cross_floor(target_size, self.diagonal)
        if cross.size >= 1_000_000 and floor <= 1e-9 * np.linalg.norm(cross):
            return cross
        return self.rounding.significant(cross, target_size, self.diagonal)

    def reduced(self, cross: np.ndarray, target_size: float) -> tuple[np.ndarray, np.ndarray]:
        """Return left singular vectors (features, r) and values (r,) of cross sums.

        Only those that are more than rounding. cross: (features, k).
        """
        significant = self.significant(self.cleaned(cross, target_size), target_size)
        shows = significant.any(axis=1)
        inner, values = left_singular(significant[shows])
        vectors = np.zeros((len(cross), len(values)))
        vectors[shows] = inner
        return vectors, values


def labels_waiting(learned: MomentState | MomentAccumulator, least: int) -> np.ndarray:
    """Return the mask (labels,) bool of the labels that wait for more rows.

    A label waits if it has fewer than `least` rows of weight above 0, a row has one label, and at
    least two labels have as many rows [mathematics §2]. learned: a state or an accumulator.
    """
    rows = learned.label_rows
    enough = rows >= least
    several = learned.target_kind == "class" and np.count_nonzero(enough) >= 2
    return (rows > 0) & ~enough if several else np.zeros(len(rows), dtype=bool)


def moments_of(state: State, standardize: bool = False, min_class_rows: int = 1) -> Moments:
    """Return the moments of a state, of standardised rows if asked.

    Labels of fewer than `min_class_rows` rows wait (`labels_waiting`). Costs O(d k), and O(d²)
    with exact scatter.
    """
    state = cast(MomentState, state.inner if isinstance(state, MappedState) else state)
    c = state.centred()
    d = len(c.mean)

    # Columns without digits to solve with count as constant.
    diagonal = np.zeros(d) if c.diagonal is None else np.maximum(c.diagonal, 0.0)
    lost = np.flatnonzero((diagonal > 0.0) & (diagonal < TINY))
    for sums in (diagonal, c.cross, *(() if c.scatter is None else (c.scatter, c.scatter.T))):
        sums[lost] = 0.0

    labelled = state.target_kind in ("class", "multilabel")
    weights = c.label_weights if labelled else np.ones(c.cross.shape[1])
    present = weights > 0

    total = float(diagonal.sum())
    largest = max(state.scale * state.largest.weight, c.weight)
    rounding = Rounding(
        shift=np.sqrt(largest) * np.abs(c.mean),
        lost=min(c.noise / total, 1.0) if total > 0 else 0.0,
        cancelled=float(np.sqrt(largest / c.weight)) if c.weight > 0 else 1.0,
    )

    m = Moments(
        float(c.weight), c.mean, diagonal, c.scatter, present, weights[present], c.target_mean[present],
        c.cross[:, present], c.target_scatter[np.ix_(present, present)], labelled, np.ones(d), rounding,
        np.zeros((d, 0)),
        tuple(label for label, there in zip(c.labels, present, strict=True) if there) if labelled else (), state.target_kind,
    )  # fmt: skip

    waiting = labels_waiting(state, min_class_rows)
    m = _without_waiting_labels(m, waiting[present], c.noise) if waiting.any() else m
    return standardised(m) if standardize else m


def _without_waiting_labels(m: Moments, waiting: np.ndarray, noise: float) -> Moments:
    """Return the moments without the means of the labels that wait (k',) bool.

    With one row a label they are those of the other rows [mathematics §2]. noise: absolute size of
    what unlearning may have left in Cxx.
    """
    ready = ~waiting
    n, few = m.label_weights[ready], m.label_weights[waiting]
    total, taken = n.sum(), m.cross[:, waiting].sum(axis=1)
    if not total > 0.0:
        return m

    roots = np.column_stack([m.cross[:, waiting] / np.sqrt(few), taken / np.sqrt(total)])
    gone = (roots**2).sum(axis=1)
    diagonal = m.diagonal - gone
    # A column that only the rows of waiting labels have is left with the rounding of what it was.
    size = np.sqrt(m.diagonal)
    emptied = (gone > 0.0) & (diagonal <= 64 * EPS * size * (size + m.rounding.shift))
    diagonal[emptied] = 0.0
    scatter = None if m.scatter is None else m.scatter - roots @ roots.T
    cross = m.cross[:, ready] + np.outer(taken / total, n)
    for sums in (cross, *(() if scatter is None else (scatter, scatter.T))):
        sums[emptied] = 0.0

    mean = m.mean - taken / total
    before = float(m.diagonal.sum())
    lost = max(noise, EPS * before) / float(diagonal.sum()) if diagonal.any() else 0.0
    # Number of rows before anything was taken out.
    largest = m.rounding.cancelled**2 * m.weight
    return m._replace(
        weight=float(total),
        mean=mean,
        diagonal=diagonal,
        scatter=scatter,
        present=_narrow_mask(m.present, ready),
        label_weights=n,
        target_mean=n / total,
        cross=cross,
        target_scatter=np.diag(n) - np.outer(n, n / total),
        rounding=Rounding(np.sqrt(largest) * np.abs(mean), min(lost, 1.0), float(np.sqrt(largest / total))),
        waiting_means=(m.cross[:, waiting] + np.outer(taken / total, few)) / np.sqrt(few),
        labels=tuple(compress(m.labels, ready)),
        waiting=tuple(compress(m.labels, waiting)),
    )


def _narrow_mask(mask: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Return the mask (k,) with only those of its true entries that `keep` (k',) names."""
    narrowed = mask.copy()
    narrowed[mask] = keep
    return narrowed


def standardised(m: Moments) -> Moments:
    """Return the moments of rows with every column divided by its standard deviation.

    That is √(Cxx_ii / N).
    """
    scale = np.ones(len(m.mean))
    varying = m.rounding.varying(m.diagonal)
    scale[varying] = np.sqrt(m.weight / m.diagonal[varying])
    return scale_features(m, scale)


def divide_by_scale(columns: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return columns (features, m) divided by the features' scale, 0 where it is 0."""
    return np.divide(columns, scale[:, None], out=np.zeros_like(columns), where=scale[:, None] > 0)


def scale_features(m: Moments, scale: np.ndarray) -> Moments:
    """Return the moments of rows with every column times its `scale` (features,)."""
    scatter = None if m.scatter is None else m.scatter * scale[:, None] * scale
    rounding = m.rounding._replace(shift=m.rounding.shift * scale)
    return m._replace(
        diagonal=m.diagonal * scale**2,
        scatter=scatter,
        cross=m.cross * scale[:, None],
        scale=m.scale * scale,
        rounding=rounding,
        waiting_means=m.waiting_means * scale[:, None],
    )
