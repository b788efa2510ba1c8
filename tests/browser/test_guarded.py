"""The dashboard of a service with tokens: who sees what, contrast, names, widths and the keyboard."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.serving import Process
from tests.support.visit import DRAWN, Visit, learn

pytestmark = pytest.mark.test_all


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
    visit.page.wait_for_selector("#ask-why:has-text('is wrong')")
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


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (900, "light"), (1600, "dark")])
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
    assert wanted | {"Create the model", "Refine", "Write a snapshot", "Delete …"} <= reached
    visit.context.close()
