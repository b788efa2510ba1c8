"""Command `python -m service`, the same as `stream-dr serve`."""

import argparse
import sys

from service.serve import serve_command

if __name__ == "__main__":
    argparse.ArgumentParser(
        "python -m service",
        description="Serve a directory over HTTP until Ctrl-C or SIGTERM. The service then learns the accepted batches, "
        "writes snapshots and exits with status 0.",
        epilog="The command takes no options. Settings come from STREAM_DR_... variables, or from the file named by "
        "STREAM_DR_FILE (docs/settings.md). `stream-dr serve` does the same and has options.",
    ).parse_args()
    sys.exit(serve_command())
