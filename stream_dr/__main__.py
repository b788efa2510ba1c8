"""`python -m stream_dr`: the same as the command `stream-dr`."""

from stream_dr.cli import main

if __name__ == "__main__":
    main()
