"""Query: rows through a model's published projection, and the projection itself.

HTTP answers and the files of `stream-dr transform` have the same values from the same functions.
The projection is taken once, by reference, so all rows of one answer come from one version.

An exported projection has these arrays.

- A linear projection: `mean` (features,), `components` (components, features) and `eigenvalues`
  (components,).
- Any other: the arrays that its own fields hold.
- An older version, in addition: `map` (components then, components now) and `offset` (components
  now,). They carry its answers to the newest version: z_new ≈ z_old · map + offset.

Its metadata is in `ExportedProjection`. A mapped projection adds `feature_map`, the map's spec as
JSON. A map of tables adds `columns`, the names of the columns that it makes, as JSON. An older
version adds `map_residual`.

In Arrow it is one row, with each array in a `fixed_shape_tensor` column of its name and the
metadata in the schema's. In safetensors it is arrays and the file's metadata.
"""

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from stream_dr.aliases import JsonDict
from stream_dr.arrow.codec import arrow_from_block, id_array, write_arrow
from stream_dr.directory.directory import Directory
from stream_dr.disk import write_atomically
from stream_dr.errors import InvalidParameter, SchemaMismatch
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema, columns_in_order, columns_missing
from stream_dr.models.snapshot_file import Arrays
from stream_dr.models.versions import Published, projection_change
from stream_dr.projection import Mapped, Projection
from stream_dr.rows.block import Block, Ids, check_finite
from stream_dr.rows.raw_rows import refuse_table
from stream_dr.rows.source import Source
from stream_dr.running.projected_file import check_output_path, write_projected
from stream_dr.shards.dataset import Dataset
from stream_dr.statistics.protocol import pack
from stream_dr.targets.targets import Targets

# By kind of targets, the name of their column.
_COLUMN = {"class": "label", "multilabel": "labels", "continuous": "target"}


class ProjectedRows(NamedTuple):
    """Projected rows.

    Attributes
    ----------
    model, version, position, solution
        The projection that was used.
    z : ndarray (rows, components) of float64
    ids : Ids or None
        Ids of the rows.
    unseen : int
        Number of entries whose index, category or column the projection never saw. They contribute
        nothing.
    columns_missing : tuple of str
        Columns of a table that the rows do not have. They count as missing values.
    """

    model: str
    version: int
    position: int
    solution: str
    z: np.ndarray
    ids: Ids | None = None
    unseen: int = 0
    columns_missing: tuple[str, ...] = ()

    def to_json(self) -> JsonDict:
        """Return a JSON-able dict.

        Its keys are "model", "version", "position", "solution", "z", "id" and "unseen", and
        "columns_missing" if there are any.
        """
        response = self._asdict() | {"columns_missing": list(self.columns_missing)}
        if not self.columns_missing:
            del response["columns_missing"]
        response["z"] = self.z.tolist()
        response["id"] = response.pop("ids")
        return response

    def to_arrow(self) -> bytes:
        """Return an Arrow stream of one batch.

        Columns: id (if known) and z as fixed_size_list<double, components>. The rest is schema
        metadata.
        """
        width = self.z.shape[1]
        flat = pa.array(np.ascontiguousarray(self.z).ravel())
        columns: dict[str, pa.Array] = {} if self.ids is None else {"id": id_array(self.ids)}
        columns["z"] = pa.FixedSizeListArray.from_arrays(flat, width) if width else pa.array([[]] * len(self.z))

        metadata = {k: str(getattr(self, k)) for k in ("model", "version", "position", "solution", "unseen")}
        if self.columns_missing:
            metadata["columns_missing"] = json.dumps(self.columns_missing)
        batch = pa.record_batch(list(columns.values()), names=list(columns)).replace_schema_metadata(metadata)
        return bytes(write_arrow([batch]))


def transform(model: Model, block: Block, schema: Schema) -> ProjectedRows:
    """Project a block's rows. Targets are ignored.

    Raises NotFitted before any row, CatchingUp until the rows of the log are learned and solved,
    ModelFailed, WidthMismatch, SchemaMismatch, NotFinite.

    >>> import stream_dr  # running, directory and model are those of the example of Running
    >>> version = running.publish("lda").version
    >>> stream_dr.transform(model, stream_dr.one_row([1.0, 2.0]), directory.schema).z.shape
    (1, 1)
    """
    published = model.published
    if published is None:
        raise model.unpublished_error()

    projection = published.projection
    missing = columns_missing(block, schema)
    block, unseen = conform_block(block, projection, schema)
    z = projection.apply(block.X)
    return ProjectedRows(
        model.name, published.version, published.position, projection.solution, z, block.ids, unseen, missing
    )


def conform_block(block: Block, projection: Projection, schema: Schema) -> tuple[Block, int]:
    """Check a block and bring it into the form that a projection takes.

    Returns the block and the number of its entries that the projection never saw.
    """
    check_finite(block.X)
    _check_names(block, schema)
    block = _empty_batch(block, projection.n_features) if block.X.shape == (0, 0) else columns_in_order(block, schema)

    if block.table:
        if isinstance(projection, Mapped) and projection.table is not None:
            return block, projection.unseen(block.X)
        refuse_table(block.X)
    return block, int(np.count_nonzero(block.X.indices >= projection.n_features)) if block.sparse else 0


def _check_names(block: Block, schema: Schema) -> None:
    """Raise SchemaMismatch for named columns if the stream's columns have no names."""
    if block.names is not None and schema.names is None:
        raise SchemaMismatch(
            f"the batch's columns have names ({', '.join(block.names[:5])} …); this stream was learned from {schema.layout} "
            "rows without names. Send the rows as the stream's were sent, without names."
        )


def _empty_batch(block: Block, width: int) -> Block:
    """Return an empty batch without columns, as {"rows": []}, with the projection's width."""
    return block._replace(X=np.empty((0, width)))


class ExportedProjection(NamedTuple):
    """A projection as arrays, in the form that the module describes.

    metadata: model, version, newest, position, rows, kind, solution, refined_at, residual,
        map_residual.
    arrays: arrays by name.
    """

    metadata: JsonDict
    arrays: Arrays

    def to_json(self) -> JsonDict:
        """Return metadata and arrays in one dict, with the arrays as they are."""
        return self.metadata | {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}

    def to_safetensors(self) -> bytes:
        """Return a safetensors file."""
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        return save(arrays, metadata=self._texts())

    def to_arrow(self) -> bytes:
        """Return an Arrow stream of one row."""
        columns = {name: _array_as_row(np.ascontiguousarray(array)) for name, array in self.arrays.items()}
        batch = pa.record_batch(list(columns.values()), names=list(columns))
        return bytes(write_arrow([batch.replace_schema_metadata(self._texts())]))

    def _texts(self) -> dict[str, str]:
        """Return the metadata as texts, without None."""
        return {name: str(value) for name, value in self.metadata.items() if value is not None}


def export_projection(model: Model, version: int | None = None) -> ExportedProjection:
    """Return what a model has published, or an older version of it.

    Raises NotFitted or CatchingUp (nothing is published), ModelFailed, UnknownVersion.

    >>> import stream_dr  # running, directory and model are those of the example of Running
    >>> version = running.publish("lda").version
    >>> list(stream_dr.export_projection(model).arrays)
    ['mean', 'components', 'eigenvalues']
    """
    newest = model.published
    if newest is None:
        raise model.unpublished_error()
    published = newest if version is None else model.version(version)

    projection = published.projection
    metadata = {
        "model": model.name,
        "version": published.version,
        "newest": newest.version,
        "position": published.position,
        "rows": published.rows,
        "kind": projection.kind,
        "solution": projection.solution,
        "refined_at": published.refined_at,
        "residual": published.residual,
    }
    if isinstance(projection, Mapped):
        metadata["feature_map"] = projection.feature_map
        if projection.feature_names is not None:
            metadata["columns"] = json.dumps(projection.feature_names)

    arrays = _arrays(projection)
    # Clients with stored embeddings need the map to the newest version, not the versions between.
    to_newest = None if version is None else projection_change(projection, newest.projection)
    if to_newest is not None:
        arrays |= {"map": to_newest.map, "offset": to_newest.offset}
        metadata["map_residual"] = to_newest.residual
    return ExportedProjection(metadata, arrays)


def _arrays(projection: Projection) -> Arrays:
    if projection.kind == "linear":
        return {name: getattr(projection, name) for name in ("mean", "components", "eigenvalues")}
    return pack(projection)[0]


def _array_as_row(array: np.ndarray) -> pa.Array:
    """Return one row that holds the whole array."""
    # A tensor cannot be empty, a list can.
    if array.size == 0:
        return pa.array([[]], pa.list_(pa.from_numpy_dtype(array.dtype)))
    storage = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.size)
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(storage.type.value_type, array.shape), storage)


def project(
    directory: Directory, model: Model, source: Source, out: Path, watch: Callable[[int], None] | None = None
) -> int:
    """Write the projected rows of a source to a file. Return their number.

    watch: receives the number of rows so far.

    Raises as check_output_path, InvalidParameter (no rows, or no column to write), NotFitted (no row
    learned yet), NeedsRefine, and what reading or projecting a batch raises.
    """
    check_output_path(out)
    if isinstance(source, Dataset) and not source.rows:
        raise InvalidParameter("the source has no rows; nothing was written.")

    require_published(model)
    fields = carried_fields(source) if isinstance(source, Dataset) else _fields_of(next(source.events())[1])
    if not fields and not require_published(model).projection.n_components:
        # Arrow counts no rows in a batch without columns.
        raise InvalidParameter(f"{model.name} has no component yet: {model.estimator.limit}. Nothing was written.")

    batches = _projected_batches(directory, model, source, fields, watch or (lambda rows: None))
    first = next(batches)
    rows = 0

    def write(file: BinaryIO) -> None:
        nonlocal rows
        rows = write_projected(file, out.suffix, chain([first], batches))

    write_atomically(out, write)
    return rows


def _projected_batches(
    directory: Directory, model: Model, source: Source, fields: dict[str, pa.DataType], watch: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the projected batches of a source."""
    done = 0
    for _, block in source.events():
        batch = projected_batch(block, require_published(model).projection, directory.schema, fields)
        done += block.rows
        watch(done)
        if block.rows:
            yield batch


def require_published(model: Model) -> Published:
    """Return what a model has published, or raise the reason why there is nothing."""
    if model.published is None and model.rows:
        # Solving raises the reason.
        model.estimator.solve(model.accumulator.freeze())
    if model.published is None:
        raise model.unpublished_error()
    return model.published


def projected_batch(
    block: Block, projection: Projection, schema: Schema, fields: dict[str, pa.DataType]
) -> pa.RecordBatch:
    """Return a block's rows as `project` writes them.

    Ids and targets come first, then z0, z1 …

    fields: as of `carried_fields`.
    """
    conformed, _ = conform_block(block, projection, schema)
    z = projection.apply(conformed.X)
    columns = _carried_columns(block, fields) | {
        f"z{i}": pa.array(np.ascontiguousarray(column)) for i, column in enumerate(z.T)
    }
    return pa.record_batch(list(columns.values()), names=list(columns))


def _fields_of(block: Block) -> dict[str, pa.DataType]:
    """Return name and type of the id and target columns of a source's first block."""
    schema = arrow_from_block(block).schema
    return {name: _written_type(schema.field(name).type) for name in ("id", *_COLUMN.values()) if name in schema.names}


def carried_fields(dataset: Dataset) -> dict[str, pa.DataType]:
    """Return name and type of the id and target columns that any shard has.

    Raises SchemaMismatch if two shards disagree.
    """
    names = ("id", *_COLUMN.values())
    schemas = [
        pa.schema([(n, _written_type(shard.schema.field(n).type)) for n in names if n in shard.schema.names])
        for shard in dataset.shards
    ]
    try:
        unified = pa.unify_schemas(schemas)
    except pa.ArrowException as e:
        raise SchemaMismatch(f"ids or targets of the shards are of several types ({e}). Project them apart.") from e
    return {name: unified.field(name).type for name in names if name in unified.names}


def _written_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a column of ids or targets is written."""
    if pa.types.is_dictionary(kind):
        return _written_type(kind.value_type)
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 1:
        return _written_type(kind.value_type)
    if pa.types.is_nested(kind):
        return pa.list_(_written_type(kind.value_type))
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_integer(kind):
        return pa.int64()
    return kind if pa.types.is_boolean(kind) or pa.types.is_null(kind) else pa.string()


def _carried_columns(block: Block, fields: dict[str, pa.DataType]) -> dict[str, pa.Array]:
    """Return the block's ids and targets as columns of these types, or nulls."""
    values: dict[str, object] = {"id": block.ids}
    if isinstance(block.y, Targets):
        rows = block.y.row_labels()
        if block.y.kind == "continuous" and block.y.values is not None and block.y.values.shape[1] == 1:
            rows = [row[0] if row is not None else None for row in rows]
        values[_COLUMN[block.y.kind]] = rows
    return {name: pa.array(values.get(name) or [None] * block.rows, kind) for name, kind in fields.items()}
