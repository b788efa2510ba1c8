"""The gate: every batch of rows passes it once, and is compared with the batches before it."""
