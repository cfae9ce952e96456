"""Extracts the statements of a conversation by rules on their words. No model is called.

claims("I moved to Oslo. What's on there?")  ->  one claim: text "I moved to Oslo.", about "user", attribute "home", value "Oslo"
"""

from __future__ import annotations

import re

from keepworth.memory.change_frames import (
    bare_number,
    bare_value,
    corrects,
    named_value,
    tells_of_a_new_state,
    with_correction,
    with_value,
)
from keepworth.memory.patterns import Patterns, read_words
from keepworth.memory.sentences import COURTESY, FIRST_PERSON, OPENING, QUESTION_TAIL, sentences
from keepworth.memory.speech import reacts, statements
from keepworth.methods.writers._claims import USER, Claim, parsed_claim, put_forward

LONGEST_TEXT, LONGEST_CLAIM, MOST_CLAIMS = 20_000, 600, 64
"""Characters of a message that are read, and of a claim; claims of a message."""
_RULES = Patterns("claims")
_REFUSES = re.compile(r"\s*(?:no|nope|nah|nein|nee|nö|non)\b", re.IGNORECASE)
"""How an answer to a question begins that refuses, where it would be a correction if none was asked."""


def claims(text: str, at: str = "", *, speaker: str = USER) -> list[Claim]:
    """Returns the statements of `text`, in order, for any text. at: when it was said, ISO 8601; "" leaves days as they are.
    speaker: for "assistant", only statements of its own actions and of facts about the person."""
    text = _RULES.quote.sub(" ", text[:LONGEST_TEXT]).replace("’", "'").replace("‘", "'")
    if not _is_english(text):
        # No rule knows these words: every sentence is kept whole, except questions.
        return [Claim(line) for line in _plain(text) if not reacts(line)][:MOST_CLAIMS]
    given: list[Claim] = []
    who = ""
    for sentence in sentences(text):
        if speaker == USER and reacts(sentence):
            continue
        for clause in _clauses(" ".join(sentence.split())):
            stated = _stated(clause, speaker, who)
            if not stated:
                continue
            claim = parsed_claim(_short(stated), at, news=bool(_RULES.news.search(clause)))
            subject = _RULES.relative.match(stated) or _RULES.named.match(stated)
            who = subject[0][: subject.end(1)] if subject is not None else ("" if claim.about == USER else who)
            given.append(claim)
    return given[:MOST_CLAIMS]


def corrected(text: str, before: str, question: str = "") -> str:
    """Returns a correction of `before` as a statement of its own, or "": "No, it's 7." after "My gate is 5." is "My gate is
    7.".

    Args:
        text: What somebody says.
        before: What the same person said before it.
        question: What was asked of that person meanwhile: then a value alone is an answer, unless words of correction are beside
            it.
    """
    if question and not corrects(text):
        return ""
    is_value = bool(bare_value(text) or named_value(text)[0])
    if is_value and not (corrects(text) or tells_of_a_new_state(text)):
        return ""  # "It's Monday."
    if is_value or (corrects(text) and not (question and _REFUSES.match(text))):
        stated_before = [statement.text for statement in statements(before)]
        anew = next(filter(None, (with_value(old, text) for old in reversed(stated_before))), "")
        anew = anew or (with_correction(stated_before[-1], text) if stated_before else "")
        if anew or is_value:
            return anew
    match = _RULES.anew.match(put_forward(" ".join(text.split())))
    if match is None or not (corrects(text) or match["o"]):
        return ""  # "It's my birthday."
    stated = claims(before)
    if not stated or len(match["v"].split()) > 6 or not stated[-1].value:
        return ""
    if bare_number(text) and not any(letter.isdigit() for letter in stated[-1].value):
        return ""  # "Make it 8." after "I live in Rome."
    last, start = stated[-1], stated[-1].text.rfind(stated[-1].value)
    return "" if start < 0 else f"{last.text[:start]}{match['v']}{last.text[start + len(last.value) :]}"


def _clauses(sentence: str) -> list[str]:
    """Returns the statements of a sentence: a question at its end is dropped, and parts with their own subject are split."""
    asks = sentence.endswith(("?", "\uff1f"))
    tails = [pattern.search(sentence) for pattern in ((QUESTION_TAIL, _RULES.wonders) if asks else (_RULES.wonders,))]
    tail = min(filter(None, tails), key=lambda result: result.start(), default=None)
    if tail is not None:
        sentence = _before_question(sentence[: tail.start()].rstrip(" ,;-–—"))
    elif asks:
        return []
    parts, start = list[str](), 0
    for cut in _RULES.cut.finditer(sentence):
        before, after = sentence[start : cut.start()], sentence[cut.end() :]
        rest = _RULES.cut.split(after, maxsplit=1)[0]
        if len(before.split()) >= 2 and len(rest.split()) >= 2 and not _RULES.leans.search(rest):
            parts.append(before)
            start = cut.end()
    parts.append(sentence[start:])
    return [part for part in parts if part.strip(" .,;!")]


def _before_question(head: str) -> str:
    """Returns the words before a question if they state something: "Since I moved to Oslo" does, "when I was a child" does
    not."""
    given = _RULES.given_that.sub("", head)
    if given != head:
        return f"{given}."
    return "" if _RULES.subordinate.match(head) and len(_RULES.does.findall(head)) < 2 else f"{head}."


def _is_talk(text: str) -> bool:
    """Returns whether a text only thanks, asks, orders or responds, and states nothing."""
    plain = _RULES.adverbs.sub(r"\1 ", text)
    if _RULES.tells.match(plain):
        return False
    if _RULES.command.match(plain) or _RULES.asks.match(plain):
        return True
    if _RULES.object_alone.match(plain) and not _RULES.acts.search(plain):
        return True
    opens = COURTESY.match(plain) or _RULES.chat.match(plain) or _RULES.decided.match(plain)
    return opens is not None and _RULES.told.search(plain, opens.end()) is None


def _stated(clause: str, speaker: str, who: str) -> str:
    """Returns the statement in a clause, or "" where there is none. `who` is the person "she" refers to."""
    text = clause.strip()
    while (lead := _RULES.lead.match(text)) is not None and lead.end() < len(text):
        text = text[lead.end() :]
    if speaker != USER:
        return _end_sentence(text) if _RULES.of_assistant.match(text) else ""
    if _RULES.order.match(text):
        return _end_sentence(text)
    text = OPENING.sub("", text).strip()
    if who and _RULES.pronoun.match(text):
        text = _RULES.pronoun.sub(who, text)
    if not text or _is_talk(text):
        return ""
    if FIRST_PERSON.search(text):
        return _end_sentence(text) if len(text.split()) >= 2 else ""
    named = _RULES.named.match(text) and not _RULES.no_name.match(text)
    return _end_sentence(text) if named and len(text.split()) >= 3 else ""


def _end_sentence(text: str) -> str:
    text = text.strip(" ,;-–—")
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ".!" else ".")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_CLAIM else text[:LONGEST_CLAIM].rsplit(" ", 1)[0] + " ..."


def _is_english(text: str) -> bool:
    words = re.findall(r"[^\W\d_]+(?:'[a-z]+)?", text.lower())
    english = sum(word in read_words("english") or "'" in word for word in words)
    return not words or (english * 8 >= len(words) if len(words) > 3 else all(word.isascii() for word in words))


def _is_notation(line: str) -> bool:
    """Returns whether half of the words contain digits: chess moves, tables and code are no statements."""
    words = line.split()
    return 2 * sum(any(sign.isdigit() for sign in word) for word in words) >= len(words)


def _plain(text: str) -> list[str]:
    lines = [" ".join(sentence.split()) for sentence in sentences(text)]
    long = [line for line in lines if len(line.split()) >= 3 or (len(line) >= 4 and not line[0].isascii())]
    asks = ("?", "\uff1f", "\u061f", "\u037e")
    return [_short(line) for line in long if not _is_notation(line) and not line.endswith(asks)]
