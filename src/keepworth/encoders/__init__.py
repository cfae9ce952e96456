"""From text to vectors: encoders on this machine and behind HTTP."""
