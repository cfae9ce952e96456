"""Where the parts of a run are placed: processes of this machine, or Ray."""
