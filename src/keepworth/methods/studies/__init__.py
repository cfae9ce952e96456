"""Studies, a file each: a protocol that trains and measures, and returns a table; `keepworth methods run NAME`."""
