"""The commands, and the processes that they run in."""
