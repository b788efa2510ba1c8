"""Query: rows through a model's published projection, and the projection itself, as answers and as files.

The projection is taken once, by reference, so all rows of one answer come from one version.

Exported arrays: for a linear projection `mean` (features,), `components` (components, features) and `eigenvalues`
(components,); for any other the arrays its own fields hold, and for a mapped one the fact `feature_map`, the map's spec as
JSON, beside, for a map of tables, `columns`: the names of the columns it makes, as JSON. An older version comes with `map`
(components then, components now), `offset` (components now,) and `map_residual`, which carry answers of that version to the
newest: z_new ≈ z_old · map + offset. In Arrow one row, each array a `fixed_shape_tensor` column named like it, facts as
schema metadata; in safetensors facts are its metadata.

Why this way: what HTTP answers and what `stream-dr transform` writes are the same values from the same function. Whoever
holds stored embeddings needs the map and not the history that led to it, so it is found between the two projections at once.
"""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from stream_dr.arrow.codec import arrow_from_block, id_array, write_arrow
from stream_dr.directory.directory import Directory
from stream_dr.disk import write_atomically
from stream_dr.errors import InvalidParameter, SchemaMismatch
from stream_dr.models.model import Model
from stream_dr.models.reasons import why_unpublished
from stream_dr.models.schema import Facts, Schema, columns_in_order, columns_missing
from stream_dr.models.snapshot_file import Arrays
from stream_dr.models.versions import Published, change
from stream_dr.projection import Mapped, Projection
from stream_dr.rows.block import Block, Ids, check_finite
from stream_dr.rows.raw_rows import refuse_table
from stream_dr.rows.source import Source
from stream_dr.running.projected_file import check_out, write_projected
from stream_dr.shards.dataset import Dataset
from stream_dr.statistics.protocol import pack
from stream_dr.targets.targets import Targets

_COLUMN = {"class": "label", "multilabel": "labels", "continuous": "target"}


class Answer(NamedTuple):
    """Projected rows.

    model, version, position, solution: which projection. z: (rows, components) float64. ids: the rows' ids or None.
    unseen: entries whose index, category or column the projection never saw, which contributed nothing. columns_missing:
    a table's columns that the rows do not have, taken as missing.
    """

    model: str
    version: int
    position: int
    solution: str
    z: np.ndarray
    ids: Ids | None = None
    unseen: int = 0
    columns_missing: tuple[str, ...] = ()

    def to_json(self) -> Facts:
        """{"model", "version", "position", "solution", "z", "id", "unseen"}, and "columns_missing" where there are any."""
        told = self._asdict() | {"columns_missing": list(self.columns_missing)}
        if not self.columns_missing:
            del told["columns_missing"]
        told["z"], told["id"] = self.z.tolist(), told.pop("ids")
        return told

    def to_arrow(self) -> bytes:
        """An Arrow stream of one batch: id (where given) and z: fixed_size_list<double, components>; the rest is schema
        metadata."""
        width = self.z.shape[1]
        flat = pa.array(np.ascontiguousarray(self.z).ravel())
        columns: dict[str, pa.Array] = {} if self.ids is None else {"id": id_array(self.ids)}
        columns["z"] = pa.FixedSizeListArray.from_arrays(flat, width) if width else pa.array([[]] * len(self.z))
        told = {k: str(getattr(self, k)) for k in ("model", "version", "position", "solution", "unseen")}
        if self.columns_missing:
            told["columns_missing"] = json.dumps(self.columns_missing)
        batch = pa.record_batch(list(columns.values()), names=list(columns)).replace_schema_metadata(told)
        return bytes(write_arrow([batch]))


def transform(model: Model, block: Block, schema: Schema) -> Answer:
    """Project a block's rows; targets are ignored. Raises NotFitted before any row, CatchingUp before those of the log are
    learned and solved, ModelFailed, WidthMismatch, SchemaMismatch, NotFinite."""
    published = model.published
    if published is None:
        raise why_unpublished(model)
    projection = published.projection
    missing = columns_missing(block, schema)
    block, unseen = fitted(block, projection, schema)
    z = projection.apply(block.X)
    return Answer(model.name, published.version, published.position, projection.solution, z, block.ids, unseen, missing)


def fitted(block: Block, projection: Projection, schema: Schema) -> tuple[Block, int]:
    """The block as the projection takes it, checked, and the number of its entries that the projection never saw."""
    check_finite(block.X)
    _check_names(block, schema)
    block = _no_rows(block, projection.n_features) if block.X.shape == (0, 0) else columns_in_order(block, schema)
    if block.table:
        if isinstance(projection, Mapped) and projection.table is not None:
            return block, projection.unseen(block.X)
        refuse_table(block.X)
    return block, int(np.count_nonzero(block.X.indices >= projection.n_features)) if block.sparse else 0


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


class Exported(NamedTuple):
    """facts: model, version, newest, position, rows, kind, solution, refined_at, residual, map_residual. arrays: by
    name."""

    facts: Facts
    arrays: Arrays

    def to_json(self) -> Facts:
        """Facts and arrays in one dict; the arrays as they are."""
        return self.facts | {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}

    def to_safetensors(self) -> bytes:
        """A safetensors file."""
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        return save(arrays, metadata=self._metadata())

    def to_arrow(self) -> bytes:
        """An Arrow stream of one row."""
        columns = {name: _tensor(np.ascontiguousarray(array)) for name, array in self.arrays.items()}
        batch = pa.record_batch(list(columns.values()), names=list(columns))
        return bytes(write_arrow([batch.replace_schema_metadata(self._metadata())]))

    def _metadata(self) -> dict[str, str]:
        return {name: str(fact) for name, fact in self.facts.items() if fact is not None}


def export_projection(model: Model, version: int | None = None) -> Exported:
    """What a model has published, or a kept version of it. Raises NotFitted or CatchingUp (nothing yet), ModelFailed,
    UnknownVersion."""
    newest = model.published
    if newest is None:
        raise why_unpublished(model)
    asked = newest if version is None else model.version(version)
    projection = asked.projection
    facts = {
        "model": model.name,
        "version": asked.version,
        "newest": newest.version,
        "position": asked.position,
        "rows": asked.rows,
        "kind": projection.kind,
        "solution": projection.solution,
        "refined_at": asked.refined_at,
        "residual": asked.residual,
    }
    spec = getattr(projection, "feature_map", None)
    if spec is not None:
        facts["feature_map"] = spec
    columns = getattr(projection, "feature_names", None)
    if columns is not None:
        facts["columns"] = json.dumps(columns)
    arrays = _arrays(projection)
    found = None if version is None else change(projection, newest.projection)
    if found is not None:
        arrays |= {"map": found.map, "offset": found.offset}
        facts["map_residual"] = found.residual
    return Exported(facts, arrays)


def _arrays(projection: Projection) -> Arrays:
    if projection.kind == "linear":
        return {name: getattr(projection, name) for name in ("mean", "components", "eigenvalues")}
    return pack(projection)[0]


def _tensor(array: np.ndarray) -> pa.Array:
    """One row holding the whole array; a plain empty list where it has no entry, which tensors cannot have."""
    if array.size == 0:
        return pa.array([[]], pa.list_(pa.from_numpy_dtype(array.dtype)))
    storage = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.size)
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(storage.type.value_type, array.shape), storage)


def project(
    directory: Directory, model: Model, source: Source, out: Path, watch: Callable[[int], None] | None = None
) -> int:
    """Write the projected rows of a data set, or another source, to `out`; their number.

    Raises as check_out, InvalidParameter (no rows, or no column to write), NotFitted (no row learned yet), NeedsRefine, and
    what reading or projecting a batch raises.
    """
    check_out(out)
    if isinstance(source, Dataset) and not source.rows:
        raise InvalidParameter("the source has no rows; nothing was written.")
    published(model)
    given = given_fields(source) if isinstance(source, Dataset) else _fields_of(next(source.events())[1])
    if not given and not published(model).projection.n_components:
        # Arrow counts no rows in a batch without columns.
        raise InvalidParameter(f"{model.name} has no component yet: {model.estimator.limit}. Nothing was written.")
    batches = _batches(directory, model, source, given, watch or (lambda rows: None))
    first = next(batches)
    rows = 0

    def write(file: BinaryIO) -> None:
        nonlocal rows
        rows = write_projected(file, out.suffix, chain([first], batches))

    write_atomically(out, write)
    return rows


def _batches(
    directory: Directory, model: Model, source: Source, given: dict[str, pa.DataType], watch: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    done = 0
    for _, block in source.events():
        batch = projected_batch(block, published(model).projection, directory.schema, given)
        done += block.rows
        watch(done)
        if block.rows:
            yield batch


def published(model: Model) -> Published:
    """What a model has published. Raises what keeps it from an answer."""
    if model.published is None and model.rows:
        model.estimator.solve(model.accumulator.freeze())  # raises it
    if model.published is None:
        raise why_unpublished(model)
    return model.published


def projected_batch(
    block: Block, projection: Projection, schema: Schema, given: dict[str, pa.DataType]
) -> pa.RecordBatch:
    """A block's rows as `project` writes them: the given columns, z0, z1 …"""
    taken, _ = fitted(block, projection, schema)
    z = projection.apply(taken.X)
    columns = _given(block, given) | {f"z{i}": pa.array(np.ascontiguousarray(column)) for i, column in enumerate(z.T)}
    return pa.record_batch(list(columns.values()), names=list(columns))


def _fields_of(block: Block) -> dict[str, pa.DataType]:
    """Name and type of the id and target columns of a source's first block."""
    schema = arrow_from_block(block).schema
    return {name: _plain(schema.field(name).type) for name in ("id", *_COLUMN.values()) if name in schema.names}


def given_fields(dataset: Dataset) -> dict[str, pa.DataType]:
    """Name and type of the id and target columns that any shard has. Raises SchemaMismatch when two shards disagree."""
    names = ("id", *_COLUMN.values())
    schemas = [shard.schema for shard in dataset.shards]
    told = [pa.schema([(n, _plain(schema.field(n).type)) for n in names if n in schema.names]) for schema in schemas]
    try:
        known = pa.unify_schemas(told)
    except pa.ArrowException as e:
        raise SchemaMismatch(f"ids or targets of the shards are of several types ({e}). Project them apart.") from e
    return {name: known.field(name).type for name in names if name in known.names}


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type in which a given column is written: that of Python's own values."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 1:
        return _plain(kind.value_type)
    if pa.types.is_nested(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_integer(kind):
        return pa.int64()
    return kind if pa.types.is_boolean(kind) or pa.types.is_null(kind) else pa.string()


def _given(block: Block, fields: dict[str, pa.DataType]) -> dict[str, pa.Array]:
    """The batch's ids and targets as columns of these types; null where it has none."""
    found: dict[str, object] = {"id": block.ids}
    if isinstance(block.y, Targets):
        rows = block.y.row_labels()
        if block.y.kind == "continuous" and block.y.values is not None and block.y.values.shape[1] == 1:
            rows = [row[0] if row is not None else None for row in rows]
        found[_COLUMN[block.y.kind]] = rows
    return {name: pa.array(found.get(name) or [None] * block.rows, kind) for name, kind in fields.items()}
