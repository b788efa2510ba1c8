"""Lane: POST /partial_fit on the shortest way to its function.

The route stays in the application, which describes it and answers every other method; a batch does not pass through what
FastAPI puts around every request, its routing, its exit stacks and its exception handlers. It is bounded and counted by the
same middlewares; what the function raises, the counting one answers, in the words the handlers would use. Queries are
made known to the intake, which then keeps the event loop free of parsing.

Cost: with intake.py's way of handing receipts back, a tenth more batches of 1 MB a second than through the application and
a pool (`python benchmarks/service.py ingest --estimator lda`).

Why this way: batches come by the hundred a second, on the one thread that also answers queries.
"""

from fastapi import FastAPI, Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.routes.learn import partial_fit

PATH, QUERY = "/partial_fit", "/transform"
_ROUTE = Route(PATH, partial_fit, methods=["POST"])


async def batch(scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one batch."""
    scope["route"] = _ROUTE
    response = await partial_fit(Request(scope, receive, send))
    await response(scope, receive, send)


class Lane:
    """An application whose batches go by its `state.lane`: `batch`, in its middlewares."""

    def __init__(self, app: FastAPI) -> None:
        self.app, self.lane = app, app.state.lane

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST":
            scope["app"] = self.app
            await self.lane(scope, receive, send)
        else:
            if scope["type"] == "http" and scope["path"] == QUERY:
                self.app.state.intake.give_way()
            await self.app(scope, receive, send)
