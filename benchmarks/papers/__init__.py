"""The papers' tables and figures, measured with stream_dr; each script prints its numbers and, with --out, draws them."""
