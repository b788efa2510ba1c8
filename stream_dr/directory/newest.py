"""Newest: the last rows of a stream, with their targets.

Rows that were learned and then removed by an unlearn event are left out.
"""

from typing import NamedTuple

import numpy as np
from sklearn.preprocessing import StandardScaler

from stream_dr.batch.block import Block
from stream_dr.batch.targets import Label, Targets
from stream_dr.directory.directory import Directory
from stream_dr.projection import Projection, rows_for_loadings


class NewestRows(NamedTuple):
    """Newest rows of a stream, in batches.

    position: position of the log's last event when the rows were read.
    blocks: the batches, oldest first.
    """

    position: int
    blocks: tuple[Block, ...] = ()

    def project(self, projection: Projection) -> np.ndarray:
        """Return the projected rows (rows, components) as float64, oldest first."""
        parts = [projection.apply(block.X) for block in self.blocks]
        return np.vstack(parts) if parts else np.zeros((0, projection.n_components))

    def input_column_deviations(self, projection: Projection) -> np.ndarray:
        """Return the standard deviation (features,) of each input column.

        projection: a linear projection. The columns are those that its loadings multiply. Columns
            of a table are first encoded as the projection encodes them.

        The result is empty if there are no rows. Costs O(entries of the rows).
        """
        scaler = StandardScaler(with_mean=False)
        for block in self.blocks:
            for rows in rows_for_loadings(projection, block.X):
                scaler.partial_fit(rows)
        return np.sqrt(scaler.var_) if self.blocks else np.zeros(0)

    def cumulative_variance_shares(self, projection: Projection) -> np.ndarray:
        """Return the cumulative share of the rows' variance, by component.

        projection: a linear projection.

        Returns an array (components,). Entry k is the variance of the rows within the subspace
        that components 0 to k span, divided by the sum of the variances of all columns.
        """
        total = float((self.input_column_deviations(projection) ** 2).sum())
        loadings: np.ndarray = getattr(projection, "loadings")  # noqa: B009

        # Compute the upper triangular matrix R of the QR decomposition of the loadings.
        triangle = np.linalg.qr(loadings, mode="r")
        # Variances along components cannot be added, because components need not be orthogonal.
        # Compute coordinates along the orthonormal columns of Q, where loadings = Q R.
        # The first k columns of Q span the same subspace as the first k components.
        coordinates = self.project(projection) @ np.linalg.pinv(triangle)
        return np.cumsum(coordinates.var(axis=0)) / total if total > 0 else np.zeros(len(triangle))

    @property
    def targets(self) -> Targets | None:
        """Targets of all rows, in the order of the rows.

        None if no batch has targets, or if two batches have targets of different kinds.
        """
        kinds = {block.y.kind for block in self.blocks if isinstance(block.y, Targets)}
        if len(kinds) != 1:
            return None
        (kind,) = kinds
        return _join_continuous_targets(self.blocks) if kind == "continuous" else _join_label_targets(self.blocks, kind)


def newest_rows(directory: Directory, n_rows: int) -> NewestRows:
    """Return the last rows of a stream, without unlearned rows.

    n_rows: maximum number of rows to return. If some of the last rows were unlearned, fewer rows
        may be returned.

    Raises the errors of a damaged log, or of a missing shard.
    """
    position = directory.position
    if position < 0 or n_rows <= 0:
        return NewestRows(position)

    first = directory.log.position_before_newest(n_rows)
    blocks = [block for _, block in directory.history.events(first - 1, position)]

    # Take rows from the end until there are enough. The first block may be cut.
    missing = n_rows
    newest: list[Block] = []
    for block in reversed(blocks):
        newest.append(block if block.rows <= missing else block.take(np.arange(block.rows - missing, block.rows)))
        missing -= newest[-1].rows
        if not missing:
            break
    return NewestRows(position, tuple(reversed(newest)))


def _join_continuous_targets(blocks: tuple[Block, ...]) -> Targets:
    """Return the continuous targets of all blocks, joined.

    A row without a target is marked as absent.
    """
    width = next(b.y.values.shape[1] for b in blocks if b.y is not None)
    values = []
    present = []
    for block in blocks:
        values.append(np.zeros((block.rows, width)) if block.y is None else block.y.values)
        present.append(_has_target(block))
    return Targets("continuous", (), np.empty(0, np.int32), values=np.vstack(values), present=np.concatenate(present))


def _join_label_targets(blocks: tuple[Block, ...], kind: str) -> Targets:
    """Return the class or multilabel targets of all blocks, joined.

    A label gets one code for all blocks. A row without a target is marked as absent.

    kind: "class" or "multilabel".
    """
    table: dict[Label, int] = {}
    codes = []
    counts = []
    present = []
    for block in blocks:
        present.append(_has_target(block))
        if block.y is None:
            codes.append(np.full(block.rows if kind == "class" else 0, -1))
            counts.append(np.zeros(block.rows, np.int64))
            continue

        # Translate the block's label codes to the common codes of all blocks.
        # The code −1 of an absent target stays −1, because the index −1 takes the last entry.
        codes_here = np.array([table.setdefault(label, len(table)) for label in block.y.labels] + [-1])
        codes.append(codes_here[block.y.codes])
        counts.append(np.ones(block.rows, np.int64) if kind == "class" else np.diff(block.y.indptr))
    indptr = None if kind == "class" else np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    return Targets(kind, tuple(table), np.concatenate(codes), indptr, present=np.concatenate(present))


def _has_target(block: Block) -> np.ndarray:
    """Return a mask (rows,) of the rows that have a target."""
    if block.y is None:
        return np.zeros(block.rows, bool)
    return np.ones(block.rows, bool) if block.y.present is None else np.asarray(block.y.present)
