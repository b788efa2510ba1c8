"""What is remembered: one statistic a file, each an Accumulator (mutable, one owner) and a State (immutable)."""
