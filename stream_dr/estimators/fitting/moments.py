"""Moments (centred sums) of closed-form methods [mathematics §1-3].

A method is solved from the moments of its rows and targets.

Standardising divides each column by its standard deviation, except constant columns. The moments
of standardised rows can be computed exactly from the moments of the rows. So standardising needs
no earlier pass over the rows.
"""

from itertools import compress
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from stream_dr.batch.targets import Label
from stream_dr.estimators.fitting.mapping import merged_mapped_state
from stream_dr.solve.conjugate_gradient import BlockSolve
from stream_dr.solve.spectral import EPS, LeftSingularPairs, Rounding, left_singular_pairs
from stream_dr.statistics.moments.accumulator import MomentAccumulator
from stream_dr.statistics.moments.state import Centred, MomentState
from stream_dr.statistics.protocol import State

SMALLEST_SCATTER = float(np.finfo(np.float64).tiny / EPS)
"""Scatter up to which a column counts as constant.

A number as small as this has too few correct digits.
"""


class Moments(NamedTuple):
    """Centred sums of rows and targets, in float64.

    A method is solved from these sums. A state has k target columns, of which k' are used here.
    The columns of labels without weight and of labels with fewer rows than `min_class_rows` are
    not used.

    Attributes
    ----------
    weight : float
        Sum N of the rows' weights.
    mean : (features,)
        Mean of the rows, which is not multiplied by `scale`.
    diagonal : (features,)
        Diagonal of the scatter Cxx of the centred rows.
    scatter : (features, features) or None
        Scatter Cxx of the centred rows, or None if only the diagonal is stored.
    present : (k,) bool
        True for the target columns of the state that are used.
    label_weights : (k',)
        Weight of the rows with each label. Ones if targets are numbers.
    target_mean : (k',)
        Mean of the targets.
    cross : (features, k')
        Cross-scatter Cxy of rows and targets.
    target_scatter : (k', k')
        Scatter Cyy of the targets.
    labelled : bool
        True if targets are labels.
    scale : (features,)
        Factor by which each column of the rows was multiplied in `diagonal`, `scatter` and `cross`,
        for example to standardise rows.
    rounding : Rounding
        Sizes of the rounding errors in the sums.
    scaled_waiting_means : (features, waiting)
        For each label in `waiting`, the label's mean minus `mean`, times the square root of the
        label's weight. From this array, `refine` knows the part of the scatter that Cxx leaves out:
        the scatter of all rows about `mean` is Cxx plus the array's product with its own transpose.
    waiting : tuple of Label
        Labels with too few rows to be classes. The other attributes are computed such that the
        means of these labels have no influence.
    labels : tuple of Label
        Labels (k',) of the target columns. () if targets are numbers.
    kind : str or None
        Kind of targets ("class", "multilabel" or "continuous"). None if there were no targets.
    along : (p,) or None
        Scatter of the rows along each component, for methods that give components a length. None
        unless `refine` has measured it, in further passes over the rows.
    first_stage : BlockSolve or None
        Current solution of a method's linear system, for methods that compute their components from
        such a solution. None unless `refine` is solving the system, in further passes over the
        rows.
    """

    weight: float
    mean: NDArray[np.float64]
    diagonal: NDArray[np.float64]
    scatter: NDArray[np.float64] | None
    present: np.ndarray
    label_weights: NDArray[np.float64]
    target_mean: NDArray[np.float64]
    cross: NDArray[np.float64]
    target_scatter: NDArray[np.float64]
    labelled: bool
    scale: NDArray[np.float64]
    rounding: Rounding
    scaled_waiting_means: NDArray[np.float64]
    waiting: tuple[Label, ...] = ()
    labels: tuple[Label, ...] = ()
    kind: str | None = None
    along: NDArray[np.float64] | None = None
    first_stage: BlockSolve | None = None

    @property
    def scatter_or_diagonal(self) -> NDArray[np.float64]:
        """Scatter (features, features) of the rows, or its diagonal (features,).

        The diagonal is returned if the whole scatter is not stored.
        """
        if self.scatter is None:
            return self.diagonal
        return self.scatter

    def scatter_product(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product of the rows' scatter and given columns.

        The product has the shape of `columns`. If only the diagonal of the scatter is stored, the
        product is with the diagonal.

        columns: (features, m), m columns.
        """
        if self.scatter is None:
            return self.diagonal[:, None] * columns
        return self.scatter @ columns

    @property
    def offsets(self) -> NDArray[np.float64]:
        """Class means (features, classes) minus the mean of all rows.

        Both means are those of scaled rows, whose features are multiplied by `scale`.
        """
        return self.cross / self.label_weights

    def project_offsets(self, loadings: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return coordinates (classes, p) of class means along p components.

        The origin of the coordinates is the mean of all rows.

        loadings: (features, p), the p components. They apply to features multiplied by the attribute
            `scale`, for example to standardise them.
        """
        return self.cross.T @ loadings / self.label_weights[:, None]

    @property
    def label_order(self) -> list[int]:
        """Indices in `labels` that bring the labels into sorted order."""
        return sorted(range(len(self.labels)), key=self.labels.__getitem__)

    @property
    def class_means(self) -> NDArray[np.float64]:
        """Class means (classes, features) in the units of the rows, sorted by label."""
        return (self.mean + (self.offsets / self.scale[:, None]).T)[self.label_order]

    def between_eigenpairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return eigenvectors and root eigenvalues of the between-class scatter.

        The eigenvectors are (features, r) and the roots (r,). The roots are the square roots of
        the r eigenvalues, where r is less than the number of classes. In the scatter, each class
        is weighted by its share of the rows.
        """
        scaled = self.cross / np.sqrt(self.label_weights)
        vectors, values = self.significant_left_singular_pairs(scaled, self.cross.shape[1] ** 0.5)
        if self.weight > 0:
            values = values / np.sqrt(self.weight)
        return vectors, values

    @property
    def uncentred_target_norm(self) -> float:
        """Frobenius norm of the targets, before centring.

        The norm is the root of the weighted sum of the squares of all targets.
        """
        return float(np.sqrt(np.trace(self.target_scatter) + self.weight * (self.target_mean @ self.target_mean)))

    def clear_noisy_features(self, cross_sums: np.ndarray, target_norm: float) -> np.ndarray:
        """Return cross sums without features that have only rounding error.

        The sums of these features are set to 0.

        cross_sums: (features, k), products of features and k targets, summed over the rows.
        target_norm: norm of the targets.
        """
        return self.rounding.clear_noisy_features(cross_sums, target_norm, self.diagonal)

    def significant_cross_sum_combinations(self, cross_sums: np.ndarray, target_norm: float) -> np.ndarray:
        """Return cross sums without target combinations of only rounding error.

        The k targets are replaced by k orthogonal linear combinations of them. A combination is
        dropped if its cross sums with all features are only rounding error. The result (features,
        r) has the cross sums of the r combinations that are left. If none is dropped, or if there
        are many sums and rounding errors are far smaller, `cross_sums` itself is returned.

        cross_sums: (features, k), products of features and k targets, summed over the rows.
        target_norm: Frobenius norm of the targets (rows, k), which limits the rounding errors.
        """
        # The combinations need a decomposition, which is slow for an array of a million sums or
        # more. Skip it if rounding errors (`floor`) are below a billionth of the sums' norm.
        floor = self.rounding.cross_sum_floor(target_norm, self.diagonal)
        if cross_sums.size >= 1_000_000 and floor <= 1e-9 * np.linalg.norm(cross_sums):
            return cross_sums
        return self.rounding.significant_cross_sum_combinations(cross_sums, target_norm, self.diagonal)

    def significant_left_singular_pairs(self, cross_sums: np.ndarray, target_norm: float) -> LeftSingularPairs:
        """Return singular vectors and singular values of cross sums.

        Returns r left singular vectors (features, r) and their singular values (r,). Singular
        values that are only rounding error are dropped.

        cross_sums: (features, k), products of features and k targets, summed over the rows.
        target_norm: Frobenius norm of the targets (rows, k), which limits the rounding errors.
        """
        # Remove features, and then orthogonal combinations of targets, that are only rounding
        # error. Orthogonal combinations of columns have the same left singular vectors and singular
        # values.
        cleared = self.clear_noisy_features(cross_sums, target_norm)
        significant = self.significant_cross_sum_combinations(cleared, target_norm)

        # Decompose only features that have a sum other than 0 (`nonzero`).
        # The singular vectors are 0 at all other features.
        nonzero = significant.any(axis=1)
        nonzero_vectors, values = left_singular_pairs(significant[nonzero])
        vectors = np.zeros((len(cross_sums), len(values)))
        vectors[nonzero] = nonzero_vectors
        return LeftSingularPairs(vectors, values)


def waiting_labels(state_or_accumulator: MomentState | MomentAccumulator, min_rows: int) -> np.ndarray:
    """Return a mask (labels,), True for labels with too few rows.

    A label with too few rows is not yet a class. It has at least one row of weight above 0, but
    fewer than `min_rows` [mathematics §2]. If targets are not one label a row, or if fewer than two
    labels have `min_rows` rows, the mask is False for all labels.

    state_or_accumulator: a state or an accumulator.
    min_rows: number of rows that a label needs to be a class.
    """
    # `label_rows` (labels,) has the number of rows with each label.
    rows = state_or_accumulator.label_rows
    enough = rows >= min_rows
    has_two_classes = state_or_accumulator.target_kind == "class" and np.count_nonzero(enough) >= 2
    if has_two_classes:
        return (rows > 0) & ~enough
    return np.zeros(len(rows), dtype=bool)


def compute_moments(state: State, standardize: bool = False, min_class_rows: int = 1) -> Moments:
    """Return the moments (centred sums) of a state.

    Costs O(d k) for d features and k targets, and O(d²) if the whole scatter is stored.

    standardize: if true, return the moments of standardised rows.
    min_class_rows: number of rows that a label needs to be a class. The moments are changed such
        that the means of labels with fewer rows have no influence.
    """
    state = cast(MomentState, merged_mapped_state(state))
    centred = state.centred()
    m = _moments_of_all_rows(state, centred)

    # A label with too few rows is treated as if it had no mean of its own. `too_few` has an entry
    # for each label of the state. The moments have only labels of weight above 0 (`m.present`).
    too_few = waiting_labels(state, min_class_rows)
    if too_few.any():
        # `noise` is the absolute error that unlearning rows may have left in the scatter.
        m = _drop_waiting_means(m, too_few[m.present], scatter_rounding_error=centred.noise)
    if not standardize:
        return m

    return scale_moments(m, standardizing_factors(m))


def standardizing_factors(m: Moments) -> np.ndarray:
    """Return factors (features,), 1 / standard deviation, or 1 for constant columns."""
    factors = np.ones(len(m.mean))
    varying_columns = m.rounding.varying_columns(m.diagonal)
    factors[varying_columns] = np.sqrt(m.weight / m.diagonal[varying_columns])
    return factors


def _moments_of_all_rows(state: MomentState, c: Centred) -> Moments:
    """Return the moments of all rows, from their centred sums.

    The moments are the centred sums without target columns of weight 0. Sums of features with a
    tiny scatter are set to 0. Sizes of rounding errors are added.

    c: centred sums of the state, whose arrays may be overwritten.
    """
    d = len(c.mean)

    # Treat columns of very small scatter as constant, because such a scatter has too few digits.
    # The sums of these columns (`lost`) are set to 0.
    diagonal = np.zeros(d)
    if c.diagonal is not None:
        diagonal = np.maximum(c.diagonal, 0.0)
    lost = (diagonal > 0.0) & (diagonal < SMALLEST_SCATTER)
    diagonal[lost] = 0.0
    _zero_features(lost, c.cross, c.scatter)

    # Leave out target columns without weight.
    labelled = state.target_kind in ("class", "multilabel")
    weights = c.label_weights if labelled else np.ones(c.cross.shape[1])
    present = weights > 0
    labels = tuple(compress(c.labels, present)) if labelled else ()
    cross = c.cross if present.all() else c.cross[:, present]

    # Estimate rounding errors from the largest weight that the rows ever had.
    # Unlearning reduces the weight of the rows, but not the rounding errors. So `cancelled` is the
    # factor by which the errors are larger. A state stores its weights divided by `state.scale`.
    largest = max(state.scale * state.largest.weight, c.weight)
    cancelled = float(np.sqrt(largest / c.weight)) if c.weight > 0 else 1.0
    # `c.noise` is the largest absolute error that unlearning may have caused in the scatter.
    rounding = Rounding(np.sqrt(largest) * np.abs(c.mean), _lost_share(c.noise, diagonal), cancelled)
    return Moments(
        weight=float(c.weight),
        mean=c.mean,
        diagonal=diagonal,
        scatter=c.scatter,
        present=present,
        label_weights=weights[present],
        target_mean=c.target_mean[present],
        cross=cross,
        target_scatter=c.target_scatter[np.ix_(present, present)],
        labelled=labelled,
        scale=np.ones(d),
        rounding=rounding,
        scaled_waiting_means=np.zeros((d, 0)),
        labels=labels,
        kind=state.target_kind,
    )


def _zero_features(mask: np.ndarray, cross: np.ndarray, scatter: np.ndarray | None) -> None:
    """Set cross-scatter and scatter of masked features to 0, in place."""
    # mask: (features,), True for the features whose sums are set to 0.
    # cross: (features, targets), cross-scatter of rows and targets.
    # scatter: (features, features), scatter of the rows, or None if only its diagonal is stored.
    cross[mask] = 0.0
    if scatter is not None:
        scatter[mask] = 0.0
        scatter[:, mask] = 0.0


def _subtract_diagonal(moments: Moments, subtracted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Subtract a part of the scatter from the scatter's diagonal.

    Returns the new diagonal (features,), and a mask (features,) of features from which almost all
    scatter was subtracted. What remains of their scatter is only rounding error, so it becomes 0.

    subtracted: (features,), diagonal of the part to subtract, at most the scatter's diagonal.
    """
    # `size` is √scatter of a feature, and `shift` is √N · |mean| for rows of weight N. Subtracting
    # leaves an error of about EPS · size², and the centring of the rows before, EPS · size · shift.
    # The factor 64 is a safety margin.
    size = np.sqrt(moments.diagonal)
    largest_error = 64 * EPS * size * (size + moments.rounding.shift)

    diagonal = moments.diagonal - subtracted
    emptied = (subtracted > 0.0) & (diagonal <= largest_error)
    diagonal[emptied] = 0.0
    return diagonal, emptied


def _lost_share(noise: float, diagonal: np.ndarray) -> float:
    """Return the rounding error `noise` over the sum of `diagonal`."""
    # noise: absolute size of the rounding error of this sum. The result is at most 1.
    # diagonal: (features,), diagonal of the scatter.
    total = float(diagonal.sum())
    if total > 0:
        return min(noise / total, 1.0)
    return 0.0


def _drop_waiting_means(moments: Moments, has_few_rows: np.ndarray, scatter_rounding_error: float) -> Moments:
    """Remove means of labels with too few rows from moments.

    Weight, mean, targets and cross sums become those of the other rows. The scatter becomes that of
    the other rows about their mean, plus that of each removed label's rows about the mean of the
    label. If each of these labels has one row, the second part is 0, and the result is equal to the
    moments of the other rows [mathematics §2].

    moments: moments of all rows, with m labels.
    has_few_rows: (m,) bool, True for labels with too few rows.
    scatter_rounding_error: absolute size of the error that unlearning may have caused in the
        scatter.
    """
    # `present` marks the target columns that are used, among all columns of the state.
    # `n` and `few` are the weights of the rows of each class, and of each label with too few rows.
    ready = ~has_few_rows
    present = moments.present.copy()
    present[moments.present] = ready
    n = moments.label_weights[ready]
    few = moments.label_weights[has_few_rows]
    # Without rows of any class, no moments would remain, so all labels stay.
    if not n.sum() > 0.0:
        return moments
    # The weight of the remaining rows includes learned rows without a label.
    total = moments.weight - few.sum()
    # A column s_j of `waiting_cross` is the sum of the centred rows of label j with too few rows.
    # `taken` is the sum t of these columns.
    waiting_cross = moments.cross[:, has_few_rows]
    taken = waiting_cross.sum(axis=1)

    # Subtract the scatter that the means of these labels cause, Σ s_j s_jᵀ / few_j + t tᵀ / total.
    roots = np.column_stack([waiting_cross / np.sqrt(few), taken / np.sqrt(total)])
    diagonal, emptied = _subtract_diagonal(moments, (roots**2).sum(axis=1))
    scatter = None if moments.scatter is None else moments.scatter - roots @ roots.T
    # The sums of the other classes' rows refer to the new mean, so t / total is added for each row.
    cross = moments.cross[:, ready] + np.outer(taken / total, n)
    _zero_features(emptied, cross, scatter)

    # Compute the mean of the remaining rows. Rounding errors are larger relative to their sums.
    mean = moments.mean - taken / total
    noise = max(scatter_rounding_error, EPS * float(moments.diagonal.sum()))
    # `largest` is the largest weight that the rows ever had, before rows were unlearned.
    largest = moments.rounding.cancelled**2 * moments.weight
    cancelled = float(np.sqrt(largest / total))
    rounding = Rounding(np.sqrt(largest) * np.abs(mean), _lost_share(noise, diagonal), cancelled)
    return moments._replace(
        weight=float(total),
        mean=mean,
        diagonal=diagonal,
        scatter=scatter,
        present=present,
        label_weights=n,
        target_mean=n / total,
        cross=cross,
        target_scatter=np.diag(n) - np.outer(n, n / total),
        rounding=rounding,
        scaled_waiting_means=(waiting_cross + np.outer(taken / total, few)) / np.sqrt(few),
        labels=tuple(compress(moments.labels, ready)),
        waiting=tuple(compress(moments.labels, has_few_rows)),
    )


def divide_by_scale(columns: np.ndarray, feature_scale: np.ndarray) -> np.ndarray:
    """Divide each row of an array by its feature's scale.

    The result is 0 for features whose scale is 0.

    columns: (features, m), m columns.
    feature_scale: (features,), scale of each feature.
    """
    divisors = feature_scale[:, None]
    return np.asarray(np.divide(columns, divisors, out=np.zeros_like(columns), where=divisors > 0))


def scale_moments(moments: Moments, column_factors: np.ndarray) -> Moments:
    """Return moments of rows with columns multiplied by factors.

    The attribute `mean` stays, because it is the mean of rows that are not scaled.

    column_factors: (features,), factor of each column of the rows.
    """
    scatter = None
    if moments.scatter is not None:
        scatter = moments.scatter * column_factors[:, None] * column_factors
    # `shift` is a length in units of the columns. The other rounding errors are relative.
    rounding = moments.rounding._replace(shift=moments.rounding.shift * column_factors)
    # Weights, labels and sums of targets alone do not depend on the columns' units, so they stay.
    return moments._replace(
        diagonal=moments.diagonal * column_factors**2,
        scatter=scatter,
        cross=moments.cross * column_factors[:, None],
        scale=moments.scale * column_factors,
        rounding=rounding,
        scaled_waiting_means=moments.scaled_waiting_means * column_factors[:, None],
    )
