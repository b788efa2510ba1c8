"""Routes of jobs, which refine and snapshot models in the background.

A request does not wait until a job ends. The response has the state of the job at this time.
"""

from fastapi import APIRouter, Response

import stream_dr
from service import schemas
from service.schemas import JobId, JsonDict, Name
from service.shared import Service

router = APIRouter(tags=["jobs"])
JOB_ROUTE_ARGUMENTS: JsonDict = {
    "status_code": 202,
    "response_model": schemas.JobState,
    "responses": schemas.BODY_PROBLEMS | schemas.MODEL_PROBLEMS,
}


@router.post("/models/{name}/refine", **JOB_ROUTE_ARGUMENTS)
def refine(shared: Service, response: Response, name: Name, options: schemas.Refine | None = None) -> JsonDict:
    """Solve a model exactly by passes over the log.

    The passes read the log up to the model's position. The exact solution stays published until
    the next refine.
    If the model is being refined already, the response has the running job.
    """
    options = options or schemas.Refine()
    return _respond_with_job(response, shared.running.refine(name, options.tol, options.max_passes))


@router.post("/models/{name}/snapshot", **JOB_ROUTE_ARGUMENTS)
def snapshot(shared: Service, response: Response, name: Name) -> JsonDict:
    """Write a model's snapshot to disk, in the background."""
    return _respond_with_job(response, shared.running.snapshot(name))


@router.get("/jobs/{id}", response_model=schemas.JobState, responses=schemas.problems(404))
def job(shared: Service, id: JobId) -> JsonDict:
    """Return a job's state, progress and error."""
    return shared.running.job(id).describe()


@router.delete("/jobs/{id}", status_code=202, response_model=schemas.JobState, responses=schemas.problems(404))
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
