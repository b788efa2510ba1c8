"""Problems: one table of codes; every answer of one shape; nothing unforeseen reaches a client."""

import inspect
import json

import pytest

from service import problems
from stream_dr import errors

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.StreamDRError)]

SCOPE = {"type": "http", "method": "POST", "raw_path": b"/partial%5Ffit"}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_every_error_has_a_status_and_keeps_its_code_and_facts(kind: type[errors.StreamDRError]) -> None:
    answer = problems.log_and_respond(SCOPE, kind("what was given, needed, to do", row=3))
    told = json.loads(answer.body)
    assert answer.media_type == "application/problem+json"
    assert (told["code"], told["status"], told["row"]) == (kind.code, problems.STATUS[kind.code], 3)
    assert told["detail"] == "what was given, needed, to do"
    assert told["type"] == "about:blank"
    assert told["title"]


def test_an_unforeseen_error_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    answer = problems.log_and_respond(SCOPE, RuntimeError("the password is sesame"))
    told = json.loads(answer.body)
    assert answer.status_code == 500
    assert told["code"] == "internal"
    assert "sesame" not in answer.body.decode()
    assert "sesame" in caplog.text


def test_facts_cannot_overwrite_the_problem() -> None:
    told = json.loads(problems.problem_response("not_finite", "d", {"status": 1, "code": "x", "row": 2}).body)
    assert (told["status"], told["code"], told["row"]) == (422, "not_finite", 2)


def test_429_says_when_to_come_back() -> None:
    answer = problems.log_and_respond(SCOPE, errors.Overloaded("full", retry_after=3.2))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")


def test_facts_that_json_cannot_say_are_told_all_the_same() -> None:
    facts = {"labels": [1, 2**70], "model": {"classes": [-(2**70)], 3: float("nan")}, "half": "\ud800"}
    told = json.loads(problems.problem_response("invalid_targets", "d", facts).body)
    assert (told["labels"], told["model"]) == ([1, str(2**70)], {"classes": [str(-(2**70))], "3": None})


def test_an_error_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        problems.log_and_respond(SCOPE, errors.NotFinite("row 0 is not finite"))
        problems.log_and_respond(SCOPE, errors.InsufficientStorage("the disk is full"))
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "POST /partial%5Ffit: 422, NotFinite"),
        ("ERROR", "POST /partial%5Ffit: 507, InsufficientStorage('the disk is full')"),
    ]
