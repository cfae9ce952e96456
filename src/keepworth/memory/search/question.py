"""Reads a long question: which of its sentences ask, and which parts of it an encoder reads.

People paste logs, code and mail beside what they ask. One vector of all that says little of the question, and the words of a
paste outnumber those of the question. The sentences that ask are therefore read alone, and what stands beside them counts less.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from keepworth.memory.pasted import blank_pasted
from keepworth.memory.patterns import compile_pattern, read_file
from keepworth.memory.search.chunks import spans, weighed_length

SHORT = 300
"""Number of letters, wide ones counted as several, up to which a question is read as a whole."""
MOST_ASKING, MOST_PARTS = 2, 4
"""Largest number of sentences that ask, and of other parts, that are encoded beside the whole."""
LONGEST = 450
"""Number of letters of a sentence that are read, from its end."""
ASIDE = 0.2
"""What a cosine of the other parts counts, of what that of a sentence that asks does."""
READ = 20_000
"""Number of characters at the beginning, and at the end, among which the sentences that ask are looked for."""
_ENDS = re.compile(r"(?<=[.!?…؟।])[\"'”’)\]]*\s+|(?<=[。！？｡])[」』”’]*\s*")
_MARKED = re.compile(r"[?？؟\u037e՞፧][\"'”’)\]」』*_\s]*$")
_ASKING = re.compile(
    r"\W*(?:please\s+)?(?:who|whom|whose|what|which|when|where|why|how|is|are|was|were|do|does|did|can|could|should|shall|will|would"
    r"|has|have|had|tell|show|find|remind|recall|list|name|give|explain|describe|look up|look for|search|check"
    r"|i (?:can['’]?t|cannot|don['’]?t|do not|forgot|wonder)\b.*\b(?:who|what|which|when|where|why|how)"
    r"|wer|wen|wem|was|wo|wann|wie|warum|wieso|welche[rsnm]?|où|quand|qui|que"
    r"|quel(?:le)?s?|quoi|pourquoi|comment|combien|d[oó]nde|cu[aá]ndo|qui[eé]n|qu[eé]|cu[aá]l|c[oó]mo|dove|chi|che|cosa|quale"
    r"|perch[eé]|onde|quando|quem|qual|hvor|hva|hvem|når|hvordan|vad|var|vem|waar|wat|hoe|где|что|кто|когда|как|почему|gdzie|kto"
    r"|kiedy|jak)\b"
    r"|.*(?:吗|什么|甚麼|什麼|哪|谁|誰|怎么|怎麼|几点|多少|何時|どこ|いつ|だれ|なぜ|ですか|ますか|어디|언제|누구|무엇|어떻게"
    r"|कहाँ|कब|कौन|क्या|कैसे|क्यों|कितन|ไหม|อะไร|ที่ไหน|เมื่อไ|ใคร|ทำไม|อย่างไร)",
    re.IGNORECASE,
)
"""How a sentence begins, or what it holds, that asks without a mark at its end."""
_CODED = re.compile(r"[\d=<>{}\[\]\\|_]")
"""What words of a paste within one line hold: digits, or signs that no sentence has."""
_LOOKED_AT = 100
"""The most sentences of which it is asked whether they are a question or a command, beside those at the ends."""


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """A question as it is read. asking: the sentences that ask, () if it is short; pieces: other parts of it, if it is longer
    than what an encoder reads at once."""

    text: str
    asking: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()

    @property
    def encoded(self) -> list[str]:
        """Return the texts that are encoded: the sentences that ask, the whole, the pieces."""
        return [*self.asking, self.text, *self.pieces]

    @property
    def asks(self) -> str:
        """Return the sentences that ask, or the whole of a short question."""
        return "\n".join(self.asking) or self.text

    def joined(self, rankings: Sequence[list[tuple[str, float]]]) -> list[tuple[str, float]]:
        """Join the rankings by each of the parts that are `encoded`, of (id, cosine), best first. An item has the best cosine of
        the sentences that ask, and a share of that of the other parts. One that a list leaves out has its last."""
        if not self.asking:
            return rankings[0]
        first, others = (_best_cosines(part) for part in (rankings[: len(self.asking)], rankings[len(self.asking) :]))
        least, fewest = (min(part.values(), default=0.0) for part in (first, others))
        sums = {
            id: min(1.0, first.get(id, least) + ASIDE * max(0.0, others.get(id, fewest)))
            for id in dict.fromkeys([*first, *others])
        }
        return sorted(sums.items(), key=lambda pair: -pair[1])


def _best_cosines(rankings: Sequence[list[tuple[str, float]]]) -> dict[str, float]:
    """Return the best cosine of each item."""
    best: dict[str, float] = {}
    for ranking in rankings:
        for id, cosine in ranking:
            if cosine > best.get(id, -2.0):
                best[id] = cosine
    return best


def read(text: str) -> ReadQuestion:
    """Read a question. A short one, or one that is nothing but one sentence, is read as a whole."""
    if len(text) <= SHORT // 4 or weighed_length(text) <= SHORT:
        return ReadQuestion(text)
    asking = asking_sentences(text)
    if not asking or asking == (text.strip(),):
        return ReadQuestion(text)
    parts = [text[start:end] for start, end in spans(text)]
    # The beginning and the end of a long text say most of what it is about.
    if len(parts) > MOST_PARTS:
        parts = [*parts[: MOST_PARTS // 2], *parts[-(MOST_PARTS // 2) :]]
    return ReadQuestion(text, asking, tuple(part for part in parts if part.strip() not in asking))


def asking_sentences(text: str) -> tuple[str, ...]:
    """Return the sentences of a text that ask, the last first, outside of what was pasted: those with a question mark or a word
    of asking, and those that tell to say something, at the beginning or the end if there are such, or else the last sentence and
    the first."""
    if len(text) > 2 * READ:
        text = f"{text[:READ]}\n\n{text[-READ:]}"
    lines = blank_pasted(text)
    if not any(map(str.strip, lines)):  # nothing but pasted lines
        lines = text.splitlines()
    sentences = (sentence for line in lines for sentence in _ENDS.split(line))
    listed = [part for sentence in sentences for part in _without_codes(sentence.strip()) if _says_something(part)]
    if not listed:
        return ()
    ends = (listed[-1], listed[0])
    asking = [sentence for sentence in listed if _MARKED.search(sentence)]
    at_ends = [sentence for sentence in ends if sentence in asking or _asks(sentence)]
    inside = asking[::-1] or [sentence for sentence in listed[::-1] if _ASKING.match(sentence)]
    chosen = at_ends or inside or [s for s in listed[-_LOOKED_AT:][::-1] if _asks(s)] or [*ends]
    return tuple(dict.fromkeys(sentence[-LONGEST:] for sentence in chosen))[:MOST_ASKING]


def _asks(sentence: str) -> bool:
    """Return whether a sentence asks without a mark: it begins as a question does, or tells to say something."""
    if _ASKING.match(sentence):
        return True
    begins, holds = _requests()
    short = sentence[-LONGEST:].lstrip(" ,.!¡¿…-–—:").replace("’", "'")
    return begins.match(short) is not None or holds.search(short) is not None


@cache
def _requests() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return how a sentence begins, and what it holds, that asks or commands, in the languages of `speech.toml`."""
    parts = {
        name: value
        for section in read_file("speech").values()
        if isinstance(section, dict)
        for name, value in section.items()
    }
    polite, heads = "|".join(parts["polite"]), [*parts["heads"], *(p for of in parts["begins"].values() for p in of)]
    begins = compile_pattern(rf"(?:(?:{polite})[ ,.!…-]*){{0,3}}(?:{'|'.join(heads)})", parts=parts)
    return begins, compile_pattern("|".join([*parts["ends"], *parts["finishes"]]), parts=parts)


def _without_codes(sentence: str) -> list[str]:
    """Return a sentence or, of a long one that runs on from a paste or into one, its stretches of ordinary words."""
    if len(sentence) <= SHORT:
        return [sentence]
    stretches: list[list[str]] = [[]]
    for word in sentence.split():
        if _CODED.search(word):
            stretches.append([])
        else:
            stretches[-1].append(word)
    return [" ".join(stretch) for stretch in stretches if len(stretch) > 2] or [sentence]


def _says_something(sentence: str) -> bool:
    return any(map(str.isalnum, sentence))
