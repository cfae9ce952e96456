"""Every published method, one file each; `keepworth.registry` finds them."""
