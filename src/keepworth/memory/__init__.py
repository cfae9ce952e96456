"""What an agent keeps: items, the operations on them, and how they are found again. `keepworth` has the names that users need."""
