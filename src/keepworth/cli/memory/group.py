"""The group, and the headings under which its help lists the verbs."""

from __future__ import annotations

from keepworth.cli.command import App

app = App(help="Keep, find, correct and undo what agents remember.")
READ, WRITE, LEARN, UNDO, FILE = "Find", "Write", "Learn from rewards", "Undo", "The file"
