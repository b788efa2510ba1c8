"""Compare the methods with those of other libraries: `python -m benchmarks.peers`."""
