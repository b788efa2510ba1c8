"""Types of the service's responses that methods of `Client` return.

Each response is a dict. A newer version of the service may add further keys.
"""

from typing import NotRequired, TypedDict

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.targets.label_codes import Label


class Acknowledgement(TypedDict):
    """Response to a request to learn or unlearn rows.

    position: position of the request in the log. There is none if the rows were only checked.
    rows: number of rows in the batch, or number of unlearned rows.
    duplicate: True if an earlier request had the same idempotency key.
    lag: number of events that models have not learned yet. `lag` is missing unless the request
        asked to wait until models have published the change.
    columns_missing: columns of the stream's table that the sent rows do not have. The values of
        these columns count as missing.
    """

    position: int
    rows: int
    duplicate: bool
    lag: int
    columns_missing: NotRequired[list[str]]


class JobStatus(TypedDict):
    """Status of a job (long work on a model).

    kind: "refine" or "snapshot".
    state: "waiting", "running", "done", "failed" or "cancelled".
    progress: numbers such as the pass and the number of rows done.
    error: {"code", "message"} of a failed job, or None.
    """

    id: str
    kind: str
    model: str
    state: str
    progress: JsonDict
    error: dict[str, str] | None


class ModelScores(TypedDict):
    """Scores of a model's predictions on rows before it learned them.

    accuracy: share of rows whose label was predicted correctly, None for numeric targets.
    r2: R² averaged over the targets, None for labels.
    error: standard error of the accuracy, None for numeric targets.
    baseline: accuracy or R² of predicting the previous row's target.
    most_frequent: accuracy of predicting the most frequent label, None for numeric targets.
    tested: number of tested rows.
    tested_at: time of the last test, in seconds since 1970.
    """

    accuracy: float | None
    r2: float | None
    error: float | None
    baseline: float
    most_frequent: float | None
    tested: int
    tested_at: float


class ModelStatus(TypedDict):
    """Status of a model.

    state: "live", "catching_up", "failed" or "failed_to_publish".
    reason: sentence that says why a model that catches up does not learn yet, or None.
    position: log position of the last event that the model has learned.
    lag: number of events in the log that the model has not learned yet.
    version: version of the published projection, 0 if there is none.
    versions: versions that `Client.projection` can return.
    chosen: result of cross-validation, such as {"gamma": 0.1, "error": 0.2, "std_error": 0.01}.
        "gamma" or "n_components" has the chosen value. "error" is the cross-validated error of
        this value, and "std_error" is the standard error of "error". None if no parameter of the
        published projection is "cv".
    stale_rows: number of rows learned or unlearned since the published projection.
    bytes: size of the model's state in bytes.
    publish, refine: rules for when the model is published and refined, as in `Client.put_model`.
        None means the service's setting.
    failure: {"position", "code", "message"} of the error that stopped learning, or None.
    publish_failure: {"position", "code", "message"} of the error that prevents publishing, or
        None.
    scores: scores on rows before they were learned, or None if none was tested.
    """

    name: str
    estimator: str
    params: JsonDict
    state: str
    reason: str | None
    position: int
    rows: int
    rows_skipped: int
    lag: int
    version: int
    versions: list[int]
    published_position: int | None
    components: int
    classes: list[Label]
    class_rows: list[int] | None
    classes_waiting: list[Label]
    eigenvalues: list[float]
    chosen: dict[str, float] | None
    solution: str | None
    refined_at: int | None
    residual: float | None
    bytes: int
    stale_rows: int
    publish: JsonDict | None
    refine: JsonDict | None
    failure: JsonDict | None
    publish_failure: JsonDict | None
    scores: ModelScores | None


class ServedProjection(TypedDict):
    """Published projection of a model, with its arrays.

    version, newest: the returned version, and the newest version.
    position: log position of the last event that the projection includes.
    mean: (features,), for a linear projection.
    components: (components, features), for a linear projection.
    eigenvalues: (components,), for a linear projection.
    map: matrix (p, q) that converts coordinates of an older version to coordinates of the newest
        version. p is the number of components of the older version, and q the number of components
        of the newest version. Present only for an older version. See `Client.projection`.
    offset: vector (q,) to add to the converted coordinates. Present only for an older version.
    """

    model: str
    version: int
    newest: int
    position: int
    rows: int
    kind: str
    solution: str
    refined_at: int | None
    residual: float | None
    mean: NotRequired[np.ndarray]
    components: NotRequired[np.ndarray]
    eigenvalues: NotRequired[np.ndarray]
    map: NotRequired[np.ndarray]
    offset: NotRequired[np.ndarray]


class StreamStatus(TypedDict):
    """Status of the stream.

    models: names of the models.
    layout: "dense", "named", "sparse" or "table", None before the first batch.
    kinds: kind of each column of a table, such as "number" or "text". None for other rows.
    stated: number of columns that the first batch declared. 0 means that no number was declared.
    labels: labels in order of first appearance.
    outputs: number of columns of continuous targets.
    weighted: True if batches carry weights.
    allowed_labels: labels that batches may have. An empty list allows all labels.
    """

    position: int
    rows: int
    models: list[str]
    layout: str | None
    features: int
    names: list[str] | None
    kinds: list[str] | None
    stated: int
    target_kind: str | None
    labels: list[Label]
    outputs: int
    weighted: bool | None
    allowed_labels: list[Label]


class ModelEventStatus(TypedDict):
    """Status of one model in an event of `Client.events`.

    lag: number of events in the log that the model has not learned yet.
    stale_rows: number of rows learned or unlearned since the published projection.
    scores: scores on rows before they were learned, or None if none was tested.
    """

    estimator: str
    state: str
    rows: int
    lag: int
    stale_rows: int
    version: int
    components: int
    solution: str | None
    scores: ModelScores | None


class StreamEventStatus(TypedDict):
    """Status of the stream and all models.

    `Client.events` yields one after each change.

    position: log position of the last event.
    rows: number of rows ever appended to the log.
    models: status of each model, by the model's name.
    """

    position: int
    rows: int
    models: dict[str, ModelEventStatus]
