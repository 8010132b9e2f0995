"""streamdr beside its peers and its floor, every contender alone in a fresh process.

A benchmark names its contenders, `harness` runs them in turn, `report` lays the figures out. A contender is
a function that imports what it needs and returns the fit to be timed: from a store's path to a `Solution`.
"""
