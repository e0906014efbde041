"""From files to batches: sources, manifest, splits, pixels, loading."""

# Of one image. Pillow refuses more, whatever limit we would set; here, where nothing is imported,
# everything that takes a limit can share it.
MAX_PIXELS = 178_956_970
