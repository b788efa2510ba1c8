"""Directory: the log, schema and models of one stream.

All are in one folder D:

    D/lock
    D/reserve              reserved disk space, for an opening while the disk is full
    D/log/                 events, and the models with their specs and policies
    D/snapshots/NAME.ID/POSITION.safetensors
    D/releases/NAME.ID/RELEASE.safetensors
    D/sources/NAME/        shards that the directory owns
    D/places.json          new URIs of shards that were moved
    D/records.sqlite       history of the models, for figures

One process at a time may open a directory for writing. The process takes the lock, and restores
each model from the newest valid snapshot of the model. The events after that snapshot are learned
later. A process that opens the directory read-only restores the models without the lock, even
while another process writes.

A Directory has no threads. The functions of `running.replay` and the class `Running` call its
methods. Rows from shards and rows received over HTTP are admitted, appended and learned by the
same methods.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stream_dr.aliases import JsonDict
from stream_dr.batch.schema import Schema, apply_deltas
from stream_dr.batch.targets import Label, class_targets
from stream_dr.directory.admit import (
    DraftGroup,
    check_can_be_steady,
    check_can_continue_stream,
    check_can_learn_stream,
    extend_by_accumulator_schema,
)
from stream_dr.directory.draft import Draft, DryRunReceipt, Receipt, RecentDrafts
from stream_dr.directory.history import History
from stream_dr.directory.model_table import TABLES, ModelTable, check_name
from stream_dr.directory.records import RECORDS, Records
from stream_dr.directory.releases import Releases
from stream_dr.directory.retention import Retention
from stream_dr.disk import (
    DirectoryLock,
    ReservedSpace,
    check_directories_work,
    check_free_space,
    make_private_folder,
    remove_unfinished_files,
)
from stream_dr.errors import (
    DamagedFile,
    DirectoryMissing,
    HistoryGone,
    InsufficientStorage,
    InvalidParameter,
    InvalidTargets,
    ModelExists,
    StreamDRError,
    UnknownModel,
    did_you_mean,
    remove_stack_frames,
)
from stream_dr.estimators.fitting.estimator import Estimator
from stream_dr.failpoints import failpoint
from stream_dr.log.log import Log
from stream_dr.models import snapshot
from stream_dr.models.entry import Entry, ModelFailure, PublishPolicy, RefinePolicy, Spec
from stream_dr.models.limits import Limits
from stream_dr.models.model import Model
from stream_dr.models.saved import (
    estimator_from_spec,
    fill_spec_defaults,
    has_same_spec,
    spec_of_estimator,
    spec_to_json,
)
from stream_dr.statistics.protocol import pack

Start = int | Literal["start", "now"]
"""Position of the first event that a model learns.

"start" means the first event ever, and "now" means the next event that is appended.
"""

READ_TRIES = 5
"""Maximum number of attempts to open a directory read-only.

An attempt fails if another process drops old events meanwhile.
"""


class Directory(AbstractContextManager["Directory"]):
    """Stream on disk, with its log, schema and models.

    Opening a directory reads the newest snapshot of each model and all changes of the schema.
    Raises DirectoryInUse if another process writes to the directory. Raises DirectoryMissing if
    a directory to be opened read-only does not exist.

    Parameters
    ----------
    path : str or Path
        Path of the folder.
    writable : bool
        If True, take the lock and create missing files. If False, open read-only.
    limits : Limits or None
        Limits past which batches and models are refused. None takes the defaults.
    n_features : int or None
        Declared width of a sparse stream. Used only while the log is empty.
    target_kind : str or None
        Kind that targets must have. Used only while no batch in the log has targets.
    allowed_labels : sequence of labels or None
        Labels that batches may have from now on. The next batch stores them in the log. An empty
        sequence allows any label. None keeps the stored labels.

    Attributes
    ----------
    path, writable, limits
        The parameters.
    log : Log
        Events of the stream.
    table : ModelTable
        Stored names, specs and policies of the models.
    schema : Schema
        Layout, columns, kind of targets and labels of the stream.
    models : dict of Model by name
    history : History
        Reader of the rows of past events.
    retention : Retention
        Removes events and rows that no model needs.
    recent : RecentDrafts
        Drafts in memory that were appended and not learned yet.
    releases : Releases
        Published projections that stay.
    records : Records
        Records in records.sqlite.

    Only the methods of the Directory change these attributes.

    Examples
    --------
    >>> import stream_dr
    >>> with stream_dr.Directory("stream", limits=stream_dr.Limits(min_free_bytes=0)) as directory:
    ...     model, new = directory.add_model("pca", "pca", {"n_components": 1})
    ...     draft = stream_dr.rows_draft(b'{"rows": [[1, 2], [3, 1]]}', "json")
    ...     directory.append([draft])
    [Receipt(position=0, rows=2, duplicate=False, columns_missing=())]
    >>> with stream_dr.Directory("stream", writable=False) as directory:
    ...     directory.rows, list(directory.models)
    (2, ['pca'])
    """

    def __init__(
        self,
        path: str | Path,
        writable: bool = True,
        limits: Limits | None = None,
        n_features: int | None = None,
        target_kind: str | None = None,
        allowed_labels: Sequence[Label] | None = None,
    ) -> None:
        labels = class_targets([] if allowed_labels is None else list(allowed_labels))
        if labels.present is not None:
            raise InvalidTargets("allowed_labels holds a missing label (None or NaN); leave it out.")
        self._settings = Schema(stated=n_features or 0, target_kind=target_kind, allowed_labels=labels.labels)
        self._labels_are_set = allowed_labels is not None
        self.path = Path(path)
        self.writable = writable
        self.limits = limits or Limits()

        check_directories_work()
        if not writable and not (self.path / "log").is_dir():
            raise DirectoryMissing(f"{self.path} holds no log; name a directory that `replay` or `serve` has made.")
        self._lock = ExitStack()
        if writable:
            make_private_folder(self.path)
            self._lock.enter_context(DirectoryLock(self.path))
        try:
            with ReservedSpace(self.path) if writable else nullcontext():
                self._open_with_retries(1 if writable else READ_TRIES)
        except BaseException:
            self._lock.close()
            raise

    def _open_with_retries(self, tries: int) -> None:
        """Open the directory, with at most `tries` attempts.

        An attempt fails with HistoryGone if a writing process drops events that a model needs
        while this process reads the model's snapshot.
        """
        # The loop sets `_tries_left`, which `_restore_from_snapshot` reads.
        # `_restore_from_snapshot` marks a model as failed only in the last attempt.
        for self._tries_left in reversed(range(tries)):
            try:
                self._open()
                return
            except HistoryGone:
                if not self._tries_left:
                    raise

    def _open(self) -> None:
        """Open the log and other files, and restore the models."""
        reached = snapshot.newest_snapshot_position(self.path) if self.writable else -1
        self.log = Log(self.path / "log", writable=self.writable, least_position=reached, more_tables=TABLES)
        self.table = ModelTable(self.path, self.writable, self.log.check_folder_not_replaced)
        self.records = Records(self.path / RECORDS)

        # Pass functions that return the schema and the models.
        # The attributes `schema` and `models` are replaced over time.
        self.history = History(self.log, self.path, lambda: self.schema, lambda: self.active_models)
        self.retention = Retention(self.log, self.path, self.history, lambda: self.active_models)
        self.recent = RecentDrafts()
        self.releases = Releases(
            self.path, self.table, self.history, self.retention.append_lock, lambda: self.models, lambda: self.schema
        )

        # True after a failed append. The log may then have events that `schema` does not include.
        self._append_uncertain = False

        self.models: dict[str, Model] = {}
        self._read_schema_from_log()

        for entry in self.table.entries():
            self.models[entry.name] = self._restore_from_snapshot(entry)
        self.schema = self._completed_schema()

        self.releases.reload()
        if self.writable:
            self._remove_orphan_snapshots()
            if self.releases.files_without_entry():
                self.erase_dropped_releases()
            remove_unfinished_files(self.path)

    def _remove_orphan_snapshots(self) -> None:
        """Remove snapshots that belong to no model.

        They are snapshots of removed models, and of models whose addition was interrupted.
        """
        known = {f"{entry.name}.{entry.id}" for entry in self.table.entries()}
        for folder in sorted((self.path / "snapshots").glob("*")):
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def position(self) -> int:
        """Position of the log's last event. −1 if there is none."""
        return int(self.log.last)

    @property
    def rows(self) -> int:
        """Number of rows ever appended to the log, dropped rows included."""
        return int(self.log.rows_appended)

    def append(self, drafts: Sequence[Draft], stop_at_refusal: bool = False) -> list[Receipt | StreamDRError]:
        """Append drafts to the log as events, in one transaction.

        A draft is an event that is not in the log yet. Drafts are checked in order. A refused
        draft does not affect the others. The events are durable on return.

        If the log has an event with a draft's idempotency key, no event is written. If the
        payloads are the same, the draft's Receipt has the position of that event and
        duplicate=True. If they differ, the draft is refused with KeyConflict.

        stop_at_refusal: True to skip all drafts after the first refused draft.

        Returns the Receipt of each draft, or the error that refused the draft. Skipped drafts have
        no entry.
        """
        with self._hold_append_lock():
            try:
                check_free_space(self.path, 0, self.limits.min_free_bytes)
            except InsufficientStorage as error:
                return [remove_stack_frames(error)] * (1 if stop_at_refusal else len(drafts))

            group = self._new_draft_group()
            for draft in drafts:
                if not group.add_unless_refused(draft) and stop_at_refusal:
                    break

            try:
                also = self.releases.store_unlearned if group.unlearns else None
                positions = self.log.append(group.events, also)
            except InsufficientStorage as error:
                answers = group.receipts_and_errors([], remove_stack_frames(error))
                refused = next(i for i, answer in enumerate(answers) if isinstance(answer, StreamDRError))
                return answers[: refused + 1] if stop_at_refusal else answers

            if positions:
                self._update_after_append(group, positions)
            return group.receipts_and_errors(positions)

    def append_all(self, drafts: Sequence[Draft]) -> None:
        """Append all drafts to the log in one transaction.

        A draft is an event that is not in the log yet. At least one draft must be new. If a draft
        is refused, nothing is written and its error is raised.
        """
        with self._hold_append_lock():
            check_free_space(self.path, 0, self.limits.min_free_bytes)
            group = self._new_draft_group()
            for draft in drafts:
                group.add_or_raise(draft)
            self._update_after_append(group, self.log.append(group.events))

    def check(self, draft: Draft) -> DryRunReceipt:
        """Return the receipt that `append` would return, and write nothing.

        draft: an event that is not in the log yet.

        Raises the error with which `append` would refuse the draft.
        """
        return self._new_draft_group().check(draft)

    def cache_appended_drafts(self, max_bytes: int) -> None:
        """Keep appended drafts in memory, so models need not read the log.

        The drafts are stored in `recent`. The caller must call `recent.remove_up_to` for drafts
        that were learned.

        max_bytes: maximum number of bytes of the stored drafts.
        """
        self.recent = RecentDrafts(max_bytes)

    def add_model(
        self,
        name: str,
        key: str,
        params: JsonDict,
        start: Start = "start",
        policy: PublishPolicy | None = None,
        refine: RefinePolicy | None = None,
        basis: Literal["steady"] | None = None,
    ) -> tuple[Model, bool]:
        """Add a model, unless one of that name and spec exists.

        Returns the model, and True if it was added now.

        Parameters
        ----------
        name : str
        key : str
            Registry key of the estimator.
        params : dict
            Parameters of the estimator.
        start : "start", "now" or int
            Position of the first event that the model learns. "start" means 0. "now" means the
            next event that is appended.
        policy, refine
            When the model is published and refined from now on. The policies are also set if the
            model exists. None keeps the policy that the model has.
        basis : "steady" or None
            "steady" turns published projections to the newest release of the model. None does not,
            or keeps the basis that the model has.

        Raises ModelExists if a model of that name has another spec. Raises HistoryGone if events
        from `start` on were dropped. Raises InvalidParameter or UnknownEstimator. Raises
        TargetKindMismatch or InvalidWeights if the model cannot learn from this stream.
        """
        check_name("model", name)
        spec = fill_spec_defaults(Spec(key, dict(params), basis=basis))
        estimator = estimator_from_spec(spec)
        if basis is not None:
            check_can_be_steady(estimator)
        with self.retention.lock, self.retention.append_lock:
            known = self.models.get(name)
            if known is not None:
                return self._set_policies(known, spec, policy, refine), False

            # Check the start and the estimator before the model is added to the table.
            first_position = self._first_position_to_learn(start)
            check_can_learn_stream(estimator, self.schema, self.limits)
            entry = self.table.add(name, spec, first_position, policy, refine)
            # A new model has no snapshot. This sets its status, and lets it skip unlearned rows.
            try:
                model = self._restore_from_snapshot(entry)
            except BaseException:
                self.table.remove(entry.id)
                raise

            self.models = {**self.models, name: model}
            return model, True

    def add_saved(self, name: str, estimator: Any, policy: PublishPolicy | None = None) -> tuple[Model, bool]:
        """Add a model that starts from a saved estimator's state.

        The model can project rows at once, and learns from the next event on. If the stream is
        empty, its schema takes over the estimator's kind of targets, labels and column names.

        If a model of that name started from the same state, that model is returned.

        estimator: estimator as `load` returns it, which is not changed. The estimator's state is
            stored in the directory, durable on return.
        policy: when the model is published from now on.

        Returns the model, and True if it was added now.

        Raises
        ------
        ModelExists
            A model of that name has another spec, or started from another state.
        InvalidParameter, UnknownEstimator, InsufficientStorage
        TargetKindMismatch, InvalidTargets, SchemaMismatch, WidthMismatch, InvalidWeights,
        LimitExceeded
            The estimator cannot learn from this stream.
        """
        check_name("model", name)
        if not isinstance(estimator, Estimator):
            raise InvalidParameter(f"{type(estimator).__name__} is no projection, so no model can begin with it.")
        spec = Spec(**spec_to_json(spec_of_estimator(estimator)))
        if "fitted_" not in vars(estimator):
            return self.add_model(name, spec.estimator, spec.params, "now", policy)
        spec = spec._replace(saved=snapshot.state_sha256(estimator.state_))

        # Compute and cache the estimator's projection now, before the locks are taken.
        # An error is ignored here, because it is reported when the model is solved again.
        with suppress(StreamDRError):
            estimator.projection()

        with self.retention.lock, self.retention.append_lock:
            known = self.models.get(name)
            if known is not None:
                return self._set_policies(known, spec, policy, None), False

            check_can_continue_stream(estimator, self.schema, self.limits)
            arrays, _ = pack(estimator.state_)
            check_free_space(self.path, sum(array.nbytes for array in arrays.values()), self.limits.min_free_bytes)
            write = partial(snapshot.write_start_estimator, estimator, self.path, name)
            try:
                entry = self.table.add(name, spec, self.position + 1, policy, write_initial_state=write)
            except BaseException:
                with suppress(StreamDRError):
                    self._remove_orphan_snapshots()
                raise

            model = self._new_model(entry)
            snapshot.adopt_saved_estimator(model, estimator)
            model.mark_live()
            self.models = {**self.models, name: model}
            self.schema = self._completed_schema()
            return model, True

    def remove_model(self, name: str) -> Model:
        """Remove a model and its snapshots, and return the model.

        Raises UnknownModel.
        """
        with self.retention.append_lock:
            model = self.model(name)
            self.table.remove(model.id)
            self.models = {n: m for n, m in self.models.items() if n != name}
            self.schema = self._completed_schema()
            self.releases.reload()

        failpoint("models.removed")
        snapshot.remove_snapshots(self.path, model)
        self.releases.delete_files_without_entry()
        return model

    def erase_dropped_releases(self) -> None:
        """Erase what is left on disk of releases that are not in the table any more.

        These are their projections in snapshots of models that had published them, and their files.
        """
        for model in self.models.values():
            snapshot.remove_published_if(self.path, model, self.releases.is_gone_from(model))
        failpoint("releases.erasing")
        # The files are deleted last. If there are any at the next start, the snapshots are read.
        self.releases.delete_files_without_entry()

    def model(self, name: str | None) -> Model:
        """Return the model of that name. None means the only model. Raises UnknownModel."""
        known = ", ".join(sorted(self.models)) or "none"
        if name is None:
            if len(self.models) != 1:
                raise UnknownModel(f"no model is named; name one of: {known}.")
            name = known
        if name not in self.models:
            hint = did_you_mean(name, self.models)
            raise UnknownModel(f"no model is called {name!r} here{hint}; there are: {known}.")
        return self.models[name]

    def holds(self, model: Model) -> bool:
        """Return True if this directory has the model.

        False if the model was removed, even if another model has its name now.
        """
        return self.models.get(model.name) is model

    @property
    def active_models(self) -> list[Model]:
        """Models without a failure, or whose failure is retried.

        A failure is retried when the directory is opened again.
        """
        return [m for m in self.models.values() if m.failure is None or m.failure.is_retried_on_restart]

    def store_lasting_failure_and_projection(self, model: Model) -> None:
        """Store a model's failure and its published projection.

        So a restart does not try to learn the same event again. A failure that is to be retried
        after a restart is not stored.
        """
        if model.failure is not None and not model.failure.is_retried_on_restart:
            self.table.set_failure(model.id, model.failure)
            snapshot.write_failed_projection(model, self.path)

    def close(self) -> None:
        """Close the log and release the lock, without writing snapshots."""
        self.log.close()
        self._lock.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new_draft_group(self) -> DraftGroup:
        """Return an empty group of events to append in one transaction."""
        return DraftGroup(
            self.log,
            self.schema,
            self._recorded_schema,
            self.active_models,
            self.limits,
            self.history.check_needed_events,
        )

    @contextmanager
    def _hold_append_lock(self) -> Iterator[None]:
        """Hold the append lock in the with-block.

        If an earlier append raised an error, it is not known if its events were written. So the
        schema is first read from the log again.
        """
        with self.retention.append_lock:
            self.log.check_folder_not_replaced()
            if self._append_uncertain:
                self._read_schema_from_log()
                self.releases.reload()
                self._append_uncertain = False

            try:
                yield
            except BaseException:
                # Remember that the transaction may have been committed in spite of the error.
                self._append_uncertain = True
                raise

    def _update_after_append(self, group: DraftGroup, positions: Sequence[int]) -> None:
        """Update this object after a group of events was appended.

        Both schemas are replaced, the models learn the new end of the log, and the events are also
        stored in memory.

        positions: positions that the group's events have in the log.
        """
        self.schema = group.schema
        self._recorded_schema = group.recorded_schema
        for model in group.models:
            model.set_log_end(positions[-1], self.schema.names)
        for position, draft in zip(positions, group.drafts, strict=True):
            self.recent.put_if_room(position, draft)
        if group.unlearns:
            self.releases.reload()

    def _read_schema_from_log(self) -> None:
        """Read the schema from the log.

        Sets `_recorded_schema` to the schema that the events record, and `schema` to the same
        schema completed by the settings.
        """
        changes = self.log.schema_changes()
        if self.log.rows_appended and not changes:
            raise DamagedFile(f"{self.log.path} has rows, and nothing says of what schema. Restore it from a copy.")
        self._recorded_schema = apply_deltas(Schema(), changes)
        self.schema = self._completed_schema()

    def _completed_schema(self) -> Schema:
        """Return the recorded schema, completed by settings and saved estimators.

        The saved estimators are those that were added as models after the log's last event. The
        next event will record the additions.
        """
        schema = self._recorded_schema
        if schema.layout is None:
            schema = self._settings
        else:
            schema = schema._replace(target_kind=schema.target_kind or self._settings.target_kind)

        if self._labels_are_set:
            schema = schema._replace(allowed_labels=self._settings.allowed_labels)
        for model in self.models.values():
            if model.spec.saved is not None and model.start > self.position:
                schema = extend_by_accumulator_schema(schema, model.accumulator, model.names)
        return schema

    def _set_policies(
        self, model: Model, requested_spec: Spec, publish: PublishPolicy | None, refine: RefinePolicy | None
    ) -> Model:
        """Set the policies of a model that exists already.

        Returns the model. Raises ModelExists if the model has another spec than the requested one.
        A spec is the name and the parameters of an estimator.

        model: the model that has the requested name.
        requested_spec: the requested spec. A parameter that it does not set has the existing
            model's value.
        publish, refine: the new policies. None keeps the policy that the model has.
        """
        spec = model.spec
        if requested_spec.saved not in (None, spec.saved) or not has_same_spec(spec, requested_spec):
            learned = " and what the file has learned" if requested_spec.saved else ""
            if requested_spec.basis not in (None, spec.basis):
                learned = f" and basis={requested_spec.basis!r}"
            raise ModelExists(
                f"model {model.name!r} is {spec.estimator} with {spec.params}, not "
                f"{requested_spec.estimator} with {requested_spec.params}{learned}. Choose another name, or delete it first."
            )

        if publish is not None or refine is not None:
            self.table.set_policies(model.id, publish or model.policy, refine or model.refine_policy)
            model.replace_given_policies(publish, refine)
        return model

    def _first_position_to_learn(self, start: Start) -> int:
        """Return the position of a new model's first event.

        start: position of the event, "start" for 0, or "now" for the next event appended.

        Raises InvalidParameter if `start` is no position of the log, and HistoryGone if that event
        was dropped.
        """
        first = int(self.log.first)
        end = self.position + 1
        if start == "now":
            return end

        position = 0 if start == "start" else start
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position <= end:
            raise InvalidParameter(f"from={start!r}; it must be 'start', 'now' or a position from 0 to {end}.")
        if position < first:
            raise HistoryGone(f"events before position {first} are no longer kept; start at {first} or 'now'.")
        return position

    def _restore_from_snapshot(self, entry: Entry) -> Model:
        """Return a stored model, restored from its newest snapshot.

        If the log lacks events that the model needs, the model is returned as failed.

        entry: the model's name, id, spec and policies as the table of models has them.
        """
        model = self._new_model(entry)
        try:
            snapshot.restore_model_from_snapshot(model, entry, self.path, self.log.first, self.position, self.writable)
        except HistoryGone as e:
            # The process that writes may have dropped events after this process read the snapshot.
            # Let the caller read again. A newer snapshot was stored before the events were dropped.
            if self._tries_left:
                raise
            model.mark_failed(ModelFailure(model.position + 1, e.code, str(e)))
        return model

    def _new_model(self, entry: Entry) -> Model:
        """Return a Model that has no learned rows.

        entry: the model's name, id, spec and policies as the table of models has them.
        """
        model = Model(entry, self.limits.keep_versions, self.table.set_version_ceiling)
        model.set_log_end(self.position, self.schema.names)
        model.versions.newest_release = partial(self.releases.newest_projection, model)
        return model
