"""Newest: the rows that a stream took in last, and are still learned, with their targets."""

from typing import NamedTuple

import numpy as np
from sklearn.preprocessing import StandardScaler

from stream_dr.directory.directory import Directory
from stream_dr.projection import Projection, columns_of
from stream_dr.rows.block import Block
from stream_dr.targets.label_codes import Label
from stream_dr.targets.targets import Targets


class Newest(NamedTuple):
    """Batches of rows, oldest first, and the log's position when they were read."""

    position: int
    blocks: tuple[Block, ...] = ()

    def project(self, projection: Projection) -> np.ndarray:
        """(rows, components) float64, in order."""
        parts = [projection.apply(block.X) for block in self.blocks]
        return np.vstack(parts) if parts else np.zeros((0, projection.n_components))

    def deviations(self, projection: Projection) -> np.ndarray:
        """Standard deviation (features,) of the columns that a linear projection's loadings are of; none without rows.
        O(entries)."""
        scaler = StandardScaler(with_mean=False)
        for block in self.blocks:
            for rows in columns_of(projection, block.X):
                scaler.partial_fit(rows)
        return np.sqrt(scaler.var_) if self.blocks else np.zeros(0)

    def captured(self, projection: Projection) -> np.ndarray:
        """Share (components,) of the rows' variance, of all columns, that lies in the span of a linear projection's first
        ones."""
        total = float((self.deviations(projection) ** 2).sum())
        loadings: np.ndarray = getattr(projection, "loadings")  # noqa: B009 a linear one has them, or what it maps for
        turned = np.linalg.qr(loadings, mode="r")
        along = self.project(projection) @ np.linalg.pinv(turned)  # the rows along orthonormal axes of the same spans
        return np.cumsum(along.var(axis=0)) / total if total > 0 else np.zeros(len(turned))

    @property
    def targets(self) -> Targets | None:
        """Their targets, labels of all batches under one code each; None where no batch has any."""
        kinds = {block.y.kind for block in self.blocks if isinstance(block.y, Targets)}
        if len(kinds) != 1:
            return None
        (kind,) = kinds
        return _numbers(self.blocks) if kind == "continuous" else _labels(self.blocks, kind)


def newest_rows(directory: Directory, rows: int) -> Newest:
    """The newest rows, at most so many, without what was unlearned; fewer where some of the last so many were. Reads
    the events that hold them. Raises what reading a damaged log, or a shard that is gone, raises."""
    position = directory.position
    if position < 0 or rows <= 0:
        return Newest(position)
    blocks, left = [block for _, block in directory.history.events(directory.log.holding(rows) - 1, position)], rows
    kept: list[Block] = []
    for block in reversed(blocks):
        kept.append(block if block.rows <= left else block.take(np.arange(block.rows - left, block.rows)))
        left -= kept[-1].rows
        if not left:
            break
    return Newest(position, tuple(reversed(kept)))


def _numbers(blocks: tuple[Block, ...]) -> Targets:
    """Continuous targets; rows without any are absent."""
    width = next(b.y.values.shape[1] for b in blocks if b.y is not None)
    values, present = [], []
    for block in blocks:
        values.append(np.zeros((block.rows, width)) if block.y is None else block.y.values)
        present.append(_present(block))
    return Targets("continuous", (), np.empty(0, np.int32), values=np.vstack(values), present=np.concatenate(present))


def _labels(blocks: tuple[Block, ...], kind: str) -> Targets:
    table: dict[Label, int] = {}
    codes, counts, present = [], [], []
    for block in blocks:
        present.append(_present(block))
        if block.y is None:
            codes.append(np.full(block.rows if kind == "class" else 0, -1))
            counts.append(np.zeros(block.rows, np.int64))
            continue
        own = np.array([table.setdefault(label, len(table)) for label in block.y.labels] + [-1])
        codes.append(own[block.y.codes])  # −1, absent, takes the last
        counts.append(np.ones(block.rows, np.int64) if kind == "class" else np.diff(block.y.indptr))
    indptr = None if kind == "class" else np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return Targets(kind, tuple(table), np.concatenate(codes), indptr, present=np.concatenate(present))


def _present(block: Block) -> np.ndarray:
    """(rows,) bool: which rows have a target."""
    if block.y is None:
        return np.zeros(block.rows, bool)
    return np.ones(block.rows, bool) if block.y.present is None else np.asarray(block.y.present)
