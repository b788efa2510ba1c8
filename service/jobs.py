"""Jobs: long work in the background (refine, snapshot), its progress, and how to cancel it.

Why this way: a request never waits for passes over the log; the job's own object, swapped by its worker, is what is shown.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service import auth, documents, wire

router = APIRouter(tags=["jobs"])
reads, writes = [Depends(auth.reads)], [Depends(auth.writes)]


class Refine(BaseModel):
    """How far to refine."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tol: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    max_passes: Annotated[int, Field(ge=1, le=1_000)] = 20


@router.post("/models/{name}/refine", status_code=202, dependencies=writes, responses=documents.STARTED_ANSWERS)
def refine(request: Request, name: str, how: Refine | None = None) -> Response:
    """Solve exactly by passes over the log up to the model's position; stays published until the next refine.

    While a refine of the model is under way, its job is answered.
    """
    how = how or Refine()
    return _started(request.app.state.running.refine(name, how.tol, how.max_passes))


@router.post("/models/{name}/snapshot", status_code=202, dependencies=writes, responses=documents.STARTED_ANSWERS)
def snapshot(request: Request, name: str) -> Response:
    """Write the model's state, position and spec to disk."""
    return _started(request.app.state.running.snapshot(name))


@router.get("/jobs/{id}", dependencies=reads, responses=documents.JOB_ANSWERS)
def job(request: Request, id: str) -> Response:
    """A job's state, progress and error."""
    return wire.json_response(request.app.state.running.job(id).describe())


@router.delete("/jobs/{id}", status_code=202, dependencies=writes, responses=documents.CANCEL_ANSWERS)
def cancel(request: Request, id: str) -> Response:
    """Ask a job to stop at its next safe point; an ended job stays what it is."""
    job = request.app.state.running.job(id)
    job.cancel()
    return wire.json_response(job.describe(), 202)


def _started(job: object) -> Response:
    told = job.describe()  # type: ignore[attr-defined]
    return wire.json_response(told, 202, {"Location": f"/jobs/{told['id']}"})
