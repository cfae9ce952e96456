"""Studies, a file each: a protocol that trains and measures, and gives a table; `keepworth methods run NAME`."""
