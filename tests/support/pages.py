"""The pages' code blocks do what they say: every page is followed from its top, in a folder of its own.

A block of `python` runs in this process, in one namespace a page; one of `sh` in bash, with the installed commands; a block
that begins with `stream-dr serve` goes on serving until the page's end, on a free port in the place of 8000. A block of
`text` is what the block before it printed, `…` standing for anything. One that is not run says why, in a comment before it:
<!-- skip: next "the reason" -->
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from unittest import SkipTest

import httpx
import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "sh", "text", "json", "toml", "yaml"}


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

        def is_ready() -> bool:
            assert self.servers[-1].poll() is None, f"{command} ended"
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"http://127.0.0.1:{self.port}/readyz").is_success
            return False

        wait_until(is_ready, 60)


def follow(page: Path, folder: Path) -> None:
    """Follow a page from its top, in a folder that is the current one."""
    if "\ncurl " in page.read_text(encoding="utf8") and shutil.which("curl") is None:
        pytest.skip("the page uses curl, which is not installed here")
    reader = Reader(folder)
    kinds: dict[str, Callable[[Example], None]] = {"python": reader.python, "sh": reader.sh, "text": reader.text}
    parsers = [CodeBlockParser(language, run) for language, run in kinds.items()]
    try:
        document = Sybil([*parsers, SkipParser()]).parse(page)
        # Conditions of skipped blocks may ask for it.
        document.namespace["missing"] = lambda package: find_spec(package) is None
        for block in document.examples():
            with contextlib.suppress(SkipTest):
                block.evaluate()
    finally:
        reader.end()
