"""The centred sums from which a closed-form method is solved [mathematics §1-3].

Standardising rows divides each column by its standard deviation σ, with σ = 1 for a constant
column. The moments of standardised rows follow exactly from those of the rows. So `standardize`
is exact after every row and needs no earlier pass.
"""

from itertools import compress
from typing import NamedTuple, cast

import numpy as np

from stream_dr.solve.conjugate_gradient import BlockSolve
from stream_dr.solve.rounding import Rounding
from stream_dr.solve.spectral import EPS, left_singular
from stream_dr.statistics.mapped import MappedState
from stream_dr.statistics.moments.accumulator import MomentAccumulator, MomentState
from stream_dr.statistics.protocol import State
from stream_dr.targets.label_codes import Label

TINY = float(np.finfo(np.float64).tiny / EPS)
"""Scatter up to which a column counts as constant, because too few digits are right."""


class Moments(NamedTuple):
    """Centred sums from which a method is solved, in float64.

    A state has k target columns. Some are excluded here: columns of labels without weight, and of
    labels with fewer rows than `min_class_rows`. k' is the number of target columns that remain.

    Attributes
    ----------
    weight : float
        Sum N of the rows' weights.
    mean : (features,)
        Mean of the rows.
    diagonal : (features,)
        Diagonal of Cxx, the scatter of the centred rows.
    scatter : (features, features) or None
        Cxx, or None if only the diagonal is stored.
    present : (k,) bool
        True for the state's target columns that are not excluded.
    label_weights : (k',)
        Weight n_j of the rows of each label. Ones if targets are continuous.
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
        Sizes of the rounding errors in the sums.
    waiting_means : (features, waiting)
        √n_j (m_j − mean) in scaled columns, for each label j with too few rows, of weight n_j and
        mean m_j. The scatter of all rows about `mean` is Cxx plus the product of this array with
        its own transpose.
    labels : tuple of Label
        Labels (k',) of the columns, () if targets are numbers.
    kind : str or None
        Kind of targets, None if there were none.
    along : (p,) or None
        wᵀ Cxx w of each component w, if refine (further passes over the rows) has measured it.
    first_stage : BlockSolve or None
        Solution of (Cxx + γI) W1 = XH for XH (features, k'), if refine has solved it.
    waiting : tuple of Label
        Labels with too few rows to be classes. Their means are subtracted from all sums.
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
    first_stage: BlockSolve | None = None
    waiting: tuple[Label, ...] = ()

    @property
    def scatter_or_diagonal(self) -> np.ndarray:
        """Scatter Cxx of the rows if it is stored, else its diagonal."""
        return self.diagonal if self.scatter is None else self.scatter

    def scatter_product(self, columns: np.ndarray) -> np.ndarray:
        """Return Cxx @ columns (features, m), for the scatter Cxx of the rows.

        If only the diagonal of Cxx is stored, the product is with the diagonal.
        """
        return self.diagonal[:, None] * columns if self.scatter is None else self.scatter @ columns

    @property
    def offsets(self) -> np.ndarray:
        """Class means minus the mean of the rows (features, classes), in scaled columns."""
        return self.cross / self.label_weights

    def between_eigenpairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return eigenpairs of the between-class scatter Sb.

        Returns eigenvectors (features, r) and the square roots (r,) of the eigenvalues, for r <
        number of classes. Classes are weighted by their shares of the rows.
        """
        vectors, values = self.reduced(self.cross / np.sqrt(self.label_weights), self.cross.shape[1] ** 0.5)
        return vectors, values / np.sqrt(self.weight) if self.weight > 0 else values

    @property
    def target_size(self) -> float:
        """Size √(Σ w |y|²) of the targets y with weights w. The targets are not centred."""
        return float(np.sqrt(np.trace(self.target_scatter) + self.weight * (self.target_mean @ self.target_mean)))

    def cleaned(self, cross: np.ndarray, target_size: float) -> np.ndarray:
        """Return cross sums (features, k) with zeros in columns that are only rounding error.

        cross: (features, k), sums of rows times targets.
        target_size: norm of the targets.
        """
        return self.rounding.cleaned(cross, target_size, self.diagonal)

    def significant(self, cross: np.ndarray, target_size: float) -> np.ndarray:
        """Return cross sums without the combinations of targets that are only rounding error.

        Returns (features, r), r ≤ k.

        cross: (features, k), sums of rows times targets.
        target_size: norm of the targets.
        """
        # The decomposition is slow. It is skipped if all sums are far above rounding error.
        floor = self.rounding.cross_floor(target_size, self.diagonal)
        if cross.size >= 1_000_000 and floor <= 1e-9 * np.linalg.norm(cross):
            return cross
        return self.rounding.significant(cross, target_size, self.diagonal)

    def reduced(self, cross: np.ndarray, target_size: float) -> tuple[np.ndarray, np.ndarray]:
        """Return left singular vectors (features, r) and singular values (r,) of cross sums.

        Singular values that are only rounding error are dropped.

        cross: (features, k), sums of rows times targets.
        target_size: norm of the targets.
        """
        significant = self.significant(self.cleaned(cross, target_size), target_size)
        shows = significant.any(axis=1)
        inner, values = left_singular(significant[shows])
        vectors = np.zeros((len(cross), len(values)))
        vectors[shows] = inner
        return vectors, values


def labels_waiting(learned: MomentState | MomentAccumulator, least: int) -> np.ndarray:
    """Return the mask (labels,) bool of labels that have too few rows to be classes.

    With one label a row, these are the labels of fewer than `least` rows of weight above 0, if at
    least two labels have `least` rows [mathematics §2]. Otherwise no label has too few rows.

    learned: a state or an accumulator.
    least: number of rows that makes a label a class.
    """
    rows = learned.label_rows
    enough = rows >= least
    several = learned.target_kind == "class" and np.count_nonzero(enough) >= 2
    return (rows > 0) & ~enough if several else np.zeros(len(rows), dtype=bool)


def moments_of(state: State, standardize: bool = False, min_class_rows: int = 1) -> Moments:
    """Return the moments (centred sums) of a state.

    standardize: if true, return the moments of standardised rows.
    min_class_rows: number of rows that makes a label a class. The means of labels with fewer rows
        are subtracted from all sums (`labels_waiting`).

    Costs O(d k) for d features and k targets, and O(d²) with exact scatter.
    """
    state = cast(MomentState, state.inner if isinstance(state, MappedState) else state)
    c = state.centred()
    d = len(c.mean)

    # A column of very small scatter has too few right digits, so it counts as constant.
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
    """Return the moments without the means of labels that have too few rows.

    If each of these labels has one row, the result is the moments of the other rows [mathematics
    §2].

    m: moments of all rows.
    waiting: (k',) bool, True for these labels.
    noise: absolute size of the error that unlearning may have caused in the scatter.
    """
    ready = ~waiting
    n, few = m.label_weights[ready], m.label_weights[waiting]
    if not n.sum() > 0.0:
        return m
    # Rows without a label count, too, if they were learned.
    total, taken = m.weight - few.sum(), m.cross[:, waiting].sum(axis=1)

    roots = np.column_stack([m.cross[:, waiting] / np.sqrt(few), taken / np.sqrt(total)])
    gone = (roots**2).sum(axis=1)
    diagonal = m.diagonal - gone
    # A column that varies only in the rows of these labels now holds only rounding error.
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
    # `largest` is the weight of the rows before any row was unlearned or removed.
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
    """Return the mask (k,) with some of its true entries set to False.

    keep: (k',) bool, one entry for each true entry of the mask.
    """
    narrowed = mask.copy()
    narrowed[mask] = keep
    return narrowed


def standardised(m: Moments) -> Moments:
    """Return the moments of rows with every column divided by its standard deviation.

    The standard deviation of column i is √(Cxx_ii / N).
    """
    scale = np.ones(len(m.mean))
    varying = m.rounding.varying(m.diagonal)
    scale[varying] = np.sqrt(m.weight / m.diagonal[varying])
    return scale_features(m, scale)


def divide_by_scale(columns: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return columns (features, m) divided by the features' scale.

    The result is 0 for features whose scale is 0.

    scale: (features,).
    """
    return np.divide(columns, scale[:, None], out=np.zeros_like(columns), where=scale[:, None] > 0)


def scale_features(m: Moments, scale: np.ndarray) -> Moments:
    """Return the moments of rows with every column multiplied by its `scale` (features,)."""
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
