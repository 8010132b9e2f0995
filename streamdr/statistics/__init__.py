"""Accumulators and iterations that several families of methods use. They need numpy and scipy only."""
