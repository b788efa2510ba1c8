"""The lowest versions that pyproject.toml allows, as constraints for pip: `make test-lowest` runs the suite with them.

    python tests/lowest_versions.py > constraints-lowest.txt

Every requirement of the project and of its extras says `name>=version`; all become `name==version`. What those need in turn
is pip's to choose. Needs the standard library alone.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def lowest(project: Path = PROJECT) -> list[str]:
    """`name==version` of each requirement. Raises ValueError for one that states no lowest version."""
    stated = tomllib.loads(project.read_text(encoding="utf8"))["project"]
    extras = stated["optional-dependencies"].values()
    return [pinned(requirement) for requirement in sum(extras, stated["dependencies"])]


def pinned(requirement: str) -> str:
    """numpy>=2.0 → numpy==2.0."""
    found = re.match(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)", requirement)
    if found is None:
        raise ValueError(f"{requirement!r} states no lowest version; write it as name>=version.")
    return "==".join(found.groups())


if __name__ == "__main__":
    print(*lowest(), sep="\n")
