"""Bytes on disk: fetch, read, compare. No GPU, no torch."""
