"""Predict: targets of rows by a model's published projection, for the methods that have a rule for them.

What is predicted comes from the version that is published, as what `transform` answers does: its readout holds all it takes.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stream_dr.arrow.codec import id_array, write_arrow
from stream_dr.errors import CannotPredict
from stream_dr.models.model import Model
from stream_dr.models.reasons import why_unpublished
from stream_dr.models.schema import Facts, Schema, columns_missing
from stream_dr.projection import Linear, Mapped
from stream_dr.readout import LOG_POSTERIORS
from stream_dr.rows.block import Block, Ids
from stream_dr.running.query import fitted
from stream_dr.targets.label_codes import Label

_COLUMN = {"class": "label", "multilabel": "labels", "continuous": "target"}


class Prediction(NamedTuple):
    """Predicted targets.

    model, version, position, solution: by which projection. kind: of the targets. predicted: a row its label, its labels,
    its number or its numbers. classes: labels, sorted, the columns of scores; () where targets are numbers. scores: (rows,
    k) float64, posterior probabilities where `probable`; otherwise the numbers, or each label's indicator, as regression
    predicts them, or of a diagonal solution the posteriors' logarithms but for a term all classes share, which are not
    calibrated. ids: the rows' ids or None. unseen, columns_missing: as of `Answer`.
    """

    model: str
    version: int
    position: int
    solution: str
    kind: str
    predicted: list[object]
    classes: tuple[Label, ...]
    scores: np.ndarray
    probable: bool
    ids: Ids | None = None
    unseen: int = 0
    columns_missing: tuple[str, ...] = ()

    def to_json(self) -> Facts:
        """{"model", "version", "position", "solution", "predicted", "classes", "probabilities" or "scores", "id",
        "unseen"}."""
        told = self._asdict()
        for name in ("kind", "probable", "scores", "ids", *(() if self.columns_missing else ("columns_missing",))):
            del told[name]
        name = "probabilities" if self.probable else "scores"
        return told | {"classes": list(self.classes), name: self.scores.tolist(), "id": self.ids}

    def to_arrow(self) -> bytes:
        """An Arrow stream of one batch: id (where given), label, labels or target, and probabilities or scores, a
        fixed_size_list<double>; the rest is schema metadata, classes as JSON."""
        import json

        columns: dict[str, pa.Array] = {} if self.ids is None else {"id": id_array(self.ids)}
        columns[_COLUMN[self.kind]] = pa.array(self.predicted)
        flat = pa.array(np.ascontiguousarray(self.scores).ravel())
        name = "probabilities" if self.probable else "scores"
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, self.scores.shape[1])
        told = {k: str(getattr(self, k)) for k in ("model", "version", "position", "solution", "unseen")}
        told["classes"] = json.dumps(self.classes)
        batch = pa.record_batch(list(columns.values()), names=list(columns)).replace_schema_metadata(told)
        return bytes(write_arrow([batch]))


def predict(model: Model, block: Block, schema: Schema) -> Prediction:
    """Predict the targets of a block's rows; targets sent with them are ignored. Raises CannotPredict for a method without
    a rule or a model without labelled rows, and what `transform` raises."""
    published = model.published
    if published is None:
        raise why_unpublished(model)
    projection = published.projection
    readout = projection.readout if isinstance(projection, Linear | Mapped) else None
    if not isinstance(projection, Linear | Mapped) or readout is None or not len(readout.offset):
        why = "has learned no target so far" if readout is not None else f"is of {model.spec.estimator}"
        raise CannotPredict(f"model {model.name!r} {why}, and predicts nothing. Project its rows with transform.")
    missing = columns_missing(block, schema)
    block, unseen = fitted(block, projection, schema)
    scores = projection.scoring().apply(block.X)
    answer, several = readout.predicted(scores), readout.kind == "multilabel"
    predicted = answer.tolist()
    if several and answer.ndim == 2:
        predicted = [[label for label, there in zip(readout.labels, row, strict=True) if there] for row in answer]
    probable = readout.scores == LOG_POSTERIORS and projection.solution != "diagonal"
    return Prediction(
        model.name, published.version, published.position, projection.solution,
        "class" if several and answer.ndim == 1 else readout.kind, predicted, readout.labels,
        readout.probabilities(scores) if probable else scores, probable, block.ids, unseen, missing,
    )  # fmt: skip
