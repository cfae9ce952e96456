"""What the recipes of writers of bounded banks share."""
