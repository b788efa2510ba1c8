"""Release: a published projection that answers queries alone, in one file.

A release never changes. It has all that a query needs: the projection with its feature map and its
readout, the stream's schema, and the model's spec. It has none of the model's state.
"""

import time
from pathlib import Path
from typing import NamedTuple

from stream_dr import __version__
from stream_dr.aliases import JsonDict
from stream_dr.batch.schema import Schema, apply_deltas, schema_delta
from stream_dr.errors import ForeignFile
from stream_dr.models import snapshot_file
from stream_dr.models.entry import Spec
from stream_dr.models.saved import spec_from_json, spec_to_json
from stream_dr.models.snapshot import pack_published, unpack_published
from stream_dr.models.versions import Published
from stream_dr.projection import Mapped, Projection


class Release(NamedTuple):
    """Published projection of a model, with the schema of the stream's rows.

    model: name of the model.
    model_id: id of the model.
    spec: estimator and parameters of the model.
    schema: schema of the rows that the projection can be applied to.
    published: the projection with its version. Its attribute `release` is the release's name. It is
        None if the projection has no name and is only about to be sent or applied.

    The example uses `running`, `directory` and `model` from the example of Running.

    >>> published = running.publish("lda")
    >>> directory.releases.served(model).published.rows
    4
    """

    model: str
    model_id: int
    spec: Spec
    schema: Schema
    published: Published

    def to_bytes(self) -> bytes:
        """Return the bytes of the release's safetensors file."""
        return snapshot_file.safetensors_bytes(*pack_release(self))

    @property
    def holds_rows(self) -> bool:
        """True if the projection holds rows of the stream themselves, and not only sums of them."""
        projection: Projection | None = self.published.projection
        if isinstance(projection, Mapped):
            if projection.landmarks is not None:
                return True
            projection = projection.inner
        return projection is not None and projection.kind == "landmarks"


class ReleaseEntry(NamedTuple):
    """A release in the directory's table of releases.

    model: name of the model.
    model_id: id of the model.
    name: name of the release, unique within the model.
    version, position, rows: version of the projection, position of the last event that it includes,
        and number of rows that it includes.
    holds_rows: True if the projection holds rows themselves, and not only sums of them.
    created: time at which the release was made, in seconds since 1970.

    The example uses `running`, `directory` and `model` from the example of Running.

    >>> published = running.publish("lda")
    >>> entry, is_new = directory.releases.create(model, "2026-12-01")
    >>> entry.name, entry.rows, is_new
    ('2026-12-01', 4, True)
    """

    model: str
    model_id: int
    name: str
    version: int
    position: int
    rows: int
    holds_rows: bool
    created: float


def entry_of_release(release: Release) -> ReleaseEntry:
    """Return the entry of a release that is made now."""
    p = release.published
    what = (release.model, release.model_id, str(p.release), p.version, p.position, p.rows)
    return ReleaseEntry(*what, release.holds_rows, time.time())


def pack_release(release: Release) -> snapshot_file.FileContents:
    """Return the arrays and metadata of a release's file."""
    arrays, published = pack_published(release.published)
    metadata: JsonDict = {
        "kind": "release",
        "model": release.model,
        "id": release.model_id,
        "spec": spec_to_json(release.spec),
        "schema": schema_delta(Schema(), release.schema),
        "published": published,
        "stream_dr": __version__,
    }
    return arrays, metadata


def read_release(source: Path | bytes) -> Release:
    """Return the release in a file, or in the bytes of a file.

    Raises SourceMissing, ForeignFile, UnknownFormat or DamagedFile.
    """
    if isinstance(source, bytes):
        arrays, metadata = snapshot_file.read_bytes(source)
        label = "the file that was sent"
    else:
        arrays, metadata = snapshot_file.read_file(source)
        label = str(source)
    if metadata.get("kind") != "release":
        raise ForeignFile(f"{label} holds no release ({metadata.get('kind')}); name a file of a release.")

    with snapshot_file.errors_as_damaged_file(label):
        schema = apply_deltas(Schema(), filter(None, [metadata["schema"]]))
        published = unpack_published(arrays, metadata["published"])
        return Release(metadata["model"], metadata["id"], spec_from_json(metadata["spec"]), schema, published)
