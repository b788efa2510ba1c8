"""The dashboard in a browser: what a visitor sees and does, from an empty service to one that is killed and comes back."""

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.serving import ROOT, Process
from tests.support.visit import DRAWN, POINTS, SCRIPT, Visit, X, digits, learn

pytestmark = pytest.mark.test_all


HOSTILE = [
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "');alert(1);('",
    "&lt;b&gt; &amp; <b>%{x}</b>",
    "\u202egnp.exe",
    "\u05d0\u05d1 a \u200f",
    "l" * 900,
]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


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
            "/^digits is best: accuracy [0-9.]+ % ± [0-9.]+ on [0-9]+ rows, tested .*; since .* UTC. 900 rows learned/"
            ".test(document.getElementById('best').textContent)"
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
        # The curves, too, outlive the process.
        for figure, points in (("progress", 2), ("accuracy", 1)):
            assert len(page.evaluate(f"document.getElementById('{figure}').data[0].x")) >= points
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


def test_hostile_names_of_columns_and_labels_are_text(browser: Any, tmp_path: Path) -> None:
    served = Process(tmp_path)
    try:
        rows = [dict(zip(HOSTILE, map(float, row), strict=True)) for row in X[:100, 2 : 2 + len(HOSTILE)]]
        labels = [HOSTILE[digit % len(HOSTILE)] for digit in digits[:100]]
        labels[40] = "<img src=x>" + "w" * 900
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
        assert waiting == f"Labels with too few rows to be classes: {labels[40][:40]}… (1)."
        assert visit.page.locator("img[src=x]").count() == 0
        assert visit.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        visit.end()
    finally:
        served.kill()


def test_the_curve_and_sentences_of_a_model_that_chose_its_ridge(browser: Any, tmp_path: Path) -> None:
    served = Process(tmp_path)
    visit = Visit(browser, served.url)
    page = visit.page
    try:
        visit.live()
        httpx.put(f"{served.url}/models/plain", json={"estimator": "lda"}).raise_for_status()
        page.fill("#make [name=name]", "chosen")
        page.select_option("#make [name=estimator]", "lda")
        page.fill("#param-gamma", '"cv"')
        page.click("#make button")
        page.wait_for_selector("#model option[value=chosen]", state="attached")
        page.select_option("#model", "chosen")
        learn(served.url, 0, 600)
        visit.until("/^gamma = .* was chosen among 26 values/.test(document.getElementById('sentences').textContent)")
        visit.until("(document.getElementById('regularisation').data || []).length === 2")
        assert page.locator("#regularisation .errorbar").count() == 26
        page.select_option("#model", "plain")
        page.wait_for_selector("#regularisation", state="hidden")
        assert not page.locator("#sentences").is_visible()
        page.select_option("#model", "chosen")
        page.wait_for_selector("#regularisation", state="visible")
        visit.end()
    finally:
        served.kill()
