"""The fixtures of the tests of flows, where pytest looks for them."""

from flow_fixtures import large, place, reporting, server

__all__ = ["large", "place", "reporting", "server"]
