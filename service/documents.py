"""Documents: the parts of the OpenAPI document that FastAPI cannot read off the routes' signatures.

Bodies of rows are read by the library and not by pydantic, so their form is written down here; the answers' forms are in
answers.py.

Why this way: /docs tells the truth without a second parser in the path of every batch.
"""

from collections.abc import Sequence
from typing import Any

from service import answers, wire

Answers = dict[int | str, dict[str, Any]]
"""Status → what FastAPI is told of it."""

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_NUMBER = {"type": "number"}
_BYTES = {"type": "string", "format": "binary"}
_SPARSE = {
    "type": "object",
    "required": ["indices", "values"],
    "properties": {
        "indices": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "values": {"type": "array", "items": _NUMBER},
    },
}
_ROW = {"anyOf": [{"type": "array", "items": _NUMBER}, _SPARSE, {"type": "object", "additionalProperties": _NUMBER}]}
_ROWS = {
    "type": "object",
    "required": ["rows"],
    "properties": {
        "rows": {"type": "array", "items": _ROW, "description": "all dense, all sparse, or all by the columns' names"},
        "labels": {"type": "array", "description": "one label a row, or a list of labels a row; null: no target"},
        "target": {"type": "array", "description": "continuous targets: a number or a list of numbers a row"},
        "weights": {"type": "array", "items": {"type": "number", "minimum": 0}},
        "ids": {"type": "array", "items": {"type": "string"}},
    },
    "example": {"rows": [[0.1, 0.2], [0.3, 0.4]], "labels": ["a", "b"]},
}


def _parameter(name: str, meaning: str, required: bool = False, one_of: Sequence[str] = ()) -> dict[str, Any]:
    schema = {"type": "string"} | ({"enum": list(one_of)} if one_of else {})
    return {"name": name, "in": "query", "required": required, "description": meaning, "schema": schema}


_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "a retry with the same key and body is not taken twice",
    "schema": {"type": "string", "minLength": 1, "maxLength": wire.LONGEST_KEY, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}
ONE_ROW: dict[str, Any] = {
    "parameters": [
        _parameter("model", "the model's name", required=True),
        _parameter("x", "a dense row: 0.1,0.2"),
        _parameter("indices", "a sparse row's indices: 3,17"),
        _parameter("values", "its values: 0.5,1.2"),
    ]
}
ROWS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _ROWS},
            wire.ARROW_STREAM: {"schema": _BYTES},
        },
    }
}
LEARN = ROWS_BODY | {
    "parameters": [
        _KEY,
        _parameter("wait", "answer once every model has learned it", one_of=["applied"]),
        _parameter("check", "admit without appending"),
    ]
}
UNLEARN: dict[str, Any] = {"parameters": [_KEY]}


def problems(*statuses: int) -> Answers:
    """The answers of a route that may fail with these statuses."""
    return {s: {"description": "a problem; see its code", "content": _PROBLEM} for s in statuses}


_COMMON = (400, 401, 403, 406, 408, 413, 415, 422, 429, 500, 503, 507)
LEARN_ANSWERS = {
    200: {"model": answers.Receipt, "description": "durable"},
    202: {"model": answers.Receipt, "description": "durable; not yet learned by every model"},
} | problems(404, 409, *_COMMON)
TRANSFORM_ANSWERS = {200: {"model": answers.Projected}} | problems(404, 409, *_COMMON)
PUT_ANSWERS = {
    200: {"model": answers.ModelState, "description": "there already, with the same spec"},
    201: {"model": answers.ModelState, "description": "made; it catches up in the background"},
} | problems(404, 409, *_COMMON)
PUBLISH_ANSWERS = {
    200: {"model": answers.ModelState, "description": "published"},
    202: {"model": answers.ModelState, "description": "still being solved"},
} | problems(404, 409, *_COMMON)
MODEL_ANSWERS = {200: {"model": answers.ModelState}} | problems(404, 409, *_COMMON)
MODELS_ANSWERS: Answers = {200: {"model": answers.Models}}
PROJECTION_ANSWERS = {
    200: {
        "model": answers.Exported,
        "content": {wire.ARROW_STREAM: {"schema": _BYTES}, wire.SAFETENSORS: {"schema": _BYTES}},
        "description": "by Accept: JSON, an Arrow stream of one row, or a safetensors file",
    }
} | problems(404, 409, *_COMMON)
UNKNOWN_MODEL = problems(404, 409, *_COMMON)
STARTED_ANSWERS = {202: {"model": answers.JobState}} | problems(404, 409, *_COMMON)
JOB_ANSWERS = {200: {"model": answers.JobState}} | problems(404, *_COMMON)
CANCEL_ANSWERS = {202: {"model": answers.JobState}} | problems(404, *_COMMON)
STREAM_ANSWERS: Answers = {200: {"model": answers.StreamState}}
HEALTH_ANSWERS: Answers = {200: {"model": answers.Health}}
ANY_ANSWERS = problems(401, 403, 422, 429, 500, 503)
EXTRA_SCHEMAS = {"Problem": answers.Problem.model_json_schema()}
