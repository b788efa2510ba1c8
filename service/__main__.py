"""`python -m service`: serve the directory that the settings name (docs/settings.md); the same as `stream-dr serve`."""

import sys

from service.serve import serve


def main() -> int:
    """Serve until a signal. Exit status 0 after a signal, 1 on an error."""
    try:
        return serve()
    except (ValueError, OSError) as e:
        print(f"error ({getattr(e, 'code', 'settings')}): {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
