"""Run the command `stream-dr` as `python -m stream_dr`."""

from stream_dr.cli import main

if __name__ == "__main__":
    main()
