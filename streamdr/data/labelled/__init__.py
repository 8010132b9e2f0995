"""Labelled grids: CF conventions of arrays with dimensions and coordinates."""
