"""IncrementalSKM, the supervised Kampong measure updated row by row.

The estimate of the first component converges to an exact eigenvector. The mean inner product of
the estimate and the eigenvector, over ten orders of the rows, was measured as in figure 6 of [SKM]
(python -m benchmarks.papers skm_figure_6). With amnesic = 1, the default:

- On iris with a = 1 and a = 3, it is 1.000 after 100 rows.
- On monks-1 and monks-3 with a = 1, it is above 0.92 after 100 rows, and 1.0000 after all rows.
- On monks-2 with a = 1, it is 0.995 after all 601 rows. With amnesic = 0 it is 0.534.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.estimators.fitting.estimator import MappedMethod, StateType
from stream_dr.estimators.fitting.mapping import check_feature_map
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range, check_positive_int
from stream_dr.projection import Linear
from stream_dr.statistics.recurrences.block_basis import (
    MOST_COMPONENTS,
    basis_bytes,
    normalise_long_columns,
)
from stream_dr.statistics.recurrences.skm_state import SKMAccumulator, SKMState


@dataclass(eq=False, repr=False)
class IncrementalSKM(MappedMethod[SKMState]):
    """Find directions that separate the classes, updated row by row.

    The authors of the method call it incremental supervised Kampong measure [SKM, section 4.4, eq.
    22, 23]. Each row changes the directions a little. No scatter matrix is stored.

    The state has one vector v (features,) for each component. Row number n changes v to
    (1 − (1 + ℓ)/n) v + ((1 + ℓ)/n) M v/|v|, where ℓ is the parameter `amnesic`. M (features,
    features) is computed from the row and the class means, without their parts along earlier
    components. For the first component, the mean of M over the rows is 2 Sb + (1 − a) Sw, where Sb
    is the scatter between classes and Sw the scatter within classes. So v converges to an
    eigenvector of this matrix, and its length |v| to the eigenvalue.

    >>> from stream_dr import IncrementalSKM
    >>> rows = [[0.0, 1.0], [4.0, 1.0], [0.0, 1.1], [4.0, 0.9]] * 25
    >>> abs(IncrementalSKM(n_components=1).fit(rows, ["a", "b"] * 50).components_).round(1).tolist()
    [[1.0, 0.0]]

    Targets are one label a row. Use this estimator for a ≠ 1 and many features. With a = 1 use
    `SKM` instead, which is exact after every row. The result of IncrementalSKM depends on the
    order of the rows. Therefore it does not merge, does not unlearn and takes no weights.

    Parameters
    ----------
    n_components : int ≥ 1, default 2
        Number of components to look for, at most 2,000.
    a : float ≥ 0, default 1.0
        The larger a is, the closer together are the projected rows of one class. The directions
        converge to the eigenvectors of 2 Sb + (1 − a) Sw (see above).
    target : {"auto", "class"}, default "auto"
        Kind of targets. Both values mean one label a row.
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first.
    amnesic : float ≥ 0, default 1.0
        Weight of recent rows (ℓ above), as in CCIPCA. 0 gives all rows the same weight, as the
        paper does. Each vector v starts as a row. With 0, v keeps much of this row for a long time,
        and one pass over many classes of texts is not enough. With 1 or 2, v forgets this row. With
        many noisy rows and a > 1, 0 may be better.
    keep : {"positive", "all"}, default "positive"
        Components to return. "positive" returns only components of positive eigenvalue. It drops
        components whose vector v is shorter than 1e-2 of the longest. For a ≥ 1, the matrix has at
        most (classes − 1) positive eigenvalues, so "positive" also drops all later components.

        "all" returns every component started so far, as the paper does [SKM, table 1 (D),
        figure 4(f)]. Components past (classes − 1) are then not orthogonal. For components of
        negative eigenvalue with a ≠ 1, use `SKM` with n_components.

    Notes
    -----
    `components_` are the vectors v, scaled to length 1, and `eigenvalues_` their lengths. With
    keep="all" and a ≥ 1, components past (classes − 1) have the values −|v| in `eigenvalues_`. The
    minus sign shows that they have no positive eigenvalue. The size |v| means nothing then.
    `mean_` is the mean of all labelled rows.

    If 2 Sb + (1 − a) Sw has no positive eigenvalue, the directions do not converge, and there is
    no warning. `SKM` has no component in this case.

    The first row is subtracted from dense rows. Nothing is subtracted from sparse rows. So dense
    and sparse rows may give results of different sign. After few rows, the results also differ by
    about the influence of one row.

    A label is a class from its first row on. `SKM` has the parameter `min_class_rows`, by which a
    label becomes a class after several rows. IncrementalSKM does not have it, because the earlier
    rows of the label could not be learned later.

    Learning a row costs O(nonzeros · (p + c) + p (c + 1)(p + c)) for p components and c classes.
    The state takes 8 · k · (d + 2 k) bytes for d features, with k = p + c rounded up to a multiple
    of 8.
    """

    merges_as: ClassVar[str] = "SKM"
    limit: ClassVar[str] = (
        'those shorter than 1e-2 of the longest and, for a ≥ 1, those past classes less 1 are left out unless keep="all"'
    )
    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    state_type: ClassVar[StateType] = StateType(SKMState)
    fixed: ClassVar[tuple[str, ...]] = ("n_components", "a", "feature_map", "amnesic")

    n_components: int = 2
    a: float = 1.0
    target: Literal["auto", "class", "multilabel", "continuous"] = "auto"
    feature_map: JsonDict | None = None
    keep: Literal["positive", "all"] = "positive"
    amnesic: float = 1.0

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_positive_int("n_components", self.n_components, max_value=MOST_COMPONENTS)
        check_number_in_range("a", self.a, low=0.0)
        check_number_in_range("amnesic", self.amnesic, low=0.0)
        check_choice("keep", self.keep, ("positive", "all"))
        check_choice("target", self.target, ("auto", "class"))
        check_feature_map(self.feature_map)

    def inner_accumulator(self, state: SKMState | None) -> SKMAccumulator:
        """Return an accumulator that learns mapped rows, empty or continued from `state`."""
        return SKMAccumulator(self.n_components, self.a, self.amnesic, state)

    def solve_inner(self, state: SKMState) -> Linear:
        """Return the projection that a state of the recurrence defines.

        The state has one vector for each component. It converges to an eigenvector of
        2 Sb + (1 − a) Sw, and its length to the size of the eigenvalue. Sb and Sw are the scatter
        between classes and within classes. The loadings are the vectors, scaled to length 1. If
        there is a feature map, they are for mapped rows. Costs O(d p (p + c)) for d features, p
        components and c classes.
        """
        # `counts` (classes,) are the numbers of rows, `vectors` (features, p) the state's vectors,
        # and `mean` (features,) is the mean of all rows, computed from the class means.
        counts = state.basis.counts
        vectors = state.basis.vectors()
        mean = state.basis.means() @ (counts / max(counts.sum(), 1.0))

        # The first vectors have the largest eigenvalues.
        max_positive = self._max_positive(counts, vectors.shape[1])
        # With keep="positive", also drop vectors shorter than a hundredth of the longest, which
        # have an eigenvalue of about zero.
        if self.keep == "positive":
            loadings, lengths = normalise_long_columns(vectors[:, :max_positive], min_relative_length=1e-2)
            return Linear(mean, loadings, lengths, "recurrence")

        # With keep="all", return every component whose vector is not zero.
        # The eigenvalues of the vectors after the first `max_positive` ones are negative.
        nonzero = np.flatnonzero(np.any(vectors, axis=0))
        loadings, lengths = normalise_long_columns(vectors[:, nonzero], min_relative_length=0.0)
        eigenvalues = lengths * np.where(nonzero < max_positive, 1.0, -1.0)
        return Linear(mean, loadings, eigenvalues, "recurrence")

    def _max_positive(self, class_counts: np.ndarray, p: int) -> int:
        """Return how many of the p largest eigenvalues may be positive."""
        if self.a < 1.0:
            return p
        # Then only Sb makes eigenvalues positive. Its rank is less than the number of classes.
        return max(int(np.count_nonzero(class_counts)) - 1, 0)

    def inner_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the size of the state in bytes.

        The size is 8 · k · (d + 2 k) for d features. k is a number of columns: one for each
        component and each class, rounded up to the next multiple of 8. The size of a feature map is
        not included.

        n_features: number d of features after the feature map.
        n_targets: number of classes.
        """
        return basis_bytes(n_features, self.n_components, n_targets)
