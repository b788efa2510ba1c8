"""Routes, by concern: learn (partial_fit, unlearn), project (transform), models, stream (what there is, and health)."""

from fastapi import FastAPI

from service import jobs
from service.routes import learn, models, project, stream


def install(app: FastAPI) -> None:
    """Add every route to the app."""
    for router in (learn.router, project.router, models.router(), jobs.router, stream.router):
        app.include_router(router)
