"""`python -m benchmarks.papers`: each table or figure is called by its name, and its claims are counted."""

from types import ModuleType

import pytest

from benchmarks.papers import __main__ as runner
from benchmarks.papers import pages
from benchmarks.papers.claims import Claim


@pytest.fixture
def one(monkeypatch):
    module = ModuleType("one", "A table.")
    module.run = lambda options: iter(
        [Claim("errors", "1 %", "2 %", "differs", "another split"), Claim("d", "3", "3", "agrees")][: 1 + options.quick]
    )
    monkeypatch.setattr(runner, "found", lambda: {"one": module})


def test_claims_are_told_and_counted(one, capsys):
    runner.main(["one", "--quick"])
    told = capsys.readouterr().out
    assert "DIFFERS   errors: paper 1 %; ours 2 %\n          another split\nAGREES    d: paper 3; ours 3" in told
    assert told.endswith("1 agrees, 1 differs, 0 undecided, 0 not told, 0 missing\n")


def test_claims_are_tables_for_a_page_where_asked(one, capsys):
    runner.main(["one", "--markdown"])
    assert "| errors | 1 % | 2 % | **differs**: another split |" in capsys.readouterr().out


def test_an_unknown_name_is_told_with_those_there_are(one, capsys):
    with pytest.raises(SystemExit):
        runner.main(["two"])
    assert "no two; there are one" in capsys.readouterr().err


def test_without_names_it_says_what_there_is(one, capsys):
    runner.main([])
    assert capsys.readouterr().out.split() == ["one", "A", "table."]


def test_tables_are_written_into_the_pages_and_counted(one, tmp_path):
    page = tmp_path / "paper.md"
    page.write_text("# A paper\n\nWords.\n\n`one`:\n\n| | paper |\n|---|---|\n| old | **agrees** |\n\nMore words.\n")
    readme = tmp_path / "README.md"
    readme.write_text(f"# Papers\n\n{pages.START}\n{pages.END}\n\nEnd.\n")
    runner.main(["one", "--quick", "--pages", str(tmp_path)])
    text = page.read_text()
    assert "| errors | 1 % | 2 % | **differs**: another split |\n| d | 3 | 3 | **agrees** |\n\nMore words." in text
    assert "old" not in text
    assert "| [A paper](paper.md) | 1 | 1 | 0 | 0 | 0 |" in readme.read_text()
    assert readme.read_text().endswith("End.\n")


def test_a_table_without_a_place_is_an_error(one, tmp_path):
    with pytest.raises(ValueError, match="no page"):
        runner.main(["one", "--pages", str(tmp_path)])
