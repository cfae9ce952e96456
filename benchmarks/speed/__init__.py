"""Speed beside the tools people would use instead, measured in the same run on the same machine."""
