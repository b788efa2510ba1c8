"""The rules of docs/alerts.md: Prometheus can parse them, and the service has every metric that they name."""

import re
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.serving import ROOT, arrow, in_thread, post

PAGE = (ROOT / "docs" / "alerts.md").read_text(encoding="utf8")
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
RULES: list[dict[str, Any]] = [rule for block in BLOCKS for group in block.get("groups", ()) for rule in group["rules"]]


def named_metrics(expression: str) -> set[str]:
    """Names of the metrics in an expression of PromQL."""
    names: set[str] = set()

    def note(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            names.add(node.name)

    promql_parser.walk(promql_parser.parse(expression), pre_visit=note)
    return names


def test_every_rule_names_metrics_that_the_service_has(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        for rows in ([[1.0], [2.0], [5.0], [6.0]], [[1.5], [2.5], [5.5], [6.5]], [[1.2], [2.2], [5.2], [6.2]]):
            post(served.http, arrow(rows, ["a", "a", "b", "b"]), path="/partial_fit?wait=applied").raise_for_status()
        families = list(text_string_to_metric_families(served.http.get("/metrics").text))

    with_values = {sample.name for family in families for sample in family.samples}
    assert len(RULES) == 5
    for rule in RULES:
        names = named_metrics(rule["expr"])
        assert names
        assert names <= with_values, rule["alert"]
        assert promql_parser.parse_duration(rule["for"])
        assert rule["annotations"]["summary"]


def test_every_alert_of_the_page_is_explained() -> None:
    assert re.findall(r"^\| `(StreamDR\w+)` \|", PAGE, re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_metrics_in_the_text_of_the_page_are_there(tmp_path: Path) -> None:
    with in_thread(tmp_path) as served:
        families = list(text_string_to_metric_families(served.http.get("/metrics").text))
    assert set(re.findall(r"stream_dr_\w+", PAGE)) <= {family.name for family in families}
