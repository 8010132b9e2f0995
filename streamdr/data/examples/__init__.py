"""Example data: synthetic data, and data sets that ship with scikit-learn."""
