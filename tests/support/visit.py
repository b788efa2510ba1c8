"""Visits of the dashboard in a browser."""

from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import httpx
from sklearn.datasets import load_digits

from tests.support.serving import arrow, post

REFUSED = "net::ERR_CONNECTION_REFUSED"


SCRIPT = "<script>alert(1)</script>"
X, digits = load_digits(return_X_y=True)
LABELS = [SCRIPT if label == 3 else str(label) for label in digits]


POINTS = "(document.getElementById('projection').data || []).filter(t => t.name !== 'class means')"


DRAWN = f"{POINTS}.reduce((sum, t) => sum + atob(t.x.bdata).length / +t.x.dtype[1], 0)"


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


def learn(url: str, begin: int, end: int, **headers: str) -> None:
    with httpx.Client(base_url=url, timeout=30, headers=headers) as http:
        post(http, arrow(X[begin:end], LABELS[begin:end]), path="/partial_fit?wait=applied").raise_for_status()
