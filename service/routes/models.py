"""Models: make, look at, export and delete them while the stream goes on.

PUT's body is validated by pydantic models made from the registry's own signatures, so /docs shows each estimator's
parameters and a new estimator appears there by being registered.

Why this way: the service names no estimator.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.responses import Response

import stream_dr
from service import auth, documents, wire
from service.problems import Problem

Name = Annotated[str, Path(description="the model's name")]
OFFERS = (wire.JSON, wire.ARROW_STREAM, wire.SAFETENSORS)


class Publish(BaseModel):
    """When the model is solved and published: after so many rows, so many seconds, whenever the log is drained (idle).

    With {"seconds": null, "idle": false} only on demand: by POST /models/{name}/publish, which snapshots what it
    publishes, or ?wait=applied. A stop publishes what is published within a minute anyway, and no other model.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    rows: int | None = Field(None, ge=1, lt=2**63)
    seconds: float | None = Field(1.0, gt=0, le=1e9, allow_inf_nan=False)
    idle: bool = True


def spec_type() -> Any:
    """The type of PUT's body: one pydantic model per registered estimator, told apart by `estimator`."""
    kinds = tuple(_spec(key) for key in stream_dr.ESTIMATORS)
    union: Any = kinds[0]
    for kind in kinds[1:]:
        union = union | kind
    return Annotated[union, Field(discriminator="estimator")]


def router() -> APIRouter:
    """The routes; made when called, because the registry may have grown."""
    routes = APIRouter(tags=["models"])
    reads, writes = [Depends(auth.reads)], [Depends(auth.writes)]
    put = _put(spec_type())
    routes.get("/models", dependencies=reads, responses=documents.MODELS_ANSWERS)(every_model)
    routes.put("/models/{name}", dependencies=writes, status_code=201, responses=documents.PUT_ANSWERS)(put)
    routes.get("/models/{name}", dependencies=reads, responses=documents.MODEL_ANSWERS)(one_model)
    routes.delete("/models/{name}", dependencies=writes, status_code=204, responses=documents.UNKNOWN_MODEL)(delete)
    routes.post("/models/{name}/publish", dependencies=writes, responses=documents.PUBLISH_ANSWERS)(publish)
    routes.get("/models/{name}/projection", dependencies=reads, responses=documents.PROJECTION_ANSWERS)(projection)
    return routes


def every_model(request: Request) -> Response:
    """All models: name → what GET /models/{name} tells."""
    directory = request.app.state.directory
    last = directory.position
    return wire.json_response({"models": {n: m.describe(last) for n, m in directory.models.items()}})


def one_model(request: Request, name: Name) -> Response:
    """State, position, rows, lag, version, classes, eigenvalues, solution, bytes."""
    directory = request.app.state.directory
    return wire.json_response(directory.model(name).describe(directory.position))


def delete(request: Request, name: Name) -> Response:
    """Forget the model and its snapshots; the log stays."""
    request.app.state.running.remove_model(name)
    return Response(status_code=204)


async def publish(request: Request, name: Name) -> Response:
    """Publish the model as it is now, whatever its policy; 202 when solving takes longer than wait_timeout. What was
    refined stays."""
    state = request.app.state
    try:
        await state.waiting(state.running.publish, name, state.settings.wait_timeout)
        status = 200
    except TimeoutError:
        status = 202
    return wire.json_response(state.directory.model(name).describe(state.directory.position), status)


def projection(request: Request, name: Name, version: Annotated[int | None, Field(ge=1, lt=2**63)] = None) -> Response:
    """The published projection's arrays, or a kept version's with the map from it to the newest."""
    wire.query(request.scope["query_string"], "version")
    accept = wire.accepted(request, OFFERS)
    told = stream_dr.export_projection(request.app.state.directory.model(name), version)
    if accept == wire.JSON:
        return wire.json_response(told.to_json())
    return Response(told.to_arrow() if accept == wire.ARROW_STREAM else told.to_safetensors(), media_type=accept)


def _put(spec: Any) -> Any:
    shown: Any = {key: {"value": _example(key)} for key in stream_dr.ESTIMATORS}

    def put_model(request: Request, name: Name, body: Annotated[spec, Body(openapi_examples=shown)]) -> Response:
        """Make a model: 201 when new, 200 when it is there with the same spec. It catches up in the background.

        Of a model that is there, `publish` may be changed by this.
        """
        state = request.app.state
        params = body.params.model_dump(exclude_unset=True)
        policy = stream_dr.PublishPolicy(**body.publish.model_dump()) if body.publish else None
        try:
            model, new = state.running.add_model(name, body.estimator, params, body.start, policy)
        except (stream_dr.errors.TargetKindMismatch, stream_dr.errors.InvalidWeights) as e:
            raise Problem("model_refuses_stream", str(e), reason=e.code) from e
        told = model.describe(state.directory.position)
        return wire.json_response(told, 201 if new else 200, {"Location": f"/models/{name}"})

    return put_model


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
        publish=(Publish | None, Field(None, description="when to publish; default: the service's settings")),
    )
    return made
