"""Query: projects rows with published projections, and exports the projections.

The HTTP service and the command `stream-dr transform` both use these functions, so they return the
same values. All rows of one request are projected by the same version of the projection.

Arrays of an exported projection:

- A linear projection has `mean` (features,), `components` (components, features) and `eigenvalues`
  (components,). With a steady basis it also has `turn` (p, components): `eigenvalues` (p,) are those
  of the p components that were multiplied by it.
- Any other projection has the array fields of its class.
- A version that was asked for by number also has `map` (old components, new components) and
  `offset` (new components,), if its rows can be converted. They convert rows that this version
  projected into rows of the newest version: z_new ≈ z_old · map + offset.

The metadata are described in `ExportedProjection`.

File formats:

- Arrow: one row. Each array is a `fixed_shape_tensor` column, and the metadata are the metadata of
  the schema.
- safetensors: one tensor for each array, and the metadata of the file.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from stream_dr.aliases import JsonDict
from stream_dr.batch.arrow import TARGET_COLUMN, arrow_from_block, id_array, vector_column, write_arrow
from stream_dr.batch.block import Block, Ids, check_finite
from stream_dr.batch.rows import Source
from stream_dr.batch.schema import Schema
from stream_dr.batch.table import refuse_table
from stream_dr.batch.targets import Targets
from stream_dr.directory.directory import Directory
from stream_dr.disk import write_atomically
from stream_dr.errors import InvalidParameter, SchemaMismatch
from stream_dr.feature_maps import feature_map
from stream_dr.feature_maps.table import count_unseen_by_row
from stream_dr.models.model import Model
from stream_dr.models.release import Release
from stream_dr.models.snapshot_file import Arrays
from stream_dr.models.versions import change_over_scatter
from stream_dr.projection import Mapped, Projection
from stream_dr.running.projected_file import check_output_path, write_projected
from stream_dr.shards.dataset import Dataset
from stream_dr.statistics.protocol import pack

_MODEL_FIELDS = ("model", "version", "position", "solution", "release", "unseen")
"""Fields of a QueryResult that are metadata of its Arrow stream. None is left out."""


@dataclass(frozen=True, kw_only=True)
class QueryResult:
    """Result of a query with one version of a model's projection.

    Attributes
    ----------
    model : str
        Name of the model.
    version : int
        Version number of the projection.
    position : int
        Position in the log of the last event that the projection includes.
    solution : str
        Kind of solution: "exact", "diagonal", "refined" or "recurrence".
    release : str or None
        Name of the release that the projection is. None if it is none.
    ids : Ids or None
        Ids of the rows. None if the rows have no ids.
    unseen : int
        Number of input values that were ignored, because their index, category, word or column was
        not learned.
    columns_missing : tuple of str
        Names of the learned columns that the rows do not have. Their values count as missing.
    """

    model: str
    version: int
    position: int
    solution: str
    release: str | None
    ids: Ids | None
    unseen: int
    columns_missing: tuple[str, ...]

    def _json_response(self, **values: object) -> JsonDict:
        """Return the attributes of this class and the rows' values for JSON."""
        response = self._model_values() | values | {"id": self.ids}
        if self.columns_missing:
            response["columns_missing"] = list(self.columns_missing)
        return response

    def _arrow_stream(self, columns: dict[str, pa.Array], **lists: Sequence[object]) -> bytes:
        """Return an Arrow stream of one batch with ids and columns.

        lists: lists that become metadata, as JSON.
        """
        if self.ids is not None:
            columns = {"id": id_array(self.ids), **columns}
        if self.columns_missing:
            lists["columns_missing"] = self.columns_missing
        metadata = {name: str(value) for name, value in self._model_values().items()}
        metadata |= {name: json.dumps(values) for name, values in lists.items()}
        return write_arrow([pa.record_batch(columns, metadata=metadata)])

    def _model_values(self) -> JsonDict:
        values = {name: getattr(self, name) for name in _MODEL_FIELDS}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ProjectedRows(QueryResult):
    """Rows projected by one version of a model's projection.

    Has the attributes of QueryResult too.

    Attributes
    ----------
    z : ndarray (rows, components) of float64
        The projected rows.
    """

    z: np.ndarray

    def to_json(self) -> JsonDict:
        """Return a dict that can be written as JSON.

        Its keys are "model", "version", "position", "solution", "unseen", "z" and "id". The keys
        "release" and "columns_missing" are there only if they are not empty.
        """
        return self._json_response(z=self.z.tolist())

    def to_arrow(self) -> bytes:
        """Return an Arrow stream of one batch.

        Its columns are "id", if the rows have ids, and "z" of type
        fixed_size_list<double, components>. The other attributes are in the schema's metadata.
        """
        return self._arrow_stream({"z": vector_column(self.z)})


def transform(release: Release, block: Block) -> ProjectedRows:
    """Project a block's rows with a release, or with what a model serves now.

    Targets in the block are ignored. Raises WidthMismatch, SchemaMismatch and NotFinite.

    The example uses `running`, `directory` and `model` from the example of Running.

    >>> import stream_dr
    >>> version = running.publish("lda").version
    >>> stream_dr.transform(directory.releases.served(model), stream_dr.one_row([1.0, 2.0])).z.shape
    (1, 1)
    """
    block, fields = prepare_rows(release, block)
    return ProjectedRows(z=release.published.projection.apply(block.X), **fields)


def prepare_rows(release: Release, block: Block) -> tuple[Block, JsonDict]:
    """Return the rows that a projection is applied to, and the fields of a QueryResult.

    Raises the errors of `conform_rows`.

    release: the projection and the schema of its rows.
    block: rows as they were sent.
    """
    missing = release.schema.missing_columns(block)
    published = release.published
    block, unseen = conform_rows(block, published.projection, release.schema)
    fields = {
        "model": release.model,
        "version": published.version,
        "position": published.position,
        "solution": published.projection.solution,
        "release": published.release,
        "ids": block.ids,
        "unseen": int(unseen.sum()),
        "columns_missing": missing,
    }
    return block, fields


def conform_rows(block: Block, projection: Projection, schema: Schema) -> tuple[Block, np.ndarray]:
    """Return a block's rows, checked and in the order of the schema's columns.

    Also returns, for each row the number of values that the projection will ignore,
    because their index, category, word or column was not learned.

    Raises NotFinite, SchemaMismatch or InvalidRows.
    """
    check_finite(block.X)
    if block.names is not None and schema.names is None:
        raise SchemaMismatch(
            f"the batch's columns have names ({', '.join(block.names[:5])} …); this stream was learned from {schema.layout} "
            "rows without names. Send the rows as the stream's were sent, without names."
        )
    if block.X.shape == (0, 0):
        block = block._replace(X=np.empty((0, projection.n_features)))
    else:
        block = schema.conform(block)

    # Rows of a table need a feature map that has learned the table.
    if block.table:
        if isinstance(projection, Mapped) and projection.table is not None:
            return block, count_unseen_by_row(feature_map(projection.feature_map), projection.table, block.X)
        refuse_table(block.X)
    if not block.sparse:
        return block, np.zeros(block.rows, dtype=np.int64)
    ignored = np.append(0, np.cumsum(block.X.indices >= projection.n_features))
    return block, np.diff(ignored[block.X.indptr])


class ExportedProjection(NamedTuple):
    """Projection as named arrays and metadata, for a file.

    Attributes
    ----------
    metadata : dict
        - model: name of the model.
        - version: version number of the projection.
        - newest: newest version number of the model, 0 if it has none.
        - kind: class of projection, such as "linear".
        - solution: kind of solution, such as "exact".
        - position: position in the log of the last event that the projection includes.
        - rows: number of rows that the projection includes.
        - release: name of the release that the projection is, or None.
        - refined_at: position in the log at which the projection was refined, or None.
        - residual: residual of a refined projection, or None.
        - feature_map: JSON of the feature map. Only for a projection with a feature map.
        - columns: JSON of the names of the columns that the feature map makes from a table.
        - map_residual: error of the arrays `map` and `offset`. Only if these arrays exist.
    arrays : dict of ndarray
        Arrays by name, described at the top of this module.
    """

    metadata: JsonDict
    arrays: Arrays

    def to_json(self) -> JsonDict:
        """Return one dict with the metadata and the arrays.

        The arrays are numpy arrays, not lists.
        """
        return self.metadata | {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}

    def to_safetensors(self) -> bytes:
        """Return the bytes of a safetensors file."""
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(array) for name, array in self.arrays.items()}
        return save(arrays, metadata=self._metadata_strings())

    def to_arrow(self) -> bytes:
        """Return the bytes of an Arrow stream with one row."""
        columns = {name: _array_as_one_row(np.ascontiguousarray(array)) for name, array in self.arrays.items()}
        return write_arrow([pa.record_batch(columns, metadata=self._metadata_strings())])

    def _metadata_strings(self) -> dict[str, str]:
        """Return the metadata as strings, without entries that are None."""
        return {name: str(value) for name, value in self.metadata.items() if value is not None}


def export_projection(model: Model, version: int | None = None, release: Release | None = None) -> ExportedProjection:
    """Return a model's published projection as arrays and metadata.

    version: version number of the projection. None for the newest one.
    release: a release of the model, to return its projection instead.

    Raises UnknownVersion and ModelFailed. Raises NotFitted or CatchingUp if the model has not
    published a projection yet.

    The example uses `running` and `model` from the example of Running.

    >>> import stream_dr
    >>> published = running.publish("lda")
    >>> list(stream_dr.export_projection(model).arrays)
    ['mean', 'components', 'eigenvalues']
    """
    newest = model.published
    if release is not None:
        published = release.published
    else:
        published = model.newest() if version is None else model.version(version)

    # Collect the metadata.
    projection = published.projection
    metadata = {
        "model": model.name,
        "version": published.version,
        "newest": model.published_version,
        "position": published.position,
        "rows": published.rows,
        "kind": projection.kind,
        "solution": projection.solution,
        "release": published.release,
        "refined_at": published.refined_at,
        "residual": published.residual,
    }
    if isinstance(projection, Mapped):
        metadata["feature_map"] = projection.feature_map
        if projection.feature_names is not None:
            metadata["columns"] = json.dumps(projection.feature_names)

    if projection.kind == "linear":
        fields = {name: getattr(projection, name) for name in ("mean", "components", "eigenvalues", "turn")}
        arrays = {name: array for name, array in fields.items() if array is not None}
    else:
        arrays = pack(projection)[0]

    # A client that stored projected rows of an old version converts them with `map` and `offset`.
    # The error of the map is summed over the rows that the model has learned up to now.
    to_newest = None
    if newest is not None and (version is not None or release is not None):
        scatter_product = None
        if model.failure is None:
            scatter_product = partial(model.estimator.scatter_product, model.freeze().state)
        to_newest = change_over_scatter(projection, newest.projection, scatter_product)
    if to_newest is not None:
        arrays |= {"map": to_newest.map, "offset": to_newest.offset}
        metadata["map_residual"] = to_newest.residual
    return ExportedProjection(metadata, arrays)


def _array_as_one_row(array: np.ndarray) -> pa.Array:
    """Return an Arrow column whose only row is the array."""
    # Arrow has no empty tensors, so an array without elements is written as an empty list.
    if array.size == 0:
        return pa.array([[]], pa.list_(pa.from_numpy_dtype(array.dtype)))
    storage = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.size)
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(storage.type.value_type, array.shape), storage)


def project(
    directory: Directory,
    model: Model,
    source: Source,
    output_path: Path,
    on_progress: Callable[[int], None] | None = None,
    release_name: str | None = None,
) -> tuple[int, int]:
    """Write a source's projected rows to a file.

    output_path: path of the file. The suffix selects the format. SUFFIXES lists the allowed
        suffixes.
    on_progress: called after each batch with the number of rows written so far.
    release_name: name of a release that projects the rows. None means what the model publishes.

    Raises UnknownRelease if the model has no such release. Raises InvalidParameter if there are no
    rows or no columns to write. Raises NotFitted if the model has learned no row, and NeedsRefine
    if the model must be refined first. Also raises the errors of `check_output_path`, of reading
    the source and of projecting a batch.

    Returns the number of rows, and the number of rows that have a category, word or feature never
    learned.
    """
    # Check the arguments before the file is created.
    check_output_path(output_path)
    if isinstance(source, Dataset) and not source.rows:
        raise InvalidParameter("the source has no rows; nothing was written.")

    if release_name is None:
        _raise_if_unpublished(model)
    release = directory.releases.served(model, release_name)
    if isinstance(source, Dataset):
        fields = id_and_target_types([shard.schema for shard in source.shards])
    else:
        fields = id_and_target_types([arrow_from_block(next(source.events())[1]).schema])
    if not fields and not release.published.projection.n_components:
        # An Arrow batch without columns has no number of rows, so it cannot be written.
        raise InvalidParameter(f"{model.name} has no component yet: {model.estimator.limit}. Nothing was written.")

    # The first batch raises errors of the source before the file is created.
    unseen: list[int] = []
    batches = _projected_batches(release, source, fields, unseen, on_progress or (lambda rows: None))
    first = next(batches)
    rows = 0

    def write(file: BinaryIO) -> None:
        nonlocal rows
        rows = write_projected(file, output_path.suffix, chain([first], batches))

    write_atomically(output_path, write)
    return rows, sum(unseen)


def _projected_batches(
    release: Release,
    source: Source,
    field_types: dict[str, pa.DataType],
    unseen_rows: list[int],
    on_progress: Callable[[int], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the projected rows of a source as Arrow batches.

    Batches without rows are skipped.

    field_types: names and Arrow types of the columns of ids and targets.
    unseen_rows: list to which each batch's number of rows with a value never learned is added.
    on_progress: called after each batch with the number of rows projected so far.
    """
    done = 0
    for _, block in source.events():
        projection = release.published.projection
        conformed, unseen = conform_rows(block, projection, release.schema)
        z = projection.apply(conformed.X)
        components = {f"z{i}": pa.array(np.ascontiguousarray(column)) for i, column in enumerate(z.T)}
        batch = pa.record_batch(_identity_columns(block, field_types) | components)
        unseen_rows.append(int(np.count_nonzero(unseen)))
        done += block.rows
        on_progress(done)
        if block.rows:
            yield batch


def _raise_if_unpublished(model: Model) -> None:
    """Raise the error that has prevented a model's publication, if there is one."""
    if model.published is None and model.rows:
        model.estimator.solve(model.accumulator.freeze())


def id_and_target_types(source_schemas: Sequence[pa.Schema]) -> dict[str, pa.DataType]:
    """Return Arrow types of id and target columns.

    The keys of the dict are names of columns.

    source_schemas: schemas of a data set's shards, or of a batch.

    Raises SchemaMismatch if a column has incompatible types in two shards.
    """
    names = ("id", *TARGET_COLUMN.values())
    schemas = [
        pa.schema([(n, _type_when_written(schema.field(n).type)) for n in names if n in schema.names])
        for schema in source_schemas
    ]
    try:
        unified = pa.unify_schemas(schemas)
    except pa.ArrowException as e:
        raise SchemaMismatch(f"ids or targets of the shards are of several types ({e}). Project them apart.") from e
    return {name: unified.field(name).type for name in names if name in unified.names}


def _type_when_written(column_type: pa.DataType) -> pa.DataType:
    """Return the Arrow type for writing ids or targets.

    column_type: Arrow type in which the column was read.
    """
    is_list_of_one = pa.types.is_fixed_size_list(column_type) and column_type.list_size == 1
    if is_list_of_one or pa.types.is_dictionary(column_type):
        return _type_when_written(column_type.value_type)
    if pa.types.is_nested(column_type):
        return pa.list_(_type_when_written(column_type.value_type))
    if pa.types.is_floating(column_type):
        return pa.float64()
    if pa.types.is_integer(column_type):
        return pa.int64()
    return column_type if pa.types.is_boolean(column_type) or pa.types.is_null(column_type) else pa.string()


def _identity_columns(block: Block, field_types: dict[str, pa.DataType]) -> dict[str, pa.Array]:
    """Return a block's ids and targets as named Arrow columns.

    field_types: names and Arrow types of the columns to return. A column that the block does not
        have is filled with nulls.
    """
    # A row's list of one numeric target is written as a number.
    values: dict[str, object] = {"id": block.ids}
    if isinstance(block.y, Targets):
        rows = block.y.targets_by_row()
        if block.y.kind == "continuous" and block.y.values is not None and block.y.values.shape[1] == 1:
            rows = [row[0] if row is not None else None for row in rows]
        values[TARGET_COLUMN[block.y.kind]] = rows
    return {name: pa.array(values.get(name) or [None] * block.rows, kind) for name, kind in field_types.items()}
