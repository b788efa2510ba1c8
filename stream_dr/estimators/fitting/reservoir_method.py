"""Base classes of methods on a uniform sample of rows.

The methods are LPP, NPE, LaplacianEigenmaps, LLE and GraphWMV. These methods compare pairs of
rows, so they cannot be computed from sums over rows. The state is a sample of at most `reservoir`
rows, and the projection is exact for the sampled rows. If the stream has at most `reservoir` rows,
all rows are in the sample.

NeighbourhoodMethod is the base class of methods on a nearest-neighbour graph of the sample.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NoReturn, Self, cast

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.errors import CannotUnlearn, InvalidParameter
from stream_dr.estimators.fitting.estimator import Estimator, MappedMethod, StateType
from stream_dr.estimators.fitting.inputs import RowsLike, TargetsLike, WeightsLike
from stream_dr.estimators.fitting.mapping import (
    check_feature_map,
    inner_projection,
    merged_mapped_state,
)
from stream_dr.estimators.fitting.parameters import check_choice, check_number_in_range, check_positive_int
from stream_dr.feature_maps.feature_map import check_seed_or_none
from stream_dr.solve.embedding import BarycentricProjection, Eigenmap
from stream_dr.solve.neighbours import Edges, Graph, neighbourhood_graph
from stream_dr.statistics.protocol import State
from stream_dr.statistics.reservoir import KeepLabels, Reservoir, ReservoirAccumulator

SPARSE_ABOVE_FEATURES = 4096
"""Number of features above which the estimate of memory assumes sparse rows.

The estimate also assumes that a sparse row has at most this many entries.
"""


MAX_SAMPLED_ROWS = 20_000
"""Largest allowed number of sampled rows.

For r sampled rows, solving takes O(r³) time and 24 · r² bytes. For 20,000 rows this is 10 GB.
"""

MAX_WEIGHTED_NEIGHBOURS = 500
"""Largest allowed number of neighbours in methods with barycentric weights (LLE and NPE).

For k neighbours, the weights of each row cost O(k³).
"""


@dataclass(eq=False, repr=False)
class ReservoirMethod(MappedMethod[Reservoir]):
    """Base class of estimators that learn a sample of rows.

    The sample is also called a reservoir. The larger a row's weight, the more likely the row is
    sampled. All sampled rows then count equally, so weights have no effect while all rows fit in
    the sample. Weights are an argument of `partial_fit`, or part of a stream. `fit` has no argument
    for weights. There is no `decay`, because the sample represents the whole stream.

    Parameters
    ----------
    n_components : int ≥ 1, default 2
        Maximum number of components.
    n_neighbors : int ≥ 1, default 10
        Number of neighbours of a sampled row. If the sample has fewer rows, all are neighbours.
    reservoir : int ≥ 1, default 2000
        Maximum number of rows in the sample.
    scaling : {"unit", "source"}, default "unit"
        With "unit", the sampled rows have variance 1 along every component. With "source",
        components have the length that the method's paper gives them. For example, the squares of
        LLE's coordinates sum to 1 over the sample, so coordinates become smaller as it grows.
    feature_map : dict or None, default None
        Spec of a feature map that is applied to the rows first.
    random_state : int or None, default None
        Seed of the sample. None means 0.
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
        """Raise InvalidParameter if a parameter is outside its range."""
        check_positive_int("n_components", self.n_components)
        check_positive_int("n_neighbors", self.n_neighbors)
        check_positive_int("reservoir", self.reservoir, max_value=MAX_SAMPLED_ROWS)
        check_choice("scaling", self.scaling, ("unit", "source"))
        check_seed_or_none(self.random_state)
        check_feature_map(self.feature_map)

    def inner_accumulator(self, state: Reservoir | None) -> ReservoirAccumulator:
        """Return an accumulator that samples mapped rows, empty or continued from `state`."""
        labels: KeepLabels = "no"
        if self.target_kinds:
            labels = "all" if self.unlabelled == "skip" else "some"
        return ReservoirAccumulator(self.reservoir, self.random_state or 0, labels, state)

    def scatter_product(self, state: State, columns: np.ndarray) -> np.ndarray:
        """Return the product of the sampled rows' scatter and `columns`.

        columns: (features, m), like the product.
        """
        rows = cast(Reservoir, merged_mapped_state(state)).kept[:, : len(columns)]
        projected = rows @ columns
        return np.asarray(rows.T @ (projected - projected.mean(axis=0)))

    def inner_bytes(self, n_features: int, n_targets: int) -> int:
        """Return the largest size of sample and projection in bytes.

        A sample of dense rows takes 8 · reservoir · features bytes. Rows of more than 4,096
        features are assumed to be sparse, with at most 4,096 entries of 12 bytes each. The
        projection takes 8 · (components + 2) · features bytes. `n_features` is the number of
        features after the feature map.
        """
        # A sampled row takes 24 bytes more than its entries.
        if n_features <= SPARSE_ABOVE_FEATURES:
            entry_bytes = 8 * n_features
        else:
            entry_bytes = 12 * SPARSE_ABOVE_FEATURES
        return self.reservoir * (entry_bytes + 24) + 8 * (self.n_components + 2) * n_features

    def solve_bytes(self) -> int:
        """Return the memory that solving takes, in bytes.

        The parameter `reservoir` is the maximum number of sampled rows. The dense eigenproblem
        takes 24 · reservoir² bytes. The graph that links each sampled row to its neighbours takes
        64 bytes for each link.
        """
        # Within a radius, all sampled rows may be neighbours of a row.
        if self.radius is not None:
            max_neighbours = self.reservoir
        else:
            max_neighbours = min(self.n_neighbors, self.reservoir)
        return self.reservoir * (24 * self.reservoir + 64 * max_neighbours)

    def partial_fit(self, X: RowsLike, y: TargetsLike = None, sample_weight: WeightsLike = None) -> Self:
        """Learn more rows X, of which some enter the sample.

        X is (rows, features). If an error is raised, the state is unchanged.

        y: targets (rows,), or None.
        sample_weight: weights (rows,), at least 0. Rows of larger weight are more often sampled.
        """
        return self._partial_fit(X, y, sample_weight)

    def merge(self, other: Estimator) -> Self:
        """Replace the sample by a sample of both estimators' streams.

        `other` is unchanged. The rows of `other` count as later than the rows of this estimator.
        Raises CannotMerge if the estimators differ in class, parameters or column names.
        """
        return self._merge_equal(other)

    def unlearn(self, X: RowsLike, y: TargetsLike = None) -> NoReturn:
        """Raise CannotUnlearn, because rows outside the sample are not stored."""
        raise CannotUnlearn(
            f"{type(self).__name__} keeps a sample: a row taken out of it cannot be replaced by one that was not kept. "
            "Use an additive estimator (PCA, LDA …), or rebuild from the log without those rows."
        )


class Embedding(ReservoirMethod):
    """Base class of methods that compute coordinates for sampled rows.

    Other rows are projected by their distances to the sampled rows.

    Attributes
    ----------
    components_ : none
        Reading it raises AttributeError, because the map is not linear.
    mean_ : none
        Reading it raises AttributeError, because the map is not linear.
    embedding_ : ndarray (sampled rows, components), float64
        Coordinates of the sampled rows, in the order of `state_.kept`.
    """

    is_linear: ClassVar[bool] = False

    @property
    def embedding_(self) -> np.ndarray:
        """Coordinates of the sampled rows, float64 (sampled rows, components).

        The rows are in the order of `state_.kept`.
        """
        return cast(Eigenmap | BarycentricProjection, inner_projection(self.projection())).places


class ClassTargetsIfAny:
    """Kinds of targets of an estimator that needs labels only sometimes.

    For example, `target_kinds = ClassTargetsIfAny("label_aware")` in a class makes `target_kinds`
    depend on the estimator's parameter `label_aware`. If this is neither False nor 0, the kinds are
    ("class",), one label a row. Otherwise the estimator is unsupervised, and the kinds are (). With
    several names, one such parameter is enough. The kinds of the class itself are ().
    """

    def __init__(self, *parameters: str) -> None:
        self._parameters = parameters

    def __get__(self, instance: Any, owner: type) -> tuple[str, ...]:
        if instance is None or not any(getattr(instance, name) for name in self._parameters):
            return ()
        return ("class",)


def check_weighted_neighbours(n_neighbors: int, max_sampled_rows: int) -> None:
    """Raise InvalidParameter if rows may have more than MAX_WEIGHTED_NEIGHBOURS neighbours.

    n_neighbors: parameter of the estimator.
    max_sampled_rows: maximum number of sampled rows, which also limits the number of neighbours.
    """
    if min(n_neighbors, max_sampled_rows) > MAX_WEIGHTED_NEIGHBOURS:
        raise InvalidParameter(
            f"n_neighbors={n_neighbors} of a reservoir of {max_sampled_rows} rows; barycentric weights are made of at most "
            f"{MAX_WEIGHTED_NEIGHBOURS}, whose cube each row costs. Use fewer, or a smaller reservoir."
        )


@dataclass(eq=False, repr=False)
class NeighbourhoodMethod(ReservoirMethod):
    """Base class of methods on a nearest-neighbour graph of sampled rows.

    An edge of the graph joins a row to one of its nearest rows.

    Parameters
    ----------
    n_neighbors : int ≥ 1, default 10
        Number k of nearest rows to which a row is joined by edges. To join all rows, set
        n_neighbors to `reservoir`, weights to "heat" and edges to "or".
    weights : {"heat", "binary"}, default "heat"
        Weight of an edge. "heat" is exp(−r²/t) for two rows at the distance r. "binary" is 1.
    temperature : float > 0 or None, default None
        Parameter t of weights="heat". None means the mean squared length of the edges.
    edges : {"average", "or"}, default "average"
        Weight of one-sided edges. An edge is one-sided if only one of its rows is among the k
        nearest rows of the other. "average" halves the weight of such an edge. The k nearest rows
        then include the row itself, so it has k − 1 neighbours, as in scikit-learn's
        SpectralEmbedding. "or" does not change the weight. A row then has k neighbours other than
        itself [GLPLS eq. 2.25, 2.35].
    radius : float > 0 or None, default None
        If set, an edge joins two rows if their distance is at most this radius. n_neighbors and
        edges then have no effect.
    """

    _: KW_ONLY
    weights: Literal["heat", "binary"] = "heat"
    temperature: float | None = None
    edges: Edges = "average"
    radius: float | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter if a parameter is outside its range."""
        super().check_parameters()
        check_choice("weights", self.weights, ("heat", "binary"))
        check_choice("edges", self.edges, ("average", "or"))
        for name in ("temperature", "radius"):
            if getattr(self, name) is not None:
                check_number_in_range(name, getattr(self, name), 0.0, exclude_low=True)

    def sample_graph(self, sample: Reservoir, class_codes: np.ndarray | None = None) -> Graph:
        """Return the neighbourhood graph of the sampled rows.

        class_codes: (sampled rows,), index of each row's class. Edges between rows of different
            classes are removed. If None, no edge is removed.
        """
        heat = self.weights == "heat"
        return neighbourhood_graph(
            sample.kept, self.n_neighbors, heat, self.temperature, class_codes, self.edges, self.radius
        )
