"""Objectives of policy updates, as data (`options`, `parts`, `presets`), and the pure functions that compute them (`advantage`,
`policy_loss`). Data, explanations and everything on plain numbers are free of torch."""
