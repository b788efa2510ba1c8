"""Error responses of the service, as problem+json (RFC 9457).

Each response has a stable `code`. The dict `STATUS` has the codes of `stream_dr.errors` and of the
service. Clients should use the code to recognise an error, not its text. Every error is logged in
one line.
"""

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from typing import Any

import fastapi
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

import stream_dr
from stream_dr import errors

MEDIA_TYPE = "application/problem+json"
UNEXPECTED_DETAIL = "The service met an error it did not foresee; the details are in its log."
"""Detail of the response to an unexpected error.

The exception's own text was not written for clients, so it is only logged.
"""

_CODES = {
    400: "malformed_input bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found unknown_model unknown_version unknown_release unknown_job",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "request_timeout",
    409: "model_exists release_exists release_served model_empty model_failed output_exists "
    "model_refuses_stream needs_refine key_conflict "
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
"""HTTP status of every code."""

_CODE_OF_STATUS = {400: "bad_request", 401: "unauthorized", 404: "not_found", 405: "method_not_allowed"}
_log = logging.getLogger("service")


class ServiceError(fastapi.HTTPException):
    """Error that only the service raises, and not the library.

    Parameters
    ----------
    code : str
        A key of STATUS.
    detail : str
        Sentence for the client.
    headers : dict or None
        Headers of the response.
    extra
        Further fields of the response, such as `limit`. Programs read these fields.
    """

    def __init__(self, code: str, detail: str, headers: dict[str, str] | None = None, **extra: Any) -> None:
        super().__init__(STATUS[code], detail, headers)
        self.code = code
        self.extra = extra


def log_and_respond(scope: Scope, error: BaseException) -> Response:
    """Log a request's error, and return the response to it."""
    # Choose the response by the class of the error.
    unexpected = False
    match error:
        case ServiceError():
            problem = problem_response(error.code, error.detail, error.extra, error.headers)
        case errors.StreamDRError() if error.code in STATUS:
            # With these statuses, the client should send the same request again, after a pause.
            headers = {}
            if STATUS[error.code] in (429, 503):
                seconds = round(float(error.details.get("retry_after", 1)))
                headers = {"Retry-After": str(max(1, seconds))}
            problem = problem_response(error.code, str(error), error.details, headers)
        case ClientDisconnect():
            problem = problem_response("bad_request", "The client went away before its request was whole.")
        case RequestValidationError():
            problem = _response_to_invalid(error)
        case HTTPException():
            problem = _response_to_http_error(scope, error)
        case asyncio.CancelledError():
            problem = problem_response(
                "shutting_down", "The service stops; ask again after the restart.", headers={"Retry-After": "1"}
            )
        case _:
            problem = problem_response("internal", UNEXPECTED_DETAIL)
            unexpected = True

    # Status 503 is a normal state of the service, so it is not logged as an error.
    # Only unexpected errors are logged with a traceback.
    status = problem.status_code
    level = logging.INFO
    cause = type(error).__name__
    if status >= 500 and status != 503:
        level = logging.ERROR
        cause = repr(error)
    elif isinstance(error, ServiceError) and error.code == "not_ready":
        # Probes of /readyz ask every few seconds.
        level = logging.DEBUG
    traceback = error if unexpected else None
    path = scope.get("raw_path", b"").decode("latin-1")
    _log.log(level, "%s %s: %d, %s", scope["method"], path, status, cause, exc_info=traceback)
    return problem


def problem_response(
    code: str, detail: str, extra_fields: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an HTTP response that describes an error as problem+json.

    code: code of the error, a key of STATUS.
    detail: sentence for the client.
    extra_fields: further fields of the JSON object. A further field is ignored if its name is the
        name of a standard field, such as "title".
    headers: headers of the response.
    """
    status = STATUS[code]
    title = code.replace("_", " ")
    fields = {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail}
    for name, value in (extra_fields or {}).items():
        fields.setdefault(name, _to_portable_json(value))
    content = json.dumps(fields, default=str)
    return Response(content, status, headers, MEDIA_TYPE)


async def respond_to_error(request: Request, error: Exception) -> Response:
    """Answer an error of a route with problem+json."""
    return log_and_respond(request.scope, error)


ERROR_HANDLERS = dict.fromkeys(
    (errors.StreamDRError, RequestValidationError, HTTPException, ClientDisconnect), respond_to_error
)
"""Function that answers each class of errors of a route."""


def _to_portable_json(value: Any) -> Any:
    """Return a value that every JSON reader accepts.

    Integers of more than 64 bits become strings. NaN and infinite numbers become None. Values in
    dicts, lists and tuples are converted, too.
    """
    if isinstance(value, dict):
        return {str(name): _to_portable_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_portable_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value


def _response_to_http_error(scope: Scope, error: HTTPException) -> Response:
    """Return the response to an error of Starlette or FastAPI.

    The usual causes are an unknown path, or a method that the path does not have.
    """
    code = "internal"
    if error.status_code < 500:
        code = _CODE_OF_STATUS.get(error.status_code, "bad_request")
    detail = str(error.detail)
    if code == "not_found":
        detail = "There is nothing at this address; /docs lists what there is."
    elif code == "method_not_allowed":
        detail = "This address does not take that method; /docs lists what it takes."

    headers = dict(error.headers or {})
    # Starlette names the methods of the first route of the path only, but a path may have several.
    # So ask every route whether it matches the request with each method.
    if "Allow" in headers:
        allowed = []
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
            request = {**scope, "method": method}
            matches = [route.matches(request)[0] for route in scope["app"].routes]
            if Match.FULL in matches:
                allowed.append(method)
        headers["Allow"] = ", ".join(allowed)
    return problem_response(code, detail, headers=headers)


def _response_to_invalid(error: RequestValidationError) -> Response:
    """Return the response to a request that FastAPI has rejected.

    The error code in the body is one of these:

    - `malformed_input`: the body is not JSON.
    - `unknown_estimator`: there is no estimator of this name.
    - `invalid_parameter`: a parameter of an estimator is wrong.
    - `invalid_request`: anything else is wrong.
    """
    # Each field is {"where": path to the wrong value, "what": sentence, "kind": pydantic's type}.
    fields = []
    for e in error.errors():
        fields.append({"where": list(e["loc"]), "what": _describe_invalid_field(e), "kind": e["type"]})
    kinds = {e["kind"] for e in fields}
    if "json_invalid" in kinds:
        return problem_response("malformed_input", f"The body is not JSON: {fields[0]['what']}.", {"errors": fields})

    # The "tag" is the value of `estimator` in a model's spec.
    code = "invalid_request"
    if "union_tag_invalid" in kinds:
        code = "unknown_estimator"
    elif any("params" in e["where"] for e in fields):
        code = "invalid_parameter"

    # The sentence names at most five wrong fields. `errors` in the response has all of them.
    details = []
    for e in fields[:5]:
        detail = e["what"]
        path = _client_path(e["where"])
        if path:
            detail = f"{path}: {detail}"
        details.append(detail)
    return problem_response(code, "; ".join(details), {"errors": fields})


def _client_path(where: list[Any]) -> str:
    """Return the path of a wrong value as the client wrote it."""
    # For example, ["body", "pca", "params", "k"] becomes "params.k". FastAPI adds the part of the
    # request ("body"), and pydantic adds the key of the estimator ("pca").
    part, *place = where
    if place and part == "body" and place[0] in stream_dr.ESTIMATORS:
        del place[0]
    return ".".join(map(str, place))


def _describe_invalid_field(error: Mapping[str, Any]) -> str:
    """Return a sentence for the client about a pydantic error.

    error: one of the dicts that `errors()` of a RequestValidationError returns.
    """
    place = error["loc"]
    kind = error["type"]

    # In a model's spec, the field `estimator` is missing or has an unknown value.
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = error.get("ctx", {}).get("tag", "")
        meant = errors.did_you_mean(tag, stream_dr.ESTIMATORS)
        return f'no estimator is named that there is{meant}; "estimator" is one of {", ".join(stream_dr.ESTIMATORS)}'

    # A model's spec has a parameter that its estimator does not have.
    # The error's place is then ("body", key of the estimator, "params", name of the parameter).
    if kind == "extra_forbidden" and len(place) > 3 and place[2] == "params" and place[1] in stream_dr.ESTIMATORS:
        key = place[1]
        name = place[-1]
        known = [parameter for parameter, _, _ in stream_dr.parameter_types(stream_dr.ESTIMATORS[key])]
        meant = errors.did_you_mean(name, known)
        why = errors.MISSING_PARAMETER_REASONS.get(str(name), "")
        return f"{key} has no such parameter{meant}; it has {', '.join(known)}.{why}"

    # The wrong value would explain nothing here, so return pydantic's message alone.
    if kind in ("extra_forbidden", "missing", "json_invalid"):
        return str(error["msg"])

    # pydantic puts "Value error, " before the messages of our own validators.
    message = error["msg"].removeprefix("Value error, ")
    return f"{message}; given is {repr(error.get('input'))[:60]}"
