"""Chains: methods one after another, each of the rows as those before it leave them.

A chain is a method like others, but it is made of methods and has no parameters of its own. So it is not in
the registry, and configurations write it as a list.
"""

from __future__ import annotations

from streamdr.methods.chain.chain import Chain, chain_of, member_names, parameters_of, require_end
from streamdr.methods.chain.model import ChainModel, chain_model

__all__ = ["Chain", "ChainModel", "chain_model", "chain_of", "member_names", "parameters_of", "require_end"]
