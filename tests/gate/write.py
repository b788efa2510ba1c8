"""Write the tables of the gate anew: `python -m tests.gate.write`."""

import json
from pathlib import Path

from tests.gate.learning import CASES, form_outcome
from tests.gate.outcomes import Outcome

FORMS_TABLE = Path(__file__).with_name("forms.json")
BAD_INPUTS_TABLE = Path(__file__).with_name("bad_inputs.json")


def write_table(path: Path, outcomes: dict[str, Outcome]) -> None:
    """Write a table of outcomes, one entry a line."""
    entries = [f"{json.dumps(name)}: {json.dumps(found, sort_keys=True)}" for name, found in sorted(outcomes.items())]
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="ascii")


def main() -> None:
    """Write both tables."""
    write_table(FORMS_TABLE, {entry: form_outcome(entry) for entry in CASES})


if __name__ == "__main__":
    main()
