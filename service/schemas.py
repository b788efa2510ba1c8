"""Schemas: the forms of queries, bodies and answers, which /docs shows and clients can be generated from.

FastAPI reads and writes by them, but for bodies of rows: those are read by the library, and their form is written down here
for the OpenAPI document alone.
"""

from typing import Annotated, Any, Literal, Self

from fastapi import FastAPI, Header, Path
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import models_json_schema

import stream_dr
from service import auth, media
from service.examples import EXAMPLES

Label = str | int | bool
PUBLISH = stream_dr.PublishPolicy()
"""When a model is published of which nothing is said."""
TargetKind = Literal["none", "class", "multilabel", "continuous"]
Flag = Annotated[bool, BeforeValidator(lambda given: str(given).lower() not in ("0", "false"))]
"""A parameter that is true where it is given, unless as 0 or false."""

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
    """A query, in which nothing but what is named may stand."""


class LearnQuery(Query):
    """How a batch is learned."""

    wait: Literal["applied"] | None = Field(None, description="answer once every model has learned it")
    check: Flag = Field(False, description="admit without appending")


class UnlearnQuery(Query):
    """How rows are taken out."""

    wait: Literal["applied"] | None = Field(None, description="answer once every model has unlearned them")


class TransformQuery(Query):
    """By which model rows are projected."""

    model: str | None = Field(
        None, description="the model's name; may be left out where there is only one", examples=["lda"]
    )


class OneRowQuery(TransformQuery):
    """A row to be projected: x, or indices and values."""

    x: str | None = Field(None, description="a dense row: 0.1,0.2", examples=["0.1,0.2"])
    indices: str | None = Field(None, description="a sparse row's indices: 3,17")
    values: str | None = Field(None, description="its values: 0.5,1.2")


class VersionQuery(Query):
    """Which projection of a model."""

    version: int | None = Field(None, ge=1, lt=2**63, description="a kept version; the newest where it is left out")


class SparseRow(BaseModel):
    """A row by its entries that are not zero, indices ascending."""

    indices: list[Annotated[int, Field(ge=0)]]
    values: list[float]


class Rows(BaseModel):
    """Rows: all dense, all sparse, all by the columns' names, or all texts; and what is given with them, one a row. Strings,
    true, false and null among named values are for models whose feature map is `table`, texts for `text` and `table`.

    labels: a label or a list of labels a row, null where a row has no target. target: continuous targets instead, a number
    or a list of numbers a row.
    """

    rows: list[list[float]] | list[SparseRow] | list[dict[str, float | str | bool | None]] | list[str] = Field(
        title="RowList"
    )
    labels: list[Label | list[Label] | None] | None = None
    target: list[float | list[float] | None] | None = None
    weights: list[Annotated[float, Field(ge=0)]] | None = None
    ids: list[str | int] | None = None


class FiguresQuery(Query):
    """What the dashboard shows."""

    model: str | None = Field(
        None, description="whose figures; left out, or not there: progress alone", examples=["lda"]
    )
    rows: int = Field(2_000, ge=1, le=100_000, description="how many of the newest rows are projected")
    dimensions: Literal[2, 3] = Field(2, description="of the projection")
    component: int = Field(0, ge=0, le=100_000, description="whose loadings, from 0")
    have: str = Field("", max_length=2_000, description="tags of the figures that the asker has, parted by commas")

    @field_validator("dimensions", mode="before")
    @classmethod
    def _number(cls, given: object) -> object:
        """Queries are text."""
        return int(given) if isinstance(given, str) and given.isdigit() else given


class Unlearn(BaseModel, extra="forbid", strict=True):
    """Rows to take out: by the positions of their events, or by their ids."""

    positions: list[Annotated[int, Field(ge=0, lt=2**63)]] = Field([], max_length=10_000)
    ids: list[Annotated[str, Field(max_length=1_000)] | int] = Field([], max_length=10_000)

    @model_validator(mode="before")
    @classmethod
    def _by_one_of_both(cls, given: object) -> object:
        """Name both keys whatever is wrong with them, which pydantic's own "extra inputs" and "field required" do not."""
        if isinstance(given, dict) and given.keys() <= cls.model_fields.keys() and sum(map(bool, given.values())) == 1:
            return given
        raise ValueError('give either {"positions": […]} or {"ids": […]}')


class Refine(BaseModel, extra="forbid", strict=True):
    """How far to refine."""

    tol: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    max_passes: Annotated[int, Field(ge=1, le=1_000)] = 20


class Policy(BaseModel, extra="forbid", strict=True):
    """When the model is solved and published: after so many rows, so many seconds, whenever the log is drained (idle).

    With {"seconds": null, "idle": false} only on demand: by POST /models/{name}/publish, which snapshots what it
    publishes, or ?wait=applied. A stop publishes what is published within a minute anyway, and no other model.
    """

    rows: int | None = Field(PUBLISH.rows, ge=1, lt=2**63)
    seconds: float | None = Field(PUBLISH.seconds, gt=0, le=1e9, allow_inf_nan=False)
    idle: bool = PUBLISH.idle


class RefinePolicy(BaseModel, extra="forbid", strict=True):
    """When the model is refined again in the background: so many rows, or seconds with new rows, after it was last; with
    neither, when asked."""

    rows: int | None = Field(None, ge=1, lt=2**63)
    seconds: float | None = Field(None, gt=0, le=1e9, allow_inf_nan=False)


class Problem(BaseModel):
    """An error (RFC 9457); `code` is stable."""

    type: str
    title: str
    status: int
    code: str
    detail: str


class Receipt(BaseModel):
    """What became of a batch; where the request waited, `lag` (events still to be learned), and of an answer 202
    `reason`: why not every model has published it; which of a table's columns the rows do not have, and were taken as
    missing."""

    position: int | None
    rows: int
    duplicate: bool
    lag: int | None = None
    reason: str | None = None
    columns_missing: list[str] | None = None


class Answer(BaseModel):
    """By which version of the model rows are answered; of many rows also their ids, and how many entries lie past the
    features that the version knows, or are of categories and columns it never met; and which of a table's columns the
    rows do not have."""

    model: str
    version: int
    position: int
    solution: str
    id: list[str | int] | None = None
    unseen: int = 0
    columns_missing: list[str] | None = None


class Projected(Answer):
    """Projected rows `z`."""

    z: list[list[float]]


class Predicted(Answer):
    """Targets predicted of rows: a label, a list of labels, a number or a list of numbers a row; posterior `probabilities`
    of the `classes` where the method has them, otherwise `scores`: the numbers, or each label's indicator, by regression. Of
    a diagonal solution there are scores that rank the classes, and no probabilities."""

    predicted: list[str | int | bool | float | list[str | int | bool | float]] = Field(title="PredictedTargets")
    classes: list[str | int | bool]
    probabilities: list[list[float]] | None = None
    scores: list[list[float]] | None = None


class Failure(BaseModel):
    """The position of the event that a model could not apply, or of the state that could not be solved, and why."""

    position: int
    code: str
    message: str

    @field_validator("message")
    @classmethod
    def _for_clients(cls, message: str, told: ValidationInfo) -> str:
        """What was not written for clients is in the log alone."""
        return "the log has the details" if told.data["code"] == "internal" else message


class ModelState(BaseModel):
    """All that is told about a model; `lag` in events, `bytes` of its state, `stale_rows` learned and not in what is
    published."""

    name: str
    estimator: str
    params: dict[str, Any]
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
    """What the stream is so far. kinds: of a table's columns, "number", "date" or "text" ("": no value yet); stated: the
    width its first batch stated (0: none); labels: in order of first appearance; outputs: columns of continuous targets;
    weighted: whether batches carry weights; allowed_labels: those that batches may have (none: any)."""

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
    """A model in a few figures; `lag` in events."""

    estimator: str
    state: str
    rows: int
    lag: int
    stale_rows: int
    version: int
    components: int
    solution: str | None


class Overview(BaseModel):
    """What an event of /events holds."""

    position: int
    rows: int
    models: dict[str, ModelOverview]

    @classmethod
    def of(cls, directory: stream_dr.Directory) -> Self:
        """The directory as it is now."""
        last = directory.position
        models = {name: ModelOverview(**model.describe(last)) for name, model in directory.models.items()}
        return cls(position=last, rows=directory.rows, models=models)


class Health(BaseModel):
    """How the process is; `detail` names models that fail, or cannot be published or snapshotted."""

    status: Literal["alive", "ready"]
    detail: str | None = None


_REF = "#/components/schemas/{model}"


def _ref(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=kind.__name__)}


def bytes_of(what: str) -> dict[str, Any]:
    """A body of bytes."""
    return {"schema": {"type": "string", "format": "binary", "description": what}}


_STREAM = bytes_of(f"an Arrow stream; {media.ARROW_STREAM} says the same")
ROWS_BODY = {"requestBody": {"required": False, "content": {media.JSON: {"schema": _ref(Rows)}, media.OCTETS: _STREAM}}}
"""What FastAPI is told of a body of rows. Generated clients know no type of Arrow's; and what openapi-python-client makes of
a body of several types can be imported only where it is said not to be required, which it is all the same."""

Answers = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Answers:
    """The answers of a route that may fail with these statuses."""
    content = {"application/problem+json": {"schema": _ref(Problem)}}
    return {s: {"description": "a problem; see its code", "content": content} for s in statuses}


ANY = problems(401, 403, 422, 429, 500, 503)
BODY = problems(400, 408, 413, 415)
MODEL = problems(404, 409)


def describe(app: FastAPI, guarded: bool) -> dict[str, Any]:
    """The OpenAPI document: FastAPI's own, with the form of problems, each operation's first paragraph as its summary and,
    where the service is guarded by tokens, which operations need one. Made once."""
    if app.openapi_schema is None:
        told = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        told["components"]["schemas"] |= models_json_schema(
            [(kind, "validation") for kind in (Problem, Rows, Overview)], ref_template=_REF
        )[1]["$defs"]
        for name, example in EXAMPLES.items():
            told["components"]["schemas"][name]["examples"] = [example]
        if guarded:
            meaning = "Reading takes the read or the write token, writing the write token."
            token = {"type": "http", "scheme": "bearer", "description": meaning}
            told["components"]["securitySchemes"] = {"token": token}

        for path, methods in told["paths"].items():
            for method, operation in methods.items():
                operation["summary"] = " ".join(operation["description"].partition("\n\n")[0].split())
                if guarded and auth.needed(method.upper(), path) is not None:
                    operation["security"] = [{"token": []}]
        app.openapi_schema = told
    return app.openapi_schema
