"""Serves a memory over HTTP, and connects one with the trainers of other libraries."""
