"""Where sentences end, and which words open a statement, a question or a courtesy in English."""

from __future__ import annotations

import re

# Where a sentence ends: one rule for cutting memory entries and for finding sentences to hide something in.
_END = re.compile(r"""(?<=[.!?])\s+|(?<=[.!?]["')\]])\s+|\n+""")
_ABBREVIATION = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Mt|St|Ave|Jr|Sr|Prof|vs|etc|approx|e\.g|i\.e|[A-Z])\.$")
_NOT_A_WORD = frozenset("I")  # "So did I. Then ..." ends a sentence; "John F. Kennedy" does not


def sentences(text: str) -> list[str]:
    """The sentences of `text`, stripped, none empty. No word is lost.

    Cut after . ! ? (and a closing quote or bracket) and at line breaks, but not after a title, an initial or a common
    abbreviation."""
    found: list[str] = []
    for line in text.splitlines():
        glued = False
        for piece in _END.split(line):
            part = piece.strip()
            if not part:
                continue
            if glued:
                found[-1] += " " + part
            else:
                found.append(part)
            last = part.split()[-1]
            glued = _ABBREVIATION.search(last) is not None and last.rstrip(".") not in _NOT_A_WORD
    return found


FIRST_PERSON = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|my|mine|me|myself|we|we're|we've|our|us)\b", re.IGNORECASE)
_ASKING = (
    r"(?:do|does|did|can|could|would|will|is|are|have|has|should) (?:you|there|it|that|i|we|they|any)\b",
    r"(?:what|how|which|where)\b",
    r"any (?:tips|ideas|suggestions|recommendations|advice|thoughts)\b",
    r"(?:i was|i'm) wondering\b",
)
# Where a statement turns into a question: what stands before it may still be a fact.
QUESTION_TAIL = re.compile(
    r"(?:\s+[-–—]\s*|[,;]\s*(?:so|and|but|because)?\s*)(?:speaking of which,\s*)?(?:" + "|".join(_ASKING) + ")",
    re.IGNORECASE,
)
_OPENINGS = (
    "oh|ok|okay|great|thanks|thank you|sure|yes|no|wow|well|also|so|and|but|wait|anyway|actually|by the way|btw|cool|awesome|"
    "perfect|alright|speaking of [^,.;]{1,40}"
)
OPENING = re.compile(rf"^(?:(?:{_OPENINGS})[,!]?\s+)+", re.IGNORECASE)
_COURTESIES = (
    r"(?:that|this|those|these|it) (?:sounds?|looks?|is|are|was|would|helps?)\b",
    r"(?:that's|it's|thanks|thank you|i appreciate|let me know|please|i see|i understand|i agree|i hope|i wonder)\b",
    r"i(?:'ll| will) (?:definitely|be sure|try|check|keep|look|make sure|start|consider|go with)\b",
    r"i think i(?:'ll| will)\b",
    r"i(?:'d| would) (?:like|love|appreciate)\b",
    r"i(?: was|'m| am) wondering\b",
    r"i(?:'ve| have) been meaning to ask\b",
    r"i need (?:some )?help\b",
    r"(?:can you|could you|do you|what|how|which)\b",
)
COURTESY = re.compile(rf"^(?:(?:{_OPENINGS})\b[,!. ]*)*(?:" + "|".join(_COURTESIES) + ")", re.IGNORECASE)
