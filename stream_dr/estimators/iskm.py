"""IncrementalSKM: directions along which classes lie apart, by a recurrence [SKM, section 4.4].

How quickly it turns to the batch answer, as in the paper's figure 6 (python -m benchmarks.papers skm_figure_6): on iris
the inner product with the batch vector is 0.998 after 25 rows and 0.9999 after 100, for a = 1 and a = 3 alike; on
monks-1 and monks-3 with a = 1 it is above 0.92 after 100 rows and 0.997 after all 556. Where 2 Sb + (1 − a) Sw has no
positive eigenvalue (monks with a = 3) there is nothing to turn to: it does not settle and does not tell; `SKM` has no
component there.

Why this way: at a = 1 `SKM`, the closed form from class means, is exact at every row and merges; the recurrence is for
a ≠ 1 at large d, where the closed form would need a scatter matrix, and for an answer that moves smoothly.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import StateType, accumulate, check_feature_map, mapped_bytes, solved
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_number, check_positive_int
from stream_dr.projection import Linear, Projection
from stream_dr.statistics.recurrences.basis_state import unit_columns
from stream_dr.statistics.recurrences.block_basis import MOST_COMPONENTS, basis_bytes
from stream_dr.statistics.recurrences.skm import SKMAccumulator, SKMState


@dataclass(eq=False, repr=False)
class IncrementalSKM(Estimator):
    """Incremental supervised Kampong measure: the recurrence of [SKM, eq. 22, 23], row by row; one label a row.

    `components_` have unit length, at any number of rows; `eigenvalues_` are the recurrence's own estimates ‖v_i‖,
    negated past (classes − 1) if keep="all" and a ≥ 1: the matrix' eigenvalues there are not above 0, and only the sign
    is to be relied on. `mean_` is that of all labelled rows. At a = 1 `SKM` (the closed form) is exact at every row.

    The first row learned is subtracted from dense rows, not from sparse ones, so the two forms start differently: answers
    may differ in sign and, while rows are few, by about one row's influence.

    Cost: a row O(nonzeros · (p + c) + p (c + 1)(p + c)); memory 8 · k · (d + 2 k) bytes, c classes, p = n_components, k
    = p + c rounded up to a multiple of 8. Does not merge, does not unlearn: its answer depends on the order of rows.
    Weights are refused: the recurrence has no place for them. A label is a class from its first row on: there is no
    `min_class_rows`, as `SKM` has, since rows learned while a label waited could not be learned later.

    Parameters
    ----------
    n_components : int ≥ 1, default 2
        Components looked for, at most 2,000.
    a : float ≥ 0, default 1.0
        Weight of a row's own class; the eigenvectors tracked are those of 2 Sb + (1 − a) Sw.
    target : {"auto", "class"}, default "auto"
        Kind of targets: one label a row.
    feature_map : dict or None, default None
        Spec of a map that rows go through first.
    keep : {"positive", "all"}, default "positive"
        "positive": components whose ‖v_i‖ is below 1e-2 of the largest and, for a ≥ 1, those past (classes − 1) are left
        out, and not counted by `rank_`: the matrix has no positive eigenvalue there, and they settle nowhere. "all": every
        component started so far, as in the paper, where the classes do not limit their number [SKM, table 1 (D), figure
        4(f)]; those past (classes − 1) are not orthogonal. For a ≠ 1 `SKM` with n_components solves for them.
    """

    merges_as: ClassVar[str] = "SKM"
    limit: ClassVar[str] = (
        'those shorter than 1e-2 of the longest and, for a ≥ 1, those past classes less 1 are left out unless keep="all"'
    )
    target_kinds: ClassVar[tuple[str, ...]] = ("class",)
    state_type: ClassVar[Any] = StateType(SKMState)
    fixed: ClassVar[tuple[str, ...]] = ("n_components", "a", "feature_map")

    n_components: int = 2
    a: float = 1.0
    target: Literal["auto", "class", "multilabel", "continuous"] = "auto"
    feature_map: dict[str, Any] | None = None
    keep: Literal["positive", "all"] = "positive"

    def check_parameters(self) -> None:
        """Raise InvalidParameter for n_components < 1 or above 2,000 or an a or target outside its range."""
        check_positive_int("n_components", self.n_components, most=MOST_COMPONENTS)
        check_number("a", self.a, low=0.0)
        check_choice("keep", self.keep, ("positive", "all"))
        check_choice("target", self.target, ("auto", "class"))
        check_feature_map(self.feature_map)

    def accumulator(self, state: Any = None) -> Any:
        """A new accumulator, or one that goes on from `state`."""
        return accumulate(self.feature_map, self._recurrence, state)

    def _recurrence(self, state: Any) -> SKMAccumulator:
        return SKMAccumulator(self.n_components, self.a, state)

    def solve(self, state: Any) -> Projection:
        """The projection of `state`: its vectors, each divided by its length. O(d p (p + c))."""
        return solved(state, self._unit_vectors)

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
        """8 · k · (d + 2 k), k = p + c to the next multiple of 8, d as mapped where there is a map."""
        return mapped_bytes(self.feature_map, self._basis_bytes, n_features, n_targets)

    def _basis_bytes(self, n_features: int, n_targets: int) -> int:
        return basis_bytes(n_features, self.n_components, n_targets)
