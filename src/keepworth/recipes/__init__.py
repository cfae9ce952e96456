"""What recipes share: settings, the training of a system, the front door. The recipes are in `keepworth.methods.recipes`."""
