"""Command `python -m service`, which does the same as `stream-dr serve`."""

import argparse
import sys

from service.serve import serve_command

if __name__ == "__main__":
    argparse.ArgumentParser(
        "python -m service",
        description="Serve a directory over HTTP until Ctrl-C or SIGTERM; then drain, snapshot and exit 0.",
        epilog="It takes no arguments: all settings come from STREAM_DR_... variables or the file that STREAM_DR_FILE "
        "names (docs/settings.md). `stream-dr serve` does the same with options.",
    ).parse_args()
    sys.exit(serve_command())
