"""What /docs says of the answers and of bodies to send, against what the routes take and answer."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from service import schemas
from stream_dr.client import payloads
from tests.support.serving import ROOT, Served, arrow, in_thread, post


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with in_thread(tmp_path_factory.mktemp("answers")) as served:
        served.http.put("/models/lda", json={"estimator": "lda"}).raise_for_status()
        served.http.put("/models/class_means", json={"estimator": "class_means"}).raise_for_status()
        post(served.http, arrow([[1, 2], [3, 4], [5, 7]], ["a", "b", "a"]), path="/partial_fit?wait=applied")
        yield served


def answered(told: Any, kind: type[BaseModel]) -> None:
    """The answer has the fields of its form and no others, of their types."""
    kind.model_validate_json(told.content, strict=True)
    assert set(told.json()) <= set(kind.model_fields) or kind is schemas.Exported


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/livez", schemas.Health),
        ("/readyz", schemas.Health),
        ("/stream", schemas.StreamState),
        ("/models", schemas.Models),
        ("/models/lda", schemas.ModelState),
        ("/models/lda/projection", schemas.Exported),
        ("/models/none", schemas.Problem),
        ("/transform?model=lda&x=1,2", schemas.Projected),
    ],
)
def test_answers_have_the_form_that_is_shown(served: Served, path: str, kind: type[BaseModel]) -> None:
    answer = served.http.get(path)
    answered(answer, kind)
    route = path.partition("?")[0].replace("lda", "{name}").replace("none", "{name}")
    shown = served.http.get("/openapi.json").json()["paths"][route]["get"]["responses"][str(answer.status_code)]
    form = shown["content"][answer.headers["content-type"]]["schema"]["$ref"]
    assert form.endswith(f"/{kind.__name__}")


def test_a_failed_model_a_job_and_many_rows_have_the_form_that_is_shown(served: Served) -> None:
    served.directory.models["class_means"].mark_failed_by_error(1, ValueError("for the test"))
    failed = served.http.get("/models/class_means")
    assert failed.json()["failure"] == {"position": 1, "code": "internal", "message": "the log has the details"}
    served.directory.models["class_means"].published = None
    refused = served.http.get("/transform?model=class_means&x=1,2")
    assert refused.json()["code"] == "model_failed"
    assert "for the test" not in refused.text
    answered(failed, schemas.ModelState)
    job = served.http.post("/models/lda/snapshot")
    answered(job, schemas.JobState)
    answered(served.http.get(job.headers["location"]), schemas.JobState)
    many = served.http.post("/transform?model=lda", json={"rows": [[1, 2]], "ids": ["x"]})
    assert many.json()["id"] == ["x"]
    answered(many, schemas.Projected)
    answered(served.http.post("/partial_fit", json={"rows": [[1, 2]], "labels": ["a"]}), schemas.Receipt)


def test_every_operation_is_summed_up_as_the_table_of_routes_does(served: Served) -> None:
    table = (ROOT / "docs/service.md").read_text(encoding="utf8")
    for path, methods in served.http.get("/openapi.json").json()["paths"].items():
        for method, told in methods.items():
            assert f"| `{method.upper()} {path}` | {told['summary']} |" in table


def test_every_operation_has_a_name_a_description_and_an_example(served: Served) -> None:
    document = served.http.get("/openapi.json").json()
    operations = [told for methods in document["paths"].values() for told in methods.values()]
    assert len({told["operationId"] for told in operations}) == len(operations)
    for told in operations:
        assert told["description"]
        parts = [told.get("requestBody", {}), *(told["responses"].get(status, {}) for status in ("200", "201", "202"))]
        contents = [content for part in parts for content in part.get("content", {}).values()]
        names = [content["schema"].get("$ref", "").rpartition("/")[2] for content in contents]
        shown = [document["components"]["schemas"][name].get("examples") for name in names if name]
        shown += [content.get("example") or content.get("examples") for content in contents]
        shown += [p.get("examples") or p["schema"].get("examples") for p in told.get("parameters", [])]
        assert any(shown), told["operationId"]


@pytest.mark.parametrize("name", schemas.EXAMPLES)
def test_every_example_has_its_form(name: str) -> None:
    getattr(schemas, name).model_validate(schemas.EXAMPLES[name])


def test_every_array_says_what_it_holds(served: Served) -> None:
    document = served.http.get("/openapi.json").json()

    def arrays(part: object) -> Iterator[dict[str, Any]]:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        for each in inner:
            yield from arrays(each)
        if isinstance(part, dict) and part.get("type") == "array":
            yield part

    assert all("items" in array or "prefixItems" in array for array in arrays(document))


def test_every_example_of_a_model_makes_one(served: Served) -> None:
    put = served.http.get("/openapi.json").json()["paths"]["/models/{name}"]["put"]
    for key, example in put["requestBody"]["content"]["application/json"]["examples"].items():
        made = served.http.put(f"/models/example-{key}", json=example["value"])
        assert made.status_code == 201, (key, made.text)
        answered(made, schemas.ModelState)


def test_the_clients_types_have_the_fields_of_the_schemas() -> None:
    pairs = (
        (payloads.ModelStatus, schemas.ModelState),
        (payloads.StreamStatus, schemas.StreamState),
        (payloads.JobStatus, schemas.JobState),
        (payloads.StreamEventStatus, schemas.Overview),
        (payloads.ModelEventStatus, schemas.ModelOverview),
    )
    for kind, schema in pairs:
        assert set(kind.__annotations__) == set(schema.model_fields), kind
