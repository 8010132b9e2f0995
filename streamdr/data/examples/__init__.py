"""Data for trying things out: synthetic, or as it ships with scikit-learn."""
