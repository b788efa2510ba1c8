"""Jobs: long work in the background (refine, snapshot), its progress, and how to cancel it.

A request never waits for passes over the log: the job as it is just now is what is shown.
"""

from typing import Any

from fastapi import APIRouter, Response

import stream_dr
from service import schemas
from service.schemas import JobId, Name
from service.shared import Service

router = APIRouter(tags=["jobs"])
STARTED: dict[str, Any] = {
    "status_code": 202,
    "response_model": schemas.JobState,
    "responses": schemas.BODY | schemas.MODEL,
}


@router.post("/models/{name}/refine", **STARTED)
def refine(shared: Service, response: Response, name: Name, how: schemas.Refine | None = None) -> dict[str, Any]:
    """Solve exactly by passes over the log up to the model's position; stays published until the next refine.

    While a refine of the model is under way, its job is answered.
    """
    how = how or schemas.Refine()
    return _started(response, shared.running.refine(name, how.tol, how.max_passes))


@router.post("/models/{name}/snapshot", **STARTED)
def snapshot(shared: Service, response: Response, name: Name) -> dict[str, Any]:
    """Write the model's state, position and spec to disk."""
    return _started(response, shared.running.snapshot(name))


@router.get("/jobs/{id}", response_model=schemas.JobState, responses=schemas.problems(404))
def job(shared: Service, id: JobId) -> dict[str, Any]:
    """A job's state, progress and error."""
    return shared.running.job(id).describe()


@router.delete("/jobs/{id}", status_code=202, response_model=schemas.JobState, responses=schemas.problems(404))
def cancel_job(shared: Service, id: JobId) -> dict[str, Any]:
    """Ask a job to stop at its next safe point; an ended job stays what it is."""
    job = shared.running.job(id)
    job.cancel()
    return job.describe()


def _started(response: Response, job: stream_dr.Job) -> dict[str, Any]:
    response.headers["Location"] = f"/jobs/{job.id}"
    return job.describe()
