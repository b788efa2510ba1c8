"""Routes that create, show, publish, export, delete, refine and snapshot models.

The schema of PUT's body is built from the signatures of all registered estimators. So a new
estimator needs no code here, and /docs shows the parameters of each estimator. A body of PUT that
is not JSON is the file of a saved estimator and has a route of its own.

Jobs refine and snapshot models in the background. A request does not wait until a job ends. The
response has the state of the job at this time.
"""

import asyncio
import functools
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

import stream_dr
from service import schemas
from service.guards import (
    ARROW_STREAM,
    JSON,
    OCTET_STREAM,
    SAFETENSORS,
    SAVED_MODEL_TYPES,
    media_type,
    negotiate_media_type,
)
from service.problems import ServiceError
from service.schemas import JobId, JsonDict, Name
from service.shared import AppState, Service
from stream_dr import errors

router = APIRouter(tags=["models"])
PUT_RESPONSES: schemas.ResponsesByStatus = {
    200: {"model": schemas.ModelState, "description": "exists already, with the same spec"},
    201: {"description": "created; catches up in the background"},
}
PUBLISH_RESPONSES: schemas.ResponsesByStatus = schemas.MODEL_PROBLEMS | {
    202: {"model": schemas.ModelState, "description": "still being solved"}
}
RELEASE_RESPONSES: schemas.ResponsesByStatus = {
    200: {"model": schemas.ReleaseState, "description": "exists already, with the same version"},
    201: {"description": "durable"},
}
REFUSALS = (
    errors.TargetKindMismatch,
    errors.InvalidWeights,
    errors.InvalidTargets,
    errors.SchemaMismatch,
    errors.WidthMismatch,
)
"""Errors of a model that cannot learn the stream."""

_FILE = {OCTET_STREAM: schemas.binary_body_schema("the safetensors file of a saved estimator")}
EXPORT_RESPONSES: schemas.ResponsesByStatus = {200: {"content": _FILE, "description": "a safetensors file"}}
_ARRAYS = dict.fromkeys((ARROW_STREAM, SAFETENSORS), schemas.binary_body_schema("arrays of the projection"))
PROJECTION_RESPONSES: schemas.ResponsesByStatus = {
    200: {
        "model": schemas.Exported,
        "content": _ARRAYS,
        "description": "JSON, an Arrow stream of one row, or a safetensors file, as the Accept header asks",
    },
    304: {"description": "the file of a release that the client has"},
}


@router.get("/models")
def models(shared: Service) -> schemas.Models:
    """Return the state of every model, by name."""
    states = {}
    for name, model in shared.directory.models.items():
        states[name] = schemas.ModelState.from_model(model, shared.running)
    return schemas.Models(models=states)


@router.get("/models/{name}", responses=schemas.MODEL_PROBLEMS)
def model(shared: Service, name: Name) -> schemas.ModelState:
    """Return the state of a model.

    The state has its position, lag, scores, published version, classes, eigenvalues and more.
    """
    return schemas.ModelState.from_model(shared.directory.model(name), shared.running)


@router.delete("/models/{name}", status_code=204, responses=schemas.MODEL_PROBLEMS)
def delete_model(shared: Service, name: Name) -> None:
    """Delete a model and its snapshots. The log stays."""
    shared.running.remove_model(name)


@router.post("/models/{name}/publish", responses=PUBLISH_RESPONSES | schemas.BODY_PROBLEMS | schemas.problems(507))
async def publish(
    shared: Service, response: Response, name: Name, body: schemas.Publish | None = None
) -> schemas.ModelState:
    """Publish a model as it is now, or a release of it, whatever its policy.

    If solving takes longer than the setting `wait_timeout`, the status is 202. If the published
    solution comes from POST /models/{name}/refine, the model is not solved again.

    After a release is published, the model still learns, but no new version is published. A later
    request without a release publishes the model as it is then. From then on, new versions are
    published by the model's policy (after so many rows or seconds) again.
    """
    seconds = shared.settings.wait_timeout
    release = body.release if body is not None else None
    try:
        await asyncio.get_running_loop().run_in_executor(shared.slow, shared.running.publish, name, seconds, release)
    except TimeoutError:
        response.status_code = 202
    return schemas.ModelState.from_model(shared.directory.model(name), shared.running)


@router.get(
    "/models/{name}/projection", responses=PROJECTION_RESPONSES | schemas.MODEL_PROBLEMS | schemas.problems(406)
)
def projection(
    request: Request, shared: Service, name: Name, query: Annotated[schemas.VersionQuery, Query()]
) -> Response:
    """Return the arrays of a published projection.

    If the query names a version or a release, the response also has arrays that convert rows
    projected with it to the newest version. With `form=release`, the response is the file of a
    release, and has an ETag.
    """
    model = shared.directory.model(name)
    if query.form == "release":
        return _respond_with_release(request, shared.directory.releases.served(model, query.release))
    accept = negotiate_media_type(request, (JSON, ARROW_STREAM, SAFETENSORS))
    release = shared.directory.releases.read(model, query.release) if query.release is not None else None
    exported = stream_dr.export_projection(model, query.version, release)
    if accept == JSON:
        content = orjson.dumps(exported.to_json(), option=orjson.OPT_SERIALIZE_NUMPY)
    elif accept == ARROW_STREAM:
        content = exported.to_arrow()
    else:
        content = exported.to_safetensors()
    return Response(content, media_type=accept)


def _respond_with_release(request: Request, release: stream_dr.Release) -> Response:
    """Return a response with the bytes of a release's file.

    The status is 304, without bytes, if the request's ETag says that the client has this file.
    """
    published = release.published
    # The time tells apart models of two directories that are served at the same address.
    identity = (release.model_id, published.version, published.timestamp, published.release, "release")
    headers = {"ETag": f'"{".".join(map(str, identity))}"'}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(release.to_bytes(), headers=headers, media_type=SAFETENSORS)


@router.post(
    "/models/{name}/releases",
    status_code=201,
    responses=RELEASE_RESPONSES | schemas.BODY_PROBLEMS | schemas.MODEL_PROBLEMS | schemas.problems(507),
)
def create_release(response: Response, shared: Service, name: Name, body: schemas.NewRelease) -> schemas.ReleaseState:
    """Give a published version of a model a name, under which it stays.

    The status is 201 once the release is durable, and 200 if it exists with the same version.
    """
    model = shared.directory.model(name)
    entry, is_new = shared.directory.releases.create(model, body.name, body.version)
    response.status_code = 201 if is_new else 200
    return _release_state(model, entry)


@router.get("/models/{name}/releases", responses=schemas.MODEL_PROBLEMS)
def releases(shared: Service, name: Name) -> schemas.ReleaseList:
    """Return the releases of a model, oldest first."""
    model = shared.directory.model(name)
    entries = shared.directory.releases.entries(model)
    return schemas.ReleaseList(releases=[_release_state(model, entry) for entry in entries])


@router.delete("/models/{name}/releases/{release}", status_code=204, responses=schemas.MODEL_PROBLEMS)
def delete_release(
    shared: Service,
    name: Name,
    release: schemas.ReleaseName,
    query: Annotated[schemas.DeleteReleaseQuery, Query()],
) -> None:
    """Delete a release. The status is 409 while the model serves it.

    The components of a model with a steady basis are rotated towards those of its newest release.
    So the status is also 409 for this release, unless the query has `basis=reset`.
    """
    shared.directory.releases.delete(shared.directory.model(name), release, query.basis is not None)


def _release_state(model: stream_dr.Model, entry: stream_dr.ReleaseEntry) -> schemas.ReleaseState:
    return schemas.ReleaseState(**entry._asdict() | {"served": model.served_release == entry.name})


@router.get("/models/{name}/export", response_class=Response, responses=EXPORT_RESPONSES | schemas.MODEL_PROBLEMS)
def export(shared: Service, name: Name) -> Response:
    """Return a model as the file of a saved estimator.

    `stream_dr.load` reads the file. The file may also be the body of PUT /models/{name} of another
    service.
    """
    content = stream_dr.export_model(shared.directory.model(name))
    headers = {"Content-Disposition": f'attachment; filename="{name}.safetensors"'}
    return Response(content, headers=headers, media_type=OCTET_STREAM)


class _SavedModelMediaTypeRoute(APIRoute):
    """Route for bodies that hold a saved estimator's file."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match requests whose media type is one of SAVED_MODEL_TYPES.

        The next route with the same path matches requests of other media types.
        """
        header = ""
        if scope["type"] == "http":
            header = Headers(scope=scope).get("content-type", "")
        if media_type(header) in SAVED_MODEL_TYPES:
            return super().matches(scope)
        return (Match.NONE, {})


saved_router = APIRouter(route_class=_SavedModelMediaTypeRoute)


@saved_router.put("/models/{name}", include_in_schema=False)
async def put_saved(request: Request, response: Response, shared: Service, name: Name) -> schemas.ModelState:
    """Create a model that continues to learn from a saved estimator's state."""
    content = b"".join([piece async for piece in request.stream()])
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(shared.slow, _add_saved_model, shared, response, name, content)


def _add_saved_model(shared: AppState, response: Response, name: str, content: bytes) -> schemas.ModelState:
    try:
        estimator = stream_dr.load(content, shared.directory.limits.max_state_bytes)
    except (errors.DamagedFile, errors.ForeignFile, errors.UnknownFormat) as e:
        raise ServiceError("malformed_input", str(e), reason=e.code) from None

    with _refusals_as_conflict():
        model, is_new = shared.running.add_saved(name, estimator)
    return _respond_to_put(shared, response, model, is_new)


@contextmanager
def _refusals_as_conflict() -> Iterator[None]:
    """Raise ServiceError `model_refuses_stream` for the errors in REFUSALS.

    The usual statuses of these errors would say that the request is wrong. But the request is
    correct here, and the model does not fit the stream. The status becomes 409.
    """
    try:
        yield
    except REFUSALS as e:
        raise ServiceError("model_refuses_stream", str(e), reason=e.code) from e


def _respond_to_put(shared: AppState, response: Response, model: stream_dr.Model, is_new: bool) -> schemas.ModelState:
    response.status_code = 201 if is_new else 200
    response.headers["Location"] = f"/models/{model.name}"
    return schemas.ModelState.from_model(model, shared.running)


def make_put_router() -> APIRouter:
    """Return the router of the route that creates models."""
    # Build the router here and not at the import, because users may register estimators later.
    routes = APIRouter(tags=["models"])
    examples: Any = {}
    for key, kind in stream_dr.ESTIMATORS.items():
        params = {name: default for name, _, default in stream_dr.parameter_types(kind) if default is not None}
        examples[key] = {"value": {"estimator": key, "params": params}}
    # The type of the body is the union of the estimators' schemas: schema_1 | schema_2 | …
    spec: Any = functools.reduce(operator.or_, map(_put_body_schema, stream_dr.ESTIMATORS))

    @routes.put(
        "/models/{name}",
        status_code=201,
        responses=PUT_RESPONSES | schemas.BODY_PROBLEMS | schemas.MODEL_PROBLEMS | schemas.problems(507),
        openapi_extra={"requestBody": {"required": False, "content": _FILE}},
    )
    def put_model(
        response: Response,
        shared: Service,
        name: Name,
        body: Annotated[spec, Body(discriminator="estimator", openapi_examples=examples, title="ModelSpec")],
    ) -> schemas.ModelState:
        """Create a model, which catches up in the background.

        The status is 201 if the model is new, and 200 if it exists with the same spec. The
        `publish` and `refine` policies of an existing model may be changed this way.

        The body may also be the file of a saved estimator, with the content type
        `application/octet-stream` or `application/safetensors`. This model answers queries at once
        and learns from the next batch on. If the same file is sent again, the status is 200. An
        empty stream takes the target kind, the labels and the column names of the file.
        """
        # `put_saved` handles a body that is the file of a saved estimator. Here the body is JSON.
        # Its class is one of the union `spec`, which has a subclass of `ModelSpec` for each
        # estimator. `exclude_unset` leaves out the parameters that the client has not sent.
        params = body.params.model_dump(exclude_unset=True)
        policy = stream_dr.PublishPolicy(**body.publish.model_dump()) if body.publish else None
        refine = stream_dr.RefinePolicy(**body.refine.model_dump()) if body.refine else None

        with _refusals_as_conflict():
            model, is_new = shared.running.add_model(
                name, body.estimator, params, body.start, policy, refine, body.basis
            )
        return _respond_to_put(shared, response, model, is_new)

    return routes


def _put_body_schema(estimator_key: str) -> type[BaseModel]:
    """Return the schema of a body that creates a model of an estimator."""
    # The type is Any, because the names of the fields are known only at run time.
    # Without Any, the type checker finds no overload of `create_model` for these fields.
    make: Any = create_model
    kind = stream_dr.ESTIMATORS[estimator_key]
    parameters = {name: (hint, default) for name, hint, default in stream_dr.parameter_types(kind)}
    strict = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, protected_namespaces=())
    params: Any = make(f"{kind.__name__}Parameters", __config__=strict, **parameters)

    # The field `estimator` has only one allowed value. FastAPI selects the schema of a body by it.
    fields = {"estimator": (Literal[estimator_key], ...), "params": (params, Field(default_factory=params))}
    summary, _, _ = (kind.__doc__ or "").strip().partition("\n")
    spec: type[BaseModel] = make(f"{kind.__name__}Model", __base__=schemas.ModelSpec, __doc__=summary, **fields)
    return spec


jobs_router = APIRouter(tags=["jobs"])
JOB_ROUTE_ARGUMENTS: JsonDict = {
    "status_code": 202,
    "response_model": schemas.JobState,
    "responses": schemas.BODY_PROBLEMS | schemas.MODEL_PROBLEMS,
}


@jobs_router.post("/models/{name}/refine", **JOB_ROUTE_ARGUMENTS)
def refine(shared: Service, response: Response, name: Name, options: schemas.Refine | None = None) -> JsonDict:
    """Solve a model exactly by passes over the log.

    The passes read the log up to the model's position. The exact solution stays published until
    the next refine. If the model is being refined already, the response has the running job.
    """
    options = options or schemas.Refine()
    job = shared.running.refine(name, options.tol, options.max_passes)
    return _respond_with_job(response, job)


@jobs_router.post("/models/{name}/snapshot", **JOB_ROUTE_ARGUMENTS)
def snapshot(shared: Service, response: Response, name: Name) -> JsonDict:
    """Write a model's snapshot to disk, in the background."""
    return _respond_with_job(response, shared.running.snapshot(name))


@jobs_router.get("/jobs/{id}", response_model=schemas.JobState, responses=schemas.problems(404))
def job(shared: Service, id: JobId) -> JsonDict:
    """Return a job's state, progress and error."""
    return shared.running.job(id).describe()


@jobs_router.delete("/jobs/{id}", status_code=202, response_model=schemas.JobState, responses=schemas.problems(404))
def cancel_job(shared: Service, id: JobId) -> JsonDict:
    """Ask a job to stop.

    The response has the state of the job, which may still run for some time. If the job has
    already ended, nothing changes.
    """
    job = shared.running.job(id)
    job.cancel()
    return job.describe()


def _respond_with_job(response: Response, job: stream_dr.Job) -> JsonDict:
    response.headers["Location"] = f"/jobs/{job.id}"
    return job.describe()
