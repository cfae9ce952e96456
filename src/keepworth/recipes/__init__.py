"""Systems as compositions of everything below, and what those share (settings, training, interactive ...).

A recipe is a module with `Config` (a pydantic model that forbids unknown keys), `SUMMARY` (one line) and
`train(config, run, progress)`. Its name in `RECIPES` is what `keepworth train` takes.
"""

RECIPES = {
    "memory_r1": "keepworth.recipes.memory_r1",
    "bounded_bank": "keepworth.recipes.bounded_bank",
    "memory_r2": "keepworth.recipes.memory_r2",
    "fine_mem": "keepworth.recipes.fine_mem",
    "mem_alpha": "keepworth.recipes.mem_alpha",
    "agemem": "keepworth.recipes.agemem",
    "memory_r_plus": "keepworth.recipes.memory_r_plus",
    "overwrite_reading": "keepworth.recipes.overwrite_reading",
    "strings": "keepworth.recipes.strings",
    "arithmetic": "keepworth.recipes.arithmetic",
    "text_world": "keepworth.recipes.text_world",
}
