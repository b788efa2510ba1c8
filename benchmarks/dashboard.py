"""The dashboard: what those who look cost the service, and how long a browser takes to draw.

    python -m benchmarks.dashboard [--rows 400000] [--batch 1000] [--clients 10] [--rounds 3] [--points 100000]

The first part posts the same rows with nobody looking and with so many scripted clients of the page, each asking once a
second for what has changed, in turn; it prints the service's processor time per row of each, and their ratio. The
second part, where there is Chromium, draws so many points in the page and draws them again after new rows; times are
from the answer's arrival.
"""

import argparse
import contextlib
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np

from benchmarks.service import ARROW, processor_seconds, service
from stream_dr.batch.arrow import arrow_from_block, write_arrow
from stream_dr.batch.block import Block
from stream_dr.batch.targets import class_targets


class Clients:
    """Scripted clients of the page, each in a thread; used in a with-block. `asked`: how often they did."""

    def __init__(self, url: str, count: int) -> None:
        self._url, self._ended, self.asked = url, threading.Event(), 0
        self._threads = [threading.Thread(target=self._look, args=(2 * i / max(1, count),)) for i in range(count)]

    def _look(self, wait: float) -> None:
        tags: dict[str, str] = {}
        with httpx.Client(base_url=self._url, timeout=60) as http:
            while not self._ended.wait(wait):
                wait = 2.0
                answer = http.get("/figures", params={"model": "lda", "have": ",".join(tags.values())})
                tags = {kind: told["tag"] for kind, told in answer.raise_for_status().json()["figures"].items()}
                self.asked += 1

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def arrow(X: np.ndarray, y: list) -> bytes:
    """Return rows and their labels as an Arrow stream."""
    return bytes(write_arrow([arrow_from_block(Block(X, class_targets(y)))]))


def post(http: httpx.Client, body: bytes, path: str = "/partial_fit") -> None:
    """Post an Arrow stream. Raise where it is refused."""
    http.post(path, content=body, headers={"Content-Type": ARROW}).raise_for_status()


def cost(rows: int, batch: int, clients: int, rounds: int) -> None:
    """Processor time per row, nobody looking and with clients, in turn."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 64)) * 3
    bodies = []
    for _ in range(20):
        y = rng.integers(0, 10, batch)
        bodies.append(arrow(centres[y] + rng.normal(size=(batch, 64)), [f"class {label}" for label in y]))
    settings = {"publish_seconds": 1.0, "warm_up": False}
    with tempfile.TemporaryDirectory() as folder, service(Path(folder), **settings) as (port, pid):
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=60) as http:
            for name in ("lda", "pca", "iskm"):
                http.put(f"/models/{name}", json={"estimator": name}).raise_for_status()
            for body in bodies:
                post(http, body, path="/partial_fit?wait=applied")
            found: dict[int, list[float]] = {0: [], clients: []}
            for turn in range(2 * rounds):
                count = (0, clients)[turn % 2]
                before, begun = processor_seconds(pid), time.monotonic()
                with Clients(url, count) as looking:
                    for number in range(rows // batch):
                        post(http, bodies[number % len(bodies)])
                    post(http, bodies[0], path="/partial_fit?wait=applied")
                spent = (processor_seconds(pid) - before) / (rows + batch)
                found[count].append(spent)
                wall = time.monotonic() - begun
                print(f"{count:3} clients, {looking.asked:4} answers: {1e6 * spent:.2f} µs/row, {wall:.1f} s")
    ratio = np.median(found[clients]) / np.median(found[0])
    print(f"{clients} clients cost {100 * (ratio - 1):+.1f} % of the processor time per row (medians of {rounds})")


_MEASURE = """async ([count, before]) => {
  const { ask } = await import("/dashboard/api.js");
  const figures = await import("/dashboard/figures.js");
  for (;;) {
    const answer = await (await ask(`/figures?model=lda&rows=${count}`)).text();
    const begun = performance.now(), told = JSON.parse(answer).figures.projection;
    if (told.tag === before) { await new Promise(done => setTimeout(done, 100)); continue; }
    figures.show("projection", told);
    await new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)));
    const drawn = document.getElementById("projection").data;
    const points = drawn.reduce((sum, t) => sum + atob(t.x.bdata).length / +t.x.dtype[1], 0);
    return [told.tag, points, (performance.now() - begun) / 1000];
  }
}"""


def browser_seconds() -> float:
    """Processor time so far of the browser's processes that this one started."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    spent = 0.0
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        with contextlib.suppress(OSError):
            if above == os.getpid() and "--type=" in Path(f"/proc/{pid}/cmdline").read_text():
                spent += processor_seconds(pid)
    return spent


def drawing(points: int) -> None:
    """Seconds until so many points are drawn, and drawn again."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        print("no Chromium: drawing is left out")
        return
    from playwright.sync_api import sync_playwright

    rng = np.random.default_rng(0)
    settings = {"publish_seconds": 0.05, "warm_up": False}
    arguments = ["--no-sandbox", "--enable-unsafe-swiftshader"]
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder), **settings) as (port, _),
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=arguments) as browser,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
    ):
        page = browser.new_page()
        page.goto(str(http.base_url))
        page.wait_for_selector("#link.up")
        page.evaluate(f"document.getElementById('count').value = '{points}'")  # what the page itself draws, too
        http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        y = rng.integers(0, 10, points)
        X = rng.normal(size=(points, 16)) + y[:, None] * rng.normal(size=16)
        for part in np.array_split(np.arange(points), 10):
            post(http, arrow(X[part], y[part].tolist()))
        post(http, arrow(X[:10], y[:10].tolist()), path="/partial_fit?wait=applied")
        page.wait_for_timeout(3_000)
        before = browser_seconds()
        tag, drawn, first = page.evaluate(_MEASURE, [points, ""])
        print(f"{drawn:,} points drawn in {first:.2f} s, {browser_seconds() - before:.2f} s of processor time")
        for _ in range(3):
            post(http, arrow(X[:100], y[:100].tolist()), path="/partial_fit?wait=applied")
            before = browser_seconds()
            tag, drawn, again = page.evaluate(_MEASURE, [points, tag])
            print(f"{drawn:,} drawn again in {again:.2f} s, {browser_seconds() - before:.2f} s of processor time")


def main() -> None:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--batch", type=int, default=1_000)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--points", type=int, default=100_000)
    given = parser.parse_args()
    cost(given.rows, given.batch, given.clients, given.rounds)
    drawing(given.points)


if __name__ == "__main__":
    main()
