"""Zarr arrays: metadata, chunks, codecs, and where their bytes are."""
