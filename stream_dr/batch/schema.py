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
from collections.abc import Iterable
from typing import NamedTuple

from stream_dr.aliases import JsonDict
from stream_dr.batch.arrow import TARGET_COLUMN, feature_hint
from stream_dr.batch.block import Block, Rows
from stream_dr.batch.sparse import pad_with_zero_columns
from stream_dr.batch.table import conform_table, fill_unknown_families, table_from_array
from stream_dr.batch.targets import Label, Targets, check_label_type, check_labels_allowed, no_row_has_target
from stream_dr.errors import (
    InvalidTargets,
    InvalidWeights,
    SchemaMismatch,
    TargetKindMismatch,
    WidthMismatch,
    did_you_mean,
)


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
        if self.target_kind == "continuous":
            return self.outputs
        return len(self.labels)

    @property
    def families(self) -> dict[str, str]:
        """Kind of each column by name, if the stream is a table.

        A kind is "number", "date" or "text", or "" before the column has a value. The dict is empty
        for other streams.
        """
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
        # Bring the block to the columns known so far. At the end, bring it to the columns of the
        # new schema, which may have more.
        block = self.conform(block)
        if block.table:
            schema = self._add_table(block.X)
        else:
            schema = self._add_columns(block)

        # `weighted` is None before the first batch, which decides it.
        has_weights = block.weights is not None
        if schema.weighted not in (None, has_weights):
            says = "carry no weights"
            if schema.weighted:
                says = "carry weights"
            raise InvalidWeights(f"this stream's batches {says}, as its first batch decided; send this one likewise.")
        schema = schema._replace(weighted=has_weights)

        if block.y is not None and not no_row_has_target(block.y):
            schema = schema._add_targets(block.y)
        return schema, schema.conform(block)

    def conform(self, block: Block) -> Block:
        """Return the block with its columns in the stream's order.

        A sparse block with fewer columns than declared gets the declared number of columns. If the
        stream is a table, columns of the stream that the block lacks are added with missing values,
        and columns of the block that the stream lacks come last.

        Raises SchemaMismatch if the block's columns do not match the stream's columns.
        """
        # Refuse a block whose weights may be the values of the stream's column `weight`.
        self._refuse_ambiguous(block)

        is_table = self.layout == "table" or block.table
        # No kind of a column is known before the first rows of a stream.
        if is_table and not self.families:
            return block
        # Rows of numbers become a table, too, if the stream is one.
        if is_table:
            rows = conform_table(table_from_array(block.X, block.names), self.families)
            return block._replace(X=rows, names=tuple(rows.schema.names))

        if block.sparse and self.layout == "sparse":
            X = pad_with_zero_columns(block.X, max(block.features, self.stated))
            block = block._replace(X=X, width_stated=self.stated > 0)
        return block.reorder(self.names)

    def missing_columns(self, block: Block | None) -> tuple[str, ...]:
        """Return names of the stream's columns that a batch lacks.

        The values of these columns count as missing. Returns an empty tuple if the stream is no
        table.
        """
        # Only a block with rows and named columns can lack columns.
        if self.layout != "table" or block is None or not block.names or not block.rows:
            return ()
        return tuple(name for name in self.names or () if name not in block.names)

    def _refuse_ambiguous(self, block: Block) -> None:
        """Raise SchemaMismatch if weights, ids or targets may be features.

        This is so if the stream has, for example, a feature `weight`, and the block has weights and
        no feature of this name.
        """
        if not block.names or not self.names:
            return
        # `sent` has the names of the columns that the block has in addition to its features.
        sent = []
        if block.weights is not None:
            sent.append("weight")
        if block.ids is not None:
            sent.append("id")
        if isinstance(block.y, Targets):
            sent.append(TARGET_COLUMN[block.y.kind])
        for name in sent:
            if name in self.names and name not in block.names:
                raise SchemaMismatch(
                    f"the batch has {name} for its rows, and lacks the stream's feature {name}. {feature_hint(name)} "
                    "In JSON, give the feature in each row.",
                    column=name,
                )

    def _add_columns(self, block: Block) -> "Schema":
        """Return the schema after a batch of numeric rows.

        The layout (dense, named or sparse) and the number of columns are updated.
        """
        layout = "dense"
        if block.sparse:
            layout = "sparse"
        elif block.names:
            layout = "named"

        if self.layout is None:
            return self._begin_layout(layout, block)

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

    def _begin_layout(self, layout: str, block: Block) -> "Schema":
        """Return the schema with the layout and width of the first batch.

        layout: layout of the batch, "dense", "named" or "sparse".
        block: the first batch.
        """
        # `stated` is the number of columns that the stream's settings declare, 0 if they declare
        # none.
        if self.stated and not block.sparse and block.features != self.stated:
            raise WidthMismatch(
                f"batch has {block.features} features; {self.stated} are stated for this stream (by its first shards or "
                f"n_features). Send {self.stated} columns, or start another stream."
            )
        # Dense rows have their number of columns for good, so `stated` is 0. Sparse rows have the
        # larger one of the numbers that the stream and the batch declare.
        stated = self.stated if block.sparse else 0
        if block.sparse and block.width_stated:
            stated = max(stated, block.features)
        features = max(block.features, stated)
        return self._replace(layout=layout, features=features, names=block.names, stated=stated)

    def _add_table(self, rows: Rows) -> "Schema":
        """Return the schema of the stream after a batch of table rows.

        The first value of a column decides its kind. If the stream had only columns of numbers so
        far (the layout "named"), it becomes a table.
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

        # A stream that is a table already has a kind of each column (`self.families`). All columns
        # of the layout "named" are numbers. The rows decide the kinds that are not known.
        kind = "number" if self.layout == "named" else ""
        families = fill_unknown_families(dict.fromkeys(names, kind) | self.families, rows)
        return self._replace(layout="table", features=len(names), names=names, kinds=tuple(families.values()))

    def _add_targets(self, targets: Targets) -> "Schema":
        """Return the schema after a batch with targets.

        The kind of targets is set by the first such batch, and new labels are appended.
        """
        if self.target_kind not in (None, targets.kind):
            raise TargetKindMismatch(
                f"targets are of kind {targets.kind}; this stream was started with {self.target_kind}. "
                f"Send {self.target_kind} targets (Client.partial_fit: target={self.target_kind!r}) or start a new stream."
            )
        # Only continuous targets have `values` (rows, columns). `outputs` is the stream's number of
        # these columns, 0 before the first batch with targets.
        if targets.values is not None:
            n_columns = targets.values.shape[1]
            if self.outputs not in (0, n_columns):
                raise InvalidTargets(
                    f"targets have {n_columns} columns; this stream was started with {self.outputs}. Send those."
                )
            return self._replace(target_kind="continuous", outputs=n_columns)

        # Labels of one stream have one type, that of the known labels or of the allowed labels.
        check_label_type(self.labels or self.allowed_labels, targets.labels)
        check_labels_allowed(self.allowed_labels, targets.labels)
        return self._replace(target_kind=targets.kind).add_labels(targets.labels)

    def add_labels(self, labels: tuple[Label, ...]) -> "Schema":
        """Return the schema with new labels appended."""
        known = set(self.labels)
        new = tuple(label for label in labels if label not in known)
        return self._replace(labels=self.labels + new)


def schema_delta(old: Schema, new: Schema) -> str | None:
    """Return the fields in which `new` differs from `old`, as JSON.

    If only the labels a and b were added, the result is '{"labels":["a","b"]}'. It is None if the
    schemas are equal.
    """
    # A schema's labels never change: new labels are only added at the end.
    changed = {name: value for name, value in new._asdict().items() if value != getattr(old, name)}
    if len(new.labels) > len(old.labels):
        changed["labels"] = new.labels[len(old.labels) :]
    if changed:
        return json.dumps(changed, sort_keys=True, separators=(",", ":"))
    return None


def apply_deltas(schema: Schema, deltas: Iterable[str]) -> Schema:
    """Return the schema after applying changes.

    deltas: changes of the schema, oldest first. Each is a JSON text that `schema_delta` returned.
    """
    # JSON has lists and no tuples, so lists become tuples. The labels of a change are only the new
    # labels, so they are added. Any other field replaces the old value.
    for text in deltas:
        changed = json.loads(text)
        for name, value in changed.items():
            if isinstance(value, list):
                changed[name] = tuple(value)
        labels = schema.labels + changed.pop("labels", ())
        schema = schema._replace(labels=labels, **changed)
    return schema
