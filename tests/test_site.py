"""The documentation's site: what `make docs` builds, strictly, and from this machine alone."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stream_dr

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.test_all
def test_the_site_is_built_without_a_warning_and_asks_no_other_host(tmp_path: Path) -> None:
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    build = [sys.executable, DOCS / "build.py", tmp_path / "built"]
    done = subprocess.run(build, env=os.environ | nowhere, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "built" / "site").rglob("*.html"))
    assert len(pages) > len(list(DOCS.rglob("*.md")))  # and a page for what is not found
    reference = tmp_path / "built" / "site" / "reference"
    for kind in stream_dr.ESTIMATORS.values():
        shown = (reference / f"{kind.__name__}.html").read_text("utf8")
        assert all(f"<code>{name}</code>" in shown for name in inspect.signature(kind).parameters)
    assert {f"{name}.html" for name in stream_dr.__all__ if callable(getattr(stream_dr, name))} <= {
        page.name for page in reference.iterdir()
    }
    for page in pages:
        named = re.findall(r"<(\w+)\b[^>]*?\b(?:src|href)=\"?([^\"#?\s>]+)", page.read_text("utf8"))
        assert [where for tag, where in named if tag != "a" and where.startswith("http")] == [], page
        here = [where for _, where in named if not where.startswith(("http", "data:", "/"))]
        assert [where for where in here if not (page.parent / where).exists()] == [], page
