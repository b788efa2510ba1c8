"""Versions: a model's last published projections, by version number."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

import numpy as np

from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.projection import Columns, Mapped, Orientable, Projection, linear_part_or_none
from stream_dr.readout import Readout
from stream_dr.solve.orientation import MultiplyByScatter, least_squares_map, move_rows, place_previous_features

MAX_VERSION_BYTES = 64 << 20
"""Number of bytes of one model's projections above which older versions are dropped.

The newest two versions are never dropped.
"""

RESERVED_NUMBERS = 1_000
"""Number of version numbers that are reserved on disk at a time."""


class ProjectionChange(NamedTuple):
    """Linear map from one projection's output to another's.

    z_new ≈ z_old · map + offset, for the projected rows z_old (p_old,) and z_new (p_new,).

    map: (p_old, p_new) float64, by least squares.
    offset: (p_new,) float64.
    residual: ‖L_old · map − L_new‖ / ‖L_new‖ for the loadings L_old (features, p_old) and L_new
        (features, p_new), or for the rows that both project (see `change`). 0 if the old components
        determine the new ones, 1 if they say nothing about them.
    """

    map: np.ndarray
    offset: np.ndarray
    residual: float


class Published(NamedTuple):
    """Published projection, with its version number.

    version: version number. A later version of the model has a larger number, also after a
        restart.
    position: position in the log of the last event that the projection includes.
    rows: number of rows that the projection includes.
    change: linear map from the previous version to this version, or None.
    refined_at: log position at which the projection was refined. None if it is not refined.
    residual: relative residual of a refined projection. None if it is not refined.
    unlearn_horizon: position up to which unlearn events are reflected in the projection.
    timestamp: time of publishing, in seconds since 1970.
    release: name of the release whose projection this is. None if the projection was solved from
        the model's state.
    """

    version: int
    position: int
    projection: Projection
    rows: int = 0
    change: ProjectionChange | None = None
    refined_at: int | None = None
    residual: float | None = None
    unlearn_horizon: int = -1
    timestamp: float = 0.0
    release: str | None = None

    @property
    def stays(self) -> bool:
        """True if no policy may replace this projection, because it is refined or a release."""
        return self.refined_at is not None or self.release is not None

    @property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues (components,). Empty if the projection selects columns."""
        inner = self.projection.inner if isinstance(self.projection, Mapped) else self.projection
        return np.zeros(0) if isinstance(inner, Columns) else cast(Orientable, inner).eigenvalues

    @property
    def readout(self) -> Readout | None:
        """Function that predicts targets from projected rows.

        None if the projection cannot predict targets.
        """
        linear = linear_part_or_none(self.projection)
        return None if linear is None else linear.readout


class Versions:
    """The last published projections of a model, in memory.

    max_versions: largest number of projections.
    max_bytes: largest number of bytes of the projections' arrays. The newest two projections stay
        even if they have more bytes.

    One thread at a time adds projections. All threads may read.

    Attributes
    ----------
    newest_release : callable
        Returns the projection of the model's newest release, or None. A steady basis is turned to
        it.
    """

    def __init__(self, max_versions: int, max_bytes: int = MAX_VERSION_BYTES) -> None:
        self._published: deque[Published] = deque(maxlen=max_versions)
        self._max_bytes = max_bytes
        self.newest_release: Callable[[], Projection | None] = lambda: None

    def add(self, published: Published) -> None:
        """Add a projection, and drop the oldest if necessary."""
        self._published.append(published)
        while (
            len(self._published) > 2
            and sum(_array_bytes_in_tuples(p.projection) for p in self._published) > self._max_bytes
        ):
            self._published.popleft()

    def drop_before(self, position: int, served: Published | None) -> None:
        """Drop the projections that do not reflect the unlearn event at a position.

        served: projection that is not dropped.
        """
        kept = [p for p in self._published if p is served or p.unlearn_horizon >= position]
        self._published = deque(kept, self._published.maxlen)

    def drop_if(self, is_dropped: Callable[[Published], bool]) -> None:
        """Drop projections."""
        kept = [p for p in self._published if not is_dropped(p)]
        self._published = deque(kept, self._published.maxlen)

    def find(self, version: int) -> Published | None:
        """Return the projection with a version number, or None."""
        return next((published for published in tuple(self._published) if published.version == version), None)

    @property
    def numbers(self) -> list[int]:
        """Version numbers that `find` can return, oldest first."""
        return [published.version for published in tuple(self._published)]


class VersionNumbers:
    """Counter that never returns a version number twice.

    An upper bound of the numbers in use, the ceiling, is stored on disk. A number above the
    ceiling is returned only after a higher ceiling is stored. After a crash, counting continues
    above the stored ceiling. One thread at a time may call the methods.

    Parameters
    ----------
    stored_ceiling : int
        The stored ceiling.
    store_ceiling : callable
        Function that stores a ceiling. The ceiling must be durable when the function returns.

    Attributes
    ----------
    next : int
        The next number.
    """

    def __init__(self, stored_ceiling: int, store_ceiling: Callable[[int], None]) -> None:
        self.next = stored_ceiling + 1
        self._ceiling = stored_ceiling
        self._store = store_ceiling

    def take_next(self) -> int:
        """Return the next number."""
        number = self.next
        if number > self._ceiling:
            self._store_and_set_ceiling(number + RESERVED_NUMBERS - 1)
        self.next = number + 1
        return number

    def make_next_at_least(self, least_number: int) -> None:
        """Make the next version number at least `least_number`."""
        self.next = max(self.next, least_number)

    def release_unused(self) -> None:
        """Lower the stored ceiling to the last returned number.

        Call this when the process ends normally, after the last snapshot.
        """
        if self._ceiling >= self.next:
            self._store_and_set_ceiling(self.next - 1)

    def _store_and_set_ceiling(self, ceiling: int) -> None:
        self._store(ceiling)
        self._ceiling = ceiling


def _array_bytes_in_tuples(value: object) -> int:
    """Return the number of bytes of nested arrays."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(map(_array_bytes_in_tuples, value)) if isinstance(value, tuple) else 0


def change(old: Projection, new: Projection, estimator: Estimator | None = None) -> ProjectionChange | None:
    """Return the linear map between two projections' outputs.

    The map converts rows that the old projection projected into rows of the new projection.

    estimator: fitted estimator. If it is given, the squared error of the map is summed over the rows
        that the estimator has learned, by their scatter Cxx. If it is None, the error is that of the
        loadings.

    Returns None if one of the two projections is not linear. Costs O(d p²) for d features and p
    components, and with an estimator the product of Cxx and 3 p columns.

    >>> import stream_dr
    >>> X = [[1.0, 2.0], [3.0, 1.0], [2.0, 2.0], [4.0, 0.0]]
    >>> pca = stream_dr.PCA(1).fit(X)
    >>> old = pca.projection()
    >>> new = pca.partial_fit([[9.0, 5.0]]).projection()
    >>> stream_dr.change(old, new, pca).map.shape
    (1, 1)
    """
    if estimator is None:
        return change_over_scatter(old, new, None)
    return change_over_scatter(old, new, partial(estimator.scatter_product, estimator.state_))


def change_over_scatter(
    old: Projection, new: Projection, multiply_by_scatter: MultiplyByScatter | None
) -> ProjectionChange | None:
    """Return what `change` returns, for rows with a scatter.

    multiply_by_scatter: function that multiplies columns by the scatter. None compares loadings.
    """
    before = linear_part_or_none(old)
    after = linear_part_or_none(new)
    if before is None or after is None:
        return None

    # The feature maps of the two projections may make different columns. Match the columns.
    columns = place_previous_features(old, new)
    loadings = move_rows(before.loadings, columns)
    if multiply_by_scatter is None:
        map_, residual = least_squares_map(loadings, after.loadings)
    else:
        # The rows have no values of features that only the old projection has.
        map_, residual = least_squares_map(loadings[: after.n_features], after.loadings, multiply_by_scatter)
    # Columns without an old value have the mean 0.
    mean = np.zeros(len(after.mean))
    moved = move_rows(before.mean, columns[: len(before.mean)])[: len(mean)]
    mean[: len(moved)] = moved
    shift = mean - after.mean
    return ProjectionChange(map_, shift @ after.loadings, residual)
