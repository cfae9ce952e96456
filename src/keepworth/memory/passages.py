"""The name under which the gateway imports `keepworth.memory.search.passages`."""

from keepworth.memory.search.passages import TOKENS, block, tokens_of
from keepworth.memory.search.passages import PromptBlock as Block

__all__ = ["TOKENS", "Block", "block", "tokens_of"]
