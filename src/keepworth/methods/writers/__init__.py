"""Writers: what is kept of an episode, or of messages."""
