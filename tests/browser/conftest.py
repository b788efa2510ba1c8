"""The browser of the dashboard's tests."""

import functools
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

ANSWER_SECONDS = 30
"""Longest time that Chromium may take to draw an empty page."""


@functools.cache
def missing_browser() -> str:
    """Return why there is no browser to test with, or "". Found out once in a process."""
    if CHROMIUM is None:
        return "there is no Chromium (apt-get install chromium)"
    # A browser that hangs would hang playwright, too.
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "about:blank"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        return f"Chromium does not answer within {ANSWER_SECONDS} s"
    return f"Chromium ends with status {answer.returncode}" if answer.returncode else ""


# Playwright keeps an event loop running, which tests of other modules could not bear.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the extra `test`)")
    if reason := missing_browser():
        pytest.skip(reason)
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--enable-unsafe-swiftshader"]
        )
        yield opened
        opened.close()
