"""Schema: the properties and limits that a stream's batches share.

A stream has one layout:

* dense: a fixed number of columns,
* named: numeric columns, matched by name,
* sparse: a number of columns that may grow,
* table: columns of numbers, dates and texts, matched by name.

A stream has one kind of targets, decided by the setting or by the first batch with targets. All
its labels have one type, and a setting may fix the set of labels. Either all batches carry weights
or none does.

Each event stores only its change of the schema (`schema_delta`), as JSON. Applying the deltas in
order (`apply_deltas`) gives the schema. So a batch and its change of the schema become durable in
one transaction. An event's Block depends only on the event and the schema, so all models that read
the event get the same numbers.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.arrow.rows import csr_without_check, feature_hint
from stream_dr.arrow.target_columns import TARGET_COLUMN
from stream_dr.errors import SchemaMismatch, TargetKindMismatch, did_you_mean
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.feature_maps.table import TableState
from stream_dr.rows.block import Block, Rows
from stream_dr.rows.raw_rows import fill_unknown_families, raw_from_array, row_of_missing_values
from stream_dr.statistics.protocol import Accumulator
from stream_dr.targets.targets import Label, Targets, check_label_type, no_row_has_target

MEBIBYTE = 1 << 20


class Limits(NamedTuple):
    """Limits of a directory.

    max_features: largest number of columns.
    max_labels: largest number of distinct labels, or of columns of continuous targets.
    max_text: largest number of characters of a label, an id, a column name or a category.
    max_state_bytes: largest number of bytes of one model's state.
    min_free_bytes: number of bytes that must be free on the disk before an append.
    max_body_bytes: largest number of bytes of one batch. The limit is applied to the batch as
        sent, and to the decompressed batch.
    max_json_bytes: largest number of bytes of one batch sent as JSON.
    max_queue_bytes: largest number of bytes of request bodies that wait in memory.
    max_lag: largest number of events that a live model may be behind the end of the log. New
        batches are refused while a live model is more events behind.
    keep_versions: number of projections stored for each model.

    >>> import stream_dr
    >>> stream_dr.Limits(max_features=100).max_features
    100
    """

    max_features: int = 1_000_000
    max_labels: int = 1_000
    max_text: int = 1_000
    max_state_bytes: int = 2048 * MEBIBYTE
    min_free_bytes: int = 1024 * MEBIBYTE
    max_body_bytes: int = 64 * MEBIBYTE
    max_json_bytes: int = MEBIBYTE
    max_queue_bytes: int = 256 * MEBIBYTE
    max_lag: int = 10_000
    keep_versions: int = 32


class Schema(NamedTuple):
    """Properties that all batches of a stream share.

    layout: "dense", "named", "sparse" or "table". None before the first batch.
    features: number of columns so far.
    names: names of the columns if the layout is "named" or "table".
    stated: declared number of columns of a sparse stream. The first batch or a setting declares
        the number. 0 if the number is not declared.
    target_kind: "none", "class", "multilabel" or "continuous". None if not decided yet.
    labels: labels in order of first appearance.
    outputs: number of columns of continuous targets.
    weighted: True if batches carry weights. None before the first batch.
    kinds: kind of each column of a table. "number", "date" or "text", or "" before the column has
        a value.
    allowed_labels: labels that a new batch may have. An empty tuple allows all labels. Batches
        that are already in the log are not checked.
    """

    layout: str | None = None
    features: int = 0
    names: tuple[str, ...] | None = None
    stated: int = 0
    target_kind: str | None = None
    labels: tuple[Label, ...] = ()
    outputs: int = 0
    weighted: bool | None = None
    kinds: tuple[str, ...] | None = None
    allowed_labels: tuple[Label, ...] = ()

    @property
    def n_targets(self) -> int:
        """Number of labels, or of continuous target columns."""
        return self.outputs if self.target_kind == "continuous" else len(self.labels)

    def describe(self) -> JsonDict:
        """Return the schema as a dict for JSON."""
        lists = {name: list(value) for name in ("names", "kinds") if (value := getattr(self, name)) is not None}
        return {**self._asdict(), **lists, "labels": list(self.labels), "allowed_labels": list(self.allowed_labels)}


def schema_delta(old: Schema, new: Schema) -> str | None:
    """Return fields in which `new` differs from `old`, as JSON.

    If labels were added, only the new labels are included. Returns None if the schemas are equal.
    """
    changed = {k: v for k, v in new._asdict().items() if v != getattr(old, k)}
    if len(new.labels) > len(old.labels):
        changed["labels"] = list(new.labels[len(old.labels) :])
    return json.dumps(changed, sort_keys=True, separators=(",", ":")) if changed else None


def apply_deltas(schema: Schema, deltas: Iterable[str]) -> Schema:
    """Return the schema after applying changes.

    deltas: changes of the schema, oldest first. Each is a JSON text that `schema_delta` returned.
    """
    for text in deltas:
        changed = json.loads(text)
        if "labels" in changed:
            changed["labels"] = schema.labels + tuple(changed["labels"])
        for name in ("names", "kinds", "allowed_labels"):
            if changed.get(name) is not None:
                changed[name] = tuple(changed[name])
        schema = schema._replace(**changed)
    return schema


_FAMILIES = {"number": "number", "date": "date", "time": "date", "text": "text"}
"""Kind of a table's column in the schema, by the kind of the column in the feature map.

If the feature map has another kind, the next batch decides the kind in the schema.
"""


def extend_by_accumulator_schema(
    schema: Schema, accumulator: Accumulator, column_names: tuple[str, ...] | None
) -> Schema:
    """Return the schema, extended by a saved estimator's schema.

    The kind of targets and the labels of the estimator are added. If the stream has no batch yet,
    the names of the estimator's columns are also added.

    accumulator: accumulator of the estimator.
    column_names: names of the estimator's columns, or None.

    Raises TargetKindMismatch or SchemaMismatch. Raises InvalidTargets if the labels have another
    type than the labels of the stream.
    """
    # Check that the estimator fits the stream.
    if None not in (accumulator.target_kind, schema.target_kind) and accumulator.target_kind != schema.target_kind:
        raise TargetKindMismatch(
            f"the saved estimator has learned {accumulator.target_kind} targets; this stream's are {schema.target_kind}."
        )
    check_label_type(schema.labels, accumulator.labels)
    if column_names and schema.names and column_names != schema.names:
        raise SchemaMismatch(
            f"the saved estimator has learned the columns {', '.join(column_names[:5])} …; this stream has "
            f"{', '.join(schema.names[:5])} …, in that order. Serve it in another directory."
        )

    # If the stream has no batch yet, the estimator's columns become the columns of the stream.
    table: TableState | None = getattr(accumulator, "table", None)
    if table is not None and schema.layout is None:
        kinds = tuple(_FAMILIES.get(column.kind, "") for column in table.columns)
        schema = schema._replace(layout="table", features=len(kinds), names=table.names, kinds=kinds, stated=0)
    elif column_names and schema.layout is None:
        schema = schema._replace(layout="named", features=len(column_names), names=column_names, stated=0)

    # Append the labels that the stream does not have.
    known = set(schema.labels)
    new = tuple(label for label in accumulator.labels if label not in known)
    return schema._replace(target_kind=schema.target_kind or accumulator.target_kind, labels=schema.labels + new)


def reorder_columns(block: Block, schema: Schema) -> Block:
    """Return the block with its columns in the stream's order.

    A sparse block with fewer columns than declared gets the declared number of columns. Columns of
    a table that the block lacks are filled with missing values.

    Raises SchemaMismatch if the block's columns do not match the stream's columns.
    """
    if schema.layout == "table" or block.table:
        return _arrange_as_table(block, schema)

    if schema.names is not None and block.names is not None and block.names != schema.names:
        # Match the columns by name. The block must have exactly the stream's columns.
        places = {name: i for i, name in enumerate(block.names)}
        missing = [name for name in schema.names if name not in places]
        if missing or len(places) != len(schema.names):
            extra = [name for name in block.names if name not in schema.names]
            hint = did_you_mean(missing[0], extra) if missing else ""
            raise SchemaMismatch(
                f"batch lacks columns {missing[:5]}{hint} and has unknown columns {extra[:5]}; "
                f"this stream has {len(schema.names)} named columns. Send exactly those."
            )

        # Reorder the columns.
        order = [places[name] for name in schema.names]
        block = block._replace(X=np.ascontiguousarray(block.X[:, order]), names=schema.names)

    # A sparse block may have fewer columns than declared. The missing columns are empty.
    if block.sparse and schema.layout == "sparse":
        block = block._replace(width_stated=schema.stated > 0)
        if block.features < schema.stated:
            X = block.X
            block = block._replace(X=csr_without_check(X.data, X.indices, X.indptr, (X.shape[0], schema.stated)))
    return block


def refuse_ambiguous_columns(block: Block, schema: Schema) -> None:
    """Raise SchemaMismatch if a feature seems to be sent as something else.

    This is so if the stream has, for example, a feature `weight`, and the block has weights and
    no feature of this name.
    """
    sent: dict[str, object] = {"weight": block.weights, "id": block.ids}
    if isinstance(block.y, Targets):
        sent[TARGET_COLUMN[block.y.kind]] = block.y
    for name, value in sent.items():
        if value is not None and block.names and name not in block.names and name in (schema.names or ()):
            raise SchemaMismatch(
                f"the batch has {name} for its rows, and lacks the stream's feature {name}. {feature_hint(name)} "
                "In JSON, give the feature in each row.",
                column=name,
            )


def extend_columns_or_kinds(rows: Rows, schema: Schema) -> Schema:
    """Return the schema, extended by the columns of table rows.

    The first batch of a stream decides the columns. The first value of a column decides its kind.
    A stream with the layout "named" becomes a table.

    Raises SchemaMismatch if the stream has another layout, or if the rows have unknown columns.
    """
    if schema.layout not in (None, "named", "table"):
        raise SchemaMismatch(
            f"the batch's rows are a table's; this stream was started with {schema.layout} rows. Send those, or start a new "
            "stream."
        )
    names = schema.names or rows.names
    extra = [name for name in rows.names if name not in names]
    if extra:
        raise SchemaMismatch(
            f"batch has unknown columns {extra[:5]}{did_you_mean(extra[0], names)}; this stream's are {list(names[:5])} …. "
            "Leave them out."
        )

    # All columns of a stream with the layout "named" are numbers.
    numbers = ("number",) * len(names) if schema.layout == "named" else ("",) * len(names)
    kinds = fill_unknown_families(dict(zip(names, schema.kinds or numbers, strict=True)), rows)
    return schema._replace(layout="table", features=len(names), names=names, kinds=tuple(kinds.values()))


def bound_state_bytes(estimator: Estimator, schema: Schema) -> int:
    """Return the maximum number of bytes of an estimator's state."""
    kinds = dict(zip(schema.names or (), schema.kinds or (), strict=True)) if schema.layout == "table" else None
    return estimator.max_state_bytes(schema.features, max(1, schema.n_targets), kinds)


def all_missing_table_row(schema: Schema) -> Rows | None:
    """Return a row of a table, with only missing values.

    Returns None if the stream is no table.
    """
    if schema.layout != "table" or schema.names is None or schema.kinds is None:
        return None
    return row_of_missing_values(dict(zip(schema.names, schema.kinds, strict=True)))


def table_columns_missing_in_batch(block: Block, schema: Schema) -> tuple[str, ...]:
    """Return names of the table's columns that a batch lacks.

    The values of these columns count as missing. Returns an empty tuple if the stream is no table.
    """
    if schema.layout != "table" or not block.names or not block.rows:
        return ()
    return tuple(name for name in schema.names or () if name not in block.names)


def _arrange_as_table(block: Block, schema: Schema) -> Block:
    """Return the block with the columns of the table.

    The columns get the order and kinds that they have in the table. Columns that the block lacks
    are filled with missing values. Columns that the table lacks come last. Raises SchemaMismatch.
    """
    if schema.names is None or schema.kinds is None:
        return block
    kinds = dict(zip(schema.names, schema.kinds, strict=True))
    rows = raw_from_array(block.X, block.names).reorder_convert_and_add_columns(kinds)
    return block._replace(X=rows, names=rows.names)


def drop_unneeded_targets_and_add_hashes(estimator: Estimator, block: Block) -> Block:
    """Return the block with only the targets the estimator needs.

    The targets are removed if the estimator is unsupervised, or if no row has a target. If the
    estimator assigns rows to cross-validation folds by id, the returned block also has the hashes
    of the rows' ids, from which the folds follow.
    """
    y = block.y if estimator.target_kinds else None
    y = None if y is None or no_row_has_target(y) else y
    hashes = estimator.group_or_id_hashes(block, block.rows)
    return block if y is block.y and hashes is None else block._replace(y=y, hashes=hashes)


def row_counts_by_class(accumulator: Accumulator, classes: Sequence[Label]) -> list[int] | None:
    """Return the number of rows of each class.

    Returns None if the accumulator does not count rows by label. A class that another thread is
    adding at this moment may have 0 rows.
    """
    counts = accumulator.label_rows
    if counts is None:
        return None
    rows = dict(zip(accumulator.labels, counts.tolist(), strict=False))
    return [rows.get(label, 0) for label in classes]
