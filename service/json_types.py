"""Type of JSON objects in requests and responses."""

from typing import Any

JsonDict = dict[str, Any]
"""JSON object."""
