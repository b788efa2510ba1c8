"""Moments: the centred sums a closed-form method is solved from [mathematics §1-3].

The moments of standardised rows are those of the rows times 1/σ, a constant column counting as σ = 1: so `standardize`
is exact at any time and has no lag.

Why this way: everything a method needs of a state (which classes have weight, how far the rows were from zero, what is
rounding) is asked for here once, in the words of docs/mathematics.md.
"""

from collections.abc import Callable
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from stream_dr.solve.rounding import Rounding
from stream_dr.solve.spectral import EPS, left_singular
from stream_dr.statistics.mapped import MappedState
from stream_dr.targets.label_codes import Label

TINY = float(np.finfo(np.float64).tiny / EPS)
"""A column whose scatter is below this has no digits left to solve with, and counts as constant."""


class Moments(NamedTuple):
    """The centred sums a method is solved from, columns of classes left out that wait or have no weight. float64.

    weight: N. mean: (features,) of the rows. diagonal: (features,) of Cxx. scatter: (features, features) Cxx, or None.
    present: (k,) bool, which of the state's target columns are not left out. label_weights: (k',) n_j, or ones where targets
    are continuous. target_mean: (k',). cross: (features, k'). target_scatter: (k', k'). labelled: targets are labels.
    scale: (features,) what each column was multiplied by. rounding: how exact the sums are.
    labels: (k',) of the columns, () where targets are numbers. kind: of targets, None where there were none. along: (p,)
    wᵀ Cxx w of the components found, where refine has measured it, else None.
    first_stage: XH (features, k') → W1 where refine has solved (Cxx + γI) W1 = XH, else None.
    waiting: labels left out that wait for more rows; their means are taken out of all sums. waiting_means: (features,
    waiting) √n_j (m_j − mean), scaled columns: the scatter about `mean` of all rows is Cxx plus its product with its own
    transpose.
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
    def spread(self) -> np.ndarray:
        """Cxx where it is kept, else its diagonal."""
        return self.diagonal if self.scatter is None else self.scatter

    @property
    def offsets(self) -> np.ndarray:
        """(features, k') class means less the mean of the rows, scaled columns."""
        return self.cross / self.label_weights

    def between(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvectors (features, r) of Sb, weighted by priors, and the roots (r,) of its eigenvalues; r < classes."""
        vectors, values = self.reduced(self.cross / np.sqrt(self.label_weights), self.cross.shape[1] ** 0.5)
        return vectors, values / np.sqrt(self.weight) if self.weight > 0 else values

    @property
    def target_size(self) -> float:
        """√(Σ w |y|²) = √(tr Cyy + N |ȳ|²), targets not centred."""
        return float(np.sqrt(np.trace(self.target_scatter) + self.weight * (self.target_mean @ self.target_mean)))

    def cleaned(self, cross: np.ndarray, target_size: float) -> np.ndarray:
        """Cross sums (features, k) with targets of this size, zero for the columns that show nothing but rounding."""
        return self.rounding.cleaned(cross, target_size, self.diagonal)

    def significant(self, cross: np.ndarray, target_size: float) -> np.ndarray:
        """Cross sums (features, r), r ≤ k, without the combinations of targets that are rounding.

        The decomposition this takes is left out where sums are many and all of them far above rounding.
        """
        floor = self.rounding.cross_floor(target_size, self.diagonal)
        if cross.size >= 1_000_000 and floor <= 1e-9 * np.linalg.norm(cross):
            return cross
        return self.rounding.significant(cross, target_size, self.diagonal)

    def reduced(self, cross: np.ndarray, target_size: float) -> tuple[np.ndarray, np.ndarray]:
        """Left singular vectors (features, r) and values (r,) of cross sums (features, k) that are more than rounding."""
        kept = self.significant(self.cleaned(cross, target_size), target_size)
        shows = kept.any(axis=1)
        inner, values = left_singular(kept[shows])
        vectors = np.zeros((len(cross), len(values)))
        vectors[shows] = inner
        return vectors, values


def labels_waiting(learned: Any, least: int) -> np.ndarray:
    """Return which labels of a state or an accumulator wait for more rows, (labels,) bool [mathematics §2].

    A label waits when it has fewer than `least` rows of weight above 0, a row has one label, and at least two labels have
    as many rows.
    """
    rows = learned.label_rows
    enough = rows >= least
    several = learned.target_kind == "class" and np.count_nonzero(enough) >= 2
    return (rows > 0) & ~enough if several else np.zeros(len(rows), dtype=bool)


def moments_of(state: Any, standardize: bool = False, min_class_rows: int = 1) -> Moments:
    """Return the moments of a state, of standardised rows where asked.

    Labels of fewer than `min_class_rows` rows wait (`labels_waiting`). O(d k), and O(d²) with exact scatter.
    """
    state = state.inner if isinstance(state, MappedState) else state
    c = state.centred()
    d = len(c.mean)
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
    m = _without(m, waiting[present], c.noise) if waiting.any() else m
    return standardised(m) if standardize else m


def _without(m: Moments, waiting: np.ndarray, noise: float) -> Moments:
    """Return the moments without the means of the labels that wait (k',) bool [mathematics §2].

    With one row a label they are those of the other rows. noise: absolute size of what unlearning may have left in Cxx.
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

    mean, before = m.mean - taken / total, float(m.diagonal.sum())
    lost = max(noise, EPS * before) / float(diagonal.sum()) if diagonal.any() else 0.0
    # rows before anything was taken out
    largest = m.rounding.cancelled**2 * m.weight
    return m._replace(
        weight=float(total),
        mean=mean,
        diagonal=diagonal,
        scatter=scatter,
        present=_narrowed(m.present, ready),
        label_weights=n,
        target_mean=n / total,
        cross=cross,
        target_scatter=np.diag(n) - np.outer(n, n / total),
        rounding=Rounding(np.sqrt(largest) * np.abs(mean), min(lost, 1.0), float(np.sqrt(largest / total))),
        waiting_means=(m.cross[:, waiting] + np.outer(taken / total, few)) / np.sqrt(few),
        labels=tuple(compress(m.labels, ready)),
        waiting=tuple(compress(m.labels, waiting)),
    )


def _narrowed(mask: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Return the mask (k,) with those of its true entries only that `keep` (k',) names."""
    narrowed = mask.copy()
    narrowed[mask] = keep
    return narrowed


def standardised(m: Moments) -> Moments:
    """The moments of the same rows with every column divided by its standard deviation √(Cxx_ii / N)."""
    scale = np.ones(len(m.mean))
    varying = m.rounding.varying(m.diagonal)
    scale[varying] = np.sqrt(m.weight / m.diagonal[varying])
    return rescaled(m, scale)


def unscaled(columns: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Columns (features, m) divided by the features' scale; 0 where that is 0."""
    return np.divide(columns, scale[:, None], out=np.zeros_like(columns), where=scale[:, None] > 0)


def rescaled(m: Moments, scale: np.ndarray) -> Moments:
    """Return the moments of the same rows with every column times its `scale` (features,)."""
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
