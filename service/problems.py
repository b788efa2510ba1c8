"""Problems: every error the service answers, as RFC 9457 problem+json with a stable `code`; one table code → status.

Codes of `stream_dr.errors` and of the service stand in the same table. What nobody foresaw is logged and answered with a
fixed sentence: a client never sees an exception's text that was not written for it.

Why this way: a client matches on `code`; a status is decided in one place; a test walks errors.py and finds each code here.
"""

import logging
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

import stream_dr

MEDIA_TYPE = "application/problem+json"
UNKNOWN = "The service met an error it did not foresee; the details are in its log."

STATUS: dict[str, int] = {
    "invalid": 422,
    "invalid_parameter": 422,
    "unknown_estimator": 422,
    "invalid_request": 422,
    "invalid_rows": 422,
    "width_mismatch": 422,
    "not_finite": 422,
    "invalid_index": 422,
    "invalid_targets": 422,
    "targets_required": 422,
    "target_kind_mismatch": 422,
    "invalid_weights": 422,
    "empty_input": 422,
    "too_many_features": 422,
    "limit_exceeded": 422,
    "schema_mismatch": 422,
    "malformed_input": 400,
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "unknown_model": 404,
    "unknown_version": 404,
    "unknown_job": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "request_timeout": 408,
    "model_exists": 409,
    "model_empty": 409,
    "model_failed": 409,
    "output_exists": 409,
    "model_refuses_stream": 409,
    "needs_refine": 409,
    "key_conflict": 409,
    "history_gone": 409,
    "cannot_merge": 409,
    "cannot_unlearn": 409,
    "cannot_refine": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "overloaded": 429,
    "head_too_large": 431,
    "internal": 500,
    "damaged_shard": 500,
    "damaged_file": 500,
    "foreign_file": 500,
    "unknown_format": 500,
    "source_missing": 500,
    "remote_error": 502,
    "catching_up": 503,
    "directory_in_use": 503,
    "directory_missing": 503,
    "not_ready": 503,
    "shutting_down": 503,
    "insufficient_storage": 507,
}
"""The HTTP status of every code."""

_OF_STATUS = {400: "bad_request", 401: "unauthorized", 404: "not_found", 405: "method_not_allowed"}
_log = logging.getLogger("service")


class Problem(Exception):
    """An error of the service itself: `code` from STATUS, a sentence, headers, and machine-readable facts."""

    def __init__(self, code: str, detail: str, headers: dict[str, str] | None = None, **facts: Any) -> None:
        super().__init__(detail)
        self.code, self.detail, self.headers, self.facts = code, detail, headers or {}, facts


def body(code: str, detail: str, facts: dict[str, Any] | None = None) -> bytes:
    """The problem+json document."""
    status = STATUS[code]
    fields = {"type": "about:blank", "title": code.replace("_", " "), "status": status, "code": code, "detail": detail}
    extra = {k: written(v) for k, v in (facts or {}).items() if k not in fields}
    return orjson.dumps(fields | extra, default=str, option=orjson.OPT_NON_STR_KEYS)


def written(value: Any) -> Any:
    """A fact as JSON can say it to every reader: integers of more than 64 bits in digits, also those within."""
    if isinstance(value, dict):
        return {name: written(fact) for name, fact in value.items()}
    if isinstance(value, list):
        return [written(fact) for fact in value]
    return str(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def response(code: str, detail: str, facts: dict[str, Any] | None = None, headers: Any = None) -> Response:
    """The problem as an HTTP answer."""
    return Response(body(code, detail, facts), STATUS[code], dict(headers or {}), MEDIA_TYPE)


def of(error: Exception) -> Response:
    """The answer to any exception; one that was not foreseen is logged and told nothing about."""
    if isinstance(error, Problem):
        return response(error.code, error.detail, error.facts, error.headers)
    if isinstance(error, stream_dr.errors.StreamDRError):
        status = STATUS.get(error.code, 500)
        if status >= 500 and status != 503:
            _log.error("%s: %s", error.code, error)
        if error.code in STATUS:
            return response(error.code, str(error), error.details, _retry_after(error))
    if isinstance(error, ClientDisconnect):
        return response("bad_request", "The client went away before its request was whole.")
    if isinstance(error, RequestValidationError):
        return _of_validation(error)
    if isinstance(error, HTTPException):
        return _of_http(error)
    _log.error("unforeseen error", exc_info=error)
    return response("internal", UNKNOWN)


def install(app: FastAPI) -> None:
    """Answer every exception of the app's routes with its problem."""

    async def handle(request: Request, error: Exception) -> Response:
        return of(error)

    for kind in (Problem, stream_dr.errors.StreamDRError, RequestValidationError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, handle)


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
        return f'no estimator is named that there is; "estimator" is one of {", ".join(stream_dr.ESTIMATORS)}'
    if kind == "extra_forbidden" and len(place) > 3 and place[2] == "params" and place[1] in stream_dr.ESTIMATORS:
        known = [name for name, _, _ in stream_dr.parameter_types(stream_dr.ESTIMATORS[place[1]])]
        return f"{place[1]} has no such parameter; it has {', '.join(known)}"
    if kind in ("extra_forbidden", "missing", "json_invalid"):
        return str(error["msg"])
    return f"{error['msg']}; given is {repr(error.get('input'))[:60]}"


def _place(where: list[Any]) -> str:
    """Where in the request, without the part of it and the estimator that everything below it is of."""
    inner = where[2:] if where[:1] == ["body"] and where[1:2] and where[1] in stream_dr.ESTIMATORS else where[1:]
    return f"{'.'.join(map(str, inner))}: " if inner else ""
