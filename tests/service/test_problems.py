"""Problems: one table of codes; every answer of one shape; nothing unforeseen reaches a client."""

import inspect
import json

import pytest

from service import problems, wire
from stream_dr import errors

CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.StreamDRError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_every_error_has_a_status_and_keeps_its_code_and_facts(kind: type[errors.StreamDRError]) -> None:
    answer = problems.of(kind("what was given, needed, to do", row=3))
    told = json.loads(answer.body)
    assert answer.media_type == "application/problem+json"
    assert (told["code"], told["status"], told["row"]) == (kind.code, problems.STATUS[kind.code], 3)
    assert told["detail"] == "what was given, needed, to do"
    assert told["type"] == "about:blank"
    assert told["title"]


def test_an_unforeseen_error_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    answer = problems.of(RuntimeError("the password is sesame"))
    told = json.loads(answer.body)
    assert answer.status_code == 500
    assert told["code"] == "internal"
    assert "sesame" not in answer.body.decode()
    assert "sesame" in caplog.text


def test_facts_cannot_overwrite_the_problem() -> None:
    told = json.loads(problems.body("not_finite", "d", {"status": 1, "code": "x", "row": 2}))
    assert (told["status"], told["code"], told["row"]) == (422, "not_finite", 2)


def test_429_says_when_to_come_back() -> None:
    answer = problems.of(errors.Overloaded("full", retry_after=3.2))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")


def test_integers_past_64_bits_are_told_in_digits() -> None:
    told = wire.json_response({"labels": [1, 2**70], "model": {"classes": [-(2**70)], "n": 2}})
    assert json.loads(told.body) == {"labels": [1, str(2**70)], "model": {"classes": [str(-(2**70))], "n": 2}}
