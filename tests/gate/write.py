"""Write the tables of the gate anew: `python -m tests.gate.write`.

The docstring of test_forms.py says when that is allowed.
"""

import json
from pathlib import Path

from tests.gate import bad_commands, bad_library, bad_requests, learning
from tests.gate.outcomes import Outcome

FORMS_TABLE = Path(__file__).with_name("forms.json")
BAD_INPUTS_TABLE = Path(__file__).with_name("bad_inputs.json")


def write_table(path: Path, outcomes: dict[str, Outcome]) -> None:
    """Write a table of outcomes, one entry a line."""
    entries = [f"{json.dumps(name)}: {json.dumps(found, sort_keys=True)}" for name, found in sorted(outcomes.items())]
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="ascii")


def main() -> None:
    """Write both tables."""
    write_table(FORMS_TABLE, {entry: learning.form_outcome(entry) for entry in learning.CASES})

    outcomes = {entry: bad_library.library_outcome(entry) for entry in bad_library.CASES}
    outcomes |= {entry: bad_commands.command_outcome(entry) for entry in bad_commands.CASES}
    with bad_requests.served_groups() as served:
        outcomes |= {entry: bad_requests.request_outcome(entry, served) for entry in bad_requests.CASES}
    write_table(BAD_INPUTS_TABLE, outcomes)


if __name__ == "__main__":
    main()
