"""Schemas of queries, bodies and responses, for FastAPI and for the OpenAPI document.

The library itself parses bodies of rows. Their schema `Rows` is for the OpenAPI document only.
"""

from typing import Annotated, Literal, Self

from fastapi import FastAPI, Header, Path
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import models_json_schema

import stream_dr
from service import auth, media
from service.examples import EXAMPLES
from service.json_types import JsonDict

Label = str | int | bool
PUBLISH = stream_dr.PublishPolicy()
"""Default publish policy."""

TargetKind = Literal["none", "class", "multilabel", "continuous"]

Flag = Annotated[bool, BeforeValidator(lambda value: str(value).lower() not in ("0", "false"))]
"""Query parameter that is true if it is given, unless as 0 or false."""

Name = Annotated[str, Path(description="the model's name", examples=["lda"])]
JobId = Annotated[str, Path(description="the job's id, as the answer that began it has it", examples=["5f2c9a"])]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="a retry with the same key and body is not taken twice",
        examples=["batch-1"],
        min_length=1,
        max_length=256,
        pattern="^[!-~]([ -~]*[!-~])?$",
    ),
]


class Query(BaseModel, extra="forbid"):
    """Query of a request. Unknown parameters are refused."""


class LearnQuery(Query):
    """Query of POST /partial_fit."""

    wait: Literal["applied"] | None = Field(None, description="answer once every model has learned it")
    check: Flag = Field(False, description="admit without appending")


class UnlearnQuery(Query):
    """Query of POST /unlearn."""

    wait: Literal["applied"] | None = Field(None, description="answer once every model has unlearned them")


class TransformQuery(Query):
    """Query of POST /transform and /predict."""

    model: str | None = Field(
        None, description="the model's name; may be left out where there is only one", examples=["lda"]
    )


class OneRowQuery(TransformQuery):
    """Query of GET /transform, with a row as x or as indices and values."""

    x: str | None = Field(None, description="a dense row: 0.1,0.2", examples=["0.1,0.2"])
    indices: str | None = Field(None, description="a sparse row's indices: 3,17")
    values: str | None = Field(None, description="its values: 0.5,1.2")


class VersionQuery(Query):
    """Query of GET /models/{name}/projection."""

    version: int | None = Field(None, ge=1, lt=2**63, description="a kept version; the newest where it is left out")


class SparseRow(BaseModel):
    """A row as its nonzero entries, in ascending order of index."""

    indices: list[Annotated[int, Field(ge=0)]]
    values: list[float]


class Rows(BaseModel):
    """A batch of rows.

    - `rows`: all dense, all sparse, all objects by column name, or all texts. Strings, true,
      false and null in objects are for models with the feature map `table`, texts for `text` and
      `table`.
    - `labels`: one label or list of labels per row, null for a row without a target.
    - `target`: continuous targets instead of labels, one number or list of numbers per row.
    - `weights`: one weight per row.
    - `ids`: one id per row.
    """

    rows: list[list[float]] | list[SparseRow] | list[dict[str, float | str | bool | None]] | list[str] = Field(
        title="RowList"
    )
    labels: list[Label | list[Label] | None] | None = None
    target: list[float | list[float] | None] | None = None
    weights: list[Annotated[float, Field(ge=0)]] | None = None
    ids: list[str | int] | None = None


class FiguresQuery(Query):
    """Query of GET /figures."""

    model: str | None = Field(
        None, description="whose figures; left out, or not there: progress alone", examples=["lda"]
    )
    rows: int = Field(2_000, ge=1, le=100_000, description="how many of the newest rows are projected")
    dimensions: Literal[2, 3] = Field(2, description="of the projection")
    component: int = Field(0, ge=0, le=100_000, description="whose loadings, from 0")
    have: str = Field("", max_length=2_000, description="tags of the figures that the asker has, parted by commas")

    @field_validator("dimensions", mode="before")
    @classmethod
    def _parse_number(cls, value: object) -> object:
        """Convert the text of the query. A Literal of numbers accepts no text."""
        return int(value) if isinstance(value, str) and value.isdigit() else value


class Unlearn(BaseModel, extra="forbid", strict=True):
    """Rows to unlearn, by the positions of their events or by their ids."""

    positions: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field([], max_length=10_000)
    ids: list[Annotated[str, Field(max_length=1_000)] | int] = Field([], max_length=10_000)

    @model_validator(mode="before")
    @classmethod
    def _check_one_key(cls, value: object) -> object:
        """Raise ValueError unless exactly one of the two keys has a value."""
        # pydantic's own messages would not name both keys.
        if isinstance(value, dict) and value.keys() <= cls.model_fields.keys() and sum(map(bool, value.values())) == 1:
            return value
        raise ValueError('give either {"positions": […]} or {"ids": […]}')


class Refine(BaseModel, extra="forbid", strict=True):
    """Options of refining, which stops at the tolerance `tol` or after `max_passes` passes."""

    tol: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    max_passes: Annotated[int, Field(ge=1, le=1_000)] = 20


class Policy(BaseModel, extra="forbid", strict=True):
    """Policy of solving and publishing a model.

    The model is published

    - `rows`: after this many new rows.
    - `seconds`: after this many seconds with new rows.
    - `idle`: whenever every batch of the log is learned.

    A model with {"seconds": null, "idle": false} is published on demand only. That is done by POST
    /models/{name}/publish, which also writes a snapshot, or by ?wait=applied. When the service
    stops it publishes only models whose policy publishes them within a minute.
    """

    rows: int | None = Field(PUBLISH.rows, ge=1, lt=2**63)
    seconds: float | None = Field(PUBLISH.seconds, gt=0, le=1e9, allow_inf_nan=False)
    idle: bool = PUBLISH.idle


class RefinePolicy(BaseModel, extra="forbid", strict=True):
    """Policy of refining a model again in the background.

    The model is refined

    - `rows`: this many rows after the last time.
    - `seconds`: this many seconds after the last time, if there are new rows.

    With neither it is refined on demand only.
    """

    rows: int | None = Field(None, ge=1, lt=2**63)
    seconds: float | None = Field(None, gt=0, le=1e9, allow_inf_nan=False)


class Problem(BaseModel):
    """An error (RFC 9457). The `code` is stable."""

    type: str
    title: str
    status: int
    code: str
    detail: str


class Receipt(BaseModel):
    """Receipt of a batch.

    - `position`: position of its event in the log, null if nothing was appended.
    - `rows`: number of rows.
    - `duplicate`: true if a batch with the same key was appended before.
    - `lag`: number of events still to be learned, if the request waited.
    - `reason`: reason why some model has not published the batch, with status 202.
    - `columns_missing`: columns of the table that the rows do not have. Their values are missing.
    """

    position: int | None
    rows: int
    duplicate: bool
    lag: int | None = None
    reason: str | None = None
    columns_missing: list[str] | None = None


class Answer(BaseModel):
    """Version of the model that rows were answered with.

    - `position`: position up to which the version has learned.
    - `solution`: how the version was solved.
    - `id`: ids of the rows, if there are many.
    - `unseen`: number of entries of features, categories and columns that the version does not
      know.
    - `columns_missing`: columns of the table that the rows do not have.
    """

    model: str
    version: int
    position: int
    solution: str
    id: list[str | int] | None = None
    unseen: int = 0
    columns_missing: list[str] | None = None


class Projected(Answer):
    """Projected rows, in `z`."""

    z: list[list[float]]


class Predicted(Answer):
    """Predicted targets of rows.

    - `predicted`: one label, list of labels, number or list of numbers per row.
    - `classes`: labels, in the order of the columns of probabilities and scores.
    - `probabilities`: posterior probabilities of the classes, if the method has them.
    - `scores`: otherwise the predicted numbers, or each label's indicator, by regression. A
      diagonal solution has scores that rank the classes.
    """

    predicted: list[str | int | bool | float | list[str | int | bool | float]] = Field(title="PredictedTargets")
    classes: list[str | int | bool]
    probabilities: list[list[float]] | None = None
    scores: list[list[float]] | None = None


class Failure(BaseModel):
    """Failure of a model.

    `position` is that of the event that the model could not apply, or of the state that could not
    be solved.
    """

    position: int
    code: str
    message: str

    @field_validator("message")
    @classmethod
    def _hide_internal(cls, message: str, info: ValidationInfo) -> str:
        """Replace the message of an unexpected error, which was not written for clients."""
        return "the log has the details" if info.data["code"] == "internal" else message


class ModelState(BaseModel):
    """State of a model.

    - `lag`: number of events of the log that it has not applied.
    - `bytes`: size of its state.
    - `stale_rows`: number of rows learned that the published projection does not include.
    """

    name: str
    estimator: str
    params: JsonDict
    state: Literal["live", "catching_up", "failed", "failed_to_publish"]
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
    publish: Policy | None
    refine: RefinePolicy | None
    failure: Failure | None
    publish_failure: Failure | None


class Models(BaseModel):
    """All models, by name."""

    models: dict[str, ModelState]


class Exported(BaseModel, extra="allow"):
    """Published projection of a model.

    Its arrays are further fields, by name. A linear one has `mean`, `components` and
    `eigenvalues`.
    """

    model: str
    version: int
    newest: int
    position: int
    rows: int
    kind: str
    solution: str


class JobState(BaseModel):
    """State of long work in the background."""

    id: str
    kind: Literal["refine", "snapshot"]
    model: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    progress: JsonDict
    error: dict[str, str] | None


class StreamState(BaseModel):
    """State of the stream.

    - `kinds`: "number", "date" or "text" for each column of a table, "" for one without a value
      yet.
    - `stated`: width that the first batch declared, 0 if none.
    - `labels`: labels in order of first appearance.
    - `outputs`: number of columns of continuous targets.
    - `weighted`: true if batches carry weights.
    - `allowed_labels`: labels that batches may have, empty if any.
    """

    position: int
    rows: int
    models: list[str]
    layout: Literal["dense", "named", "sparse", "table"] | None
    features: int
    names: list[str] | None
    kinds: list[str] | None
    stated: int
    target_kind: TargetKind | None
    labels: list[Label]
    outputs: int
    weighted: bool | None
    allowed_labels: list[Label]


class ModelOverview(BaseModel):
    """Overview of a model. `lag` is a number of events."""

    estimator: str
    state: str
    rows: int
    lag: int
    stale_rows: int
    version: int
    components: int
    solution: str | None


class Overview(BaseModel):
    """Data of an event of /events."""

    position: int
    rows: int
    models: dict[str, ModelOverview]

    @classmethod
    def of(cls, directory: stream_dr.Directory) -> Self:
        """Return the overview of a directory as it is now."""
        position = directory.position
        models = {name: ModelOverview(**model.describe(position)) for name, model in directory.models.items()}
        return cls(position=position, rows=directory.rows, models=models)


class Health(BaseModel):
    """Health of the process.

    `detail` names models that fail or cannot be published or snapshotted.
    """

    status: Literal["alive", "ready"]
    detail: str | None = None


_REF = "#/components/schemas/{model}"


def _schema_ref(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=kind.__name__)}


def binary_body(description: str) -> JsonDict:
    """Return the OpenAPI description of a body of bytes."""
    return {"schema": {"type": "string", "format": "binary", "description": description}}


_STREAM = binary_body(f"an Arrow stream; {media.ARROW_STREAM} says the same")
ROWS_BODY = {
    "requestBody": {"required": False, "content": {media.JSON: {"schema": _schema_ref(Rows)}, media.OCTETS: _STREAM}}
}
"""OpenAPI description of a body of rows.

Generated clients know no Arrow type, so it is declared as octets. The body is declared optional
although it is required, because the module that openapi-python-client generates for a required
body of several types cannot be imported.
"""

Answers = dict[int | str, JsonDict]
"""OpenAPI descriptions of a route's responses, by status."""


def problems(*statuses: int) -> Answers:
    """Return the responses of a route that may fail with these statuses."""
    content = {"application/problem+json": {"schema": _schema_ref(Problem)}}
    return {s: {"description": "a problem; see its code", "content": content} for s in statuses}


ANY = problems(401, 403, 422, 429, 500, 503)
BODY = problems(400, 408, 413, 415)
MODEL = problems(404, 409)


def openapi_document(app: FastAPI, guarded: bool) -> JsonDict:
    """Return the OpenAPI document of an application. It is built once.

    FastAPI's document is completed by schemas that no route refers to and by examples. The first
    paragraph of each operation becomes its summary. If `guarded`, operations that need a token
    say so.
    """
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        components = document["components"]
        components["schemas"] |= models_json_schema(
            [(kind, "validation") for kind in (Problem, Rows, Overview)], ref_template=_REF
        )[1]["$defs"]
        for name, example in EXAMPLES.items():
            components["schemas"][name]["examples"] = [example]
        if guarded:
            meaning = "Reading takes the read or the write token, writing the write token."
            token = {"type": "http", "scheme": "bearer", "description": meaning}
            components["securitySchemes"] = {"token": token}

        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                operation["summary"] = " ".join(operation["description"].partition("\n\n")[0].split())
                if guarded and auth.needed_right(method.upper(), path) is not None:
                    operation["security"] = [{"token": []}]
        app.openapi_schema = document
    return app.openapi_schema
