"""Problems: every error the service answers, as RFC 9457 problem+json with a stable `code`; one table code → status.

Codes of `stream_dr.errors` and of the service stand in the same table: a client matches on `code`. Every error is one line
of the log; what nobody foresaw is logged with its traceback and answered with a fixed sentence, so a client never sees an
exception's text that was not written for it.
"""

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from typing import Any

import fastapi
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Scope

import stream_dr

MEDIA_TYPE = "application/problem+json"
UNKNOWN = "The service met an error it did not foresee; the details are in its log."

_CODES = {
    400: "malformed_input bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found unknown_model unknown_version unknown_job",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "request_timeout",
    409: "model_exists model_empty model_failed output_exists model_refuses_stream needs_refine key_conflict "
    "history_gone cannot_merge cannot_unlearn precision_lost cannot_refine cannot_predict",
    413: "body_too_large",
    415: "unsupported_media_type",
    422: "invalid invalid_parameter unknown_estimator invalid_request invalid_rows width_mismatch not_finite "
    "invalid_index invalid_targets targets_required target_kind_mismatch invalid_weights empty_input "
    "too_many_features limit_exceeded schema_mismatch",
    429: "overloaded",
    500: "internal damaged_shard damaged_file foreign_file unknown_format source_missing",
    502: "remote_error cluster",
    503: "catching_up directory_in_use directory_missing not_ready shutting_down",
    507: "insufficient_storage",
}
STATUS = {code: status for status, codes in _CODES.items() for code in codes.split()}
"""The HTTP status of every code."""

_AGAIN = {"Retry-After": "1"}
_OF_STATUS = {400: "bad_request", 401: "unauthorized", 404: "not_found", 405: "method_not_allowed"}
_log = logging.getLogger("service")


class Problem(fastapi.HTTPException):
    """An error of the service itself: `code` from STATUS, a sentence, headers, and machine-readable facts."""

    def __init__(self, code: str, detail: str, headers: dict[str, str] | None = None, **facts: Any) -> None:
        super().__init__(STATUS[code], detail, headers)
        self.code, self.facts = code, facts


def answer(scope: Scope, error: BaseException) -> Response:
    """The answer to an error that a request met, which is logged in one line."""
    unforeseen = False
    match error:
        case Problem():
            told = response(error.code, error.detail, error.facts, error.headers)
        case stream_dr.errors.StreamDRError() if error.code in STATUS:
            told = response(error.code, str(error), error.details, _retry_after(error))
        case ClientDisconnect():
            told = response("bad_request", "The client went away before its request was whole.")
        case RequestValidationError():
            told = _of_validation(error)
        case HTTPException():
            told = _of_http(error)
        case asyncio.CancelledError():
            told = response("shutting_down", "The service stops; ask again after the restart.", headers=_AGAIN)
        case _:
            told, unforeseen = response("internal", UNKNOWN), True
    level = logging.ERROR if told.status_code >= 500 and told.status_code != 503 else logging.INFO
    path = scope.get("raw_path", b"").decode("latin-1")
    cause = repr(error) if level == logging.ERROR else type(error).__name__
    _log.log(
        level, "%s %s: %d, %s", scope["method"], path, told.status_code, cause, exc_info=error if unforeseen else None
    )
    return told


def response(
    code: str, detail: str, facts: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """The problem as an HTTP answer."""
    status = STATUS[code]
    fields = {"type": "about:blank", "title": code.replace("_", " "), "status": status, "code": code, "detail": detail}
    extra = {name: _written(fact) for name, fact in (facts or {}).items() if name not in fields}
    return Response(json.dumps(fields | extra, default=str), status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of the app's routes with its problem."""

    async def handle(request: Request, error: Exception) -> Response:
        return answer(request.scope, error)

    for kind in (stream_dr.errors.StreamDRError, RequestValidationError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, handle)


def _written(fact: Any) -> Any:
    """A fact as JSON can say it to every reader: integers of more than 64 bits in digits, what is not finite as null."""
    if isinstance(fact, dict):
        return {str(name): _written(value) for name, value in fact.items()}
    if isinstance(fact, list | tuple):
        return [_written(value) for value in fact]
    if isinstance(fact, float) and not math.isfinite(fact):
        return None
    return str(fact) if isinstance(fact, int) and not -(2**63) <= fact < 2**63 else fact


def _retry_after(error: stream_dr.errors.StreamDRError) -> dict[str, str]:
    if STATUS[error.code] not in (429, 503):
        return {}
    return {"Retry-After": str(max(1, round(float(error.details.get("retry_after", 1)))))}


def _of_http(error: HTTPException) -> Response:
    code = _OF_STATUS.get(error.status_code, "bad_request" if error.status_code < 500 else "internal")
    sentence = {
        "not_found": "There is nothing at this address; /docs lists what there is.",
        "method_not_allowed": "This address does not take that method; /docs lists what it takes.",
    }.get(code, str(error.detail))
    return response(code, sentence, headers=error.headers)


def _of_validation(error: RequestValidationError) -> Response:
    """FastAPI's own 422: the code tells an unknown estimator and a bad parameter from any other bad request."""
    errors = [{"where": list(e["loc"]), "what": _what(e), "kind": e["type"]} for e in error.errors()]
    kinds = {e["kind"] for e in errors}
    if "json_invalid" in kinds:
        return response("malformed_input", "The body is not JSON: " + errors[0]["what"] + ".", {"errors": errors})
    code = "invalid_request"
    if "union_tag_invalid" in kinds:
        code = "unknown_estimator"
    elif any("params" in e["where"] for e in errors):
        code = "invalid_parameter"
    detail = "; ".join(f"{_place(e['where'])}{e['what']}" for e in errors[:5])
    return response(code, detail, {"errors": errors})


def _what(error: Any) -> str:
    """What is wrong at one place, what was given there, and what could be."""
    place, kind = error["loc"], error["type"]
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        meant = stream_dr.errors.did_you_mean(error.get("ctx", {}).get("tag", ""), stream_dr.ESTIMATORS)
        return f'no estimator is named that there is{meant}; "estimator" is one of {", ".join(stream_dr.ESTIMATORS)}'
    if kind == "extra_forbidden" and len(place) > 3 and place[2] == "params" and place[1] in stream_dr.ESTIMATORS:
        known = [name for name, _, _ in stream_dr.parameter_types(stream_dr.ESTIMATORS[place[1]])]
        meant = stream_dr.errors.did_you_mean(place[-1], known)
        return f"{place[1]} has no such parameter{meant}; it has {', '.join(known)}"
    if kind in ("extra_forbidden", "missing", "json_invalid"):
        return str(error["msg"])
    said = error["msg"].removeprefix("Value error, ")  # one of our own
    return f"{said}; given is {repr(error.get('input'))[:60]}"


def _place(where: list[Any]) -> str:
    """Where in the request, without the part of it and the estimator that everything below it is of."""
    inner = where[2:] if where[:1] == ["body"] and where[1:2] and where[1] in stream_dr.ESTIMATORS else where[1:]
    return f"{'.'.join(map(str, inner))}: " if inner else ""
