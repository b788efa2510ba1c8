"""Models: make, look at, export and delete them while the stream goes on.

The service names no estimator: PUT's body is validated by pydantic models made from the registry's own signatures, so /docs
shows each estimator's parameters, and a new estimator appears there by being registered.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, create_model

import stream_dr
from service import schemas
from service.media import ARROW_STREAM, JSON, SAFETENSORS, accepted
from service.problems import Problem
from service.shared import Shared

Name = Annotated[str, Path(description="the model's name")]
Told = dict[str, Any]
"""What the library tells of a model; ModelState is its form."""

PROJECTION: schemas.Answers = {
    200: {
        "model": schemas.Exported,
        "content": {ARROW_STREAM: schemas.BYTES, SAFETENSORS: schemas.BYTES},
        "description": "by Accept: JSON, an Arrow stream of one row, or a safetensors file",
    }
}


def router() -> APIRouter:
    """The routes; made when called, because the registry may have grown."""
    routes, state = APIRouter(tags=["models"]), schemas.ModelState
    made: schemas.Answers = {
        200: {"model": state, "description": "there already, with the same spec"},
        201: {"description": "made; it catches up in the background"},
    }
    late: schemas.Answers = {202: {"model": state, "description": "still being solved"}}
    routes.get("/models", response_model=schemas.Models)(every_model)
    routes.put("/models/{name}", status_code=201, response_model=state, responses=made | schemas.BODY | schemas.MODEL)(
        _put()
    )
    routes.get("/models/{name}", response_model=state, responses=schemas.MODEL)(one_model)
    routes.delete("/models/{name}", status_code=204, responses=schemas.MODEL)(delete)
    routes.post("/models/{name}/publish", response_model=state, responses=late | schemas.MODEL)(publish)
    routes.get("/models/{name}/projection", responses=PROJECTION | schemas.MODEL | schemas.problems(406))(projection)
    return routes


def every_model(request: Request) -> dict[str, dict[str, Told]]:
    """All models: name → what GET /models/{name} tells."""
    shared: Shared = request.app.state.shared
    return {"models": {name: _told(shared, model) for name, model in shared.directory.models.items()}}


def one_model(request: Request, name: Name) -> Told:
    """State, position, rows, lag, version, classes, eigenvalues, solution, bytes."""
    shared: Shared = request.app.state.shared
    return _told(shared, shared.directory.model(name))


def delete(request: Request, name: Name) -> None:
    """Forget the model and its snapshots; the log stays."""
    shared: Shared = request.app.state.shared
    shared.running.remove_model(name)


async def publish(request: Request, response: Response, name: Name) -> Told:
    """Publish the model as it is now, whatever its policy; 202 when solving takes longer than wait_timeout. What was
    refined stays."""
    shared: Shared = request.app.state.shared
    seconds = shared.settings.wait_timeout
    try:
        await asyncio.get_running_loop().run_in_executor(shared.slow, shared.running.publish, name, seconds)
    except TimeoutError:
        response.status_code = 202
    return _told(shared, shared.directory.model(name))


def projection(request: Request, name: Name, query: Annotated[schemas.VersionQuery, Query()]) -> Response:
    """The published projection's arrays, or a kept version's with the map from it to the newest."""
    shared: Shared = request.app.state.shared
    accept = accepted(request, (JSON, ARROW_STREAM, SAFETENSORS))
    told = stream_dr.export_projection(shared.directory.model(name), query.version)
    if accept == JSON:
        return Response(orjson.dumps(told.to_json(), option=orjson.OPT_SERIALIZE_NUMPY), media_type=JSON)
    return Response(told.to_arrow() if accept == ARROW_STREAM else told.to_safetensors(), media_type=accept)


def _told(shared: Shared, model: stream_dr.Model) -> Told:
    return model.describe(shared.directory.position)


def _put() -> Callable[..., Told]:
    shown: Any = {key: {"value": _example(key)} for key in stream_dr.ESTIMATORS}
    spec: Any = _any_spec()

    def put_model(
        request: Request,
        response: Response,
        name: Name,
        body: Annotated[spec, Body(discriminator="estimator", openapi_examples=shown)],
    ) -> Told:
        """Make a model: 201 when new, 200 when it is there with the same spec. It catches up in the background.

        Of a model that is there, `publish` and `refine` may be changed by this.
        """
        shared: Shared = request.app.state.shared
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

    return put_model


def _any_spec() -> Any:
    """The type of PUT's body: one pydantic model per registered estimator."""
    kinds = [_spec(key) for key in stream_dr.ESTIMATORS]
    union: Any = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    return union


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
        refine=(schemas.RefinePolicy | None, Field(None, description="when to refine again by itself; default: never")),
    )
    return made
