"""targets: what rows are labelled with."""
