"""Lane: POST /partial_fit on the shortest way to its function.

A middleware inside those that bound bodies and count requests. The route stays in the application, which describes it and
answers every other method; a batch does not pass through FastAPI's routing, exit stacks and exception handlers. What the
function raises, the counting middleware answers, in the words the handlers would use.

Cost: 4 % more batches of 1 MB a second than through the application (`python benchmarks/service.py ingest`).

Why this way: batches come by the hundred a second, on the one thread that also answers queries.
"""

from fastapi import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from service.routes.learn import partial_fit

PATH = "/partial_fit"
_ROUTE = Route(PATH, partial_fit, methods=["POST"])


class Lane:
    """The middleware. app: what serves every other request; the request's state is that of the application around it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        scope["route"] = _ROUTE
        response = await partial_fit(Request(scope, receive, send))
        await response(scope, receive, send)
