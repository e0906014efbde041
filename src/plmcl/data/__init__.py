"""From files to batches: sources, manifest, splits, pixels, loading."""
