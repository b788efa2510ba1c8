"""Directory: one stream's log, its schema and its models, in one folder with one writing process.

    D/lock   D/reserve   D/log/   D/models.db   D/snapshots/NAME.ID/POSITION.safetensors   D/places.json (moved shards)
    D/sources/NAME/ (shards of its own)   D/records.jsonl

Opened for writing it takes the lock, brings every model back from its newest valid snapshot and knows what the log
holds after it; opened read-only it does the same without the lock, while another process may be writing. It has no
thread of its own: `replay` and `Running` drive it.

Why this way: admitting, appending and advancing are the same three calls whether rows come from shards or over HTTP.
"""

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stream_dr.directory.admit import Group, admit_model
from stream_dr.directory.admit_saved import admit_saved
from stream_dr.directory.draft import Draft, DryRunReceipt, Receipt, Recent
from stream_dr.directory.history import History
from stream_dr.directory.model_table import MODELS_NAME, ModelTable, check_name, check_there
from stream_dr.directory.records import RECORDS, Records
from stream_dr.directory.retention import Retention
from stream_dr.disk import DirectoryLock, Reserve, check_room, remove_begun
from stream_dr.errors import (
    DamagedFile,
    DirectoryMissing,
    HistoryGone,
    InsufficientStorage,
    InvalidParameter,
    ModelExists,
    StreamDRError,
    UnknownModel,
    did_you_mean,
    without_frames,
)
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.failpoints import failpoint
from stream_dr.log.log import Log
from stream_dr.models.entry import Entry, Failure, PublishPolicy, RefinePolicy, Spec
from stream_dr.models.model import Model
from stream_dr.models.opening import READ_TRIES, bring_back, made
from stream_dr.models.saved import completed, estimator_of, plain_spec, same_model, spec_of
from stream_dr.models.schema import Limits, Schema, grown, with_learned
from stream_dr.models.snapshot import (
    begin_with,
    keep_published,
    keep_start,
    newest_snapshot,
    remove_snapshots,
    snapshot_folders,
    state_sha256,
)
from stream_dr.statistics.protocol import pack
from stream_dr.targets.label_codes import Label, label_table

Start = int | Literal["start", "now"]


class Directory(AbstractContextManager["Directory"]):
    """A stream on disk: log, schema, models and their snapshots, in the folder `path`.

    writable: take the lock and create what is missing; else open read-only. limits: what is refused. n_features,
    target_kind: stream settings, used by the first batch (a sparse stream's stated width; the kind of targets it must
    have, while none had any). allowed_labels: those that batches may have from now on, written down with the next one;
    none: any; None: as is written. Attributes, changed here alone: path, limits, log, table, schema, models (name → Model),
    history, retention, recent (drafts that were just appended), records (of what models did). Raises DirectoryInUse,
    DirectoryMissing. Costs: reading the newest snapshot of each model and the schema's deltas."""

    def __init__(
        self,
        path: str | Path,
        writable: bool = True,
        limits: Limits | None = None,
        n_features: int | None = None,
        target_kind: str | None = None,
        allowed_labels: Sequence[Label] | None = None,
    ) -> None:
        self._set = Schema(
            stated=n_features or 0, target_kind=target_kind, allowed_labels=label_table(allowed_labels or ())
        )
        self._sets_labels = allowed_labels is not None
        self.path, self.writable, self.limits = Path(path), writable, limits or Limits()
        if not writable and not (self.path / "log").is_dir():
            raise DirectoryMissing(f"{self.path} holds no log; name a directory that `replay` or `serve` has made.")
        if writable:
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(self.path) if writable else None
        try:
            with Reserve(self.path) if writable else nullcontext():
                self._open_again(1 if writable else READ_TRIES)
        except BaseException:
            self._release()
            raise

    def _open_again(self, tries: int) -> None:
        """Open; a reader again where the writer has dropped events meanwhile."""
        for self._left in reversed(range(tries)):
            try:
                self._open()
                return
            except HistoryGone:
                if not self._left:
                    raise

    def _open(self) -> None:
        self.log = Log(
            self.path / "log", writable=self.writable, at_least=newest_snapshot(self.path) if self.writable else -1
        )
        check_there(self.path, self.log.last)
        self.table = ModelTable(self.path / MODELS_NAME, self.writable, self.log.check_writer)
        self.records = Records(self.path / RECORDS)
        self._appending = threading.Lock()
        self.history = History(self.log, self.path, lambda: self.schema, lambda: self.going_on)
        self.retention = Retention(self.log, self.path, self.history, lambda: self.going_on, self._appending)
        self.recent = Recent()
        self._label_sets: dict[int, set[frozenset[Label]]] = {}  # admitted for each model since it was opened
        self._unsure = False  # whether the log may hold more than is known here
        self.models: dict[str, Model] = {}
        self._read_schema()
        if self.writable:
            self.history.index_ids()
        for entry in self.table.entries():
            self.models[entry.name] = self._restored(entry)
        self.schema = self._known()
        if self.writable:
            self._remove_leftovers()
            remove_begun(self.path)
            self.table.forget_removed()

    def _remove_leftovers(self) -> None:
        """Remove the snapshots of models that were removed, or begun and never there."""
        for folder in self.table.removed_folders(snapshot_folders(self.path)):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def position(self) -> int:
        """The log's last position; −1 when it is empty."""
        return int(self.log.last)

    @property
    def rows(self) -> int:
        """Rows in the log, by all events."""
        return int(self.log.rows)

    def append(self, drafts: Sequence[Draft], up_to_refusal: bool = False) -> list[Receipt | StreamDRError]:
        """Admit drafts in order and write those admitted in one transaction; durable on return.

        One answer a draft: its Receipt, or the error that refused it, which leaves the others alone, or (up_to_refusal)
        leaves those after it out, which then have no answer. A key that came before with the same body gives the same
        position with duplicate=True; with another body, KeyConflict.
        """
        with self._sure():
            return self._append(drafts, up_to_refusal)

    def append_all(self, drafts: Sequence[Draft]) -> None:
        """Admit drafts in order and write them in one transaction, all or none. Raises what refuses one."""
        with self._sure():
            check_room(self.path, 0, self.limits.min_free_bytes)
            group = self._group()
            for draft in drafts:
                group.put(draft)
            self._adopt(group, self.log.append(group.events))

    def check(self, draft: Draft) -> DryRunReceipt:
        """Raise what `append` would refuse the draft with, else say what its receipt would; write nothing."""
        return self._group().check(draft)

    def hold_recent(self, max_bytes: int) -> None:
        """From now on keep what is appended in `recent`, so many bytes of it, until the holder of `recent` forgets it."""
        self.recent = Recent(max_bytes)

    def add_model(
        self,
        name: str,
        key: str,
        params: dict[str, Any],
        start: Start = "start",
        policy: PublishPolicy | None = None,
        refine: RefinePolicy | None = None,
    ) -> tuple[Model, bool]:
        """The model of that name and spec, and whether it is new.

        key, params: estimator's registry key and parameters. start: "start", "now" or the first position it learns
        from. policy, refine: when it is published, and refined by itself, from now on also of one that is there; None leaves
        it. Raises ModelExists
        (another spec), HistoryGone, InvalidParameter, UnknownEstimator, and TargetKindMismatch or InvalidWeights when it
        cannot learn from this stream.
        """
        check_name(name)
        spec = completed(Spec(key, dict(params)))
        estimator = estimator_of(spec)
        with self.retention.lock, self._appending:
            known = self.models.get(name)
            if known is not None:
                return self._under(policy, refine, self._same(known, spec)), False
            first = self._first_position(start)
            admit_model(estimator, self.schema, self.limits)
            entry = self.table.add(name, spec, first, policy, refine)
            try:
                model = self._restored(entry)
            except BaseException:
                self.table.remove(entry.id)
                raise
            self.models = {**self.models, name: model}
            return model, True

    def add_saved(self, name: str, estimator: Any, policy: PublishPolicy | None = None) -> tuple[Model, bool]:
        """The model of that name that began with a saved estimator, and whether it is new: what `load` gives, which stays as
        it is. It answers at once, and goes on with the next event; what it has learned is kept in the directory, durable on
        return.

        An empty stream takes its kind of targets, labels and columns' names. Raises ModelExists (another spec, or begun with
        another state), InvalidParameter, UnknownEstimator, InsufficientStorage, and TargetKindMismatch, InvalidTargets,
        SchemaMismatch, WidthMismatch, InvalidWeights or LimitExceeded where it cannot go on in this stream.
        """
        check_name(name)
        if not isinstance(estimator, Estimator):
            raise InvalidParameter(f"{type(estimator).__name__} is no projection, so no model can begin with it.")
        spec = Spec(**plain_spec(spec_of(estimator)))
        if getattr(estimator, "holder_", None) is None:
            return self.add_model(name, spec.estimator, spec.params, "now", policy)
        spec = spec._replace(saved=state_sha256(estimator.state_))
        with suppress(StreamDRError):  # solved before anybody waits; why it is not is told when it is tried again
            estimator.projection()
        with self.retention.lock, self._appending:
            known = self.models.get(name)
            if known is not None:
                return self._under(policy, None, self._same(known, spec)), False
            admit_saved(estimator, self.schema, self.limits)
            arrays, _ = pack(estimator.state_)
            check_room(self.path, sum(array.nbytes for array in arrays.values()), self.limits.min_free_bytes)
            keep = partial(keep_start, estimator, self.path, name)
            try:
                entry = self.table.add(name, spec, self.position + 1, policy, write=keep)
            except BaseException:
                with suppress(StreamDRError):
                    self._remove_leftovers()
                raise
            model = self._made(entry)
            begin_with(model, estimator)
            model.live()
            self.models = {**self.models, name: model}
            self.schema = self._known()
            return model, True

    def remove_model(self, name: str) -> Model:
        """Forget a model and its snapshots. Raises UnknownModel."""
        with self._appending:
            model = self.model(name)
            self.table.remove(model.id)
            self._label_sets.pop(model.id, None)
            self.models = {n: m for n, m in self.models.items() if n != name}
            self.schema = self._known()
        failpoint("models.removed")
        remove_snapshots(self.path, model)
        return model

    def model(self, name: str) -> Model:
        """The model of that name. Raises UnknownModel."""
        if name not in self.models:
            meant, known = did_you_mean(name, self.models), ", ".join(sorted(self.models)) or "none"
            raise UnknownModel(f"no model is called {name!r} here{meant}; there are: {known}.")
        return self.models[name]

    def holds(self, model: Model) -> bool:
        """Whether the model has not been removed."""
        return self.models.get(model.name) is model

    @property
    def going_on(self) -> list[Model]:
        """The models that learn, or will after a restart."""
        return [m for m in self.models.values() if m.failure is None or m.failure.passing]

    def remember_failure(self, model: Model) -> None:
        """Write down why a model failed, so that a restart does not try the same event again, and what it has published."""
        if model.failure is not None and not model.failure.passing:
            self.table.set_failure(model.id, model.failure)
            keep_published(model, self.path)

    def close(self) -> None:
        """Close the log and give up the lock. Models are not snapshotted by this."""
        self.log.close()
        self._release()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _group(self) -> Group:
        given = (self.log, self.schema, self._written, self.going_on, self.limits, self._label_sets)
        return Group(*given, self.history.check_removable)

    @contextmanager
    def _sure(self) -> Iterator[None]:
        """The right to append, with a schema that is the log's."""
        with self._appending:
            if self._unsure:
                self._read_schema()
                self._unsure = False
            try:
                yield
            except BaseException:
                self._unsure = True  # the group may be in the log all the same
                raise

    def _append(self, drafts: Sequence[Draft], up_to_refusal: bool) -> list[Receipt | StreamDRError]:
        try:
            check_room(self.path, 0, self.limits.min_free_bytes)
        except InsufficientStorage as e:
            return [without_frames(e)] * (1 if up_to_refusal else len(drafts))
        group = self._group()
        for draft in drafts:
            if not group.add(draft) and up_to_refusal:
                break
        try:
            positions = self.log.append(group.events)
        except InsufficientStorage as e:
            answers = group.answers([], without_frames(e))
            refused = next(i for i, answer in enumerate(answers) if isinstance(answer, StreamDRError))
            return answers[: refused + 1] if up_to_refusal else answers
        if positions:
            self._adopt(group, positions)
        return group.answers(positions)

    def _adopt(self, group: Group, positions: Sequence[int]) -> None:
        """A group is in the log."""
        self.schema, self._written = group.schema, group.written
        for model in group.models:
            model.follow(positions[-1], self.schema.names)
            if group.label_sets:
                self._label_sets.setdefault(model.id, set()).update(group.label_sets)
        for position, draft in zip(positions, group.drafts, strict=True):
            self.recent.put(position, draft)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _read_schema(self) -> None:
        """What the events have made of the stream (`_written`), and with the settings for what is not decided yet."""
        changes = self.log.schema_changes()
        if self.log.rows and not changes:
            raise DamagedFile(f"{self.log.path} has rows, and nothing says of what schema. Restore it from a copy.")
        self._written = grown(Schema(), changes)
        self.schema = self._known()

    def _known(self) -> Schema:
        """What is known of the stream: by its events, by the settings, and by saved estimators since its last event, for the
        next one writes down what they have brought."""
        schema = self._written
        if schema.layout is None:
            schema = self._set
        else:
            schema = schema._replace(target_kind=schema.target_kind or self._set.target_kind)
        if self._sets_labels:
            schema = schema._replace(allowed_labels=self._set.allowed_labels)
        for model in self.models.values():
            if model.spec.saved is not None and model.start > self.position:
                schema = with_learned(schema, model.accumulator, model.names)
        return schema

    def _same(self, known: Model, spec: Spec) -> Model:
        """The known model, if the spec is its own; a parameter left out is, for one that is there, as it was stored."""
        if spec.saved not in (None, known.spec.saved) or not same_model(known.spec, spec):
            raise ModelExists(
                f"model {known.name!r} is {known.spec.estimator} with {known.spec.params}, not {spec.estimator} with "
                f"{spec.params}{' and what the file has learned' if spec.saved else ''}. Choose another name, or delete it "
                "first."
            )
        return known

    def _under(self, policy: PublishPolicy | None, refine: RefinePolicy | None, model: Model) -> Model:
        """The model, from now on published and refined by these policies; None: as before."""
        if policy is not None or refine is not None:
            self.table.set_policies(model.id, policy or model.policy, refine or model.refine_policy)
            model.set_policies(policy, refine)
        return model

    def _first_position(self, start: Start) -> int:
        first, end = int(self.log.first), self.position + 1
        if start == "now":
            return end
        wanted = 0 if start == "start" else start
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= end:
            raise InvalidParameter(f"from={start!r}; it must be 'start', 'now' or a position from 0 to {end}.")
        if wanted < first:
            raise HistoryGone(f"events before position {first} are no longer kept; start at {first} or 'now'.")
        return wanted

    def _restored(self, entry: Entry) -> Model:
        model = self._made(entry)
        try:
            bring_back(model, entry, self.path, self.log.first, self.position, self.writable)
        except HistoryGone as e:
            if self._left:
                raise  # it has a newer snapshot by now
            model.failed_before(Failure(model.position + 1, e.code, str(e)))
        return model

    def _made(self, entry: Entry) -> Model:
        folder = self.path if self.writable else None
        model = made(entry, self.limits.keep_versions, folder, self.table.set_ceiling)
        model.follow(self.position, self.schema.names)
        return model
