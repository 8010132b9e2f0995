"""Benchmarks of streamdr against its peers and its floor, each contender in a new process.

A benchmark names its contenders, `harness` runs them in turn, `report` writes the tables. A contender is
a function that imports what it needs and returns the fit to be timed: from a store's path to a `Solution`.
"""
