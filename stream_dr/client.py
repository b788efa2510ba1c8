"""Client: the service from Python; rows go out as Arrow, projections come back as arrays.

    with Client("http://127.0.0.1:8000") as client:
        client.put_model("lda", "lda", n_components=9)
        client.partial_fit(X, y)
        z = client.transform(X, model="lda")

Every batch carries an idempotency key, and a batch whose answer was lost, or that the service had no room for, is sent again
with the same key and the same bytes: however often it is sent, it is learned once. An error answer is raised as the class of
`stream_dr.errors` that has its code.

Why this way: retrying is only safe with the key, so the two are not separate options.
"""

import random
import time
import uuid
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import quote

import httpx
import numpy as np
import orjson
import pyarrow as pa

from stream_dr import errors
from stream_dr.arrow.codec import arrow_from_block, read_arrow, write_arrow
from stream_dr.block import Block, Ids, as_rows, as_weights
from stream_dr.label_codes import label_array
from stream_dr.target_parsing import parse_targets, refuse_ambiguous
from stream_dr.targets import KINDS, Targets

_ARROW = "application/vnd.apache.arrow.stream"
_AGAIN = (429, 502, 503, 504)
"""Answers after which the same request may succeed."""


class Client:
    """A service at `url`; close it, or use it as a context manager. Not to be shared between threads.

    token: bearer token, where the service wants one. timeout: seconds for one attempt. retries: attempts after the first;
    between them it waits 0.1, 0.2, 0.4 … up to 5 seconds, or what Retry-After says.
    """

    def __init__(self, url: str, token: str | None = None, timeout: float = 60.0, retries: int = 8) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise errors.InvalidParameter(
                f"retries={retries!r}; give the number of attempts after the first, 0 or more."
            )
        headers = {"Authorization": f"Bearer {_told('token', token)}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._retries = retries
        self._kind: str | None = None

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        ids: Sequence[str] | Sequence[int] | None = None,
        key: str | None = None,
        wait: bool = False,
        target: str = "auto",
    ) -> dict[str, Any]:
        """Send rows X (rows, features) with targets y, weights (rows,) and ids; answers {"position", "rows", "duplicate"}.

        X: ndarray, scipy sparse, or a pandas, polars or Arrow table. key: idempotency key; made up when None. wait: answer
        once every model has learned them. target: kind of y, as in an estimator; "auto" is what the stream has, and before
        it has any is refused for whole floats and for one column of whole numbers, which may be either. Raises what the
        service refuses with.
        """
        rows, names = as_rows(X)
        weights = as_weights(sample_weight, rows.shape[0])
        targets = None if y is None else self._targets(y, rows.shape[0], target)
        block = Block(rows, targets, weights, None if ids is None else _ids(ids, rows.shape[0]), names)
        headers = {"Content-Type": _ARROW, "Idempotency-Key": _told("key", key or uuid.uuid4().hex)}
        query = {"wait": "applied"} if wait else {}
        answer = self._send("POST", "/partial_fit", params=query, content=_bytes(block), headers=headers)
        return dict(answer.json())

    def transform(self, X: Any, model: str | None = None) -> np.ndarray:
        """Project rows X (rows, features) to (rows, components) float64; model may be left out where there is only one."""
        answer = read_arrow(self._answer("/transform", X, model, _ARROW))
        column = pa.Table.from_batches(answer).column("z").combine_chunks()
        if not pa.types.is_fixed_size_list(column.type):
            return np.zeros((len(column), 0))
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)

    def predict(self, X: Any, model: str | None = None) -> np.ndarray | list[list[Any]]:
        """Predict the targets of rows X (rows, features): labels (rows,) or numbers (rows,) or (rows, k) as an array,
        several labels a row as a list of lists. model may be left out where there is only one. Raises CannotPredict where
        the model's method has no rule for targets."""
        return self._predicted(X, model)[0]

    def predict_proba(self, X: Any, model: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Posterior probabilities (rows, classes) float64 of rows X, and the classes (classes,) they are of. Raises
        CannotPredict where the model's method has none."""
        _, facts = self._predicted(X, model)
        if facts.get("probabilities") is None:
            raise errors.CannotPredict(
                f"model {facts['model']!r} predicts its targets without probabilities of classes."
            )
        classes = label_array(facts["classes"])
        return np.array(facts["probabilities"], dtype=np.float64).reshape(-1, len(classes)), classes

    def _predicted(self, X: Any, model: str | None) -> tuple[Any, dict[str, Any]]:
        facts = orjson.loads(self._answer("/predict", X, model, "application/json"))
        predicted = facts["predicted"]
        if facts["classes"]:
            several = bool(predicted) and isinstance(predicted[0], list)
            return (predicted if several else label_array(predicted)), facts
        return np.asarray(predicted, dtype=np.float64), facts

    def _answer(self, path: str, X: Any, model: str | None, accept: str) -> bytes:
        """What a model says of rows X, in the form that `accept` names."""
        rows, names = as_rows(X)
        headers, query = {"Content-Type": _ARROW, "Accept": accept}, {"model": model or self._only_model()}
        return self._send("POST", path, params=query, content=_bytes(Block(rows, names=names)), headers=headers).content

    def models(self) -> dict[str, dict[str, Any]]:
        """Every model: name → state, position, rows, lag, version …"""
        return dict(self._send("GET", "/models").json()["models"])

    def model(self, name: str) -> dict[str, Any]:
        """One model's state, position, rows, lag, version … Raises UnknownModel."""
        return dict(self._send("GET", _path(name)).json())

    def put_model(
        self,
        name: str,
        estimator: str,
        start: str | int = "start",
        publish: dict[str, Any] | None = None,
        refine: dict[str, Any] | None = None,
        **params: Any,
    ) -> dict[str, Any]:
        """Make a model, or find it there with the same spec. Raises ModelExists, InvalidParameter, UnknownEstimator …

        start: "start", "now" or a position. publish: {"rows", "seconds", "idle"}, when it is solved and published; None:
        as the service is set. refine: {"rows", "seconds"}, when it is refined again by itself; {}: when asked, as with None
        in a new model. A model that is there keeps a policy that is None. params: the estimator's.
        """
        spec = {"estimator": estimator, "params": params, "from": start, "publish": publish, "refine": refine}
        return dict(self._send("PUT", _path(name), **_json(spec)).json())

    def publish(self, name: str) -> dict[str, Any]:
        """Publish the model as it is now, whatever its policy; what `model` gives. Raises NotFitted, ModelFailed."""
        return dict(self._send("POST", f"{_path(name)}/publish").json())

    def delete_model(self, name: str) -> None:
        """Forget a model; the log stays. Raises UnknownModel."""
        self._send("DELETE", _path(name))

    def refine(self, name: str, tol: float = 1e-6, max_passes: int = 20) -> dict[str, Any]:
        """Start the exact solution by passes over the log; the job, whose "id" `job` takes."""
        how = {"tol": tol, "max_passes": max_passes}
        return dict(self._send("POST", f"{_path(name)}/refine", **_json(how)).json())

    def snapshot(self, name: str) -> dict[str, Any]:
        """Start a snapshot; the job."""
        return dict(self._send("POST", f"{_path(name)}/snapshot").json())

    def job(self, id: str) -> dict[str, Any]:
        """A job's state, progress and error. Raises UnknownJob."""
        return dict(self._send("GET", f"/jobs/{_segment('job', id)}").json())

    def unlearn(
        self, positions: Sequence[int] = (), ids: Sequence[str | int] = (), key: str | None = None, wait: bool = False
    ) -> dict[str, Any]:
        """Take rows out again, by the positions of their batches or by their ids, not by both; as partial_fit."""
        what = {"positions": _several("positions", positions), "ids": _several("ids", ids)}
        query = {"wait": "applied"} if wait else {}
        headers = {"Idempotency-Key": _told("key", key or uuid.uuid4().hex)}
        return dict(self._send("POST", "/unlearn", params=query, **_json(what, headers)).json())

    def stream(self) -> dict[str, Any]:
        """Position, rows, schema, labels and target kind of the stream."""
        return dict(self._send("GET", "/stream").json())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        """The answer, after as many attempts as allowed. Raises the error it tells, or RemoteError."""
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                answer = self._http.request(method, path, **request)
            except httpx.TransportError as e:
                if last:
                    raise errors.RemoteError(
                        f"{self._http.base_url} did not answer ({type(e).__name__}: {e}) in {attempt + 1} attempts; "
                        "is `stream-dr serve` running there?"
                    ) from e
                time.sleep(_pause(attempt))
                continue
            if answer.status_code not in _AGAIN or last:
                break
            time.sleep(max(_pause(attempt), _asked(answer)))
        if answer.is_success:
            return answer
        raise error_of(answer)

    def _targets(self, y: Any, rows: int, target: str) -> Targets:
        """y as Targets of the stream's kind, or, where it has none, of `target` or of what y's form says beyond doubt."""
        known = self._target_kind()
        targets = parse_targets(y, rows, KINDS, target, known)
        if known is None and target == "auto":
            refuse_ambiguous(y, targets)
        return targets

    def _target_kind(self) -> str | None:
        """The stream's kind of targets, asked until it is decided; it never changes then."""
        if self._kind is None:
            self._kind = self.stream()["target_kind"]
        return self._kind

    def _only_model(self) -> str:
        names = sorted(self.models())
        if len(names) != 1:
            raise errors.UnknownModel(f"the service has the models {', '.join(names) or '(none)'}; say model=…")
        return names[0]


def error_of(answer: httpx.Response) -> errors.StreamDRError:
    """The error an answer tells: the class with its code, or with the reason's where the code is of the service alone, its
    sentence, and its facts as details."""
    try:
        told = answer.json()
        code, detail = told.pop("code"), told.pop("detail")
    except (ValueError, KeyError, AttributeError, TypeError):
        return errors.RemoteError(f"status {answer.status_code}: {answer.text[:200]}", status=answer.status_code)
    facts = {name: fact for name, fact in told.items() if name not in ("type", "title")}
    kind = _CLASSES.get(code) or _CLASSES.get(str(facts.get("reason")))
    if kind is None:
        return errors.RemoteError(f"{detail} ({code})", code=code, **facts)
    return kind(detail, **facts)


_CLASSES: dict[str, type[errors.StreamDRError]] = {}
for _kind in vars(errors).values():
    if isinstance(_kind, type) and issubclass(_kind, errors.StreamDRError):
        _CLASSES.setdefault(_kind.code, _kind)
_CLASSES["invalid_request"] = errors.InvalidParameter  # of the request, not of an estimator


def _bytes(block: Block) -> bytes:
    return bytes(write_arrow([arrow_from_block(block)]))


def _json(content: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """What httpx is told of a JSON body, in which numpy's numbers may stand. Raises InvalidParameter."""
    try:
        body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as e:
        raise errors.InvalidParameter(f"{content} cannot be said in JSON ({e}); give numbers, strings, lists.") from e
    return {"content": body, "headers": {"Content-Type": "application/json", **(headers or {})}}


def _told(name: str, value: str) -> str:
    """What stands in a header. Raises InvalidParameter."""
    if not (isinstance(value, str) and value.isascii() and value.isprintable() and value == value.strip()):
        raise errors.InvalidParameter(
            f"{name} goes into a header; it must be of printable ASCII characters and neither begin nor end with a space."
        )
    return value


def _several(name: str, given: Any) -> list[Any]:
    """A sequence as a list; a string is one value, not its letters. Raises InvalidParameter."""
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise errors.InvalidParameter(f"{name}={given!r}; give a list of them.")
    return list(given)


def _ids(ids: Sequence[str] | Sequence[int], rows: int) -> Ids:
    """One string a row, or one integer of 64 bits a row. Raises InvalidRows."""
    given = _several("ids", ids)
    if len(given) != rows:
        raise errors.InvalidRows(f"{len(given)} ids are given for {rows} rows; give one a row.")
    if given and all(isinstance(id, int | np.integer) and -(2**63) <= id < 2**63 for id in given):
        return [int(id) for id in given]
    for row, id in enumerate(given):
        if not isinstance(id, str) or not _is_unicode(id):
            raise errors.InvalidRows(
                f"the id of row {row} is {id!r}; ids are strings of Unicode characters, or integers of 64 bits.",
                row=row,
            )
    return given


def _path(name: str) -> str:
    return f"/models/{_segment('model', name)}"


def _segment(kind: str, name: str) -> str:
    """A name as it stands in an address. Raises InvalidParameter."""
    if not isinstance(name, str) or name in ("", ".", "..") or not _is_unicode(name):
        raise errors.InvalidParameter(f"no {kind} can be called {name!r}; say which {kind}.")
    return quote(name, safe="")


def _is_unicode(text: str) -> bool:
    """False for text with half a surrogate pair, which no encoding can say."""
    return all(not "\ud800" <= character <= "\udfff" for character in text)


def _asked(answer: httpx.Response) -> float:
    """Seconds that the answer asks to wait; a proxy's date is none."""
    told = answer.headers.get("retry-after", "")
    return float(told) if told.isdigit() else 0.0


def _pause(attempt: int) -> float:
    """Seconds before the next attempt; spread, so that many clients do not come back at once."""
    return min(5.0, 0.1 * 2**attempt) * random.uniform(0.5, 1.0)
