"""Models: make, look at, export and delete them while the stream goes on.

The service names no estimator: PUT's body is validated by pydantic models made from the registry's own signatures, so /docs
shows each estimator's parameters, and a new estimator appears there by being registered. A body that is no JSON is the file
of a saved estimator, which has a route of its own.
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
from service.body_limits import media_type
from service.media import ARROW_STREAM, JSON, OCTETS, SAFETENSORS, SAVED, accepted
from service.problems import Problem
from service.schemas import Name
from service.shared import Service, Shared
from stream_dr import errors

Told = dict[str, Any]
"""What the library tells of a model; ModelState is its form."""

router = APIRouter(tags=["models"])
MADE: schemas.Answers = {
    200: {"model": schemas.ModelState, "description": "there already, with the same spec"},
    201: {"description": "made; it catches up in the background"},
}
LATE: schemas.Answers = {202: {"model": schemas.ModelState, "description": "still being solved"}}
REFUSALS = (
    errors.TargetKindMismatch,
    errors.InvalidWeights,
    errors.InvalidTargets,
    errors.SchemaMismatch,
    errors.WidthMismatch,
)
"""What is raised where a model cannot learn a stream."""
_FILE = {OCTETS: schemas.bytes_of("the safetensors file of a saved estimator")}
FILE: schemas.Answers = {200: {"content": _FILE, "description": "a safetensors file"}}
PROJECTION: schemas.Answers = {
    200: {
        "model": schemas.Exported,
        "content": {media: schemas.bytes_of("its arrays") for media in (ARROW_STREAM, SAFETENSORS)},
        "description": "by Accept: JSON, an Arrow stream of one row, or a safetensors file",
    }
}


@router.get("/models", response_model=schemas.Models)
def models(shared: Service) -> dict[str, dict[str, Told]]:
    """All models: name → what GET /models/{name} tells."""
    return {"models": {name: _told(shared, model) for name, model in shared.directory.models.items()}}


@router.get("/models/{name}", response_model=schemas.ModelState, responses=schemas.MODEL)
def model(shared: Service, name: Name) -> Told:
    """State, position, rows, lag, version, classes with their rows, those that wait, eigenvalues, solution, bytes."""
    return _told(shared, shared.directory.model(name))


@router.delete("/models/{name}", status_code=204, responses=schemas.MODEL)
def delete_model(shared: Service, name: Name) -> None:
    """Forget the model and its snapshots; the log stays."""
    shared.running.remove_model(name)


@router.post("/models/{name}/publish", response_model=schemas.ModelState, responses=LATE | schemas.MODEL)
async def publish(shared: Service, response: Response, name: Name) -> Told:
    """Publish the model as it is now, whatever its policy; 202 when solving takes longer than wait_timeout. What was
    refined stays."""
    seconds = shared.settings.wait_timeout
    try:
        await asyncio.get_running_loop().run_in_executor(shared.slow, shared.running.publish, name, seconds)
    except TimeoutError:
        response.status_code = 202
    return _told(shared, shared.directory.model(name))


@router.get("/models/{name}/projection", responses=PROJECTION | schemas.MODEL | schemas.problems(406))
def projection(
    request: Request, shared: Service, name: Name, query: Annotated[schemas.VersionQuery, Query()]
) -> Response:
    """The published projection's arrays, or a kept version's with the map from it to the newest."""
    accept = accepted(request, (JSON, ARROW_STREAM, SAFETENSORS))
    told = stream_dr.export_projection(shared.directory.model(name), query.version)
    if accept == JSON:
        return Response(orjson.dumps(told.to_json(), option=orjson.OPT_SERIALIZE_NUMPY), media_type=JSON)
    return Response(told.to_arrow() if accept == ARROW_STREAM else told.to_safetensors(), media_type=accept)


@router.get("/models/{name}/export", response_class=Response, responses=FILE | schemas.MODEL)
def export(shared: Service, name: Name) -> Response:
    """The model as a saved estimator, as it is now: a snapshot's file, for `stream_dr.load` or another service's PUT."""
    content = stream_dr.export_model(shared.directory.model(name))
    return Response(
        content, media_type=OCTETS, headers={"Content-Disposition": f'attachment; filename="{name}.safetensors"'}
    )


class _SavedRoute(APIRoute):
    """A route for bodies that are the file of a saved estimator."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Leave every other body to the next route."""
        given = Headers(scope=scope).get("content-type", "") if scope["type"] == "http" else ""
        return super().matches(scope) if media_type(given) in SAVED else (Match.NONE, {})


saved_router = APIRouter(route_class=_SavedRoute)


@saved_router.put("/models/{name}", include_in_schema=False)
async def put_saved(request: Request, response: Response, shared: Service, name: Name) -> Told:
    """As put_model, of a saved estimator, which goes on from where it was."""
    content = b"".join([piece async for piece in request.stream()])
    return await asyncio.get_running_loop().run_in_executor(shared.slow, _begin, shared, response, name, content)


def _begin(shared: Shared, response: Response, name: str, content: bytes) -> Told:
    try:
        estimator = stream_dr.load(content, shared.directory.limits.max_state_bytes)
    except (errors.DamagedFile, errors.ForeignFile, errors.UnknownFormat) as e:
        raise Problem("malformed_input", str(e), reason=e.code) from None
    with _fitting():
        return _made(shared, response, *shared.running.add_saved(name, estimator))


@contextmanager
def _fitting() -> Iterator[None]:
    """What does not fit the stream is the model, not the request."""
    try:
        yield
    except REFUSALS as e:
        raise Problem("model_refuses_stream", str(e), reason=e.code) from e


def _made(shared: Shared, response: Response, model: stream_dr.Model, new: bool) -> Told:
    response.status_code = 201 if new else 200
    response.headers["Location"] = f"/models/{model.name}"
    return _told(shared, model)


def _told(shared: Shared, model: stream_dr.Model) -> Told:
    return model.describe(shared.directory.position)


def put_router() -> APIRouter:
    """The route that makes models; made when called, because the registry may have grown."""
    routes = APIRouter(tags=["models"])
    shown: Any = {key: {"value": _example(key)} for key in stream_dr.ESTIMATORS}
    spec: Any = functools.reduce(operator.or_, map(_spec, stream_dr.ESTIMATORS))

    @routes.put(
        "/models/{name}",
        status_code=201,
        response_model=schemas.ModelState,
        responses=MADE | schemas.BODY | schemas.MODEL | schemas.problems(507),
        openapi_extra={"requestBody": {"required": False, "content": _FILE}},
    )
    def put_model(
        response: Response,
        shared: Service,
        name: Name,
        body: Annotated[spec, Body(discriminator="estimator", openapi_examples=shown, title="ModelSpec")],
    ) -> Told:
        """Make a model: 201 when new, 200 when it is there with the same spec. It catches up in the background.

        Of a model that is there, `publish` and `refine` may be changed by this. A body of octets (also called
        `application/safetensors`) is the file of a saved estimator: the model answers at once and goes on from it, with the
        next batch; the same file again is 200, and an empty stream takes its kind of targets, labels and columns' names.
        """
        params = body.params.model_dump(exclude_unset=True)
        policy = stream_dr.PublishPolicy(**body.publish.model_dump()) if body.publish else None
        refine = stream_dr.RefinePolicy(**body.refine.model_dump()) if body.refine else None
        with _fitting():
            made = shared.running.add_model(name, body.estimator, params, body.start, policy, refine)
        return _made(shared, response, *made)

    return routes


def _example(key: str) -> dict[str, Any]:
    """A body that makes a model with its defaults, named where they are not None."""
    defaults = {name: default for name, _, default in stream_dr.parameter_types(stream_dr.ESTIMATORS[key])}
    return {"estimator": key, "params": {name: value for name, value in defaults.items() if value is not None}}


def _spec(key: str) -> type[BaseModel]:
    make: Any = create_model  # its type cannot say what is decided at run time
    kind = stream_dr.ESTIMATORS[key]
    fields = {name: (hint, default) for name, hint, default in stream_dr.parameter_types(kind)}
    strict = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, protected_namespaces=())
    params: Any = make(f"{kind.__name__}Parameters", __config__=strict, **fields)
    first = (kind.__doc__ or "").strip().partition("\n")[0]
    made: type[BaseModel] = make(
        f"{kind.__name__}Model",
        __config__=ConfigDict(extra="forbid", strict=True, populate_by_name=True),
        __doc__=first,
        estimator=(Literal[key], ...),
        params=(params, Field(default_factory=params)),
        start=(
            int | Literal["start", "now"],
            Field("start", alias="from", title="Start", description="start, now or a position"),
        ),
        publish=(
            schemas.Policy | None,
            Field(None, description="when to publish; default: the service's settings"),
        ),
        refine=(
            schemas.RefinePolicy | None,
            Field(None, description="when to refine again by itself; default: never, or as it was"),
        ),
    )
    return made
