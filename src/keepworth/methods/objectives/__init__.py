"""Objectives, a file each: what a policy update optimises, made of parts."""
