"""IncrementalSKM: directions along which classes lie apart, by a recurrence.

How quickly it reaches the batch answer, as in figure 6 of [SKM] (python -m benchmarks.papers
skm_figure_6):

- On iris the inner product with the batch vector is 0.998 after 25 rows and 0.9999 after 100, for
  a = 1 and a = 3.
- On monks-1 and monks-3 with a = 1 it is above 0.92 after 100 rows and 0.997 after all 556.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import (
    StateType,
    check_feature_map,
    make_accumulator,
    mapped_bytes,
    solve_mapped,
)
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number, check_positive_int
from stream_dr.projection import Linear, Projection
from stream_dr.statistics.protocol import Accumulator, State
from stream_dr.statistics.recurrences.basis_state import unit_columns
from stream_dr.statistics.recurrences.block_basis import MOST_COMPONENTS, basis_bytes
from stream_dr.statistics.recurrences.skm_state import SKMAccumulator, SKMState


@dataclass(eq=False, repr=False)
class IncrementalSKM(Estimator):
    """Find directions along which classes lie apart, row by row.

    Incremental supervised Kampong measure, the recurrence of [SKM, section 4.4, eq. 22, 23]. Its
    answer moves smoothly from row to row, and it needs no scatter matrix.

    >>> from stream_dr import IncrementalSKM
    >>> rows = [[0.0, 1.0], [4.0, 1.0], [0.0, 1.1], [4.0, 0.9]] * 25
    >>> abs(IncrementalSKM(n_components=1).fit(rows, ["a", "b"] * 50).components_).round(1).tolist()
    [[1.0, 0.0]]

    Targets are one label a row. At a = 1 use `SKM`, the closed form from class means: it is exact
    at every row, merges and unlearns. The recurrence is for a ≠ 1 at many features. It does not
    merge and does not unlearn, since its answer depends on the order of rows, and it refuses
    weights.

    Parameters
    ----------
    n_components : int ≥ 1, default 2
        Number of components looked for, at most 2,000.
    a : float ≥ 0, default 1.0
        Weight of a row's own class. The eigenvectors tracked are those of 2 Sb + (1 − a) Sw.
    target : {"auto", "class"}, default "auto"
        Kind of targets: one label a row.
    feature_map : dict or None, default None
        Spec of a map that rows go through first.
    keep : {"positive", "all"}, default "positive"
        With "positive", components with ‖v_i‖ below 1e-2 of the largest and, for a ≥ 1, those past
        (classes − 1) are left out and not counted by `rank_`. The matrix has no positive
        eigenvalue there, so they settle nowhere. With "all", every component started so far is
        there, as in the paper, where the classes do not limit their number [SKM, table 1 (D),
        figure 4(f)]. Those past (classes − 1) are not orthogonal. For a ≠ 1 `SKM` with
        n_components solves for them.

    Notes
    -----
    `components_` have unit length at any number of rows. `eigenvalues_` are the recurrence's own
    estimates ‖v_i‖. With keep="all" and a ≥ 1 they are negated past (classes − 1): the matrix'
    eigenvalues there are not above 0, and only the sign can be relied on. `mean_` is that of all
    labelled rows.

    If 2 Sb + (1 − a) Sw has no positive eigenvalue, the recurrence does not settle and gives no
    warning. `SKM` has no component there.

    The first row learned is subtracted from dense rows, not from sparse ones, so the two forms
    start differently. Their answers may differ in sign and, while rows are few, by about one row's
    influence.

    A label is a class from its first row on. There is no `min_class_rows`, as `SKM` has, because
    rows learned while a label waits cannot be learned later.

    Learning a row costs O(nonzeros · (p + c) + p (c + 1)(p + c)) for p components and c classes.
    State: 8 · k · (d + 2 k) bytes for d features, with k = p + c rounded up to a multiple of 8.
    """

    merges_as: ClassVar[str] = "SKM"
    limit: ClassVar[str] = (
        'those shorter than 1e-2 of the longest and, for a ≥ 1, those past classes less 1 are left out unless keep="all"'
    )
    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    state_type: ClassVar[StateType] = StateType(SKMState)
    fixed: ClassVar[tuple[str, ...]] = ("n_components", "a", "feature_map")

    n_components: int = 2
    a: float = 1.0
    target: Literal["auto", "class", "multilabel", "continuous"] = "auto"
    feature_map: JsonDict | None = None
    keep: Literal["positive", "all"] = "positive"

    def check_parameters(self) -> None:
        """Raise InvalidParameter for n_components < 1 or above 2,000 or an a or target outside its range."""
        check_positive_int("n_components", self.n_components, most=MOST_COMPONENTS)
        check_number("a", self.a, low=0.0)
        check_choice("keep", self.keep, ("positive", "all"))
        check_choice("target", self.target, ("auto", "class"))
        check_feature_map(self.feature_map)

    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return a new accumulator, or one that continues from `state`."""
        return make_accumulator(self.feature_map, self._recurrence, state)

    def _recurrence(self, state: SKMState | None) -> SKMAccumulator:
        return SKMAccumulator(self.n_components, self.a, state)

    def solve(self, state: State) -> Projection:
        """Return the projection of `state`: its vectors divided by their lengths.

        Costs O(d p (p + c)).
        """
        return solve_mapped(state, self._unit_vectors)

    def _unit_vectors(self, state: SKMState) -> Linear:
        counts = state.basis.counts
        vectors = state.basis.vectors()
        mean = state.basis.means() @ (counts / max(counts.sum(), 1.0))
        positive = max(int(np.count_nonzero(counts)) - 1, 0) if self.a >= 1.0 else vectors.shape[1]
        if self.keep == "positive":
            return Linear(mean, *unit_columns(vectors[:, :positive], smallest=1e-2), "recurrence")
        there = np.flatnonzero(np.any(vectors, axis=0))
        loadings, lengths = unit_columns(vectors[:, there], smallest=0.0)
        return Linear(mean, loadings, lengths * np.where(there < positive, 1.0, -1.0), "recurrence")

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the bytes of its state, 8 · k · (d + 2 k).

        k = p + c rounded up to a multiple of 8. d is the number of mapped features if there is a
        feature map.
        """
        return mapped_bytes(self.feature_map, self._basis_bytes, n_features, n_targets)

    def _basis_bytes(self, n_features: int, n_targets: int) -> int:
        return basis_bytes(n_features, self.n_components, n_targets)
