"""Transform: rows through a model's published projection, and the answer in JSON or Arrow.

The projection is taken once, by reference, so all rows of one answer come from one version.

Why this way: what HTTP answers and what `stream-dr transform` writes are the same values from the same function.
"""

from typing import Any, NamedTuple

import numpy as np

from stream_dr.block import Block, check_finite
from stream_dr.engine.decode import in_order
from stream_dr.engine.model import Model
from stream_dr.engine.schema import Schema
from stream_dr.errors import SchemaMismatch


class Answer(NamedTuple):
    """Projected rows.

    model, version, position, solution: which projection. z: (rows, components) float64. ids: the rows' ids or None.
    unseen: entries whose index the projection never saw, which contributed nothing.
    """

    model: str
    version: int
    position: int
    solution: str
    z: np.ndarray
    ids: list[str] | None = None
    unseen: int = 0

    def to_json(self) -> dict[str, Any]:
        """{"model", "version", "position", "solution", "z", "id", "unseen"}."""
        told = self._asdict()
        told["z"], told["id"] = self.z.tolist(), told.pop("ids")
        return told

    def to_arrow(self) -> bytes:
        """An Arrow stream of one batch: id (where given) and z: fixed_size_list<double, components>; the rest is schema
        metadata."""
        import pyarrow as pa

        from stream_dr.arrow.codec import write_arrow

        width = self.z.shape[1]
        flat = pa.array(np.ascontiguousarray(self.z).ravel())
        columns: dict[str, Any] = {} if self.ids is None else {"id": pa.array(self.ids, pa.string())}
        columns["z"] = pa.FixedSizeListArray.from_arrays(flat, width) if width else pa.array([[]] * len(self.z))
        told = {k: str(getattr(self, k)) for k in ("model", "version", "position", "solution", "unseen")}
        batch = pa.record_batch(list(columns.values()), names=list(columns)).replace_schema_metadata(told)
        return bytes(write_arrow([batch]))


def transform(model: Model, block: Block, schema: Schema) -> Answer:
    """Project a block's rows; targets are ignored. Raises NotFitted before any row, CatchingUp before those of the log are
    learned and solved, ModelFailed, WidthMismatch, SchemaMismatch, NotFinite."""
    published = model.published
    if published is None:
        raise model.unpublished()
    check_finite(block.X)
    projection = published.projection
    _check_names(block, schema)
    block = _no_rows(block, projection.n_features) if block.X.shape == (0, 0) else in_order(block, schema)
    unseen = int(np.count_nonzero(block.X.indices >= projection.n_features)) if block.sparse else 0
    z = projection.apply(block.X)
    return Answer(model.name, published.version, published.position, projection.solution, z, block.ids, unseen)


def _check_names(block: Block, schema: Schema) -> None:
    """Raise SchemaMismatch for named columns where the stream's have no names, so that nothing says which is which."""
    if block.names is not None and schema.names is None:
        raise SchemaMismatch(
            f"the batch's columns have names ({', '.join(block.names[:5])} …); this stream was learned from {schema.layout} "
            "rows without names. Send the rows as the stream's were sent, without names."
        )


def _no_rows(block: Block, width: int) -> Block:
    """An empty batch that says nothing of its columns, as {"rows": []}, in the width the projection takes."""
    return block._replace(X=np.empty((0, width)))
