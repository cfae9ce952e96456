"""Finds what a message states: the sentences of a person that are no question, no command, no greeting, not about the task at
hand and not pasted.

    statements("Hi! I moved to Porto. Can you find a dentist?")  ->  ["I moved to Porto."]

A request to remember is always a statement. Nothing is reworded: a statement loses the greeting before it, the question behind it
and the words that ask to remember, where what is left is a sentence of its own. What is said in a language that no rule knows is
kept. The words are in `speech.toml`; which lines are pasted is decided in `pasted`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from keepworth.memory.forget_requests import asks_not_to_keep, forget_requests
from keepworth.memory.pasted import BULLET, LETTER, blank_pasted
from keepworth.memory.patterns import compile_pattern, read_file
from keepworth.memory.reactions import is_reaction
from keepworth.memory.search.language import classify
from keepworth.memory.search.terms import SURE, function_words, latin_words
from keepworth.memory.sentences import sentences
from keepworth.memory.wording import cue

FEWEST_WORDS = 3
LONGEST = 1_000
"""The most characters of a statement that is put together from several sentences or lines."""
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[@-Z\\-_])?|\x9b[0-?]*[ -/]*[@-~]"
)
"""Commands to a terminal, such as those for colours."""
_CONTROLS = {code: None for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160)) if code != 0x85} | {
    0x85: "\n",
    0xFFFE: None,
}
_HALVES = re.compile("[\ud800-\udfff]")
_ENDS = re.compile(r"(?<=[。！？｡])[\"'”’」』）)]*\s*|(?<=[؟۔।։])\s*|(?<=[.!?…])(?<!\.\.\.)\s+(?=[¿¡])")
_NUMBER = re.compile(r"[\w+(-]*\d")
_WORDS = re.compile(rf"{LETTER}+(?:['’ʼ·‑-]{LETTER}+)*")
_JOINED_SCRIPT = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_OPEN_QUOTE = re.compile(r"""(?:^|[\s(:])["'“‘][^"'”’]{0,200}[!?]$""")
_CLOSES_QUOTE = re.compile(r"""[^"'”’“‘]{1,200}["'”’](?!\w)""")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_QUOTED = re.compile("""[`"“„«][^`"”“»]*[`"”“»]""")
_NAME = re.compile(r"(?:(?:[A-Z]\w*|\d+)\s+)?")
_WITHOUT_WORDS = re.compile("[\u200d\u2190-\u2bff\ufe0e\ufe0f\U0001f000-\U0001faff]+")
"""Emojis and arrows."""
_ADDRESS = re.compile(r"(?:,\s*[A-Z]\w+(?: [A-Z]\w+)?\s*[.!…]*|\s+[A-Z]\w+\s*!+)\s*$")
"""The name of somebody at the end of a sentence."""
MOST_TO_SOMEBODY = 7
"""The most words of a comment that ends in a name."""
_PARTS = re.compile(r"\s*[,，、;；]\s*|\s+[-–—]+\s+|\s*\.{3}\s*|\s*…\s*")
MOST_OF_A_COMMENT = 120
"""The most characters of a sentence that only comments on the task at hand."""
LONGEST_BEFORE = 200
"""The most characters of a sentence that states nothing, and is kept with the statement about whom it names."""
SPEAKS = 0.5
"""By how many function words a language is told from another one: half a word, since several languages share most of them."""
SHORT_ANSWER = 6
"""Words of an answer that is kept with the question, without which it says nothing."""


@dataclass(frozen=True, slots=True)
class StatedSentence:
    """Something that a message states.

    Args:
        text: It, in the words of the speaker.
        asked_to_keep: Whether the speaker asks to remember it.
        leans: Whether it begins with a word, such as "she", that refers to the statement before it.
        first: Whether nothing else that is spoken stands before it in the message.
    """

    text: str
    asked_to_keep: bool = False
    leans: bool = False
    first: bool = False


def clean(text: str) -> str:
    """Return `text` as it can be stored: without commands to a terminal, control characters and halves of emoji."""
    if text.isprintable():
        return text
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)
    if _HALVES.search(text):
        text = _HALVES.sub("", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\ufffd", ""))
    return text


def statements(text: str, *, question: str = "", of_agent: bool = False) -> list[StatedSentence]:
    """Return what a message states, in order.

    Args:
        text: The message.
        question: What was asked before, which a short answer is kept with.
        of_agent: Whether an agent speaks, whose advice is no command to an agent.
    """
    utterances: list[StatedSentence] = []
    text = clean(text)
    if not of_agent and asks_not_to_keep(spoken_sentences(text)):
        return []
    if question and "\n" not in text.strip() and is_short(text):
        answer = answers(text, question)
        return [StatedSentence(answer, first=True)] if answer else []
    seen, dropped = False, ""
    for block in _blocks(text):
        if block.verbatim:
            utterances.append(StatedSentence(block.text, asked_to_keep=True))
            continue
        for sentence in [block.text] if block.listed else _sentences_before_a_text(block.text):
            first, seen = not seen, True
            if first and question and is_short(sentence) and (answer := answers(sentence, question)):
                utterances.append(StatedSentence(answer, first=True))
                continue
            answering = first and question != "" and _patterns("offers").search(question) is None
            stated = _find_statement(sentence, of_agent=of_agent, answers=answering)
            if stated is not None:
                if first and question and len(stated.text.split()) <= 3 * SHORT_ANSWER and _leans_back(stated.text):
                    stated = StatedSentence(f"{question} {stated.text}", stated.asked_to_keep)
                leans = _leans_back(stated.text) and not stated.asked_to_keep
                if dropped and _refers_to(dropped, stated.text):
                    stated, leans = StatedSentence(f"{dropped} {stated.text}"), False
                utterances.append(StatedSentence(stated.text, stated.asked_to_keep, leans, first))
            dropped = sentence.strip() if stated is None else ""
    return utterances


def _sentences_before_a_text(text: str) -> Iterator[str]:
    """Yield the sentences of a text up to one that asks to work on what follows."""
    for sentence in _sentences(text):
        yield sentence
        if _asks_to_work_on(sentence):
            return


def _asks_to_work_on(sentence: str) -> bool:
    """Return whether a sentence asks to work on a text that follows: "Can you rewrite this paragraph?"."""
    if _patterns("hands_over").search(sentence):
        return True
    return _patterns("works_on").search(sentence) is not None and (is_question(sentence) or is_command(sentence))


def _begins_mail(lines: list[str], index: int) -> bool:
    """Return whether a line begins a mail: with two or more fields that readers of mail show, and no others, or as one that is
    forwarded or answered."""
    if _patterns("mail").match(lines[index]):
        return True
    if index and lines[index - 1].strip():
        return False
    end = _paragraph(lines, index)
    return index + 1 < end < len(lines) and all(_patterns("field").match(line) for line in lines[index:end])


def spoken_sentences(text: str) -> list[str]:
    """Return the sentences of a message that are not pasted."""
    return [sentence for line in blank_pasted(clean(text)) if line.strip() for sentence in _sentences(line.strip())]


def ends_in_question(text: str) -> str:
    """Return the question with which a message ends, such as one of an assistant's, or ""; of several in a row the last two."""
    asked: list[str] = []
    for sentence in reversed(_sentences(clean(text[-2_000:]))):
        if len(asked) == 2 or not (is_question(sentence) and sentence.rstrip()[-1:] in "?？؟;՞。吗呢か"):
            break
        asked.insert(0, " ".join(sentence.split()))
    joined = " ".join(asked)
    return joined if len(joined) <= 300 else asked[-1][-300:]


def answers(text: str, question: str) -> str:
    """Return a short answer as a statement, with the question before it; "" if it states nothing, such as "yes" to "Shall I go
    on?"."""
    plain = " ".join(clean(text).split())
    if not plain or is_question(plain) or (is_command(plain) and not is_courtesy(plain)):
        return ""
    offers = _patterns("offers").search(question) is not None
    if (is_courtesy(plain) and (offers or not _patterns("refuses").match(plain))) or (
        offers and _is_of_the_task(plain)
    ):
        return ""
    return f"{question} {plain}"


def says_something(text: str) -> bool:
    """Return whether a user's message is worth storing if there is no writer: it has three words or more, is no question, does
    more than react to an answer, and does not ask not to be kept."""
    return (
        len(text.split()) >= FEWEST_WORDS
        and not text.rstrip().endswith(("?", "？"))
        and not (reacts(text) or asks_not_to_keep(spoken_sentences(text)))
    )


def reacts(text: str) -> bool:
    """Return whether each sentence of a text only says how the answer before it was, with or without thanks and the like."""
    return bool(text.strip()) and all(is_courtesy(sentence) or _only_judges(sentence) for sentence in _sentences(text))


def is_short(text: str) -> bool:
    """Return whether a text is so short that it says little without what was asked."""
    wide = len(_JOINED_SCRIPT.findall(text))
    return wide <= 2.5 * SHORT_ANSWER if wide else len(text.split()) <= SHORT_ANSWER


def is_courtesy(text: str) -> bool:
    """Return whether a text is a greeting, thanks, an assent or another sound of talk, and nothing else."""
    words = [word.lower().replace("’", "'") for word in _WORDS.findall(_WITHOUT_WORDS.sub(" ", text))]
    if not words:
        return True
    if len(words) <= 10:
        core, fillers = _words("core"), _words("beside")
        unknown = [word for word in words if word not in core and word not in fillers]
        if any(word in core for word in words) and (
            not unknown
            or (
                len(unknown) == 1
                and len(words) <= 3
                and words[-1] == unknown[0]
                and _patterns("greets").match(text.strip())
                and unknown[0].isalpha()
                and words[-2:-1] != ["i'm"]
            )
        ):
            return True
    joined = "".join(words)
    if _JOINED_SCRIPT.search(joined):
        return _joined().fullmatch(joined) is not None
    plain = _WITHOUT_WORDS.sub(" ", text).strip(" .!…\t\n").replace("’", "'")
    return _patterns("whole").fullmatch(plain) is not None


def ask_for_nothing(words: Collection[str]) -> bool:
    """Return whether words, in lower case, are courtesies or ask to go on, with nothing but what stands beside those."""
    core = _words("core") | _words("go_on")
    if not core.isdisjoint(words):
        return core.union(_words("beside"), _words("praises")).issuperset(words)
    joined = "".join(words)
    return _JOINED_SCRIPT.search(joined) is not None and _joined().fullmatch(joined) is not None


def _is_of_the_task(text: str) -> bool:
    """Return whether a text, or each part of it between commas, is a courtesy, a command or else of the task at hand: "No,
    try again"."""
    if _comments(text):
        return True
    parts = [part for part in _PARTS.split(text[:LONGEST]) if _WORDS.search(part)]
    return 1 < len(parts) <= 4 and _patterns("standing").search(text) is None and all(map(_states_nothing, parts))


def _states_nothing(text: str) -> bool:
    return is_courtesy(text) or _comments(text) or is_question(text) or is_command(text)


def _comments(text: str) -> bool:
    """Return whether a text comments on the task at hand, with or without thanks and the like around it."""
    if len(text) > MOST_OF_A_COMMENT:
        return False
    if _has_only_words_of_the_task(text) or _only_judges(text):
        return True
    plain = _patterns("thanks").sub("", _WITHOUT_WORDS.sub(" ", text).strip().replace("’", "'"))
    return any(_patterns("comments").fullmatch(form.strip(".!… ")) is not None for form in (plain, _polite(plain)))


def is_question(text: str) -> bool:
    """Return whether a text asks something, with or without a question mark."""
    plain = _polite(text.strip().replace("’", "'"))
    if _patterns("mark").search(plain):
        return True
    return _patterns("ends").search(plain) is not None or _patterns("heads").match(plain) is not None


def is_command(text: str) -> bool:
    """Return whether a text tells an agent to do something now. A wish for the future ("Always run the tests first") is none."""
    whole = text.strip().replace("’", "'")
    plain = _polite(whole)
    if not plain.strip(" .!,") or _patterns("once_more").fullmatch(whole):
        return True
    if _patterns("corrects").fullmatch(whole):
        return True
    if _patterns("standing").search(whole) and not _patterns("for_once").search(whole):
        return False
    if (
        _patterns("also").match(plain)
        or _wishes().match(plain)
        or _begins_command(plain)
        or _patterns("finishes").search(plain)
    ):
        return True
    verb, _, rest = plain.partition(" ")
    verb = verb.lower().rstrip(".!,:")
    object = _patterns("object").match(rest.lstrip()) is not None
    states = _patterns("finite").search(" ".join(rest.split()[:6])) is not None
    if verb in _words("clear"):
        return object or not states
    if verb in _words("nouns"):
        if states and (rest[:1].isdigit() or rest[:1].isupper()):
            return False
        if _patterns("of_a_number").match(rest) or _patterns("numbered_does").match(rest):
            return False
        short = len(rest.split()) <= 2 and rest.islower() and not states and rest.isascii()
        return (object or short) and not re.match(r"call (?:me|us|it|him|her|them)\b", plain, re.IGNORECASE)
    if _patterns("orders").match(rest) and verb.isascii() and verb.isalpha() and not states:
        return verb not in _words("no_order") and not verb.endswith(("ing", "ed", "s", "ly"))
    return _patterns("please").search(plain) is not None and len(plain.split()) <= 3


def _begins_command(plain: str) -> bool:
    """Return whether a text begins with a command of a language that it may be written in."""
    matches = ((tags, match.end()) for tags, pattern in _begins() if (match := pattern.match(plain)) is not None)
    return any(not _is_subject(plain, end, tags) and _may_be_of(plain, end, tags) for tags, end in matches)


def _is_subject(plain: str, end: int, tags: Sequence[str]) -> bool:
    """Return whether what ends there is the subject of a verb that only a statement has: "Lies ist die Hauptstadt"."""
    spoken = {*tags, classify([plain[end:]])[0][0]} if _LATIN.match(plain) else tags
    return any(_subject(tag).match(plain, end) is not None for tag in ("any", *spoken))


def _may_be_of(plain: str, end: int, tags: Sequence[str]) -> bool:
    """Return whether the words behind a command may be of its language: function words do not speak for another one, and the
    letters for none that is far from it."""
    if not _LATIN.match(plain):
        return True
    rest = _QUOTED.sub(" ", plain[end:])
    near = {other for group in _listed()["near"]["groups"] if set(tags) & set(group.split()) for other in group.split()}
    near |= set(tags)
    counts = function_words(latin_words(rest))
    of_it = max((count for tag, count in counts.items() if tag in near), default=0.0)
    others = max((count for tag, count in counts.items() if tag not in near), default=0.0)
    if abs(of_it - others) >= SPEAKS:
        return of_it > others
    if _patterns("finite").match(_NAME.sub("", rest.lstrip(), count=1)) or _patterns("numbered").fullmatch(rest):
        return False
    return all(language in near or probability < SURE for language, probability in classify([plain, rest.strip(" .!")]))


# -- parts of a message -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of a message: text to be read, lines with the words that lead to them (`listed`), or what the speaker asks to
    remember as it stands."""

    text: str
    listed: bool = False
    verbatim: bool = False


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the spoken parts of a message: paragraphs whose lines were broken are put together, and lists are kept whole."""
    lines, spoken = text.splitlines(), blank_pasted(text)
    index = 0
    while index < len(lines):
        line = spoken[index].strip()
        if _begins_mail(lines, index):
            return
        if not line:
            index += 1
            continue
        last = _sentences(line)[-1]
        if _patterns("of_another").match(last) and not _asks_to_keep_what_follows(last):
            index = _paragraph(lines, index + 1)
            continue
        works_on = _asks_to_work_on(last)
        if works_on or line.endswith((":", "：")):
            keeps = _asks_to_keep_what_follows(last)
            if works_on or keeps or is_command(last) or is_question(last):
                after = _paragraph(lines, index + 1)
                rest = "\n".join(lines[index + 1 : after]).strip("\n")
                if keeps and rest.strip():
                    yield from (_Block(part, verbatim=True) for part in _portions(rest))
                elif rest.strip():  # "Translate this:" is followed by what somebody else wrote
                    yield _Block(line)
                if rest.strip():
                    index = after
                    continue
        end = max(_list_end(spoken, index + 1), _table_end(lines, index + 1)) if line.endswith((":", "：")) else 0
        if end > index + 1:
            *before, leads = _sentences(line)
            whole = "\n".join([leads, *(part.rstrip() for part in lines[index + 1 : end] if part.strip())])
            if len(whole) <= LONGEST:
                yield from (_Block(sentence) for sentence in before)
                yield _Block(whole, listed=True)
                index = end
                continue
        text, index = _unbroken(spoken, index)
        yield _Block(text)


def _paragraph(lines: list[str], start: int) -> int:
    """Return the index behind the first paragraph, or fenced block, from `start` on."""
    while start < len(lines) and not lines[start].strip():
        start += 1
    if start < len(lines) and (fence := lines[start].strip()[:3]) in ("```", "~~~"):
        return next(
            (index + 1 for index in range(start + 1, len(lines)) if lines[index].strip().startswith(fence)), len(lines)
        )
    while start < len(lines) and lines[start].strip():
        start += 1
    return start


def _list_end(lines: list[str], start: int) -> int:
    """Return the index behind the items of a list that begins at `start`."""
    while start < len(lines) and BULLET.match(lines[start]):
        start += 1
    return start


def _table_end(lines: list[str], start: int) -> int:
    """Return the index behind the rows of a table that begins at `start`, or behind an empty line there; `start` for none."""
    first = start + 1 if start < len(lines) and not lines[start].strip() else start
    end = first
    while end < len(lines) and lines[end].lstrip().startswith("|"):
        end += 1
    return end if end > first else start


def _unbroken(lines: list[str], index: int) -> tuple[str, int]:
    """Return the text of a line with those that go on with it, and the index behind them. A line goes on if the next one begins
    in lower case and this one is as long as lines of mail, and does not end a sentence."""
    text = BULLET.sub("", lines[index], count=1).strip()
    length = len(lines[index])
    index += 1
    while (
        index < len(lines)
        and length >= 50
        and text[-1:] not in ".!?:;。！？…"
        and (line := lines[index].strip())
        and line[0].islower()
        and not BULLET.match(lines[index])
    ):
        text, length = f"{text} {line}", len(lines[index])
        index += 1
    return text, index


def _portions(text: str) -> Iterator[str]:
    """Yield a text in parts of at most `4 * LONGEST` characters, cut at ends of lines where there are some."""
    while len(text) > 4 * LONGEST:
        cut = text.rfind("\n", LONGEST, 4 * LONGEST)
        cut = cut if cut > 0 else 4 * LONGEST
        yield text[:cut]
        text = text[cut:].lstrip("\n")
    yield text


def _sentences(text: str) -> list[str]:
    """Return the sentences of a text in any script. No word is lost."""
    parts: list[str] = []
    for piece in _ENDS.split(text):
        for part in sentences(piece or ""):
            before = parts[-1] if parts else ""
            glued = _patterns("ordinal").search(before[-12:]) is not None and (
                part[0].islower() or _NUMBER.match(part) is not None or _patterns("month").match(part) is not None
            )
            quoted = _CLOSES_QUOTE.match(part) is not None and _OPEN_QUOTE.search(before[-200:]) is not None
            if glued or quoted or (before and not _WORDS.search(part)):
                parts[-1] += f" {part}"
            else:
                parts.append(part)
    return parts


def _has_only_words_of_the_task(text: str) -> bool:
    """Return whether each word of a short sentence speaks of the task at hand, or is a function word of some language."""
    written = _WORDS.findall(_WITHOUT_WORDS.sub(" ", text))
    words = [word.lower().replace("’", "'") for word in written]
    if not 0 < len(words) <= 12 or ":" in text or _patterns("of_speaker").match(text):
        return False
    beyond = _words("beyond")
    if any(word.split("'")[0] in beyond for word in words):
        return False
    task_words = _words("core") | _words("beside") | _words("words")
    if not all(word in task_words or _is_function_word(word) for word in words):
        return False
    # "Jen" is a word of Czech, but in a sentence that is English by its other words it is a name.
    names = [word for word in written[1:] if word.istitle() and word != "I" and word.lower() not in task_words]
    votes = function_words(latin_words(" ".join(word for word in written if word not in names)))
    language = max(votes, key=votes.__getitem__, default="")
    return not language or all(language in function_words(latin_words(name)) for name in names)


def _only_judges(text: str) -> bool:
    """Return whether a sentence only says how an answer was."""
    return _patterns("of_speaker").match(text) is None and is_reaction(
        text, _words("core") | _words("beside") | _words("words"), _words("beyond")
    )


def _is_function_word(word: str) -> bool:
    runs = latin_words(word)
    return bool(runs) and all(function_words([run]) for run in runs)


# -- one sentence -----------------------------------------------------------------------------------------------------


def _find_statement(sentence: str, *, of_agent: bool, answers: bool = False) -> StatedSentence | None:
    """Return the statement in a sentence, or None. What `answers` a question may say what else would be of the task at hand."""
    text = _without_greeting(sentence.strip())
    if text != sentence.strip() and _patterns("reaction").fullmatch(text):
        return None
    if not of_agent and forget_requests([text]):
        return StatedSentence(behind) if (behind := _behind_command(text)) else None
    if not of_agent and (wanted := _asked_to_keep(text)):
        return StatedSentence(wanted, asked_to_keep=True)
    if is_courtesy(text) or is_courtesy(sentence) or _comments_to_somebody(text) or cue("supposed").search(text):
        return None
    if is_question(text):
        head = _before_question(text)
        return StatedSentence(head) if head else None
    if not of_agent and (_patterns("hands_over").search(text) or _patterns("asks_to_forget").match(text)):
        return None
    if not of_agent and (is_command(text) or _commands_at_end(text) or (not answers and _is_of_the_task(text))):
        behind = _behind_command(text)
        return StatedSentence(behind) if behind else None
    if len(text) < 4 or (len(_WORDS.findall(text)) < 2 and not _JOINED_SCRIPT.search(text)):
        return None  # a word alone says nothing, unless it answers
    return StatedSentence(text)


def _comments_to_somebody(text: str) -> bool:
    """Return whether a text is a courtesy or a comment, with the name of whom it is said to: "Congrats, Maria!"."""
    addressed = _ADDRESS.search(text)
    if addressed is None or len(_WORDS.findall(text)) > MOST_TO_SOMEBODY:
        return False
    plain = text[: addressed.start()]
    comma = addressed[0].startswith(",")
    return bool(_WORDS.search(plain)) and (is_courtesy(plain) or (comma and _is_of_the_task(plain)))


def _without_greeting(text: str) -> str:
    """Return a text without a greeting or thanks before a comma."""
    match = re.match(r"[^,!–—.:;]{1,40}[,!–—]\s+", text)
    while (
        match is not None
        and is_courtesy(match[0])
        and not _patterns("refuses").match(text)
        and len(_WORDS.findall(text[match.end() :])) >= 2
    ):
        text = text[match.end() :]
        match = re.match(r"[^,!–—.:;]{1,40}[,!–—]\s+", text)
    return text


def _asked_to_keep(text: str) -> str:
    """Return what a sentence asks to remember: its words without the request, if those are a sentence of their own, else the
    whole sentence; "" for none."""
    plain = text.replace("’", "'")
    for name in ("english", "others"):
        match = _patterns(name).match(plain)
        if match is None:
            continue
        rest = text[match.end() :]
        that = _patterns("that").match(rest.lstrip())
        if that is None and re.match(r"\s*\w", rest) and rest[:1].strip():
            continue  # the match ends inside a word
        content = rest.lstrip()[that.end() if that else 0 :].strip()
        if name == "english":
            if plain.rstrip().endswith("?") and not re.match(
                r".*?\b(?:can|could|will|would) you\b", plain[: match.end()], re.IGNORECASE
            ):
                continue
            content = content.rstrip("?").rstrip()
        if _patterns("bare").fullmatch(content) or len(_WORDS.findall(content)) < 1:
            return ""
        if that is not None and (sentence := _with_the_verb_second(content, that[0])):
            return sentence
        alone = that is not None and (name == "english" or that[0].lower().strip(":：,，–— -") not in _MOVES_THE_VERB)
        clause = name == "english" and _patterns("states").match(content) is not None
        return _as_sentence(content) if alone or clause else text
    prefix = re.match(rf"(?:{_joined_up('prefixes')})\s*(?:that\b|[,:–—-])\s*", plain, re.IGNORECASE)
    if (
        prefix is not None
        and re.match(r"(?:by the way|btw|context|background|note|important)", plain, re.IGNORECASE) is None
    ):
        content = text[prefix.end() :].strip()
        if len(_WORDS.findall(content)) >= 2 and not is_question(content):
            return _as_sentence(content)
    after = _patterns("after").search(plain)
    if after is not None and len(_WORDS.findall(text[: after.start()])) >= 2 and not is_question(text[: after.start()]):
        return _as_sentence(text[: after.start()].rstrip())
    if _patterns("others_after").search(plain) and len(plain) >= 6 and not _patterns("mark").search(plain):
        return text
    return ""


_MOVES_THE_VERB = ("dass", "daß", "dat", "att", "at", "ש", "कि")
"""What follows these words is no sentence of its own, since the order of its words is another."""


def _with_the_verb_second(clause: str, that: str) -> str:
    """Return a German clause behind "dass" as a sentence: "ich keine Nüsse esse" as "Ich esse keine Nüsse."; "" where it has
    several clauses, its subject is not known, or its verb may have to be divided."""
    if not that.lower().strip(" :,–—-").startswith(("dass", "daß")):
        return ""
    match = _patterns("verb_last").fullmatch(clause.strip(" .!"))
    if match is None or _patterns("divided").match(match["verb"]):
        return ""
    return _as_sentence(f"{match['subject']} {match['verb']} {match['rest']}")


def _asks_to_keep_what_follows(sentence: str) -> bool:
    """Return whether a sentence asks to remember the lines behind it: "Remember this:"."""
    plain = sentence.replace("’", "'").strip()
    for name in ("english", "others"):
        match = _patterns(name).match(plain)
        if match is not None:
            rest = plain[match.end() :].strip()
            few = name == "others" and len(_WORDS.findall(rest)) <= 3
            return few or _patterns("bare").fullmatch(rest) is not None
    return _patterns("others_after").search(plain) is not None


def _before_question(text: str) -> str:
    """Return the words before a question that are a statement: "I'm vegan" of "I'm vegan, what can I cook?"; "" for none."""
    for separator in _patterns("separator").finditer(text):
        tail = text[separator.end() :]
        before = text[: separator.start()].strip()
        head = _patterns("given").sub("", before, count=1)
        if (last := _patterns("given_last").match(head)) is not None:
            head = _with_the_verb_second(head[last.end() :], "dass") or head
        asks = (
            (head != before and _patterns("mark").search(text) is not None)
            or tail.lstrip().startswith("¿")
            or is_question(tail.rstrip("?？؟;。 "))
            or _patterns("also").match(_polite(tail)) is not None
            or is_courtesy(tail)
        )
        clause = _patterns("states").search(head.replace("’", "'")) is not None
        if not clause or _says_little(head) or _patterns("leans").match(head) or is_question(head) or is_courtesy(head):
            continue
        of_the_speaker = _first_word(head) in _words("of_the_speaker") or head.startswith(("我", "私", "俺"))
        if asks or (of_the_speaker and _patterns("mark").search(text)):
            return _as_sentence(head)
    return ""


def _says_little(head: str) -> bool:
    """Return whether words before a question are too few for a statement: "I'm vegan" and "Soy vegano" are enough."""
    if _JOINED_SCRIPT.search(head):
        return len(head) < 4
    words = re.findall(r"\w+", head)
    return len(words) < (2 if _first_word(head) in _words("of_the_speaker") else 3)


def _commands_at_end(text: str) -> bool:
    """Return whether a sentence is a command behind words that say where or when: "In ci.yml, fix the build"."""
    cut = _patterns("before_command").search(text)
    if cut is None or _patterns("standing").search(text):
        return False
    head, tail = text[: cut.start()], text[cut.end() :]
    return (
        is_courtesy(head) or (len(head.split()) <= 4 and _patterns("leans").match(head) is not None)
    ) and is_command(tail)


def _behind_command(text: str) -> str:
    """Return the clause behind a command that is a statement: "I'm vegan" of "Book a table; I'm vegan."; "" for none."""
    for cut in _patterns("behind_command").finditer(text[:LONGEST].replace("’", "'")):
        clause = text[cut.end() :]
        plain = clause.replace("’", "'")
        if (
            len(_WORDS.findall(clause)) >= 2
            and not _patterns("of_the_task").match(plain)
            and not _states_nothing(clause)
        ):
            return _as_sentence(clause)
    return ""


def _leans_back(text: str) -> bool:
    return _first_word(text) in _words("leans_back")


def _refers_to(before: str, statement: str) -> bool:
    """Return whether a statement says little without the request before it: "He turns 8." after "Plan a party for my son?", or
    what stands behind "Write a story."."""
    if _patterns("makes_up").match(before):
        return True
    words = {word.lower() for word in _WORDS.findall(before)}
    return (
        _first_word(statement) in _words("refers")
        and len(before) <= LONGEST_BEFORE
        and not words.isdisjoint(_words("whose"))
    )


def _first_word(text: str) -> str:
    word = _WORDS.search(text)
    return word[0].lower().replace("’", "'") if word is not None else ""


def _polite(text: str) -> str:
    """Return a text without words such as "please" and "then" before a command or a question."""
    polite = _patterns("polite")
    while (match := polite.match(text)) is not None:
        text = text[match.end() :].lstrip(" ,.!…-–—:")
    return text


def _as_sentence(text: str) -> str:
    text = text.strip(" ,;-–—")
    text = text[:1].upper() + text[1:]
    return text if text[-1:] in '.!?…。！？:»”")' or _JOINED_SCRIPT.search(text[-1:]) else f"{text}."


# -- words ------------------------------------------------------------------------------------------------------------


@cache
def _listed() -> dict[str, Any]:
    """Return what `speech.toml` lists, by name, in whatever section."""
    return {
        name: value
        for section in read_file("speech").values()
        if isinstance(section, dict)
        for name, value in section.items()
    }


@cache
def _words(name: str) -> frozenset[str]:
    return frozenset(_listed()[name].lower().split())


def _joined_up(name: str) -> str:
    """Return the patterns of one name as alternatives."""
    listed = _listed()[name]
    return listed if isinstance(listed, str) else "|".join(listed)


@cache
def _patterns(name: str) -> re.Pattern[str]:
    """Return the patterns of one name as one."""
    exact = name in read_file("speech")["exact"]
    return compile_pattern(f"(?:{_joined_up(name)})", exact=exact, parts=_listed())


@cache
def _wishes() -> re.Pattern[str]:
    """Return how languages other than English wish for something that an agent makes."""
    wishes = _listed()["wishes"].values()
    return compile_pattern("|".join(rf"(?:{verb})\s*(?:{things})\b|(?:{know})" for verb, things, know in wishes))


@cache
def _begins() -> tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]:
    """Return the tags of each language, or of some that share commands, with what its commands begin with."""
    return tuple(
        (tuple(tags.split()), compile_pattern("|".join(patterns), parts=_listed()))
        for tags, patterns in _listed()["begins"].items()
    )


@cache
def _subject(tag: str) -> re.Pattern[str]:
    return compile_pattern(rf"\s+{_listed()['subject'].get(tag, '(?!)')}\b")


@cache
def _joined() -> re.Pattern[str]:
    return compile_pattern(f"(?:{_joined_up('joined')})+", exact=True)
