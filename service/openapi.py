"""openapi: the service's description of itself, which /docs shows.

FastAPI's own, and what it cannot read off the routes: the forms of documents.py, and which operations need a token where
one is set. The pages' scripts come with the package fastapi-offline: a browser that reaches the service and nothing else
shows them.

Why this way: the "Authorize" button of /docs, and clients generated from the document, then send the token by themselves.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service import documents

OPEN = ("/", "/livez", "/readyz")
"""Paths that need no token."""

_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "Reading takes the read or the write token, writing the write token.",
}


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        told = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        components = told.setdefault("components", {})
        components.setdefault("schemas", {}).update(documents.EXTRA_SCHEMAS)
        if app.state.settings.write_token is not None:
            components["securitySchemes"] = {"token": _TOKEN}
            _guard(told["paths"])
        app.openapi_schema = told
    return app.openapi_schema


def _guard(paths: dict[str, Any]) -> None:
    for path, methods in paths.items():
        if path not in OPEN:
            for operation in methods.values():
                operation["security"] = [{"token": []}]
