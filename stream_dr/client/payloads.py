"""Payloads that the client sends, and types of the responses.

Rows and ids are sent in Arrow format. A response with an array becomes a ServedArray, which names
the model that computed it. Any other response is a dict. A newer version of the service may add
further keys.
"""

from typing import Any, NotRequired, Self, TypedDict

import numpy as np
import orjson
import pyarrow as pa

from stream_dr import errors
from stream_dr.aliases import JsonDict
from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.batch.block import Block, Rows
from stream_dr.batch.matrix import as_rows, read_table
from stream_dr.batch.rows import as_table, only_has, open_rows
from stream_dr.batch.targets import Label, label_array


class Acknowledgement(TypedDict):
    """Response to a request to learn or unlearn rows.

    position: position of the request in the log. There is none if the rows were only checked.
    rows: number of rows in the batch, or number of unlearned rows.
    duplicate: True if an earlier request had the same idempotency key.
    lag: number of events that models have not learned yet. `lag` is missing unless the request
        asked to wait until models have published the change.
    columns_missing: columns of the stream's table that the sent rows do not have. The values of
        these columns count as missing.
    releases: releases that include unlearned rows, as dicts with "model", "name" and "holds_rows".
        Present only after a request to unlearn.
    """

    position: int
    rows: int
    duplicate: bool
    lag: int
    columns_missing: NotRequired[list[str]]
    releases: NotRequired[list[JsonDict]]


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
    release: name of the release that is published, or None if the model publishes its own state.
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
    basis: str | None
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
    release: str | None
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
    release: name of the release that the projection is. Present only for a release.
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
    release: NotRequired[str]
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
    release: name of the release that is published, or None.
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
    release: str | None
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


def sendable_rows(X: Any) -> tuple[Rows, tuple[str, ...] | None]:
    """Convert rows for sending, and return rows and column names.

    Rows of numbers become an array. Texts, and tables that have other values than numbers, are
    sent with the types of their columns, because the service encodes the values. The names are
    None if the columns have no names.
    """
    X = open_rows(X)
    try:
        return as_rows(X)
    except (errors.NotNumeric, errors.NotFinite, errors.InvalidRows):
        # Some value is no finite number. Texts and tables may have such values, an array may not.
        is_text_or_table = only_has(X, str) or as_table(X) is not None
        if not is_text_or_table:
            raise
    raw = read_table(X)
    return raw, tuple(raw.schema.names)


def prediction_array(response: JsonDict) -> np.ndarray:
    """Return the predicted targets in a response as an array.

    The array has one entry or row for each predicted row: a label, a list of labels, a number, or k
    numbers.

    response: JSON object of the service's response.
    """
    predicted = response["predicted"]
    # Without classes, the targets are numbers.
    if not response["classes"]:
        return np.asarray(predicted, dtype=np.float64)
    if predicted and isinstance(predicted[0], list):
        # `np.fromiter` keeps each list as one element. `np.array` would make a matrix.
        return np.fromiter(predicted, dtype=object, count=len(predicted))
    return label_array(predicted)


def arrow_stream_bytes(block: Block) -> bytes:
    """Return a block of rows as an Arrow stream."""
    return write_arrow([arrow_from_block(block)])


def as_list(name: str, values: Any) -> list[Any]:
    """Return a sequence as a list.

    Raises InvalidParameter for a single value or a string.

    name: name of the values in the error message.
    """
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise errors.InvalidParameter(f"{name}={values!r}; give a list of them.")
    return list(values)


def read_metadata(table: pa.Table) -> JsonDict:
    """Return the metadata of an Arrow table as a dict.

    The fields in `_NUMBER_FIELDS` have numbers or None as values. Other fields have strings.
    """
    fields: JsonDict = {}
    for key, text in (table.schema.metadata or {}).items():
        name = key.decode()
        if name in _NUMBER_FIELDS:
            fields[name] = orjson.loads(text)
        else:
            fields[name] = text.decode()
    return fields


_NUMBER_FIELDS = ("version", "newest", "position", "rows", "refined_at", "residual", "map_residual", "unseen")
"""Fields of the metadata whose values are numbers."""


class ServedArray(np.ndarray):
    """An ndarray with the model and version that computed it.

    Slices of the array, and arrays computed from the array, have equal attributes.

    Attributes
    ----------
    model : str
        Name of the model.
    version : int
        Version of the model's projection. Projected rows can be compared only if their versions
        are equal. `Client.projection` shows how to convert rows from an older version.
    position : int
        Log position of the last event that the projection includes.
    solution : str
        How the projection was computed: "exact", "diagonal", "refined" or "recurrence".
    release : str or None
        Name of the release that the projection is, or None.
    unseen : int
        Number of values in the rows whose feature the model has not learned. These values have no
        effect on the result.

    Examples
    --------
    >>> import stream_dr
    >>> with stream_dr.Client(url) as client:  # a running service, as "http://127.0.0.1:8000"
    ...     _ = client.put_model("pca", "pca", n_components=1)
    ...     _ = client.partial_fit([[1.0, 2.0], [3.0, 1.0]], wait=True)
    ...     z = client.transform([[1.0, 2.0]], model="pca")
    >>> z.model, z.shape
    ('pca', (1, 1))
    """

    model: str = ""
    version: int = 0
    position: int = -1
    solution: str = ""
    release: str | None = None
    unseen: int = 0

    @classmethod
    def from_response(cls, values: Any, response: JsonDict) -> Self:
        """Return an array whose attributes say which projection has computed it.

        values: array or nested list of numbers. The result shares the memory of an array.
        response: response of the service. Its fields "model", "version", "position", "solution",
            "release" and "unseen" become the attributes.
        """
        array = np.asarray(values).view(cls)
        array.model = str(response["model"])
        array.solution = str(response["solution"])
        array.release = response.get("release")
        array.version = int(response["version"])
        array.position = int(response["position"])
        array.unseen = int(response["unseen"])
        return array

    def __array_finalize__(self, source: Any) -> None:
        """Copy the attributes of `source`, from which numpy made this array."""
        if isinstance(source, ServedArray):
            vars(self).update(vars(source))
