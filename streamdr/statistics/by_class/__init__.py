"""Statistics of rows by their classes."""
