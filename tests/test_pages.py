"""The pages' code blocks do what they say: every page is followed from its top, in a folder of its own.

A block of `python` runs in this process, in one namespace a page; one of `sh` in bash, with the installed commands; a block
that begins with `stream-dr serve` goes on serving until the page's end, on a free port in the place of 8000. A block of
`text` is what the block before it printed, `…` standing for anything. One that is not run says why, in a comment before it:
<!-- skip: next "the reason" -->
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import SkipTest

import httpx
import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "sh", "text", "json", "toml"}


class Reader:
    """Who follows a page: the folder they are in, what they saw last, and the servers they have running."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen = folder, ""
        self.servers: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        quick = {"STREAM_DR_WARM_UP": "no", "STREAM_DR_MIN_FREE_BYTES": "0"}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = os.environ | quick | {"PATH": path, "PYTHONPATH": str(ROOT)}

    def python(self, block: Example) -> None:
        """Run a block in the page's namespace."""
        code = compile("\n" * block.line + self._here(block), block.path, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, block.namespace)
        self.seen = out.getvalue()

    def sh(self, block: Example) -> None:
        """Run a block's commands, each of which must succeed."""
        if block.parsed.startswith("stream-dr serve"):
            self._serve(block.parsed)
            return
        bash = ["bash", "-euo", "pipefail", "-c", self._here(block)]
        done = subprocess.run(bash, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"line {block.line}: {done.stdout}{done.stderr}"
        self.seen = done.stdout

    def text(self, block: Example) -> None:
        """Compare what was seen last with what the page shows."""
        shown, seen = (
            "\n".join(" ".join(line.split()) for line in t.strip().splitlines()) for t in (block.parsed, self.seen)
        )
        pattern = re.escape(shown).replace("…", ".*")
        assert re.fullmatch(pattern, seen, flags=re.DOTALL), f"line {block.line} shows\n{shown}\nand it was\n{seen}"

    def end(self) -> None:
        """Stop the servers, which end well."""
        for server in self.servers:
            server.terminate()
        assert [server.wait(60) for server in self.servers] == [0] * len(self.servers)

    def _here(self, block: Example) -> str:
        return re.sub(r"(?<=127\.0\.0\.1:|localhost:)8000", self.port, block.parsed)

    def _serve(self, command: str) -> None:
        words = [*shlex.split(command, comments=True), "--port", self.port]
        self.servers.append(subprocess.Popen(words, cwd=self.folder, env=self.environment))
        for _ in range(600):
            assert self.servers[-1].poll() is None, f"{command} ended"
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz").is_success:
                    return
            time.sleep(0.1)
        raise TimeoutError(command)


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path)
    yield reader
    reader.end()


@pytest.mark.test_all
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_is_so(page: Path, reader: Reader) -> None:
    if "\ncurl " in page.read_text(encoding="utf8") and shutil.which("curl") is None:
        pytest.skip("the page uses curl, which is not installed here")
    kinds: dict[str, Callable[[Example], None]] = {"python": reader.python, "sh": reader.sh, "text": reader.text}
    parsers = [CodeBlockParser(language, run) for language, run in kinds.items()]
    for block in Sybil([*parsers, SkipParser()]).parse(page).examples():
        with contextlib.suppress(SkipTest):
            block.evaluate()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_of_a_language_that_is_checked_and_a_skipped_one_says_why(page: Path) -> None:
    text = page.read_text(encoding="utf8")
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert {language for language, _ in fences} <= LANGUAGES
    for language, block in fences:
        if language in ("json", "toml"):
            (json if language == "json" else tomllib).loads(block)
    for skipped in re.findall(r"<!--+ *skip: *(?:next|start)(.*?)-->", text):
        assert re.search(r'"[^"]{10,}"', skipped), skipped


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_ours_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(
        r"`((?:stream_dr|service|docs|tests|benchmarks)(?:/[\w.]+)*(?:/|\.py|\.md))`", page.read_text("utf8")
    )
    assert [name for name in named if not (ROOT / name).exists() and name != "stream_dr/estimators/loudest.py"] == []


@pytest.mark.test_all
@pytest.mark.parametrize(("journey", "heading"), [("post", "## A POST enters"), ("replay", "## A replay enters")])
def test_a_journey_enters_the_files_that_its_table_names(journey: str, heading: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf8")
    table = page.partition(heading)[2].partition("\n\nA query")[0].partition("\n\nKilled")[0]
    listed = [sys.executable, "-m", "benchmarks.journeys", journey, "--list"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, timeout=120)
    entered = set(re.findall(r"^ +(\S+\.py):", done.stdout, flags=re.MULTILINE))
    assert len(entered) > 30
    assert set(re.findall(r"`([\w/]+\.py)`", table)) <= entered
