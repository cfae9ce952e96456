"""Tells speech from pasted material, line by line, by the shape of the lines: logs, code, traces, tables, data, diffs, shell
sessions and the like have few plain words in a row, and many signs. Lines of common tools that read like sentences ("nothing to
commit, working tree clean") are known by how they begin: those are in `pasted.toml`.

Each line gets a score: positive if its words stand as in a sentence, negative if it has signs that sentences do not have. A
message is then divided where changing sides costs least (Viterbi's algorithm), since lines of both kinds come in runs: a line of
a log that reads like a sentence belongs to the lines around it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from keepworth.memory.patterns import compile_pattern, read_file

LETTER = (
    r"[^\s!-/:-@\[-`{-~\u00a1-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u055e\u0589\u060c\u061b\u061f\u06d4\u0964\u0965"
    r"\u2010-\u205e\u3000-\u303f\uff00-\uff0f\uff1a-\uff20]"
)
"""What words are made of in any script, with digits, and marks that stand above or below a letter."""
BULLET = re.compile(r"^\s*(?:[-*+•‣◦·–—]|\(?(?:\d{1,3}|[A-Za-z])[.)])(?:\s+\[[ xX]\])?\s+(?=\S)")
"""How an item of a list begins."""
_LETTERS = re.compile(rf"(?:(?!\d){LETTER})+")
_WORD = re.compile(rf"(?:(?!\d){LETTER})+(?:[’'ʼ‑-](?:(?!\d){LETTER})+)*")
_AROUND = "\"'“”„«»‹›‘’()（）「」『』,，、;:.!?…。！？¿¡*_؟،؛۔।-–—"
"""Signs that may stand at the beginning or the end of a word of a sentence."""
_CAMEL = re.compile(r"[a-z][A-Z][a-z]|[A-Z][a-z]+[A-Z][a-z]+[A-Z]?")
_NO_SPACES = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
"""Letters of scripts that put no spaces between words, or few."""
_GAP = re.compile(r"(?<=[^\s.!?])(?:\t| {2,})\s*(\S+)")
"""A word behind a wide gap, as in columns."""
_SENTENCE_END = re.compile(r"[.!?…。！？؟۔।][\"'”’»)\]]*\s*$")
_SHORT = re.compile(r"\s*[a-z]\S*(?:\s+\S+){0,2}\s*(?<![.!?])")
"""Up to three words that begin in lower case and end no sentence."""


SURE = 3.5
"""From this weight of its beginning on, the words of a line are not looked at."""
TOOL, LIKELY_TOOL = 4.0, 2.5
"""What counts against speech where a line begins as those of a tool do, and where it may."""
LONGEST = 400
"""How many characters of a line are looked at: half from its beginning, and half from its end."""
_LABEL = r"[^\W\d_]{2,}(?:['’.-][^\W\d_]*)*"
_VALUE = r"[^\s=\[\]{}<>|]*\d[^\s=\[\]{}<>|]*"
_NOTE = re.compile(
    rf"(?P<label>(?:{_LABEL}\s+){{0,3}}{_LABEL})\s*[#№]?\s*(?:[:：]\s*|[,/]?\s+)"
    rf"(?:{_VALUE}(?:[ ,/]+(?:{_VALUE}|[A-Z]{{1,3}})){{0,8}}|"
    r"(?<=[:： ])(?P<words>[^\s=\[\]{}<>|]+(?: [^\s=\[\]{}<>|]+){0,2}))|"
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:\+|00?)\d[\d ()/.-]{6,}|[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,8}(?: ?[A-Z0-9]{1,4})?",
)
"""What people write down with no verb: a few words and a number or a code, an address of mail, a number of a telephone or of an
account."""
NOTE = 1.0
"""What a line counts at least, if each of the message is such a note of a person."""
MOST_NOTES = 6
STAY, STAY_OVER_GAP = 1.6, 0.4
"""What it costs to change between speech and paste from one line to the next, and across an empty line."""
ALONE, FIRST_OR_LAST = 1.4, 0.4
"""What speaks for speech if the message has no other line; and for the first and the last line."""
_FENCE = re.compile(r"\s*(?P<mark>`{3,}|~{3,})")


def blank_pasted(text: str) -> list[str]:
    """Return the lines of `text`, in which each pasted line is empty."""
    lines, out, block = text.splitlines(), list[str](), list[str]()
    closes = _fence_ends(lines)
    index = 0
    while index < len(lines):
        if end := closes.get(index, 0):
            out += [*_empty_pasted(block), *[""] * (end + 1 - index)]
            block, index = [], end + 1
        else:
            block.append("" if _FENCE.match(lines[index]) else lines[index])
            index += 1
    return [*out, *_empty_pasted(block)]


def _fence_ends(lines: Sequence[str]) -> dict[int, int]:
    """Return the index of the line that closes each fence, by that of the line that opens it."""
    ends: dict[int, int] = {}
    opened: tuple[int, str] | None = None
    for index, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if opened is None:
            opened = index, fence["mark"][:3]
        elif fence["mark"].startswith(opened[1]) and not line.strip(" \t`~"):
            ends[opened[0]], opened = index, None
    return ends


@cache
def _printed() -> frozenset[str]:
    return frozenset(read_file("pasted")["notes"]["printed"].split())


@cache
def _somebody() -> re.Pattern[str]:
    return compile_pattern(read_file("pasted")["speech"]["somebody"])


@cache
def _weighed(section: str) -> tuple[tuple[re.Pattern[str], float], ...]:
    """Return the patterns of a section of `pasted.toml`, each with what it counts against speech."""
    return tuple((re.compile(pattern), weight) for weight, pattern in read_file("pasted")[section].values())


@cache
def _tools(name: str) -> re.Pattern[str]:
    """Return the patterns of `pasted.toml` under one name as one, behind an indent."""
    listed = read_file("pasted")[name]
    return re.compile(rf"\s*(?:{'|'.join(pattern for patterns in listed.values() for pattern in patterns)})")


def score(line: str) -> float:
    """Return how much a line looks like speech: positive for speech, negative for pasted material."""
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} {line[-LONGEST // 2 :]}"
    text = BULLET.sub("", line, count=1)
    tokens = text.split()
    if not tokens:
        return 0.0
    if _tools("lines").match(line):
        return -TOOL
    begins = sum(weight for pattern, weight in _weighed("beginnings") if pattern.match(line))
    begins += LIKELY_TOOL if _tools("likely").match(line) else 0.0
    if begins >= SURE:
        return -begins
    plain, odd = _words_in(text, tokens)
    wide = len(_NO_SPACES.findall(text))
    share = (sum(map(len, _LETTERS.findall(text))) + text.count(" ")) / len(text)
    total = min(plain, 6) * 0.35 + min(wide, 12) * 0.25 - 2.2 * odd / len(tokens) - 0.25 * min(odd, 4) - begins
    total += 3.0 * min(0.0, share - 0.85)
    total += 0.8 if _somebody().search(text) else 0.0
    total += 0.6 if plain + wide >= 3 and _SENTENCE_END.search(text) else 0.0
    total -= sum(weight for pattern, weight in _weighed("signs") if pattern.search(line))
    return max(-4.0, min(4.0, total))


def _words_in(text: str, tokens: Sequence[str]) -> tuple[int, int]:
    """Return the most plain words in a row, and the number of words that no sentence has."""
    gaps = {match[1] for match in _GAP.finditer(text)} if "  " in text or "\t" in text else ()
    run = longest = odd = 0
    for token in tokens:
        run = 0 if token in gaps else run
        bare = token.strip(_AROUND)
        if bare == "" or _WORD.fullmatch(bare):
            joined = _CAMEL.search(bare) is not None
            run = 0 if joined else run + (bare != "")
            odd += joined
        elif not (bare.translate(_IN_NUMBERS).isdigit() or _NO_SPACES.search(bare)):
            run = 0
            odd += any(sign in bare for sign in "_\\/=<>{}[]|#$@^`~+*&") or _is_a_name_of_things(bare)
        longest = max(longest, run)
    return longest, odd


def _is_note(line: str, alone: bool) -> bool:
    """Return whether a line is a note of a person without a verb, such as "Gate code 4471"; of several, each must begin with a
    capital letter or have several words, since settings of programs look like the others."""
    match = _NOTE.fullmatch(BULLET.sub("", line, count=1).strip(" .!"))
    if match is None or _tools("lines").match(line):
        return False
    label, named = (match["label"] or "").split(), re.match(r"[^:：]*[:：]", line) is not None
    if match["words"] and not (alone and named):
        return False
    return (not label or label[-1].strip(".").lower() not in _printed()) and (
        alone or not label or len(label) > 1 or not label[0][0].islower()
    )


_IN_NUMBERS = dict.fromkeys(map(ord, ",.:%"))


def _is_a_name_of_things(word: str) -> bool:
    """Return whether a word has letters and digits, or a point between letters, as versions, files and hosts do."""
    mixed = len(word) > 4 and any(map(str.isdigit, word)) and any(map(str.isalpha, word))
    return mixed or re.search(r"\w\.\w", word) is not None


def _inside_output(lines: Sequence[str], scores: Sequence[float]) -> set[int]:
    """Return the indices of lines between two that are pasted for sure, with no empty line among them: what stands there
    is pasted, too, unless the speaker speaks of themselves."""
    between, since, behind = set[int](), list[int](), False
    for index, line in enumerate(lines):
        if not line.strip():
            since, behind = [], False
        elif scores[index] <= -TOOL:
            between.update(since)
            since, behind = [], True
        elif behind and not _somebody().search(line):
            since.append(index)
    return between


def _empty_pasted(lines: Sequence[str]) -> list[str]:
    """Return lines with the pasted ones emptied."""
    spoken = [line for line in lines if line.strip()]
    heads = [line.split(None, 1)[0] if line.strip() and not BULLET.match(line) else "" for line in lines]
    noted = 0 < len(spoken) <= MOST_NOTES and all(_is_note(line, len(spoken) == 1) for line in spoken)
    scores = [max(score(line), NOTE) if noted else score(line) for line in lines]
    inside_output = _inside_output(lines, scores)
    speech_best = paste_best = cost = 0.0
    inside = False  # behind a line that is pasted for sure, with no line since that is not indented
    ways: list[tuple[bool, bool]] = []
    """For each line, whether the best way to speech, and to paste, comes from paste."""
    for index, line in enumerate(lines):
        if not line.strip():
            ways.append((False, True))
            cost = STAY_OVER_GAP
            continue
        value = scores[index] - (TOOL if index in inside_output else 0.0)
        inside = value <= -SURE or (inside and line[0] in " \t")
        value = min(value, -LIKELY_TOOL) if inside else value
        value += ALONE if len(spoken) == 1 else FIRST_OR_LAST if line in (spoken[0], spoken[-1]) else 0.0
        value -= 0.5 if len(spoken) > 2 and _SHORT.fullmatch(line) else 0.0
        alike = heads[index] and heads[index] in (*heads[max(0, index - 1) : index], *heads[index + 1 : index + 2])
        value -= 0.7 if alike else 0.0
        from_paste, from_speech = paste_best - cost > speech_best, speech_best - cost <= paste_best
        speech_best, paste_best = (
            (paste_best - cost if from_paste else speech_best) + value,
            (paste_best if from_speech else speech_best - cost) - value,
        )
        ways.append((from_paste, from_speech))
        cost = STAY
    pasted, out = paste_best > speech_best, list[str]()
    for line, (to_speech, to_paste) in zip(reversed(lines), reversed(ways), strict=True):
        out.append("" if pasted else line)
        pasted = to_paste if pasted else to_speech
    return out[::-1]
