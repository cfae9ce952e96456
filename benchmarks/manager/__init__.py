"""Does training help a manager to keep its memory?"""
