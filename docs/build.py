"""The documentation's site: the pages of docs/ and those made from the code, in build/docs.

    python docs/build.py        (make docs)

Needs the extra `docs`, and no network. Ends with a non-zero status where the build has anything to warn of: a link or an
anchor that leads nowhere.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from reference import pages

DOCS = Path(__file__).parent


def lay_out(into: Path) -> None:
    """What the site is built from: zensical.toml, and the pages in a folder beside it, with those of reference.py."""
    shutil.rmtree(into, ignore_errors=True)
    tools = [path.name for path in DOCS.glob("*.py")]
    shutil.copytree(DOCS, into / "pages", ignore=shutil.ignore_patterns("__pycache__", "zensical.toml", *tools))
    shutil.copy(DOCS / "zensical.toml", into)
    shutil.copy(DOCS.parent / "CHANGELOG.md", into / "pages" / "changelog.md")
    reference = into / "pages" / "reference"
    reference.mkdir()
    for name, page in pages():
        (reference / name).write_text(page, encoding="utf8")


def main(into: Path = DOCS.parent / "build" / "docs") -> int:
    """Build the site strictly in `into`/site; the exit status."""
    lay_out(into)
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "-f", into / "zensical.toml"]
    ).returncode


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
