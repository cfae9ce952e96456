"""recollect: memory that learns from reward, for language-model agents."""

__version__ = "0.1.0"
