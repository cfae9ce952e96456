"""Sequence memories and agents for control, a file each. A file's `make` imports PyTorch when it is called."""
