"""ReservoirMethod: what is shared by the estimators fitted on a uniform sample of the rows (LPP, NPE,
LaplacianEigenmaps, LLE); the last two place the sampled rows themselves.

They look at pairs of rows, so no sum over rows is enough for them: what is remembered is a sample of at most
`reservoir` rows, and the projection is exact for those rows. Up to `reservoir` rows the sample is all of them.

The methods' own conditions (zᵀ D z = 1, |z| = 1 and the like) make coordinates shrink as the sample fills; with
`scaling="unit"` the sampled rows have variance 1 along every component, with "source" they are the papers'.

Weights (`partial_fit(X, y, sample_weight)`, or those of a stream) decide how likely a row is to be sampled; in the
graph every sampled row counts alike. That is why `fit` takes none: on rows that all fit in the sample they would
change nothing. `decay` is left out: the sample is of the whole stream.

Why this way: see statistics/reservoir.py.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np

from stream_dr.errors import CannotUnlearn, InvalidParameter
from stream_dr.estimators.fitting.additive import AdditiveEstimator
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.estimators.fitting.mapping import (
    StateType,
    accumulate,
    check_feature_map,
    inner_state,
    mapped_bytes,
    solved,
)
from stream_dr.estimators.fitting.parameter_checks import check_choice, check_positive_int
from stream_dr.feature_maps.draws import check_seed
from stream_dr.projection import Projection
from stream_dr.statistics.reservoir import Reservoir, ReservoirAccumulator

SPARSE_WIDTH = 4096
"""Rows wider than this are taken to be sparse, with no more than this many entries each, when memory is estimated."""


MOST_SAMPLED = 20_000
"""Largest reservoir: solving takes the cube of it in time, and 24 bytes times its square in memory, 10 GB."""

MOST_WEIGHTED = 500
"""Most neighbours that barycentric weights are made of: they take the cube of it in time, for every sampled row."""


@dataclass(eq=False, repr=False)
class ReservoirMethod(Estimator):
    """Base of estimators fitted on a reservoir. See the module's text.

    Parameters
    ----------
    n_components : int ≥ 1, default 2
        Components looked for.
    n_neighbors : int ≥ 1, default 10
        Neighbours k of a sampled row; fewer where the sample has fewer.
    reservoir : int ≥ 1, default 2000
        Rows sampled at most.
    scaling : {"unit", "source"}, default "unit"
        "unit": the sampled rows have variance 1 along every component; "source": the paper's condition, by which
        coordinates shrink as the sample fills.
    feature_map : dict or None, default None
        Spec of a map that rows go through first.
    random_state : int or None, default None
        Seed of the sample; None is 0.
    """

    limit: ClassVar[str] = "the sampled rows, or their graph, give no more"
    state_type: ClassVar[Any] = StateType(Reservoir)
    merges: ClassVar[bool] = True
    fixed: ClassVar[tuple[str, ...]] = ("reservoir", "random_state", "feature_map")
    n_components: int = 2
    n_neighbors: int = 10
    reservoir: int = 2000
    _: KW_ONLY
    scaling: Literal["unit", "source"] = "unit"
    feature_map: dict[str, Any] | None = None
    random_state: int | None = None

    def check_parameters(self) -> None:
        """Raise InvalidParameter when a parameter is outside its range."""
        check_positive_int("n_components", self.n_components)
        check_positive_int("n_neighbors", self.n_neighbors)
        check_positive_int("reservoir", self.reservoir, most=MOST_SAMPLED)
        check_choice("scaling", self.scaling, ("unit", "source"))
        check_seed(self.random_state)
        check_feature_map(self.feature_map)

    def accumulator(self, state: Any = None) -> Any:
        """A reservoir that starts empty, or goes on from `state`; of mapped rows where there is a map."""
        return accumulate(self.feature_map, self._reservoir, state)

    def _reservoir(self, state: Reservoir | None) -> ReservoirAccumulator:
        return ReservoirAccumulator(self.reservoir, self.random_state or 0, bool(self.target_kinds), state)

    def solve(self, state: Any) -> Projection:
        """The projection of `state`; pure."""
        return solved(state, self.fitted)

    def spread(self, state: Any, columns: np.ndarray) -> np.ndarray:
        """Return Cxx @ columns (features, m) of the sampled rows."""
        kept = inner_state(state).kept[:, : len(columns)]
        projected = kept @ columns
        return np.asarray(kept.T @ (projected - projected.mean(axis=0)))

    @abstractmethod
    def fitted(self, state: Reservoir) -> Projection:
        """The projection of the sampled rows."""

    def state_bytes(self, n_features: int, n_targets: int) -> int:
        """8 · reservoir · features dense; rows wider than 4,096 count as sparse: 12 bytes an entry, 4,096 a row at most.
        Beside the rows, 8 · (components + 2) · features: what is solved has a number for each feature."""
        return mapped_bytes(self.feature_map, self._sample_bytes, n_features, n_targets)

    def _sample_bytes(self, n_features: int, n_targets: int) -> int:
        row = 8 * n_features if n_features <= SPARSE_WIDTH else 12 * SPARSE_WIDTH
        return self.reservoir * (row + 24) + 8 * (self.n_components + 2) * n_features

    def solve_bytes(self) -> int:
        """24 · reservoir² for the dense eigenproblem, 64 an edge of the graph."""
        near = self.reservoir if getattr(self, "radius", None) is not None else min(self.n_neighbors, self.reservoir)
        return self.reservoir * (24 * self.reservoir + 64 * near)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Go on sampling rows X (rows, features), weights (rows,) ≥ 0. The state is unchanged on error."""
        return self._partial_fit(X, y, sample_weight)

    def merge(self, other: Estimator) -> Self:
        """Make self a sample of both streams, `other`'s rows after self's; `other` is left alone. Raises CannotMerge."""
        return AdditiveEstimator.merge(self, other)  # type: ignore[type-var]

    def unlearn(self, X: Any, y: Any = None) -> NoReturn:
        """Raises CannotUnlearn: a sampled row that goes cannot be replaced by the one it pushed out."""
        raise CannotUnlearn(
            f"{type(self).__name__} keeps a sample: a row taken out of it cannot be replaced by one that was not kept. "
            "Use an additive estimator (PCA, LDA …), or rebuild from the log without those rows."
        )


class Embedding(ReservoirMethod):
    """Base of the reservoir methods that place the sampled rows themselves.

    Attributes
    ----------
    components_ : none
        The map is not linear: reading it raises AttributeError.
    mean_ : none
        As components_.
    embedding_ : ndarray (sampled rows, components), float64
        Places of the sampled rows, in the order of `state_.kept`.
    """

    @property
    def embedding_(self) -> np.ndarray:
        """(sampled rows, components) float64: places of the sampled rows, in the order of `state_.kept`."""
        projection: Any = self.projection()
        return np.asarray(getattr(projection, "inner", projection).places)


class ByClass:
    """target_kinds of an estimator with a parameter `label_aware`: class labels where it is set, none otherwise."""

    def __get__(self, instance: Any, owner: type) -> tuple[str, ...]:
        return ("class",) if instance is not None and instance.label_aware is True else ()


def check_weighted(n_neighbors: int, reservoir: int) -> None:
    """Raise InvalidParameter where barycentric weights would be made of more than MOST_WEIGHTED neighbours."""
    if min(n_neighbors, reservoir) > MOST_WEIGHTED:
        raise InvalidParameter(
            f"n_neighbors={n_neighbors} of a reservoir of {reservoir} rows; barycentric weights are made of at most "
            f"{MOST_WEIGHTED}, whose cube each row costs. Use fewer, or a smaller reservoir."
        )
