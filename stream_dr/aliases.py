"""Types that many modules name: paths of files, and JSON objects."""

import os
from typing import Any

FileName = str | os.PathLike[str]
"""Path of a file."""

JsonDict = dict[str, Any]
"""JSON object: a record, a response, parameters by name, the spec of a feature map."""
