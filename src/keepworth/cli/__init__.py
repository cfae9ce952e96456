"""The command line. Thin: parses, calls, prints."""
