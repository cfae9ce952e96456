"""A method of each kind, one file each: copy the file of the kind that you write."""
