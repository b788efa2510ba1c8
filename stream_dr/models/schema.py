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
from stream_dr.errors import (
    InvalidTargets,
    InvalidWeights,
    SchemaMismatch,
    TargetKindMismatch,
    WidthMismatch,
    did_you_mean,
)
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.rows.block import Block, Rows
from stream_dr.rows.raw_rows import conform_table, fill_unknown_families, raw_from_array
from stream_dr.statistics.protocol import Accumulator
from stream_dr.targets.targets import Label, Targets, check_label_type, check_labels_allowed, no_row_has_target

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

    @property
    def families(self) -> dict[str, str]:
        """Kind of each column of a table, by name. Empty for other streams."""
        if self.names is None or self.kinds is None:
            return {}
        return dict(zip(self.names, self.kinds, strict=True))

    def describe(self) -> JsonDict:
        """Return the schema as a dict for JSON."""
        return dict(json.loads(json.dumps(self._asdict())))

    def extend(self, block: Block) -> tuple["Schema", Block]:
        """Return the schema with a batch added, and the batch.

        The first batch decides the layout, the columns and if rows have weights. The first batch
        with targets decides their kind. The returned batch has the columns of the returned schema,
        in their order.

        Raises
        ------
        SchemaMismatch, WidthMismatch, InvalidRows
            The batch has other columns than the stream.
        InvalidWeights
            Only the batch, or only the stream, has weights.
        TargetKindMismatch, InvalidTargets
            The batch has other targets than the stream.
        """
        block = self.conform(block)
        schema = self._add_table(block.X) if block.table else self._add_columns(block)

        has_weights = block.weights is not None
        if schema.weighted not in (None, has_weights):
            says = "carry weights" if schema.weighted else "carry no weights"
            raise InvalidWeights(f"this stream's batches {says}, as its first batch decided; send this one likewise.")
        schema = schema._replace(weighted=has_weights)

        if block.y is not None and not no_row_has_target(block.y):
            schema = schema._add_targets(block.y)
        return schema, schema.conform(block)

    def conform(self, block: Block) -> Block:
        """Return the block with its columns in the stream's order.

        A sparse block with fewer columns than declared gets the declared number of columns. Columns
        of a table that the block lacks are filled with missing values. Columns that the table lacks
        come last.

        Raises SchemaMismatch if the block's columns do not match the stream's columns.
        """
        self._refuse_ambiguous(block)
        if self.layout == "table" or block.table:
            if not self.families:
                return block
            rows = conform_table(raw_from_array(block.X, block.names), self.families)
            return block._replace(X=rows, names=tuple(rows.schema.names))

        if self.names is not None and block.names is not None and block.names != self.names:
            # Match the columns by name. The block must have exactly the stream's columns.
            places = {name: i for i, name in enumerate(block.names)}
            missing = [name for name in self.names if name not in places]
            if missing or len(places) != len(self.names):
                extra = [name for name in block.names if name not in self.names]
                hint = did_you_mean(missing[0], extra) if missing else ""
                raise SchemaMismatch(
                    f"batch lacks columns {missing[:5]}{hint} and has unknown columns {extra[:5]}; "
                    f"this stream has {len(self.names)} named columns. Send exactly those."
                )
            order = [places[name] for name in self.names]
            return block._replace(X=np.ascontiguousarray(block.X[:, order]), names=self.names)

        # A sparse block may have fewer columns than declared. The missing columns are empty.
        if block.sparse and self.layout == "sparse":
            block = block._replace(width_stated=self.stated > 0)
            if block.features < self.stated:
                X = block.X
                block = block._replace(X=csr_without_check(X.data, X.indices, X.indptr, (X.shape[0], self.stated)))
        return block

    def missing_columns(self, block: Block | None) -> tuple[str, ...]:
        """Return names of the table's columns that a batch lacks.

        The values of these columns count as missing. Returns an empty tuple if the stream is no
        table.
        """
        if self.layout != "table" or block is None or not block.names or not block.rows:
            return ()
        return tuple(name for name in self.names or () if name not in block.names)

    def _refuse_ambiguous(self, block: Block) -> None:
        """Raise SchemaMismatch if a feature seems to be sent as something else.

        This is so if the stream has, for example, a feature `weight`, and the block has weights and
        no feature of this name.
        """
        sent: dict[str, object] = {"weight": block.weights, "id": block.ids}
        if isinstance(block.y, Targets):
            sent[TARGET_COLUMN[block.y.kind]] = block.y
        for name, value in sent.items():
            if value is not None and block.names and name not in block.names and name in (self.names or ()):
                raise SchemaMismatch(
                    f"the batch has {name} for its rows, and lacks the stream's feature {name}. {feature_hint(name)} "
                    "In JSON, give the feature in each row.",
                    column=name,
                )

    def _add_columns(self, block: Block) -> "Schema":
        """Return the schema with the layout and width of numeric rows."""
        layout = "sparse" if block.sparse else "named" if block.names else "dense"

        # The first batch decides the layout and the width.
        if self.layout is None:
            if self.stated and not block.sparse and block.features != self.stated:
                raise WidthMismatch(
                    f"batch has {block.features} features; {self.stated} are stated for this stream (by its first shards or "
                    f"n_features). Send {self.stated} columns, or start another stream."
                )
            stated = 0
            if block.sparse:
                stated = max(self.stated, block.features if block.width_stated else 0)
            return self._replace(layout=layout, features=max(block.features, stated), names=block.names, stated=stated)

        # A later batch must have the layout of the first one. Only sparse rows may become wider.
        if layout != self.layout:
            raise SchemaMismatch(
                f"the batch's rows are {layout}; this stream was started with {self.layout} rows. "
                "Send those, or start a new stream."
            )
        if not block.sparse and block.features != self.features:
            raise WidthMismatch(
                f"batch has {block.features} features; this stream was started with {self.features}. "
                "Send those columns or start a new stream.",
                given=block.features,
                needed=self.features,
            )
        return self._replace(features=max(self.features, block.features))

    def _add_table(self, rows: Rows) -> "Schema":
        """Return the schema with the columns of table rows.

        The first value of a column decides its kind. A stream with the layout "named" becomes a
        table.
        """
        if self.layout not in (None, "named", "table"):
            raise SchemaMismatch(
                f"the batch's rows are a table's; this stream was started with {self.layout} rows. Send those, or start a "
                "new stream."
            )
        names = self.names or tuple(rows.schema.names)
        extra = [name for name in rows.schema.names if name not in names]
        if extra:
            raise SchemaMismatch(
                f"batch has unknown columns {extra[:5]}{did_you_mean(extra[0], names)}; this stream's are "
                f"{list(names[:5])} …. Leave them out."
            )

        # All columns of a stream with the layout "named" are numbers.
        unknown = "number" if self.layout == "named" else ""
        kinds = fill_unknown_families(dict(zip(names, self.kinds or [unknown] * len(names), strict=True)), rows)
        return self._replace(layout="table", features=len(names), names=names, kinds=tuple(kinds.values()))

    def _add_targets(self, targets: Targets) -> "Schema":
        """Return the schema with the kind and the labels of targets."""
        if self.target_kind not in (None, targets.kind):
            raise TargetKindMismatch(
                f"targets are of kind {targets.kind}; this stream was started with {self.target_kind}. "
                f"Send {self.target_kind} targets (Client.partial_fit: target={self.target_kind!r}) or start a new stream."
            )
        if targets.values is not None:
            n_columns = targets.values.shape[1]
            if self.outputs not in (0, n_columns):
                raise InvalidTargets(
                    f"targets have {n_columns} columns; this stream was started with {self.outputs}. Send those."
                )
            return self._replace(target_kind="continuous", outputs=n_columns)

        check_label_type(self.labels or self.allowed_labels, targets.labels)
        check_labels_allowed(self.allowed_labels, targets.labels)
        return self._replace(target_kind=targets.kind)._add_labels(targets.labels)

    def _add_labels(self, labels: tuple[Label, ...]) -> "Schema":
        """Return the schema with new labels appended."""
        known = set(self.labels)
        return self._replace(labels=self.labels + tuple(label for label in labels if label not in known))


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
        for name, value in changed.items():
            if isinstance(value, list):
                changed[name] = tuple(value)
        labels = schema.labels + changed.pop("labels", ())
        schema = schema._replace(labels=labels, **changed)
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
    table = accumulator.table
    if table is not None and schema.layout is None:
        kinds = tuple(_FAMILIES.get(column.kind, "") for column in table.columns)
        schema = schema._replace(layout="table", features=len(kinds), names=table.names, kinds=kinds, stated=0)
    elif column_names and schema.layout is None:
        schema = schema._replace(layout="named", features=len(column_names), names=column_names, stated=0)

    schema = schema._replace(target_kind=schema.target_kind or accumulator.target_kind)
    return schema._add_labels(accumulator.labels)


def bound_state_bytes(estimator: Estimator, schema: Schema) -> int:
    """Return the maximum number of bytes of an estimator's state."""
    return estimator.max_state_bytes(schema.features, max(1, schema.n_targets), schema.families or None)


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
