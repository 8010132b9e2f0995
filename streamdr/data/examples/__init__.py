"""Example data: synthetic data, data sets that ship with scikit-learn, and a small globe."""
