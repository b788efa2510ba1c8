"""Schemas of queries, bodies and responses, for FastAPI and the OpenAPI document.

The library parses request bodies that hold rows. The schema `Rows` of such a body is used for the
OpenAPI document only.
"""

from typing import Annotated, Any, Literal, Self

from fastapi import FastAPI, Header, Path
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import models_json_schema

import stream_dr
from service import guards
from service.guards import ARROW_STREAM, JSON, OCTET_STREAM

JsonDict = dict[str, Any]
"""JSON object."""

Label = str | int | bool
DEFAULT_PUBLISH = stream_dr.PublishPolicy()
"""Default publish policy."""

PolicyRows = Annotated[int, Field(ge=1, lt=2**63)]
PolicySeconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
ColumnsMissing = Annotated[
    list[str] | None, Field(description="columns of the table that the rows do not have; their values count as missing")
]
TargetKind = Literal["none", "class", "multilabel", "continuous"]

Flag = Annotated[bool, BeforeValidator(lambda value: str(value).lower() not in ("0", "false"))]
"""Query parameter that is true with every value except "0" and "false"."""

Name = Annotated[str, Path(description="name of the model", examples=["lda"])]
ReleaseName = Annotated[str, Path(description="name of the release", examples=["2026-12-01"])]
JobId = Annotated[str, Path(description="id of the job, from the response that started it", examples=["5f2c9a"])]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="name of the batch; a batch is learned once, even if it is sent again with the same key",
        examples=["batch-1"],
        min_length=1,
        max_length=256,
        pattern="^[!-~]([ -~]*[!-~])?$",
    ),
]


class Query(BaseModel, extra="forbid"):
    """Base class of schemas of queries. Unknown parameters are refused."""


class LearnQuery(Query):
    """Query parameters of POST /partial_fit."""

    wait: Literal["applied"] | None = Field(None, description="respond after every model has published the batch")
    check: Flag = Field(False, description="check the batch without appending it")


class UnlearnQuery(Query):
    """Query parameters of POST /unlearn."""

    wait: Literal["applied"] | None = Field(None, description="respond after no model serves the rows any more")


class TransformQuery(Query):
    """Query parameters of POST /transform and /predict."""

    model: str | None = Field(None, description="name of the model; required if there are several", examples=["lda"])
    release: str | None = Field(None, description="name of a release of the model; default: what it has published last")


class OneRowQuery(TransformQuery):
    """Query parameters of GET /transform, which projects one row.

    The row is passed as `x` if it is dense, or as `indices` and `values` if it is sparse.
    """

    x: str | None = Field(None, description="numbers of a dense row, separated by commas", examples=["0.1,0.2"])
    indices: str | None = Field(None, description="indices of a sparse row, separated by commas", examples=["3,17"])
    values: str | None = Field(None, description="values of a sparse row, separated by commas", examples=["0.5,1.2"])


class VersionQuery(Query):
    """Query parameters of GET /models/{name}/projection."""

    version: int | None = Field(None, ge=1, lt=2**63, description="number of a stored version; default: the newest")
    release: str | None = Field(None, description="name of a release, instead of a version")
    form: Literal["arrays", "release"] = Field("arrays", description="release: the bytes of a release's file")

    @model_validator(mode="after")
    def _refuse_two_projections(self) -> Self:
        """Raise ValueError if a query asks for a version and also for a release."""
        if self.version is not None and (self.release is not None or self.form == "release"):
            raise ValueError("a version has no release file; give either version, or release and form")
        return self


class DeleteReleaseQuery(Query):
    """Query parameters of DELETE /models/{name}/releases/{release}."""

    basis: Literal["reset"] | None = Field(
        None, description="reset: delete the release even if the basis of its model is turned to it"
    )


class SparseRow(BaseModel):
    """Sparse row, as indices and values of its nonzero entries."""

    indices: list[Annotated[int, Field(ge=0)]] = Field(description="indices from 0, in ascending order")
    values: list[float] = Field(description="one value per index")


class Rows(BaseModel):
    """A batch of rows.

    All rows of a batch have the same form: a list of numbers, a sparse row, an object by column
    name, or a text. Strings, true, false and null in objects need models with the feature map
    `table`. Texts need the feature map `text` or `table`.
    """

    rows: list[list[float]] | list[SparseRow] | list[dict[str, float | str | bool | None]] | list[str] = Field(
        title="RowList", description="rows, all of one form"
    )
    labels: list[Label | list[Label] | None] | None = Field(
        None, description="one label or list of labels per row, null for a row without a target"
    )
    target: list[float | list[float] | None] | None = Field(
        None, description="continuous targets instead of labels: one number or list of numbers per row"
    )
    weights: list[Annotated[float, Field(ge=0)]] | None = Field(None, description="one weight per row; default: 1")
    ids: list[str | int] | None = Field(None, description="one id per row, by which the row can be unlearned")


class FiguresQuery(Query):
    """Query parameters of GET /figures."""

    model: str | None = Field(
        None,
        description="name of the model to show; without an existing name, only the progress is returned",
        examples=["lda"],
    )
    rows: int = Field(2_000, ge=1, le=100_000, description="number of newest rows to project")
    dimensions: Literal[2, 3] = Field(2, description="number of axes of the projection")
    component: int = Field(0, ge=0, le=100_000, description="number of the component whose loadings are shown, from 0")
    have: str = Field("", max_length=2_000, description="tags of the figures that the client has, separated by commas")

    @field_validator("dimensions", mode="before")
    @classmethod
    def _digits_to_int(cls, value: object) -> object:
        """Return a text of digits as an int, and any other value unchanged."""
        # All values of a query are texts, but pydantic accepts only an int for Literal[2, 3].
        if isinstance(value, str) and value.isdigit():
            return int(value)
        return value


class Unlearn(BaseModel, extra="forbid", strict=True):
    """Rows to unlearn. Give either `positions` or `ids`."""

    positions: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field(
        [], max_length=10_000, description="positions of batches, whose rows are all unlearned"
    )
    ids: list[Annotated[str, Field(max_length=1_000)] | int] = Field([], max_length=10_000, description="ids of rows")
    releases: Literal["drop"] | None = Field(None, description="drop: delete the releases that hold the rows")

    @model_validator(mode="before")
    @classmethod
    def _require_one_key(cls, value: object) -> object:
        """Raise ValueError unless either `positions` or `ids` is given.

        value: the JSON value of the body.
        """
        # pydantic's own messages would name only one of the two keys.
        # An empty list counts as not given.
        if isinstance(value, dict) and value.keys() <= cls.model_fields.keys():
            filled = [name for name in ("positions", "ids") if value.get(name)]
            if len(filled) == 1:
                return value
        raise ValueError('give either {"positions": […]} or {"ids": […]}')


class Refine(BaseModel, extra="forbid", strict=True):
    """Options of refining a model.

    A refine solves the model exactly by passes over the log. The passes end when the tolerance
    `tol` is reached, or after `max_passes` passes.
    """

    tol: float = Field(
        1e-6, gt=0, lt=1, description="tolerance of the relative residual, and of the angle between passes in radians"
    )
    max_passes: int = Field(20, ge=1, le=1_000, description="maximum number of passes over the log")


class NewRelease(BaseModel, extra="forbid", strict=True):
    """Body of POST /models/{name}/releases, which names a published version."""

    name: str = Field(description="name of the release, unique within the model", examples=["2026-12-01"])
    version: int | None = Field(None, ge=1, lt=2**63, description="number of a stored version; default: the newest")


class Publish(BaseModel, extra="forbid", strict=True):
    """Body of POST /models/{name}/publish, which may name a release."""

    release: str | None = Field(None, description="name of a release to publish; default: the model as it is now")


class Policy(BaseModel, extra="forbid", strict=True):
    """Policy of when a model is solved and published.

    Each field is a condition. The model is published as soon as one condition is met. A policy
    without conditions is {"seconds": null, "idle": false}: the model is then published only by POST
    /models/{name}/publish. When the service stops, it publishes the models that their policies
    would publish within a minute.
    """

    rows: PolicyRows | None = Field(DEFAULT_PUBLISH.rows, description="publish after this many new rows")
    seconds: PolicySeconds | None = Field(
        DEFAULT_PUBLISH.seconds, description="publish this many seconds after new rows"
    )
    idle: bool = Field(DEFAULT_PUBLISH.idle, description="publish whenever all batches of the log are learned")


class RefinePolicy(BaseModel, extra="forbid", strict=True):
    """Policy of when a model is refined in the background.

    Without `rows` and `seconds`, the model is refined on demand only.
    """

    rows: PolicyRows | None = Field(None, description="refine this many rows after the last refine")
    seconds: PolicySeconds | None = Field(
        None, description="refine this many seconds after the last refine, if there are new rows"
    )


class ModelSpec(BaseModel, extra="forbid", strict=True, populate_by_name=True):
    """Base class of the JSON bodies of PUT /models/{name}, of which each estimator has one."""

    start: int | Literal["start", "now"] = Field(
        "start",
        alias="from",
        title="Start",
        description="first event to learn: `start` of the log, `now`, or a position",
    )
    publish: Policy | None = Field(None, description="when to publish; default: the settings of the service")
    refine: RefinePolicy | None = Field(
        None, description="when to refine automatically; default: never, or for an existing model unchanged"
    )
    basis: Literal["steady"] | None = Field(
        None, description="steady: turn each projection to the model's newest release; cannot be changed later"
    )


class Problem(BaseModel):
    """Response that describes an error (RFC 9457)."""

    type: str = Field(description="always about:blank; the kind of error is in `code`")
    title: str = Field(description="the code in words")
    status: int = Field(description="HTTP status")
    code: str = Field(description="stable code of the error, for programs")
    detail: str = Field(description="cause of the error, for people")


class UnlearnedRelease(BaseModel):
    """Published version with a name (a release) that includes rows unlearned since."""

    model: str = Field(description="name of the model")
    name: str = Field(description="name of the release")
    holds_rows: bool = Field(description="true if it holds rows themselves, and not only sums of them")


class Receipt(BaseModel):
    """Response to a batch that was appended to the log, or only checked."""

    position: int | None = Field(description="position of the batch in the log, null if nothing was appended")
    rows: int = Field(description="number of rows")
    duplicate: bool = Field(description="true if a batch with the same key was appended before")
    lag: int | None = Field(None, description="number of events still to be learned, if the request waited")
    reason: str | None = Field(None, description="reason why some model has not published the batch, with status 202")
    columns_missing: ColumnsMissing = None
    releases: list[UnlearnedRelease] | None = Field(
        None, description="after an unlearning: releases that include the rows, or that included them and were dropped"
    )


class Answer(BaseModel):
    """Fields common to the responses of /transform and /predict."""

    model: str = Field(description="name of the model")
    version: int = Field(description="version of its projection")
    position: int = Field(description="position of the last event that the version includes")
    solution: str = Field(description="how the version was solved: exact, diagonal, refined or recurrence")
    release: str | None = Field(None, description="name of the release that the version is")
    id: list[str | int] | None = Field(None, description="ids of the rows, if the request has several rows")
    unseen: int = Field(
        0, description="number of values whose feature, category, word or column is unknown to the version"
    )
    columns_missing: ColumnsMissing = None


class Projected(Answer):
    """Response of /transform, the projected rows."""

    z: list[list[float]] = Field(description="components of each row")


class Predicted(Answer):
    """Response of /predict, the predicted targets."""

    predicted: list[Label | float | list[Label | float]] = Field(
        title="PredictedTargets", description="one label, list of labels, number or list of numbers per row"
    )
    classes: list[Label] = Field(description="labels, in the order of `probabilities` and `scores`")
    probabilities: list[list[float]] | None = Field(
        None, description="posterior probabilities of the classes, if the method has them"
    )
    scores: list[list[float]] | None = Field(
        None,
        description="without probabilities: predicted numbers, or the indicator of each label, by regression; a "
        "diagonal solution has scores that rank the classes",
    )


class Failure(BaseModel):
    """Error that stopped a model from learning or publishing."""

    position: int = Field(description="position of the event that the model could not apply, or could not solve after")
    code: str = Field(description="stable code of the error")
    message: str = Field(description="cause of the error")

    @field_validator("message")
    @classmethod
    def _hide_internal_message(cls, message: str, info: ValidationInfo) -> str:
        """Return a general text in place of the message of an unexpected error."""
        # An unexpected error has the code "internal". Its message was not written for clients.
        if info.data["code"] == "internal":
            return "the log has the details"
        return message


class Scores(BaseModel):
    """Scores of a model's predictions on rows before it learned them."""

    accuracy: float | None = Field(
        None, description="share of rows whose label was predicted correctly, null for numbers"
    )
    r2: float | None = Field(None, description="R² averaged over the targets, null for labels")
    error: float | None = Field(description="standard error of the accuracy, null for numbers")
    baseline: float = Field(description="accuracy or R² of predicting the previous row's target")
    most_frequent: float | None = Field(description="accuracy of predicting the most frequent label, null for numbers")
    tested: int = Field(description="number of tested rows")
    tested_at: float = Field(description="time of the last test, in seconds since 1970")


class ModelState(BaseModel):
    """State, progress and scores of a model."""

    name: str = Field(description="name of the model")
    estimator: str = Field(description="key of its estimator")
    params: JsonDict = Field(description="parameters of its estimator")
    basis: Literal["steady"] | None = Field(description="steady: its projections are turned to its newest release")
    state: Literal["live", "catching_up", "failed", "failed_to_publish"] = Field(
        description="live models learn each batch as it arrives"
    )
    reason: str | None = Field(description="why a model that catches up does not learn yet, null otherwise")
    position: int = Field(description="position of the last event that it has learned")
    rows: int = Field(description="number of rows learned")
    rows_skipped: int = Field(description="number of rows skipped because they have no target")
    lag: int = Field(description="number of events of the log that it has not learned")
    version: int = Field(description="version of the published projection, 0 if there is none")
    versions: list[int] = Field(description="versions that are still stored")
    release: str | None = Field(description="release that is published, null if the model publishes its own state")
    published_position: int | None = Field(description="position of the last event that the projection includes")
    components: int = Field(description="number of components of the projection")
    classes: list[Label] = Field(description="labels of learned rows, those of `classes_waiting` included")
    class_rows: list[int] | None = Field(description="number of rows learned of each class")
    classes_waiting: list[Label] = Field(description="labels with too few rows to be classes")
    eigenvalues: list[float] = Field(description="eigenvalue of each component")
    chosen: dict[str, int | float] | None = Field(
        description='chosen gamma or n_components, its cross-validated error and std_error; null if no parameter is "cv"'
    )
    solution: str | None = Field(description="how it was solved: exact, diagonal, refined or recurrence")
    refined_at: int | None = Field(description="position of the last refine")
    residual: float | None = Field(description="relative residual of the last refine")
    bytes: int = Field(description="size of its state in bytes")
    stale_rows: int = Field(description="number of rows learned or unlearned since the published projection")
    publish: Policy | None = Field(description="its publish policy, null for the one of the settings")
    refine: RefinePolicy | None = Field(description="its refine policy, null if it is refined on demand only")
    failure: Failure | None = Field(description="reason why the model stopped learning")
    publish_failure: Failure | None = Field(description="reason why the model cannot be published")
    scores: Scores | None = Field(description="scores on rows before they were learned, null if none was tested")

    @classmethod
    def from_model(cls, model: stream_dr.Model, running: stream_dr.Running) -> Self:
        """Return the state of a model."""
        return cls.model_validate(_describe(model, running))


class Models(BaseModel):
    """All models, by name."""

    models: dict[str, ModelState]


class ReleaseState(BaseModel):
    """Published version of a model under a name, under which it stays."""

    model: str = Field(description="name of the model")
    name: str = Field(description="name of the release")
    version: int = Field(description="version of the projection")
    position: int = Field(description="position of the last event that the version includes")
    rows: int = Field(description="number of rows that the version includes")
    holds_rows: bool = Field(description="true if it holds rows themselves, and not only sums of them")
    created: float = Field(description="time at which the release was made, in seconds since 1970")
    served: bool = Field(description="true if the model publishes it now")


class ReleaseList(BaseModel):
    """Releases of a model, oldest first."""

    releases: list[ReleaseState]


class Exported(BaseModel, extra="allow"):
    """Published projection of a model.

    Its arrays are further fields, by name. A linear projection has `mean`, `components` and
    `eigenvalues`.
    """

    model: str = Field(description="name of the model")
    version: int = Field(description="version of the projection")
    newest: int = Field(description="newest version of the model")
    position: int = Field(description="position of the last event that the version includes")
    rows: int = Field(description="number of rows that the version includes")
    kind: str = Field(description="kind of the projection, such as linear")
    solution: str = Field(description="how it was solved: exact, diagonal, refined or recurrence")


class JobState(BaseModel):
    """State of a job, which runs in the background."""

    id: str = Field(description="id of the job")
    kind: Literal["refine", "snapshot"] = Field(description="work of the job")
    model: str = Field(description="name of the model")
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = Field(description="state of the job")
    progress: JsonDict = Field(description="progress of the job, such as its pass, rows and residual")
    error: dict[str, str] | None = Field(description="`code` and `message` of a failed job")


class StreamState(BaseModel):
    """Length of the log, and form of the rows and targets that it accepts."""

    position: int = Field(description="position of the last event, -1 if the log is empty")
    rows: int = Field(description="number of rows ever appended to the log")
    models: list[str] = Field(description="names of the models")
    layout: Literal["dense", "named", "sparse", "table"] | None = Field(
        description="form of the rows, null before the first batch"
    )
    features: int = Field(description="number of features")
    names: list[str] | None = Field(description="names of the features")
    kinds: list[str] | None = Field(
        description='kind of each column of a table: number, date or text, or "" if it has no value yet'
    )
    stated: int = Field(description="width that the first batch declared, 0 if none")
    target_kind: TargetKind | None = Field(description="kind of targets, null before the first batch")
    labels: list[Label] = Field(description="labels in the order of their first appearance")
    outputs: int = Field(description="number of columns of continuous targets")
    weighted: bool | None = Field(description="true if batches have weights")
    allowed_labels: list[Label] = Field(description="labels that batches may have, empty if all are allowed")


class ModelOverview(BaseModel):
    """State and progress of one model in an Overview.

    The fields have the same meaning as in ModelState.
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
    scores: Scores | None


class Overview(BaseModel):
    """Data of one event of the route /events: the stream's length, and each model's state."""

    position: int
    rows: int
    models: dict[str, ModelOverview]

    @classmethod
    def from_running(cls, running: stream_dr.Running) -> Self:
        """Return the overview of the stream and the models as they are now."""
        directory = running.directory
        models = {name: ModelOverview(**_describe(model, running)) for name, model in directory.models.items()}
        return cls(position=directory.position, rows=directory.rows, models=models)


def _describe(model: stream_dr.Model, running: stream_dr.Running) -> JsonDict:
    """Return the description of a model with its scores."""
    return model.describe(running.directory.position) | {"scores": running.scores(model) or None}


class Health(BaseModel):
    """Response of /livez and /readyz: whether the service works."""

    status: Literal["alive", "ready"]
    detail: str | None = Field(None, description="models that have failed or cannot be published or snapshotted")


_PROJECTION_EXAMPLE = {"model": "lda", "version": 3, "position": 812, "solution": "exact"}
_MODEL_EXAMPLE = {
    "name": "lda",
    "estimator": "lda",
    "params": {"gamma": 1.0},
    "basis": None,
    "state": "live",
    "reason": None,
    "position": 812,
    "rows": 9000,
    "rows_skipped": 0,
    "lag": 0,
    "version": 3,
    "versions": [2, 3],
    "release": None,
    "published_position": 812,
    "components": 1,
    "classes": ["a", "b"],
    "class_rows": [4400, 4600],
    "classes_waiting": [],
    "eigenvalues": [0.7],
    "chosen": None,
    "solution": "exact",
    "refined_at": None,
    "residual": None,
    "bytes": 4096,
    "stale_rows": 0,
    "publish": {"rows": None, "seconds": 1.0, "idle": True},
    "refine": None,
    "failure": None,
    "publish_failure": None,
    "scores": {
        "accuracy": 0.94,
        "r2": None,
        "error": 0.0053,
        "baseline": 0.49,
        "most_frequent": 0.51,
        "tested": 2000,
        "tested_at": 1789000000.0,
    },
}

_RELEASE_EXAMPLE = {
    "model": "lda",
    "name": "2026-12-01",
    "version": 3,
    "position": 812,
    "rows": 9000,
    "holds_rows": False,
    "created": 1789000000.0,
    "served": False,
}
_OVERVIEW_EXAMPLE = {
    name: _MODEL_EXAMPLE[name] for name in ("estimator", "state", "rows", "lag", "stale_rows", "version", "scores")
}

EXAMPLES: dict[str, JsonDict] = {
    "Rows": {"rows": [[0.1, 0.2], [0.3, 0.4]], "labels": ["a", "b"]},
    "Receipt": {"position": 812, "rows": 2, "duplicate": False},
    "Unlearn": {"positions": [812]},
    "NewRelease": {"name": "2026-12-01"},
    "Publish": {"release": "2026-12-01"},
    "ReleaseState": _RELEASE_EXAMPLE,
    "ReleaseList": {"releases": [_RELEASE_EXAMPLE]},
    "Refine": {"tol": 1e-6, "max_passes": 20},
    "Projected": {**_PROJECTION_EXAMPLE, "z": [[0.5], [-1.2]]},
    "Predicted": {**_PROJECTION_EXAMPLE, "predicted": ["b"], "classes": ["a", "b"], "probabilities": [[0.2, 0.8]]},
    "ModelState": _MODEL_EXAMPLE,
    "Models": {"models": {"lda": _MODEL_EXAMPLE}},
    "Exported": {
        **_PROJECTION_EXAMPLE,
        "newest": 3,
        "rows": 9000,
        "kind": "linear",
        "mean": [0.2, 0.3],
        "components": [[0.7, 0.7]],
        "eigenvalues": [0.7],
    },
    "JobState": {
        "id": "5f2c9a",
        "kind": "refine",
        "model": "lda",
        "state": "running",
        "progress": {"pass": 2, "rows": 4000, "total_rows": 9000},
        "error": None,
    },
    "StreamState": {
        "position": 812,
        "rows": 9000,
        "models": ["lda"],
        "layout": "dense",
        "features": 2,
        "names": None,
        "kinds": None,
        "stated": 0,
        "target_kind": "class",
        "labels": ["a", "b"],
        "outputs": 0,
        "weighted": False,
        "allowed_labels": [],
    },
    "Overview": {
        "position": 812,
        "rows": 9000,
        "models": {"lda": {**_OVERVIEW_EXAMPLE, "components": 1, "solution": "exact", "release": None}},
    },
    "Health": {"status": "ready"},
    "Problem": {
        "type": "about:blank",
        "title": "unknown model",
        "status": 404,
        "code": "unknown_model",
        "detail": "no model is called 'pca' here; there are: lda.",
    },
}
"""Example of each schema, by the name of the schema's class."""

_REF_TEMPLATE = "#/components/schemas/{model}"


def _schema_ref(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF_TEMPLATE.format(model=kind.__name__)}


def binary_body_schema(description: str) -> JsonDict:
    """Return the OpenAPI description of a binary body."""
    return {"schema": {"type": "string", "format": "binary", "description": description}}


_ARROW_BODY = binary_body_schema(f"an Arrow IPC stream (also accepted as {ARROW_STREAM})")
_ROWS_CONTENT = {JSON: {"schema": _schema_ref(Rows)}, OCTET_STREAM: _ARROW_BODY}
ROWS_BODY = {"requestBody": {"required": False, "content": _ROWS_CONTENT}}
"""OpenAPI description of a body of rows.

An Arrow stream is declared as bytes, because client generators do not know the media type of
Arrow. The body is required but declared as optional. For a required body of several types,
openapi-python-client generates a module that cannot be imported.
"""

ResponsesByStatus = dict[int | str, JsonDict]
"""OpenAPI descriptions of a route's responses, by status."""


def problems(*statuses: int) -> ResponsesByStatus:
    """Return the OpenAPI descriptions of error responses with these statuses."""
    content = {"application/problem+json": {"schema": _schema_ref(Problem)}}
    return {s: {"description": "an error; see its `code`", "content": content} for s in statuses}


COMMON_PROBLEMS = problems(401, 403, 422, 429, 500, 503)
"""Error responses that every route can return."""

BODY_PROBLEMS = problems(400, 408, 413, 415)
"""Error responses that routes with a request body can return in addition."""

MODEL_PROBLEMS = problems(404, 409)
"""Error responses that routes that use a model can return in addition."""


def openapi_document(app: FastAPI, needs_token: bool) -> JsonDict:
    """Return the OpenAPI document of an application.

    The document is built at the first call. FastAPI generates most of the document. This function
    adds:

    - the schemas that no route refers to,
    - an example of each schema,
    - the summary of each operation, which is the first paragraph of its description.

    needs_token: True if the service has tokens. The document then marks the operations that need
        one.
    """
    if app.openapi_schema is not None:
        return app.openapi_schema

    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    components = document["components"]
    _complete_schemas(components["schemas"])
    if needs_token:
        meaning = "Requests that read need the read or the write token. Requests that write need the write token."
        token = {"type": "http", "scheme": "bearer", "description": meaning}
        components["securitySchemes"] = {"token": token}

    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            paragraph, _, _ = operation["description"].partition("\n\n")
            operation["summary"] = " ".join(paragraph.split())
            if needs_token and guards.needed_right(method.upper(), path) is not None:
                operation["security"] = [{"token": []}]
    app.openapi_schema = document
    return document


def _complete_schemas(schemas: JsonDict) -> None:
    """Add examples, and schemas that no route refers to, to those of the OpenAPI document."""
    # FastAPI leaves these three out. `missing["$defs"]` has them, by name.
    kinds: Any = [(kind, "validation") for kind in (Problem, Rows, Overview)]
    _, missing = models_json_schema(kinds, ref_template=_REF_TEMPLATE)
    schemas |= missing["$defs"]
    for name, example in EXAMPLES.items():
        schemas[name]["examples"] = [example]

    # Clients that openapi-python-client generates would reject alternatives beside a "const".
    # An "enum" of one value means the same.
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            for alternative in field.get("anyOf", ()):
                if "const" in alternative:
                    alternative["enum"] = [alternative.pop("const")]
