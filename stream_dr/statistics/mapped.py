"""mapped: what an accumulator remembers of rows that went through a feature map first.

The inner accumulator sees mapped rows only; here are the width the rows had before and, for a map that goes by name,
the names. Cost: the map's for each row, nothing else. Merges and unlearns where the inner state does.

Why this way: no accumulator knows of maps and no map of accumulators, so any estimator can have any map.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stream_dr.block import Block, check_rows
from stream_dr.errors import CannotMerge, WidthMismatch, other_width
from stream_dr.feature_maps import canonical_spec, feature_map
from stream_dr.label_codes import Label
from stream_dr.projection import Columns, Linear, Mapped, mapped_parts
from stream_dr.readout import Readout
from stream_dr.statistics.protocol import nested_state


class MappedState(NamedTuple):
    """An inner state and the map its rows went through.

    rows, rows_skipped, target_kind, labels: the inner state's. n_features: width before the map. feature_map: spec as
    JSON. names: the columns' names where the map goes by name and all batches had the same, else None. inner: the
    state.
    """

    rows: int
    rows_skipped: int
    n_features: int
    target_kind: str | None
    labels: tuple[Label, ...]
    feature_map: str
    names: tuple[str, ...] | None
    inner: Any

    def merge(self, other: "MappedState") -> "MappedState":
        """Both states as one. Raises CannotMerge where the maps differ or the inner states cannot be merged."""
        if self.feature_map != other.feature_map:
            raise CannotMerge(f"states of the maps {self.feature_map} and {other.feature_map} cannot be merged.")
        inner = self.inner.merge(other.inner)
        if not self.rows or not other.rows:
            given = self if self.rows else other
            return _around(inner, given.n_features, given.feature_map, given.names)
        same = self.names == other.names
        width = feature_map(self.feature_map).out_features(0) if not same else max(self.n_features, other.n_features)
        return _around(inner, width, self.feature_map, self.names if same else None)


class MappedAccumulator:
    """An accumulator of mapped rows; one owner.

    spec: the map's. build: a new inner accumulator, or one that goes on from an inner state. state: go on from it.
    """

    def __init__(self, spec: dict[str, Any], build: Callable[[Any], Any], state: MappedState | None = None) -> None:
        self._spec = canonical_spec(spec)
        self._map = feature_map(spec)
        if state is not None and getattr(state, "feature_map", None) != self._spec:
            raise CannotMerge(f"this state was learned with another feature map than {self._spec}.")
        self._build, self.inner = build, build(None if state is None else state.inner)
        self.n_features = 0 if state is None else state.n_features
        self._names = None if state is None else state.names

    @property
    def rows(self) -> int:
        """Rows learned."""
        return int(self.inner.rows)

    @property
    def rows_skipped(self) -> int:
        """Rows left out because they had no target."""
        return int(self.inner.rows_skipped)

    @property
    def target_kind(self) -> str | None:
        """Kind of targets, or None."""
        kind: str | None = self.inner.target_kind
        return kind

    @property
    def labels(self) -> tuple[Label, ...]:
        """Vocabulary in order of first appearance."""
        return tuple(self.inner.labels)

    @property
    def labels_left(self) -> tuple[Label, ...]:
        """Labels of which a row is left."""
        return tuple(getattr(self.inner, "labels_left", self.inner.labels))

    def add(self, block: Block) -> None:
        """Learn one batch, mapped, some of it at a time. Raises WidthMismatch and what the inner accumulator raises; then
        nothing changed."""
        width, names = self._width(block)
        self._each(block, lambda part: self.inner.add(self._mapped(part, width)))
        if block.rows:
            self.n_features, self._names = width, names

    def remove(self, block: Block, **options: Any) -> None:
        """Take out a batch learned before, mapped; options are the inner accumulator's. Raises CannotUnlearn."""
        width = self._width(block)[0]
        if options:
            self.inner.remove(self._mapped(block, width), **options)
        else:
            self._each(block, lambda part: self.inner.remove(self._mapped(part, width)))

    def freeze(self) -> MappedState:
        """The state so far; the inner accumulator's cost."""
        return _around(self.inner.freeze(), self.n_features, self._spec, self._names)

    def _each(self, block: Block, act: Callable[[Block], None]) -> None:
        """Act on some rows at a time, of which there are never many; an error leaves the inner state as it was."""
        check_rows(block)
        parts = mapped_parts(block.rows, self._map)
        if len(parts) < 2:
            act(block)
            return
        before = self.inner.freeze()
        try:
            for part in parts:
                act(block.take(np.arange(block.rows)[part]))
        except BaseException:
            self.inner = self._build(before)
            raise

    def _mapped(self, block: Block, width: int) -> Block:
        check_rows(block)
        rows = self._map.apply(block.X, width, block.names)
        return block._replace(X=rows, names=None, width_stated=True, checked=False)

    def _width(self, block: Block) -> tuple[int, tuple[str, ...] | None]:
        """Width of the stream with this block, and the names that all its batches have."""
        started, width = self.n_features > 0, block.features
        if self._map.by_name and block.names is not None:
            same = block.names == self._names if started else not block.sparse
            return (width, block.names) if same else (self._map.out_features(0), None)
        if started and (width > self.n_features if block.sparse else width != self.n_features):
            if not block.sparse or self._map.fixed_width:
                raise other_width(width, self.n_features)
        elif not started and self._map.fixed_width and block.sparse and not block.width_stated:
            raise WidthMismatch(
                f"feature map {self._spec} needs the width of the rows at the first batch: state it (`n_features`), or "
                "take the map without 'orthogonal'."
            )
        return max(width, self.n_features), None


def _around(inner: Any, width: int, spec: str, names: tuple[str, ...] | None) -> MappedState:
    return MappedState(
        inner.rows, inner.rows_skipped, width, inner.target_kind, tuple(inner.labels), spec, names, inner
    )


for kind in (Linear, Readout, Columns, Mapped):
    nested_state(kind)
