"""answers: the forms of what the routes answer, for the OpenAPI document.

Answers are written by the library and not by pydantic, so these are never made; fuzzing holds the answers against them.

Why this way: /docs shows what comes back, and a generated client has it as types, at no cost to an answer.
"""

from typing import Any, Literal

from pydantic import BaseModel

Label = str | int | bool
TargetKind = Literal["none", "class", "multilabel", "continuous"]


class Problem(BaseModel):
    """An error (RFC 9457); `code` is stable."""

    type: str
    title: str
    status: int
    code: str
    detail: str


class Receipt(BaseModel):
    """What became of a batch; `lag` (events still to be learned) where the request waited."""

    position: int | None
    rows: int
    duplicate: bool
    lag: int | None = None


class Projected(BaseModel):
    """Projected rows `z`, and by which version of the model; of many rows also their ids, and how many entries lie past
    the features that the version knows."""

    model: str
    version: int
    position: int
    solution: str
    z: list[list[float]]
    id: list[str] | None = None
    unseen: int = 0


class Failure(BaseModel):
    """The position of the event that a model could not apply, and why."""

    position: int
    code: str
    message: str


class Publish(BaseModel):
    """When a model is solved and published: after so many rows, so many seconds, whenever the log is drained (idle)."""

    rows: int | None
    seconds: float | None
    idle: bool


class ModelState(BaseModel):
    """All that is told about a model; `lag` in events, `bytes` of its state."""

    name: str
    estimator: str
    params: dict[str, Any]
    state: Literal["live", "catching_up", "failed"]
    position: int
    rows: int
    rows_skipped: int
    lag: int
    version: int
    published_position: int | None
    components: int
    classes: list[Label]
    eigenvalues: list[float]
    solution: str | None
    refined_at: int | None
    residual: float | None
    bytes: int
    publish: Publish | None
    failure: Failure | None


class Models(BaseModel):
    """All models by their names."""

    models: dict[str, ModelState]


class Exported(BaseModel, extra="allow"):
    """A projection's facts; its arrays follow by their names (`mean`, `components`, `eigenvalues` where it is linear)."""

    model: str
    version: int
    newest: int
    position: int
    rows: int
    kind: str
    solution: str


class JobState(BaseModel):
    """Long work in the background."""

    id: str
    kind: Literal["refine", "snapshot"]
    model: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    progress: dict[str, Any]
    error: dict[str, str] | None


class StreamState(BaseModel):
    """What the stream is so far. stated: the width its first batch stated (0: none); outputs: columns of continuous
    targets; weighted: whether batches carry weights."""

    position: int
    rows: int
    models: list[str]
    layout: Literal["dense", "named", "sparse"] | None
    features: int
    names: list[str] | None
    stated: int
    target_kind: TargetKind | None
    labels: list[Label]
    outputs: int
    weighted: bool | None


class Health(BaseModel):
    """How the process is."""

    status: Literal["alive", "ready"]
