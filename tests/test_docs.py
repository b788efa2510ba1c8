"""What the documentation says is so: every public name is described, links lead somewhere, nothing names a machine.

What the pages' code does is followed by test_pages.py, their tables are compared by test_tables.py.
"""

import os
import pathlib
import re
import subprocess

import pytest

import stream_dr

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_links_lead_somewhere():
    links = (
        (page, link) for page in PAGES for link in re.findall(r"\]\(([^)#\s]*)(?:#[^)]*)?\)", page.read_text("utf8"))
    )
    assert [
        f"{page.relative_to(ROOT)}: {link}"
        for page, link in links
        if not (link.startswith("https://") or (page.parent / link).exists())
    ] == []


def test_make_help_lists_every_target_and_pages_name_no_other():
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make", "help"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    shown = done.stdout
    targets = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)[1].split()
    assert [line.split()[0] for line in shown.splitlines()] == targets
    for page in PAGES:
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf8"), re.MULTILINE)) <= set(targets)


def test_public_names_are_there_and_have_docstrings():
    for name in stream_dr.__all__:
        thing = getattr(stream_dr, name)
        assert name.startswith("__") or thing.__doc__, name


def test_no_file_names_a_machine_or_a_registry():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    pattern = re.compile(r"/ro" + r"ot/|/wo" + r"rk/|py" + r"pi\.org|python" + r"hosted")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.is_file():
            assert not pattern.search(path.read_text(encoding="utf8", errors="ignore")), name
