"""Other libraries' ways of speaking to a memory, each a thin file over `Memory`."""
