"""Types that many modules use: file paths and JSON objects."""

import os
from typing import Any

FileName = str | os.PathLike[str]
"""Path of a file."""

JsonDict = dict[str, Any]
"""JSON object, for example a response, or parameters by name."""
