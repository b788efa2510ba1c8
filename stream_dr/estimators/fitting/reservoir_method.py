"""Base class of LPP, NPE, LaplacianEigenmaps and LLE, which learn a uniform sample of the rows.

These methods compare pairs of rows, so no sum over rows is enough for them. The state is a sample
of at most `reservoir` rows, and the projection is exact for the sampled rows. As long as the
stream has at most `reservoir` rows, the sample is all of them.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NoReturn, Self, cast

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.errors import CannotUnlearn, InvalidParameter
from stream_dr.estimators.fitting.additive import AdditiveEstimator
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.mapping import (
    StateType,
    check_feature_map,
    inner_projection,
    inner_state,
    make_accumulator,
    mapped_bytes,
    solve_mapped,
)
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_positive_int
from stream_dr.feature_maps.draws import check_seed
from stream_dr.projection import Projection
from stream_dr.solve.barycentre import LocallyLinearEmbedding
from stream_dr.solve.eigenmap import Eigenmap
from stream_dr.statistics.protocol import Accumulator, State
from stream_dr.statistics.reservoir import KeepLabels, Reservoir, ReservoirAccumulator

SPARSE_WIDTH = 4096
"""Number of features above which the estimate of memory assumes sparse rows.

Sparse rows are assumed to have at most this many entries each.
"""


MOST_SAMPLED = 20_000
"""Largest reservoir (r rows). Solving takes O(r³) time and 24 · r² bytes of memory, here 10 GB."""

MOST_WEIGHTED = 500
"""Largest number k of neighbours for barycentric weights, which cost O(k³) for every row."""


@dataclass(eq=False, repr=False)
class ReservoirMethod(Estimator):
    """Base of estimators that learn a sample of the rows (a reservoir).

    Weights of rows decide how likely a row is to be sampled. They are passed to `partial_fit(X, y,
    sample_weight)`, or come with a stream. Sampled rows count equally, so weights have no effect
    if all rows fit in the sample. Therefore `fit` takes no weights. There is no `decay`, because
    the sample represents the whole stream.

    Parameters
    ----------
    n_components : int ≥ 1, default 2
        Maximum number of components.
    n_neighbors : int ≥ 1, default 10
        Number of neighbours of a sampled row. Fewer if the sample has fewer rows.
    reservoir : int ≥ 1, default 2000
        Largest number of rows in the sample.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source", the
        paper's condition holds, and coordinates shrink as the sample grows.
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first.
    random_state : int or None, default None
        Seed of the sample. None is 0.
    """

    limit: ClassVar[str] = "the sampled rows, or their graph, give no more"
    state_type: ClassVar[StateType] = StateType(Reservoir)
    merges: ClassVar[bool] = True
    fixed: ClassVar[tuple[str, ...]] = ("reservoir", "random_state", "feature_map")
    n_components: int = 2
    n_neighbors: int = 10
    reservoir: int = 2000
    _: KW_ONLY
    scaling: Literal["unit", "source"] = "unit"
    feature_map: JsonDict | None = None
    random_state: int | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_positive_int("n_components", self.n_components)
        check_positive_int("n_neighbors", self.n_neighbors)
        check_positive_int("reservoir", self.reservoir, most=MOST_SAMPLED)
        check_choice("scaling", self.scaling, ("unit", "source"))
        check_seed(self.random_state)
        check_feature_map(self.feature_map)

    def accumulator(self, state: State | None = None) -> Accumulator:
        """Return an accumulator of a sample (a reservoir) that is empty or continues from `state`.

        With a feature map, the sample has mapped rows.
        """
        return make_accumulator(self.feature_map, self._reservoir, state)

    def _reservoir(self, state: Reservoir | None) -> ReservoirAccumulator:
        labels: KeepLabels = "no" if not self.target_kinds else "all" if self.unlabelled == "skip" else "some"
        return ReservoirAccumulator(self.reservoir, self.random_state or 0, labels, state)

    def solve(self, state: State) -> Projection:
        """Return the projection computed from `state`. This is a pure function."""
        return solve_mapped(state, self.solve_sample)

    def scatter_product(self, state: State, columns: np.ndarray) -> np.ndarray:
        """Return Cxx @ columns (features, m), for the scatter Cxx of the sampled rows."""
        rows = cast(Reservoir, inner_state(state)).kept[:, : len(columns)]
        projected = rows @ columns
        return np.asarray(rows.T @ (projected - projected.mean(axis=0)))

    @abstractmethod
    def solve_sample(self, state: Reservoir) -> Projection:
        """Return the projection of the sampled rows."""

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the largest size in bytes of the sample and its projection.

        The sample takes 8 · reservoir · features, dense. Rows of more than 4,096 features are
        assumed to be sparse, with 12 bytes an entry and at most 4,096 entries a row. The
        projection adds 8 · (components + 2) · features.
        """
        return mapped_bytes(self.feature_map, self._sample_bytes, n_features, n_targets)

    def _sample_bytes(self, n_features: int, n_targets: int) -> int:
        row = 8 * n_features if n_features <= SPARSE_WIDTH else 12 * SPARSE_WIDTH
        return self.reservoir * (row + 24) + 8 * (self.n_components + 2) * n_features

    def solve_bytes(self) -> int:
        """Return the bytes that solving takes.

        These are 24 · reservoir² for the dense eigenproblem, and 64 for each edge of the graph.
        """
        near = self.reservoir if self.radius is not None else min(self.n_neighbors, self.reservoir)
        return self.reservoir * (24 * self.reservoir + 64 * near)

    def partial_fit(self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None) -> Self:
        """Sample from more rows X (rows, features) with weights (rows,) ≥ 0.

        If an error is raised, the state is unchanged.
        """
        return self._partial_fit(X, y, sample_weight)

    def merge(self, other: Estimator) -> Self:
        """Replace the sample by a sample of two streams.

        `other` is unchanged. Its rows count as coming after the rows of this estimator. Raises
        CannotMerge.
        """
        return AdditiveEstimator.merge(self, other)  # type: ignore[type-var]

    def unlearn(self, X: RowsLike, y: TargetsLike = None) -> NoReturn:
        """Raise CannotUnlearn, because rows that were not sampled are no longer available."""
        raise CannotUnlearn(
            f"{type(self).__name__} keeps a sample: a row taken out of it cannot be replaced by one that was not kept. "
            "Use an additive estimator (PCA, LDA …), or rebuild from the log without those rows."
        )


class Embedding(ReservoirMethod):
    """Base of the reservoir methods that compute coordinates for the sampled rows only.

    Attributes
    ----------
    components_ : none
        Reading it raises AttributeError, because the map is not linear.
    mean_ : none
        Reading it raises AttributeError, because the map is not linear.
    embedding_ : ndarray (sampled rows, components), float64
        Coordinates of the sampled rows, in the order of `state_.kept`.
    """

    @property
    def embedding_(self) -> np.ndarray:
        """Coordinates (sampled rows, components) float64 of the sampled rows.

        The rows are in the order of `state_.kept`.
        """
        return cast(Eigenmap | LocallyLinearEmbedding, inner_projection(self.projection())).places


class ByClass:
    """Descriptor that returns the kinds of targets of an estimator with parameter `label_aware`.

    With `label_aware` the estimator takes one label a row ("class"). Without it, the estimator
    takes no targets.
    """

    def __get__(self, instance: Any, owner: type) -> tuple[str, ...]:
        return ("class",) if instance is not None and instance.label_aware is True else ()


def check_weighted(n_neighbors: int, reservoir: int) -> None:
    """Raise InvalidParameter if rows may have too many neighbours for barycentric weights.

    The limit is MOST_WEIGHTED.
    """
    if min(n_neighbors, reservoir) > MOST_WEIGHTED:
        raise InvalidParameter(
            f"n_neighbors={n_neighbors} of a reservoir of {reservoir} rows; barycentric weights are made of at most "
            f"{MOST_WEIGHTED}, whose cube each row costs. Use fewer, or a smaller reservoir."
        )
