"""The gate of targets: what each form of y is learned as, and how it is refused, is what `forms.json` says.

The table has, for each way in, form and estimator, the kind of targets, the labels in order, the number of rows with
each label, and the codes or numbers of each row; or the class, the code and the first sentence of the error.
`python -m tests.gate.write` writes it anew.

A table may be written anew only together with a change of behaviour that is wanted. The CHANGELOG names the entries
that differ. A change that is meant to leave behaviour as it is leaves the table as it is.
"""

import json
from typing import Any

import pytest

from tests.gate.learning import CASES, LEARN, form_outcome
from tests.gate.outcomes import differences
from tests.gate.write import FORMS_TABLE

FORMS: dict[str, Any] = json.loads(FORMS_TABLE.read_text())
NAMES = [(way, name) for way, (forms, _) in LEARN.items() for name in forms]


@pytest.mark.parametrize(("way", "name"), NAMES, ids=[f"{way}: {name}" for way, name in NAMES])
def test_a_form_of_targets_is_learned_or_refused_as_before(way: str, name: str) -> None:
    entries = [entry for entry, case in CASES.items() if case[:2] == (way, name)]
    found = {entry: form_outcome(entry) for entry in entries}
    lines = differences(found, FORMS)
    assert not lines, lines


def test_the_table_is_whole() -> None:
    assert FORMS.keys() == CASES.keys()
    assert len(NAMES) >= 100
    assert {way for way, _ in NAMES} == {"y", "table", "JSON", "Arrow", "file"}
