"""Responses: what the service answers, as the client returns it.

Each is a dict with these keys, and perhaps further ones of a newer service.
"""

from typing import NotRequired, TypedDict

import numpy as np

from stream_dr.aliases import JsonDict
from stream_dr.targets.label_codes import Label


class Acknowledgement(TypedDict):
    """Answer to a batch, or to an unlearning.

    columns_missing: columns of a table that the rows do not have. They count as missing values.
    """

    position: int
    rows: int
    duplicate: bool
    lag: int
    columns_missing: NotRequired[list[str]]


class JobStatus(TypedDict):
    """Long work on a model.

    kind: "refine" or "snapshot".
    state: "waiting", "running", "done", "failed" or "cancelled".
    error: {"code", "message"} of a failed job.
    """

    id: str
    kind: str
    model: str
    state: str
    progress: JsonDict
    error: dict[str, str] | None


class ModelStatus(TypedDict):
    """State of a model.

    state: "live", "catching_up", "failed" or "failed_to_publish".
    position: last event that it has learned.
    lag: number of events of the log that it has not learned.
    version: version of its published projection, 0 if there is none.
    versions: versions that `Client.projection` still has.
    stale_rows: number of rows learned that the published projection does not include.
    bytes: size of its state.
    publish, refine: its policies, None for the service's.
    failure, publish_failure: {"position", "code", "message"}, or None.
    """

    name: str
    estimator: str
    params: JsonDict
    state: str
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
    solution: str | None
    refined_at: int | None
    residual: float | None
    bytes: int
    stale_rows: int
    publish: JsonDict | None
    refine: JsonDict | None
    failure: JsonDict | None
    publish_failure: JsonDict | None


class ServedProjection(TypedDict):
    """Published projection of a model, with its arrays.

    mean: (features,), components: (components, features), eigenvalues: (components,) of a linear
        projection.
    map: (components then, components now), offset: (components now,) of an older version.
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
    """State of the stream.

    models: names of the models.
    layout: "dense", "named", "sparse" or "table", None before the first batch.
    kinds: kind of each column of a table.
    stated: width that the first batch declared, 0 if none.
    labels: labels in order of first appearance.
    outputs: number of columns of continuous targets.
    weighted: True if batches carry weights.
    allowed_labels: labels that batches may have, empty if any.
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


class ModelFigures(TypedDict):
    """Figures of a model in an event of `Client.events`."""

    estimator: str
    state: str
    rows: int
    lag: int
    stale_rows: int
    version: int
    components: int
    solution: str | None


class StreamFigures(TypedDict):
    """Event of `Client.events`: the stream's figures, and each model's by name."""

    position: int
    rows: int
    models: dict[str, ModelFigures]
