"""The gate of bad inputs: how each is refused, over all ways in, is what `bad_inputs.json` says.

The table has the class, the code and the first sentence of each error of the library; the exit status, the code and the
first sentence of each command; and the HTTP status, the code and the first sentence of each response. An entry with
"accepted", or with the status 0 or 200, is accepted today. `python -m tests.gate.write` writes the table anew; the
docstring of test_forms.py says when that is allowed.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.gate.bad_commands import CASES as COMMANDS
from tests.gate.bad_commands import command_outcome
from tests.gate.bad_library import CASES as CALLS
from tests.gate.bad_library import library_outcome
from tests.gate.bad_requests import CASES as REQUESTS
from tests.gate.bad_requests import request_outcome, served_groups
from tests.gate.outcomes import Outcome, differences
from tests.gate.write import BAD_INPUTS_TABLE
from tests.support.serving import Served

TABLE: dict[str, Any] = json.loads(BAD_INPUTS_TABLE.read_text())


def inputs(entries: Iterable[str]) -> list[str]:
    """Return the bad inputs of entries. An entry is an input and a call that receives it."""
    return list(dict.fromkeys(entry.rpartition(" | ")[0] for entry in entries))


def check_as_stored(name: str, cases: Iterable[str], outcome_of: Callable[[str], Outcome]) -> None:
    """Fail unless every outcome of a bad input is the stored one."""
    found = {entry: outcome_of(entry) for entry in cases if entry.rpartition(" | ")[0] == name}
    lines = differences(found, TABLE)
    assert not lines, lines


@pytest.fixture(scope="module")
def served() -> Iterator[Callable[[str], Served]]:
    with served_groups() as served:
        yield served


@pytest.mark.parametrize("name", inputs(CALLS))
def test_a_call_is_refused_as_before(name: str) -> None:
    check_as_stored(name, CALLS, library_outcome)


@pytest.mark.parametrize("name", inputs(COMMANDS))
def test_a_command_is_refused_as_before(name: str) -> None:
    check_as_stored(name, COMMANDS, command_outcome)


@pytest.mark.parametrize("name", inputs(REQUESTS))
def test_a_request_is_refused_as_before(name: str, served: Callable[[str], Served]) -> None:
    check_as_stored(name, REQUESTS, lambda entry: request_outcome(entry, served))


def test_the_table_is_whole() -> None:
    assert TABLE.keys() == CALLS.keys() | COMMANDS.keys() | REQUESTS.keys()
    refused = inputs(entry for entry, found in TABLE.items() if {"error", "code", "says", "raw"} & found.keys())
    assert len(refused) >= 200
    assert {name.partition(" | ")[0] for name in refused} == {"library", "command line", "HTTP JSON", "HTTP Arrow"}
