"""What an agent keeps: items, the store, banks, operations, retrieval."""
