"""The dashboard in a browser: what a visitor sees and does, from an empty service to one that is killed and comes back."""

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from sklearn.datasets import load_digits

from tests.service.serving import ROOT, Process, arrow, post

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.test_all,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]
SCRIPT = "<script>alert(1)</script>"
X, digits = load_digits(return_X_y=True)
LABELS = [SCRIPT if label == 3 else str(label) for label in digits]
REFUSED = "net::ERR_CONNECTION_REFUSED"


ANSWER_SECONDS = 30
"""Longest time that Chromium may take to draw an empty page."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the extra `test`)")
    # A browser that hangs would hang playwright, too. The first test finds that out, the others are skipped at once.
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "about:blank"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Chromium does not answer within {ANSWER_SECONDS} s")
    if answer.returncode:
        pytest.skip(f"Chromium ends with status {answer.returncode}")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--enable-unsafe-swiftshader"]
        )
        yield opened
        opened.close()


class Visit:
    """A page at a service; what it logged, and whom it asked."""

    def __init__(self, browser: Any, url: str, **context: Any) -> None:
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.asked: set[str] = set()
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.asked.add(urlsplit(request.url).hostname or request.url[:5]))
        self.page.goto(url)

    def live(self) -> None:
        self.page.wait_for_selector("#link.up", timeout=30_000)

    def until(self, condition: str) -> None:
        """Wait for what is true in the page."""
        self.page.wait_for_function(condition, timeout=60_000)

    def violations(self) -> list[str]:
        """What axe finds wrong."""
        self.page.evaluate((files("axe_core_python") / "axe.min.js").read_text(encoding="utf8"))
        found = self.page.evaluate("axe.run()")["violations"]
        return [f"{v['id']}: {[node['html'][:120] for node in v['nodes'][:3]]}" for v in found]

    def end(self) -> None:
        """No error, and nobody asked but loopback."""
        assert [error for error in self.errors if REFUSED not in error] == []
        assert self.asked <= {"127.0.0.1", "data:", "blob:"}
        self.context.close()


POINTS = "(document.getElementById('projection').data || []).filter(t => t.name !== 'class means')"
DRAWN = f"{POINTS}.reduce((sum, t) => sum + atob(t.x.bdata).length / +t.x.dtype[1], 0)"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def learn(url: str, begin: int, end: int, **headers: str) -> None:
    with httpx.Client(base_url=url, timeout=30, headers=headers) as http:
        post(http, arrow(X[begin:end], LABELS[begin:end]), path="/partial_fit?wait=applied").raise_for_status()


def test_the_lines_of_an_empty_page_work_as_copied(browser: Any, tmp_path: Path) -> None:
    for name, command in (("curl", ["bash", "-euc"]), ("python", [sys.executable, "-c"])):
        served = Process(tmp_path / name)
        try:
            visit = Visit(browser, served.url)
            visit.live()
            assert visit.page.locator("#begin").is_visible()
            lines = visit.page.locator(f"#{name}").inner_text()
            subprocess.run([*command, lines], check=True, cwd=ROOT, capture_output=True, timeout=120)
            visit.until(f"{DRAWN} > 0")
            assert not visit.page.locator("#begin").is_visible()
            visit.end()
        finally:
            served.kill()


def test_a_visit(browser: Any, tmp_path: Path) -> None:
    port = free_port()
    served = Process(tmp_path, port=port)
    visit = Visit(browser, served.url)
    page = visit.page
    try:
        visit.live()
        page.fill("#make [name=name]", "digits")
        page.select_option("#make [name=estimator]", "lda")
        page.select_option("#param-scatter", '"diagonal"')
        page.fill("#param-gamma", "1.5")
        page.click("#make button")
        visit.until("document.getElementById('model').value === 'digits'")
        params = httpx.get(f"{served.url}/models/digits").json()["params"]
        assert params == {"scatter": "diagonal", "gamma": 1.5}
        learn(served.url, 0, 400)
        visit.until(f"{DRAWN} === 400")
        assert page.locator("#classes td.name", has_text=SCRIPT).count() == 1
        before = page.evaluate(f"{POINTS}[0].x.bdata.slice(0, 8)")
        learn(served.url, 400, 800)
        visit.until(
            f"{DRAWN} === 800 && {POINTS}[0].x.bdata.slice(0, 8) !== '{before}'"
        )  # the same row, by a newer version
        assert page.locator(f"#projection :text('{SCRIPT}')").count() >= 1  # in the legend
        learn(served.url, 800, 900)
        visit.until("/%/.test(document.querySelector('#models tbody td:nth-child(2)').textContent)")
        visit.until(
            "/^digits is best, since [0-9]{4}-.* UTC: [0-9.]+ % of/.test(document.getElementById('best').textContent)"
        )
        httpx.put(f"{served.url}/models/means", json={"estimator": "class_means"}).raise_for_status()
        page.select_option("#model", "means")
        visit.until("document.getElementById('refine').hidden")
        page.select_option("#model", "digits")
        visit.until("!document.getElementById('refine').hidden")
        httpx.delete(f"{served.url}/models/means").raise_for_status()
        page.click("#refine button")
        page.wait_for_selector("#jobs li:has-text('refine of digits: done')")
        assert "residual" in page.locator("#jobs li").first.inner_text()
        page.select_option("#dimensions", "3")
        visit.until("document.getElementById('projection').data[0].type === 'scatter3d'")
        page.select_option("#dimensions", "2")
        httpx.post(f"{served.url}/unlearn?wait=applied", json={"positions": [1]}, timeout=30).raise_for_status()
        visit.until(f"{DRAWN} === 500")
        visit.until("(document.getElementById('confusion').data || [{}])[0].type === 'heatmap'")
        visit.until("/%/.test(document.querySelector('#classes tbody td:nth-child(4)').textContent)")
        served.kill()
        page.wait_for_selector("#link.down")
        served = Process(tmp_path, port=port)
        visit.live()
        assert "digits is best" in page.inner_text("#best")
        assert len(page.evaluate("document.getElementById('progress').data[0].x")) > 1  # the curve, too, is kept
        learn(served.url, 900, 1000)
        visit.until(f"{DRAWN} === 600")
        page.click("#delete button")
        assert page.evaluate("document.activeElement.id") == "keep"
        page.keyboard.press("Escape")
        assert "digits" in httpx.get(f"{served.url}/models").json()["models"]
        page.click("#delete button")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("#begin", state="visible")
        assert httpx.get(f"{served.url}/models").json()["models"] == {}
        page.fill("#make [name=name]", "wrong")
        page.fill("#param-gamma", "-1")
        page.click("#make button")
        page.wait_for_selector("#said.bad:has-text('gamma')")
        visit.errors = [error for error in visit.errors if not re.search("status of 422", error)]
        visit.end()
    finally:
        served.kill()


HOSTILE = [
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "');alert(1);('",
    "&lt;b&gt; &amp; <b>%{x}</b>",
    "\u202egnp.exe",
    "\u05d0\u05d1 a \u200f",
    "l" * 5_000,
]
"""Names that end an attribute, a string or an element, are entities or a template, turn the writing, or are very long."""


def test_hostile_names_of_columns_and_labels_are_text(browser: Any, tmp_path: Path) -> None:
    served = Process(tmp_path)
    try:
        rows = [dict(zip(HOSTILE, map(float, row), strict=True)) for row in X[:100, 2 : 2 + len(HOSTILE)]]
        labels = [HOSTILE[digit % len(HOSTILE)] for digit in digits[:100]]
        labels[40] = "<img src=x>" + "w" * 5_000
        with httpx.Client(base_url=served.url, timeout=30) as http:
            for name in HOSTILE:
                refused = http.put(f"/models/{quote(name, safe='')}", json={"estimator": "lda"})
                assert refused.status_code in (404, 422), refused.text  # 404: with a slash in it
            http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
            taken = http.post("/partial_fit?wait=applied", json={"rows": rows, "labels": labels})
            taken.raise_for_status()

        visit = Visit(browser, served.url)
        visit.live()
        visit.until(f"{DRAWN} > 0")
        shown = visit.page.locator("#classes td.name").all_text_contents()
        assert [name for name in HOSTILE if name not in shown] == []
        learned = (
            visit.page.locator("#classes tr", has=visit.page.get_by_text(HOSTILE[0], exact=True)).locator("td").last
        )
        assert learned.inner_text() == str(labels.count(HOSTILE[0]))
        waiting = visit.page.locator("#waiting").inner_text()
        assert waiting == f"Labels that wait for more rows, and are no classes yet: {labels[40][:40]}… (1)."
        assert visit.page.locator("img[src=x]").count() == 0
        assert visit.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        visit.end()
    finally:
        served.kill()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    served = Process(tmp_path_factory.mktemp("guarded"), read_token="reading-it", write_token="writing-it")
    headers = {"Authorization": "Bearer writing-it"}
    httpx.put(f"{served.url}/models/lda", json={"estimator": "lda"}, headers=headers).raise_for_status()
    for begin in range(0, 600, 200):
        learn(served.url, begin, begin + 200, **headers)
    yield served
    served.kill()


def give(visit: Visit, token: str) -> None:
    visit.page.wait_for_selector("#ask[open]")
    visit.page.fill("#token", token)
    visit.page.keyboard.press("Enter")


def test_a_token_is_asked_for_and_kept_for_the_tab_and_a_reader_sees_no_forms(browser: Any, guarded: Process) -> None:
    visit = Visit(browser, guarded.url)
    give(visit, "wrong-token")
    visit.page.wait_for_selector("#ask-why:has-text('not right')")
    give(visit, "reading-it")
    visit.live()
    visit.until(f"{DRAWN} === 600")
    assert not visit.page.locator("#forms").is_visible()
    visit.page.reload()
    visit.live()
    other = visit.context.new_page()
    other.goto(guarded.url)
    other.wait_for_selector("#ask[open]")
    visit.errors = [error for error in visit.errors if "status of 401" not in error]
    visit.end()
    writer = Visit(browser, guarded.url)
    give(writer, "writing-it")
    writer.live()
    assert writer.page.locator("#forms").is_visible()
    writer.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 900, 1600])
def test_contrast_names_and_width(browser: Any, guarded: Process, scheme: str, width: int) -> None:
    visit = Visit(browser, guarded.url, color_scheme=scheme, viewport={"width": width, "height": 900})
    visit.page.wait_for_selector("#ask[open]")
    assert visit.violations() == []
    give(visit, "writing-it")
    visit.live()
    visit.until(f"{DRAWN} === 600")
    assert visit.violations() == []
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visit.context.close()


def test_every_control_is_reached_by_keyboard(browser: Any, guarded: Process) -> None:
    visit = Visit(browser, guarded.url)
    give(visit, "writing-it")
    visit.live()
    reached = set()
    for _ in range(60):
        visit.page.keyboard.press("Tab")
        reached.add(
            visit.page.evaluate(
                "document.activeElement.id || document.activeElement.name || document.activeElement.textContent"
            )
        )
    wanted = {"model", "count", "dimensions", "component", "name", "estimator", "param-gamma", "tol", "max_passes"}
    assert wanted | {"Make it", "Refine", "Write a snapshot", "Delete …"} <= reached
    visit.context.close()
