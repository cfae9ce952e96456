"""What a policy update optimises, as data (`options`, `parts`, `presets`), and the pure functions that compute it (`advantage`,
`policy_loss`). Data, explanations and everything on plain numbers are free of torch."""
