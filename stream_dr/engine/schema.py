"""Schema: what every batch of one stream has in common, and how it grows.

A stream is dense (a fixed width), named (numeric columns, matched by name) or sparse (a width that grows). It has one
kind of targets, decided by the setting or by the first batch that has any; one type of labels; and weights in every
batch or in none. Each event stores only what it changed (`delta`), as JSON; folding the deltas in order (`grown`) gives
the schema back.

Why this way: the schema is part of the log, so one transaction in one file makes a batch and what it changed durable
together.
"""

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from stream_dr.targets import Label


class Schema(NamedTuple):
    """What is fixed and what has been seen so far.

    layout: None before the first batch, then "dense", "named" or "sparse". features: width so far. names: the columns'
    names (named). stated: the width that the first batch of a sparse stream, or a setting, states; 0: none does.
    target_kind: None (not decided yet), "none", "class", "multilabel" or "continuous". labels: vocabulary in order of
    first appearance. outputs: columns of continuous targets. weighted: whether batches carry weights; None before the
    first.
    """

    layout: str | None = None
    features: int = 0
    names: tuple[str, ...] | None = None
    stated: int = 0
    target_kind: str | None = None
    labels: tuple[Label, ...] = ()
    outputs: int = 0
    weighted: bool | None = None

    @property
    def n_targets(self) -> int:
        """Number of labels, or of continuous target columns."""
        return self.outputs if self.target_kind == "continuous" else len(self.labels)

    def describe(self) -> dict[str, Any]:
        """The schema as a JSON-able dict."""
        return {**self._asdict(), "names": list(self.names) if self.names else None, "labels": list(self.labels)}


def delta(old: Schema, new: Schema) -> str | None:
    """JSON of what `new` has beyond `old`; None when they are the same. Labels are only appended to."""
    changed = {k: v for k, v in new._asdict().items() if v != getattr(old, k)}
    if len(new.labels) > len(old.labels):
        changed["labels"] = list(new.labels[len(old.labels) :])
    return json.dumps(changed, sort_keys=True, separators=(",", ":")) if changed else None


def grown(schema: Schema, deltas: Iterable[str]) -> Schema:
    """`schema` with deltas applied in the order of their events."""
    for text in deltas:
        changed = json.loads(text)
        if "labels" in changed:
            changed["labels"] = schema.labels + tuple(changed["labels"])
        if changed.get("names") is not None:
            changed["names"] = tuple(changed["names"])
        schema = schema._replace(**changed)
    return schema
