"""Finds secrets, and on request personal data, in texts.

The rules go by form: prefixes of API keys, the check digits of cards and accounts, and values that follow "password is" or are
assigned to such a name; the words for a password in other languages are in `passwords.toml`. They miss what has no form, such as
a secret that is told as a story, and they err where something has the form by chance; `python -m benchmarks.agents.scan` measures
how often. Only the standard library is imported here, as the hooks of coding assistants start a new process for each event.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from keepworth.memory.patterns import Patterns, read_file, split_alternatives

SECRETS = ("api_key", "private_key", "password", "card_number")
PERSONAL = ("email", "phone", "iban")
HIDDEN = "[secret]"

_WORDS = Patterns("sensitive")
_STEMS = ("pass", "pwd", "secret", "token", "key", "credential")
ROOTS = re.compile(
    "pass|kennwort|losung|mdp|contraseña|clave|parola|frase|senha|palavra|wacht|toegangs|hasł|парол|кодов|şifre|heslo|lösenord|"
    "adgangskode|kodeord|salasana|パス|合言葉|密|口令|通行码|비밀번호|비번|패스|암호|pin|пин|пін|geheim|secret|confidentiel|segreto|"
    "código|número|暗証|识别码|핀"
)
"""Beginnings of the words of `passwords.toml`: a text without one is not searched for them."""
_CARD_FORMS = (
    ("34", (15,)),
    ("37", (15,)),
    ("35", (16,)),
    ("3", (14,)),
    ("4", (13, 16, 19)),
    ("5", (16,)),
    ("6", (16, 19)),
)
"""The beginnings of the card numbers of the large networks, each with the lengths that such numbers have."""


@dataclass(frozen=True, slots=True)
class SensitiveSpan:
    """Something found in a text, from character `start` up to `end`; `kind` is in `SECRETS` or `PERSONAL`, or a hook's own."""

    kind: str
    start: int
    end: int


ScanHook = Callable[[str], Iterable[SensitiveSpan]]


def sensitive(text: str, kinds: Iterable[str] = (*SECRETS, *PERSONAL)) -> list[SensitiveSpan]:
    """Return what the rules find in a text, in the order in which it stands there."""
    spans: list[SensitiveSpan] = []
    for kind in kinds:
        spans += [SensitiveSpan(kind, *span) for span in RULES[kind](text)]
    return apart(spans)


def apart(spans: Iterable[SensitiveSpan]) -> list[SensitiveSpan]:
    """Return spans that do not overlap: of two that do, the one that comes first in `spans` is taken."""
    disjoint: list[SensitiveSpan] = []
    for span in spans:
        index = bisect_left(disjoint, span.start, key=lambda span: span.end - 1)
        if index == len(disjoint) or span.end <= disjoint[index].start:
            disjoint.insert(index, span)
    return disjoint


Spans = Iterable[tuple[int, int]]


def _api_keys(text: str) -> Spans:
    yield from (match.span() for match in _WORDS.prefixed.finditer(text))
    yield from (match.span("value") for match in _WORDS.key_called.finditer(text) if _random(match["value"]))
    if "://" in text:
        yield from (match.span("value") for match in _WORDS.in_url.finditer(text))
    yield from _told(text, passwords=False)


def _random(value: str) -> bool:
    """Whether a value looks random and not like a word: it has letters and at least two digits."""
    return sum(sign.isdigit() for sign in value) >= 2 and any(sign.isalpha() for sign in value)


def _private_keys(text: str) -> Spans:
    return (match.span() for match in _WORDS.private_key.finditer(text)) if "PRIVATE KEY-----" in text else ()


def _told(text: str, passwords: bool) -> Spans:
    """Find values by the names before them, as in "password is VALUE" or "TOKEN=VALUE": passwords, or else keys and tokens."""
    lowered = text.lower()
    if not any(stem in lowered for stem in _STEMS):
        return
    for match in _WORDS.told.finditer(text):
        value = match["value"].rstrip(".,;:!?)")
        if _of_passwords(match) is passwords and len(value) >= 4 and _is_told(value, match, text):
            yield match.start("value"), _end(match, value, text)
    for match in _WORDS.assigned.finditer(text):
        value = match["value"].rstrip(".:!?)")
        if _of_passwords(match) is passwords and len(value) >= 4 and _is_assigned(value, match):
            yield match.start("value"), _end(match, value, text)


def _passwords(text: str) -> Spans:
    """Find passwords, passphrases and PINs by the words before them in English, and in the languages of `passwords.toml`."""
    spans = list(_told(text, passwords=True))
    yield from spans
    if ROOTS.search(text.lower()) is None:
        return
    for match in _told_abroad().finditer(text):
        value = _VALUE_END.sub("", match["value"])
        if _is_told_abroad(value, match, text):
            yield match.start("value"), _end(match, value, text)


_VALUE_END = re.compile(r"[.,;:!?)]+$")
_WORD_OF_SIGNS = re.compile(r"(?:[^\W\d_]+[-/.])+[^\W\d_]*", re.IGNORECASE)
"""Words with hyphens or strokes between them, and abbreviations such as "p.ej."."""
_COUNTED = re.compile(r"\d{1,4}(?:[-./:]\d{1,4})+|\d{1,3}[-–]?[^\W\d_]+[.]?|[^\W_]+@[\w.-]+")
"""A date or a time, a number with a unit, such as "8-stellig", or an address."""
_CLOSED = re.compile(r"[\"'`»”“」』]?(?:[.,;!?)]|\s*[。、，；！？）」]|\s*(?:$|\n))")
"""The end of a sentence or of its part."""
_CLOSED_JOINED = re.compile(
    r"[\"'`」』]?\s*(?:[.,;!?)。、，；！？）」』]|$|\n|です|だ|でした|になり|に変|に設定|に(?:し|なっ)|と(?:いい|なり|なって)|[了吗哦啊呢的]"
    r"|입니다|이에요|예요|이야|야|임|으로|로|이다)"
)
"""What follows a value in Japanese, Chinese and Korean."""


def _is_told_abroad(value: str, match: re.Match[str], text: str) -> bool:
    """Whether a value behind a word for a password is one: it has digits or signs, or stands in quotation marks, or is a word
    that ends the sentence behind a colon and says nothing of a password."""
    behind = text[match.start("value") + len(value) : match.start("value") + len(value) + 12]
    closed = (_CLOSED_JOINED if match["joined"] else _CLOSED).match(behind) is not None
    if (match["divided"] or "").lower() in split_alternatives(_listed("called")["any"]) and (
        match["mark"] or match["link"].lower() in ("is", "was")
    ):
        return False
    if match["numbered"]:
        closed = closed or _CLOSED_JOINED.match(behind) is not None
        linked = match["mark"] or match["link"]
        return 4 <= len(value) <= 8 and value.isascii() and bool(closed or (linked and behind[:1].isspace()))
    if len(value) < 4 or sum(map(str.isalnum, value)) < 3 or _WORDS.stands_for_one.search(value):
        return False
    if _COUNTED.fullmatch(value) or _WORD_OF_SIGNS.fullmatch(value):
        return False
    if match["joined"] and not closed:
        return False
    if any(sign.isdigit() for sign in value) or any(not sign.isalnum() and sign not in "-/" for sign in value):
        return closed or any(sign.isalpha() for sign in value)
    if value.isupper() or not value.isascii() or _said_of_it().fullmatch(value) or _WORDS.said_of_it.fullmatch(value):
        return False
    if match["quote"] or (value[1:] != value[1:].lower() and "-" not in value and "/" not in value):
        return True
    colon = match["joined"] or match["mark"]
    return bool(colon) and closed and value.isalpha() and len(value) >= 6 and _WORDS.shaped.search(value) is None


@cache
def _told_abroad() -> re.Pattern[str]:
    """Return what tells a password in any language: a word for it, whose it is, a verb or a mark, and the value. Where words are
    not divided, and in languages that leave the verb out, the value may stand right behind the word."""
    joined, divided = (_alternatives("called", inside) for inside in (True, False))
    numbered = "|".join(_alternatives("numbered", inside) for inside in (True, False))
    link, of = _alternatives("link", False), _alternatives("of", False)
    bare = rf"(?<!\w)(?:{_listed('called')['tr']}|{_listed('called')['ru']})"
    return re.compile(
        rf"(?:(?P<joined>{joined})|(?P<numbered>{numbered})|(?P<bare>{bare.replace(' / ', '|')})|(?P<divided>{divided}))[\"']?"
        rf"(?:\s?(?:は|が|为|為|是|就是|는|은|이|가)\s{{0,3}}|"
        rf"(?:(?<![\u3000-\uffff])(?:\s{{1,3}}(?:{of})\s{{1,3}}(?:[\w.@'’-]{{1,40}}\s{{1,3}}){{0,3}}?[\w.@'’-]{{1,40}})|\s(?:wi-?fi|wlan))?"
        rf"(?:(?P<mark>\s{{0,3}}[:=：]\s{{0,3}}|\s{{1,3}}[—–-]\s{{1,3}})|\s{{1,3}}(?P<link>{link}):?\s{{1,3}})"
        rf"|(?(bare)\s{{1,3}}|(?(numbered)\s{{1,3}}|(?!))))"
        rf"(?P<quote>[\"'`«»“„「『]?)\s?(?P<value>(?(numbered)\d|(?(joined)[!#-&(-_a-~]|[^\s\"'`»”“」』、。])){{4,128}})",
        re.IGNORECASE,
    )


def _listed(section: str) -> dict[str, str]:
    listed: dict[str, str] = read_file("passwords")[section]
    return listed


def _alternatives(section: str, joined: bool) -> str:
    """Return the words of one section as a pattern: those of scripts that do not divide words, or the others."""
    words = [
        word
        for language, text in _listed(section).items()
        if (language in ("ja", "zh", "ko")) is joined
        for word in split_alternatives(text)
    ]
    listed = "|".join(dict.fromkeys(words))
    return f"(?:{listed})" if joined else rf"(?:{listed})(?![^\W_])"


@cache
def _said_of_it() -> re.Pattern[str]:
    return re.compile(_alternatives("said_of_it", False), re.IGNORECASE)


def _end(match: re.Match[str], value: str, text: str) -> int:
    """Return where a value ends. In quotation marks it may have several words."""
    start = match.start("value")
    if match["quote"]:
        closed = text.find(match["quote"], start, start + 128)
        if closed > start and "\n" not in text[start:closed]:
            return closed
    return start + len(value)


def _of_passwords(match: re.Match[str]) -> bool:
    return "pass" in match["name"].lower() or "pwd" in match["name"].lower()


def _is_told(value: str, match: re.Match[str], text: str) -> bool:
    """Whether a sentence tells a secret, which "password is required" does not. A value that looks like an ordinary word counts
    only if it ends the sentence and is no word about secrets, such as "required"."""
    name, before = match["name"].lower(), match["of"] or ""
    if _WORDS.stands_for_one.search(value):
        return False
    if not _of_passwords(match) and name.rstrip("s") in ("token", "secret", "credential"):
        mine = (match["own"] or "").lower() not in ("", "the")
        if not (mine or _WORDS.qualified.search(before) or (_odd(value) and len(value) >= 12)):
            return False
        if name.startswith("secret") and not _WORDS.qualified.search(before) and not _odd(value):
            return False
    if match["quote"] and match["own"] and _of_passwords(match):
        return True
    if _odd(value) or (value[1:] != value[1:].lower() and not value.isupper()):
        return _of_passwords(match) or len(value) >= 6
    ends = text[match.start("value") + len(value) : match.end("value") + 2].lstrip(".!?,;:)\"'`")
    plain = value.lower()
    if match["quote"]:
        return _WORDS.said_of_it.fullmatch(plain) is None
    if ends.strip() and not ends.startswith(("\n", "\r")) and text[match.start("value") + len(value)] not in ".!?\n":
        return False
    if (
        not value.isalpha()
        or not value.isascii()
        or len(value) < 6
        or _WORDS.said_of_it.fullmatch(plain)
        or _WORDS.shaped.search(plain)
    ):
        return False
    named = match["own"] or before.strip() or match["whose"] or match["link"][-1] in "=:"
    return bool(named) and not plain.startswith(("un", "not"))


def _is_assigned(value: str, match: re.Match[str]) -> bool:
    """Whether a name is given a value as in programs: without spaces, quoted, or under a name like those in programs. After a
    colon in a sentence, more often words follow."""
    if _WORDS.stands_for_one.search(value) or match["after"] in ("(", "["):
        return False
    name = match["name"].strip("\"'")
    named = "_" in name or "-" in name or (name.isupper() and len(name) > 2) or match["name"][:1] in "\"'"
    link = match["link"].strip()
    if match["quote"]:
        return named or link != ":" or _odd(value)
    if link == "=" and not match["gap"] and not match["link"][:1].isspace():
        return len(value) >= 5 or _odd(value)
    return (named or link != ":") and (_odd(value) or value[1:] != value[1:].lower()) and len(value) >= 5


def _odd(value: str) -> bool:
    """Whether a value has digits, or signs other than hyphens."""
    return any(sign.isdigit() for sign in value) or any(not sign.isalnum() for sign in value.replace("-", ""))


def _cards(text: str) -> Spans:
    for match in _WORDS.card.finditer(text):
        digits = [int(sign) for sign in match[0] if sign.isdigit()]
        begins = f"{digits[0]}{digits[1]}"
        lengths = next(lengths for begin, lengths in _CARD_FORMS if begins.startswith(begin))
        if len(digits) in lengths and len(set(digits)) > 1 and _luhn(digits):
            yield match.span()


def _luhn(digits: list[int]) -> bool:
    """Whether the check digit of a card number is right (Luhn's algorithm: ISO/IEC 7812-1, annex B)."""
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def _emails(text: str) -> Spans:
    return (match.span() for match in _WORDS.email.finditer(text)) if "@" in text else ()


def _phones(text: str) -> Spans:
    """Find international phone numbers, which begin with a plus sign, and those of North America; no others have a fixed form."""
    for match in _WORDS.phone.finditer(text):
        if 9 <= sum(sign.isdigit() for sign in match[0]) <= 15:
            yield match.span()


def _ibans(text: str) -> Spans:
    """Find IBANs (ISO 13616): with the first four characters moved to the end, and letters as numbers, they are 1 modulo 97."""
    for match in _WORDS.iban.finditer(text):
        plain = match[0].replace(" ", "")
        if 15 <= len(plain) <= 34 and int("".join(str(int(sign, 36)) for sign in plain[4:] + plain[:4])) % 97 == 1:
            yield match.span()


RULES: Mapping[str, Callable[[str], Spans]] = {
    "api_key": _api_keys,
    "private_key": _private_keys,
    "password": _passwords,
    "card_number": _cards,
    "email": _emails,
    "phone": _phones,
    "iban": _ibans,
}


def without_secrets(text: str) -> str:
    """Return `text` with each secret replaced by `[secret]`. A second call changes nothing more.

    >>> without_secrets("curl -H 'Authorization: Bearer abcdef123456abcdef' https://ana:hunter2@example.org")
    "curl -H 'Authorization: Bearer [secret]' https://ana:[secret]@example.org"
    """
    for span in reversed(sensitive(text, SECRETS)):
        text = f"{text[: span.start]}{HIDDEN}{text[span.end :]}"
    return text
