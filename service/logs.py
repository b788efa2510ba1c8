"""Format of the service's log: lines of text, or one JSON object a line."""

import json
import logging
from datetime import UTC, datetime

from service.settings import Settings

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Formatter that writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a JSON object."""
        time = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure_logging(settings: Settings) -> None:
    """Configure the process's logging by the settings."""
    logging.basicConfig(level=settings.log_level.upper(), format=TEXT_FORMAT)

    # `stream-dr -v` has made a handler already, so handlers are changed and not made.
    if settings.log_format == "json":
        logging.captureWarnings(True)
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())
