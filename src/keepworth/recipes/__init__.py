"""The parts that recipes share: settings, the training of a system, the front door. Recipes are in
`keepworth.methods.recipes`."""
