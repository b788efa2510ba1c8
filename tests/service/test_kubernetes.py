"""The manifest for Kubernetes, parsed: it fits the image, the settings and the routes. No cluster runs here."""

import re
from typing import Any

import pytest
import yaml

from service.guards import PUBLIC_PATHS
from service.settings import PREFIX, Settings
from tests.service.test_deploy import environment, steps
from tests.support.serving import ROOT

SERVICE, SET = yaml.safe_load_all((ROOT / "docs/deploy/kubernetes.yaml").read_text(encoding="utf8"))
POD = SET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def seconds_allowed(probe: dict[str, Any]) -> int:
    """How long a probe may fail."""
    return int(probe["periodSeconds"] * probe["failureThreshold"])


def test_it_is_one_replica_with_a_name() -> None:
    assert (SERVICE["kind"], SET["kind"], SET["spec"]["replicas"]) == ("Service", "StatefulSet", 1)
    assert SET["spec"]["serviceName"] == SERVICE["metadata"]["name"]
    labels = SET["spec"]["template"]["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == SET["spec"]["selector"]["matchLabels"] == labels
    (port,) = CONTAINER["ports"]
    assert str(port["containerPort"]) == environment()["STREAM_DR_PORT"] == str(SERVICE["spec"]["ports"][0]["port"])


def test_the_start_may_take_five_minutes_and_the_end_thirty_seconds() -> None:
    start, ready, live = (CONTAINER[f"{name}Probe"] for name in ("startup", "readiness", "liveness"))
    assert seconds_allowed(start) == 300
    assert [probe["httpGet"]["path"] for probe in (start, ready, live)] == ["/readyz", "/readyz", "/livez"]
    assert {"/readyz", "/livez"} <= set(PUBLIC_PATHS)
    assert {probe["httpGet"]["port"] for probe in (start, ready, live)} == {CONTAINER["ports"][0]["name"]}
    assert POD["terminationGracePeriodSeconds"] == 30 > Settings().stop_timeout + Settings().drain_timeout


def test_the_user_is_the_image_s_and_may_write_to_the_volumes_only() -> None:
    context = POD["securityContext"]
    assert steps("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert context["fsGroup"] == context["runAsGroup"]
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"]
    paths = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    assert paths == {
        "data": environment()["STREAM_DR_DIR"],
        "kernels": environment()["NUMBA_CACHE_DIR"],
        "tmp": "/tmp",
    }
    kept = [claim["metadata"]["name"] for claim in SET["spec"]["volumeClaimTemplates"]]
    assert [*kept, *(volume["name"] for volume in POD["volumes"])] == list(paths)


def test_its_variables_are_settings_and_no_others_come_from_services(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [variable["name"] for variable in CONTAINER["env"]]
    assert {name.removeprefix(PREFIX).lower() for name in names} <= set(Settings.model_fields)
    assert POD["enableServiceLinks"] is False
    monkeypatch.setenv("STREAM_DR_PORT", "tcp://10.0.0.1:8000")  # what a link would set
    with pytest.raises(ValueError, match="port"):
        Settings()


def test_the_page_names_the_secret_that_the_manifest_reads() -> None:
    page = (ROOT / "docs/deploy/kubernetes.md").read_text(encoding="utf8")
    made = re.search(r"create secret generic (\S+) --from-literal=(\S+?)=", page)
    (read,) = (variable["valueFrom"]["secretKeyRef"] for variable in CONTAINER["env"] if "valueFrom" in variable)
    assert made is not None
    assert made.groups() == (read["name"], read["key"])
