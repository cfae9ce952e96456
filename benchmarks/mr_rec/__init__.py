"""MR.Rec in small: what is gained by choosing what to ask a memory of a user for."""
