"""The name under which the gateway imports `keepworth.memory.search.passages`."""

from keepworth.memory.search.passages import TOKENS, Block, block, tokens_of

__all__ = ["TOKENS", "Block", "block", "tokens_of"]
