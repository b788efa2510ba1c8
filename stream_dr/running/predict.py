"""Predict: targets of rows, by a model's published projection.

Predictions come from the same version as the answers of `transform`. Only some methods predict.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stream_dr.aliases import JsonDict
from stream_dr.arrow.codec import id_array, write_arrow
from stream_dr.errors import CannotPredict
from stream_dr.models.model import Model
from stream_dr.models.schema import Schema, columns_missing
from stream_dr.projection import Linear, Mapped
from stream_dr.readout import LOG_POSTERIORS
from stream_dr.rows.block import Block, Ids
from stream_dr.running.query import conform_block
from stream_dr.targets.label_codes import Label

_COLUMN = {"class": "label", "multilabel": "labels", "continuous": "target"}


class Prediction(NamedTuple):
    """Predicted targets.

    Attributes
    ----------
    model, version, position, solution
        The projection that predicted.
    kind : str
        Kind of the targets.
    predicted : list
        For each row its label, its labels, its number or its numbers.
    classes : tuple
        Labels, sorted, one for each column of scores. Empty if targets are numbers.
    scores : ndarray (rows, k) of float64
        Posterior probabilities if `probable`. Otherwise what regression predicts (numbers, or an
        indicator of each label), or, for a diagonal solution, log posteriors up to a term that all
        classes share. Those are not calibrated.
    probable : bool
        True if the scores are probabilities.
    ids : Ids or None
        Ids of the rows.
    unseen, columns_missing
        As in `query.Answer`.
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

    def to_json(self) -> JsonDict:
        """Return a JSON-able dict.

        Its keys are "model", "version", "position", "solution", "predicted", "classes",
        "probabilities" or "scores", "id" and "unseen", and "columns_missing" if there are any.
        """
        response = self._asdict()
        for name in ("kind", "probable", "scores", "ids", *(() if self.columns_missing else ("columns_missing",))):
            del response[name]
        name = "probabilities" if self.probable else "scores"
        return response | {"classes": list(self.classes), name: self.scores.tolist(), "id": self.ids}

    def to_arrow(self) -> bytes:
        """Return an Arrow stream of one batch.

        Columns: id (if known), then label, labels or target, then probabilities or scores as
        fixed_size_list<double>. The rest is schema metadata, with the classes as JSON.
        """
        import json

        columns: dict[str, pa.Array] = {} if self.ids is None else {"id": id_array(self.ids)}
        columns[_COLUMN[self.kind]] = pa.array(self.predicted)

        flat = pa.array(np.ascontiguousarray(self.scores).ravel())
        name = "probabilities" if self.probable else "scores"
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, self.scores.shape[1])

        metadata = {k: str(getattr(self, k)) for k in ("model", "version", "position", "solution", "unseen")}
        metadata["classes"] = json.dumps(self.classes)
        batch = pa.record_batch(list(columns.values()), names=list(columns)).replace_schema_metadata(metadata)
        return bytes(write_arrow([batch]))


def predict(model: Model, block: Block, schema: Schema) -> Prediction:
    """Predict the targets of a block's rows. Targets in the block are ignored.

    Raises CannotPredict for a method that does not predict or a model without labelled rows, and
    what `transform` raises.

    >>> import stream_dr  # running, directory and model are those of the example of Running
    >>> version = running.publish("lda").version
    >>> stream_dr.predict(model, stream_dr.one_row([1.0, 2.0]), directory.schema).predicted
    ['a']
    """
    published = model.published
    if published is None:
        raise model.unpublished_error()

    projection = published.projection
    readout = projection.readout if isinstance(projection, Linear | Mapped) else None
    if not isinstance(projection, Linear | Mapped) or readout is None or not len(readout.offset):
        why = "has learned no target so far" if readout is not None else f"is of {model.spec.estimator}"
        raise CannotPredict(f"model {model.name!r} {why}, and predicts nothing. Project its rows with transform.")

    missing = columns_missing(block, schema)
    block, unseen = conform_block(block, projection, schema)
    scores = projection.scoring().apply(block.X)
    targets = readout.predict(scores)
    predicted = targets.tolist()

    multilabel = readout.kind == "multilabel"
    if multilabel and targets.ndim == 2:
        predicted = [[label for label, there in zip(readout.labels, row, strict=True) if there] for row in targets]
    probable = readout.scores == LOG_POSTERIORS and projection.solution != "diagonal"

    return Prediction(
        model.name, published.version, published.position, projection.solution,
        "class" if multilabel and targets.ndim == 1 else readout.kind, predicted, readout.labels,
        readout.probabilities(scores) if probable else scores, probable, block.ids, unseen, missing,
    )  # fmt: skip
