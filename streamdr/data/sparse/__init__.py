"""Inputs whose rows are stored sparse: AnnData, scipy and 10x Genomics files, and matrices in memory."""
