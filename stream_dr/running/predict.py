"""Predict: predicts rows' targets with a model's published projection.

`transform` projects rows with the same published version of the projection. Not every estimator
can predict.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stream_dr.aliases import JsonDict
from stream_dr.batch.arrow import TARGET_COLUMN, vector_column
from stream_dr.batch.block import Block
from stream_dr.batch.targets import Label, label_column
from stream_dr.errors import CannotPredict
from stream_dr.models.release import Release
from stream_dr.projection import Linear, Mapped
from stream_dr.readout import LOG_POSTERIORS
from stream_dr.running.query import QueryResult, prepare_rows


@dataclass(frozen=True, kw_only=True)
class Prediction(QueryResult):
    """Predicted targets of rows.

    Has the attributes of QueryResult too.

    Attributes
    ----------
    kind : str
        Kind of the targets: "class", "multilabel" or "continuous".
    predicted : list
        One entry for each row: a label, a list of labels, a number or a list of numbers.
    classes : tuple
        Sorted labels, one for each column of `scores`. Empty for numeric targets.
    scores : ndarray (rows, k) of float64
        k is the number of labels or of numeric targets. The values are

        - probabilities of the labels, if `probable` is True,
        - predicted numbers, if the targets are numeric,
        - predicted indicators of the labels (near 1 if the row has the label), if the model
          predicts labels by regression,
        - uncalibrated logarithms of probabilities, up to a constant for each row, if the solution
          is "diagonal".
    probable : bool
        True if the scores are probabilities.
    """

    kind: str
    predicted: list[object]
    classes: tuple[Label, ...]
    scores: np.ndarray
    probable: bool

    def to_json(self) -> JsonDict:
        """Return a dict that can be written as JSON.

        Its keys are "model", "version", "position", "solution", "predicted", "classes", "id" and
        "unseen". The key of the scores is "probabilities" if they are probabilities, and "scores"
        if they are not. The key "columns_missing" is there only if a column is missing.
        """
        values = {self._score_name: self.scores.tolist()}
        return self._json_response(predicted=self.predicted, classes=list(self.classes), **values)

    def to_arrow(self) -> bytes:
        """Return an Arrow stream of one batch.

        Its columns are

        - "id", if the rows have ids,
        - "label", "labels" or "target", the prediction, named by the kind of the targets,
        - "probabilities" or "scores", of type fixed_size_list<double>.

        The schema's metadata hold the other attributes, and the classes as JSON.
        """
        # Labels may be integers of unsigned 64 bits, which Arrow does not infer.
        predicted = label_column(self.predicted) if self.kind == "class" else pa.array(self.predicted)
        columns = {TARGET_COLUMN[self.kind]: predicted, self._score_name: vector_column(self.scores)}
        return self._arrow_stream(columns, classes=self.classes)

    @property
    def _score_name(self) -> str:
        return "probabilities" if self.probable else "scores"


def predict(release: Release, block: Block) -> Prediction:
    """Predict rows' targets with a release, or with what a model serves now.

    Targets in the block are ignored. Raises CannotPredict if the model's method cannot predict or
    the model had learned no targets. Also raises the errors of `transform`.

    The example uses `running`, `directory` and `model` from the example of Running.

    >>> import stream_dr
    >>> version = running.publish("lda").version
    >>> stream_dr.predict(directory.releases.served(model), stream_dr.one_row([1.0, 2.0])).predicted
    ['a']
    """
    projection = release.published.projection
    readout = release.published.readout
    if not isinstance(projection, Linear | Mapped) or readout is None or not len(readout.offset):
        why = "has learned no target so far" if readout is not None else f"is of {release.spec.estimator}"
        raise CannotPredict(f"model {release.model!r} {why}, and predicts nothing. Project its rows with transform.")

    # Compute the scores, then the predicted targets from the scores.
    block, fields = prepare_rows(release, block)
    scores = projection.target_score_projection().apply(block.X)
    targets = readout.predict(scores)
    predicted = targets.tolist()

    # Targets of several labels are a matrix of bool, or one label for each row.
    kind = readout.kind
    if kind == "multilabel" and targets.ndim == 1:
        kind = "class"
    elif kind == "multilabel":
        predicted = [[label for label, there in zip(readout.labels, row, strict=True) if there] for row in targets]

    probable = readout.scores == LOG_POSTERIORS and projection.solution != "diagonal"
    if probable:
        scores = readout.probabilities(scores)
    return Prediction(
        kind=kind, predicted=predicted, classes=readout.labels, scores=scores, probable=probable, **fields
    )
