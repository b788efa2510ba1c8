"""erasures: replacing an event's body so that the old bytes leave the disk, also when the process dies in between.

One transaction puts the new body into the event's row and notes where the old one lies; then the write-ahead log is
emptied, the old bytes are overwritten, and the note is removed. Notes that a crash left are worked off when the log is next
opened for writing.

Cost: two transactions, a checkpoint (one for many events) and a write of the old body's size.

Why this way: the checkpoint waits for readers that began before the transaction, of other processes too, so a body is
never overwritten under one; where one takes longer than PATIENCE_MS the note stays for the next time, because nothing can be
appended while the checkpoint waits. SQLite
overwrites what lay in a row itself (secure_delete), once the checkpoint is done. Blocks that a file gave back to the file
system, and file systems that never write in place, are beyond this.
"""

import sqlite3

from stream_dr.failpoints import failpoint
from stream_dr.log.bodies import Bodies
from stream_dr.log.event import Event
from stream_dr.log.event_row import INSERT, row_of
from stream_dr.log.sqlite_file import transaction

TABLE = "CREATE TABLE erasures(start INTEGER, size INTEGER NOT NULL);"

PATIENCE_MS = 200
"""Milliseconds for which a checkpoint waits for readers."""


def replace(connection: sqlite3.Connection, event: Event) -> None:
    """Put `event` in the place of the one at its position, and note where the old body lies."""
    connection.execute("PRAGMA secure_delete=ON")
    with transaction(connection):
        note = "INSERT INTO erasures SELECT start, size FROM events WHERE position=?"
        connection.execute(note, (event.position,))
        connection.execute("DELETE FROM events WHERE position=?", (event.position,))
        connection.execute(INSERT, row_of(event, None))
        failpoint("log.rewrite")
    failpoint("log.rewritten")


def work_off(connection: sqlite3.Connection, bodies: Bodies) -> bool:
    """Overwrite what is noted; False if a reader may still need it."""
    noted = connection.execute("SELECT rowid, start, size FROM erasures").fetchall()
    if not noted:
        return True
    if not _emptied(connection):
        return False
    bodies.erase([(start, size) for _, start, size in noted if start is not None])
    failpoint("log.erased")
    connection.execute("DELETE FROM erasures WHERE rowid<=?", (max(number for number, _, _ in noted),))
    return True


def _emptied(connection: sqlite3.Connection) -> bool:
    """Whether the write-ahead log is empty now, and every reader sees the last transaction."""
    usual = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
    try:
        return not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        connection.execute(f"PRAGMA busy_timeout={usual}")
