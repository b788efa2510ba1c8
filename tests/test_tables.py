"""The tables of the pages are those that follow from the code (python docs/tables.py writes them)."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import stream_dr

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def tables() -> Any:
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_table_stands_in_a_page_and_is_up_to_date(tables: Any) -> None:
    texts = [page.read_text(encoding="utf8") for page in DOCS.rglob("*.md")]
    for name in tables.TABLES:
        assert sum(f"<!-- table: {name} -->" in text for text in texts) == 1, name
    for text in texts:
        assert tables.fresh(text) == text, "run python docs/tables.py"


def test_the_glossary_of_the_service_is_that_of_the_pages(tables: Any) -> None:
    page = tables.GLOSSARY_FILE.read_text(encoding="utf8")
    assert page == tables.glossary_page(), "run python docs/tables.py"
    assert "<tr><th>idempotency key</th><td>a name for a batch." in page
    assert 'href="/dashboard/glossary.html"' in (tables.GLOSSARY_FILE.parent / "index.html").read_text(encoding="utf8")


def test_every_estimator_is_recommended_for_something() -> None:
    questions = (DOCS / "estimators.md").read_text(encoding="utf8").partition("## What each can do")[0]
    for kind in stream_dr.ESTIMATORS.values():
        assert f"`{kind.__name__}" in questions
