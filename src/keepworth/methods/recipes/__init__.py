"""Recipes, a file each: `system` makes, of its settings, what `keepworth train NAME` trains."""
