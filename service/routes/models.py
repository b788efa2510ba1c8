"""Models: make, look at, export and delete them while the stream goes on.

The service names no estimator: PUT's body is validated by pydantic models made from the registry's own signatures, so /docs
shows each estimator's parameters, and a new estimator appears there by being registered.
"""

import asyncio
import functools
import operator
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, create_model

import stream_dr
from service import schemas
from service.media import ARROW_STREAM, JSON, SAFETENSORS, accepted
from service.problems import Problem
from service.shared import Service, Shared

Name = Annotated[str, Path(description="the model's name")]
Told = dict[str, Any]
"""What the library tells of a model; ModelState is its form."""

router = APIRouter(tags=["models"])
MADE: schemas.Answers = {
    200: {"model": schemas.ModelState, "description": "there already, with the same spec"},
    201: {"description": "made; it catches up in the background"},
}
LATE: schemas.Answers = {202: {"model": schemas.ModelState, "description": "still being solved"}}
PROJECTION: schemas.Answers = {
    200: {
        "model": schemas.Exported,
        "content": {ARROW_STREAM: schemas.BYTES, SAFETENSORS: schemas.BYTES},
        "description": "by Accept: JSON, an Arrow stream of one row, or a safetensors file",
    }
}


@router.get("/models", response_model=schemas.Models)
def every_model(shared: Service) -> dict[str, dict[str, Told]]:
    """All models: name → what GET /models/{name} tells."""
    return {"models": {name: _told(shared, model) for name, model in shared.directory.models.items()}}


@router.get("/models/{name}", response_model=schemas.ModelState, responses=schemas.MODEL)
def one_model(shared: Service, name: Name) -> Told:
    """State, position, rows, lag, version, classes, eigenvalues, solution, bytes."""
    return _told(shared, shared.directory.model(name))


@router.delete("/models/{name}", status_code=204, responses=schemas.MODEL)
def delete(shared: Service, name: Name) -> None:
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
        responses=MADE | schemas.BODY | schemas.MODEL,
    )
    def put_model(
        response: Response,
        shared: Service,
        name: Name,
        body: Annotated[spec, Body(discriminator="estimator", openapi_examples=shown)],
    ) -> Told:
        """Make a model: 201 when new, 200 when it is there with the same spec. It catches up in the background.

        Of a model that is there, `publish` and `refine` may be changed by this.
        """
        params = body.params.model_dump(exclude_unset=True)
        policy = stream_dr.PublishPolicy(**body.publish.model_dump()) if body.publish else None
        refine = stream_dr.RefinePolicy(**body.refine.model_dump()) if body.refine else None
        try:
            model, new = shared.running.add_model(name, body.estimator, params, body.start, policy, refine)
        except (stream_dr.errors.TargetKindMismatch, stream_dr.errors.InvalidWeights) as e:
            raise Problem("model_refuses_stream", str(e), reason=e.code) from e
        response.status_code = 201 if new else 200
        response.headers["Location"] = f"/models/{name}"
        return _told(shared, model)

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
        start=(int | Literal["start", "now"], Field("start", alias="from", description="start, now or a position")),
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
