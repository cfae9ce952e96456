"""Secrets, and on request what tells who somebody is, found in texts.

The rules go by form: prefixes that makers of keys gave them, the check digits of cards and accounts, what stands after
"password is" or is assigned to a name that says so. They miss what has no form, such as a secret that is told as a story, and
they err where something has the form by chance: how often is measured by `python -m benchmarks.agents.scan`. Nothing but the
standard library is imported here: hooks of hosts are started anew for each event.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

SECRETS = ("api_key", "private_key", "password", "card_number")
PERSONAL = ("email", "phone", "iban")
HIDDEN = "[secret]"

_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|gh[opusr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])|AIza[0-9A-Za-z_-]{35}|xox[abeoprs]-[0-9A-Za-z-]{10,}|glpat-[0-9A-Za-z_-]{20,}"
    r"|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|kw_[A-Za-z0-9_-]{43}|eyJ[A-Za-z0-9_-]{10,400}\.[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,})"
)
_NAMED = re.compile(
    r"\b(?:api[ _-]?key|access[ _-]?(?:key|token)|auth[ _-]?token|client[ _-]?secret|secret[ _-]?key|bearer)\b"
    r"(?:\s+is\b|\s*[:=])?\s*[\"'`]?(?P<value>[A-Za-z0-9_\-./+=]{16,})",
    re.IGNORECASE,
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,64}:(?P<value>[^\s/:@]{3,128})@", re.IGNORECASE)
_PRIVATE = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)"
)
_STEMS = ("pass", "pwd", "secret", "token", "key", "credential")
_CALLED = (
    r"(?:pass(?:word|phrase|code|wd)|pwd|secret(?:[ _-]?(?:access[ _-]?)?key)?|credential|token"
    r"|(?:api|access|private|account|encryption|signing|license)[ _-]?key)s?"
)
"""What people and programs call a secret."""
_TOLD = re.compile(
    rf"\b(?:(?P<own>my|our|his|her|their|your|the|[\w.-]{{1,30}}['\u2019]s)\s{{1,3}})?(?P<of>(?:[\w-]{{1,20}}\s{{1,3}}){{0,2}}?)"
    rf"(?P<name>{_CALLED})\b(?P<whose>\s{{1,3}}(?:for|of|to)\s{{1,3}}(?:[\w.@-]{{1,60}}\s{{1,3}}){{1,4}}?)?"
    r"\s{0,3}(?P<link>\b(?:is|was)\b:?|=|:)\s{0,3}(?P<quote>[\"'`]?)(?P<value>[^\s\"'`]{4,128})",
    re.IGNORECASE,
)
"""In a sentence: "my password is swordfish7", "aws secret = ..."."""
_ASSIGNED = re.compile(
    rf"(?P<name>(?<![\w.$-])(?:[\"'](?=[\w.-]*[\"']))?[\w.-]{{0,40}}?(?:{_CALLED}|(?<=_)pass)[\"']?)"
    r"(?P<link>\s{0,3}(?::=|=>|=(?!=)|:))(?P<gap>\s{0,3})(?P<quote>[\"'`]?)(?P<value>[^\s\"'`,;&]{4,128})(?P<after>[^\s]?)",
    re.IGNORECASE,
)
"""In commands and what they print, where the name of a variable or a field says that its value is a secret."""
_QUALIFIED = re.compile(
    r"(?i)\b(?:api|app|aws|azure|auth|oauth|access|bearer|bot|client|deploy|gcp|github|gitlab|jwt|npm|openai|session|slack|stripe|"
    r"webhook|wifi|wi-fi|ssh|signing|master|root|admin|login|database|db|vault)\b"
)
"""Words before "token" or "secret" that say that it is one of a program's: "the secret of good bread" is none."""
_SAID_OF_IT = re.compile(
    r"about|above|absent|accepted|active|allowed|already|also|always|another|available|awful|back|being"
    r"|below|best|better|blank|both|broken|case-sensitive|confidential|correct|critical|default|different"
    r"|done|easy|empty|enough|essential|exactly|fake|false|fine|from|gone|good|great|hard|here|hidden"
    r"|important|impossible|incorrect|inside|invalid|just|kept|known|last|late|later|left|literally|local"
    r"|long|longer|lost|made|mandatory|maybe|missing|much|near|necessary|never|nice|none|null|okay|once"
    r"|only|open|optional|outdated|outside|over|perfect|permanent|personal|plain|possible|present|private"
    r"|probably|public|quite|rather|ready|really|recent|required|right|safe|same|secret|secure|set"
    r"|shared|short|shorter|similar|simple|simply|somewhere|still|strong|stronger|such|temporary|terrible"
    r"|that|their|then|there|these|they|this|those|today|tomorrow|tonight|trivial|true|undefined|under"
    r"|unique|unknown|unset|until|up|useless|usually|valid|very|weak|well|what|when|where|which|whose"
    r"|with|within|without|working|wrong|yesterday|yours"
)
"""Words that say something of a password rather than tell it."""
_SHAPED = re.compile(r"(?:ed|ing|able|ible|ful|less|ous|ly|ive|ally|ted|ment|tion|ness|ity)$")
_STANDS_FOR_ONE = re.compile(
    r"(?i)your|example|placeholder|changeme|change_me|redacted|removed|dummy|sample|insert|enter|xxx|\*\*|\.\.\.|\u2026|^[<\[{($%]"
    r"|^(?:none|null|nil|true|false|str|string|int|bool|bytes|optional|required|undefined|self|this|os|process|env|input|getenv)\b"
    r"|^(?:https?:)?//|[(\[{]"
)
"""What is written where one would stand, in instructions and in code."""
_CARD = re.compile(
    r"(?<![\d.,-])(?:[3-6]\d{12,18}|[3-6]\d{3}(?P<gap>[ -])\d{4}(?P=gap)\d{4}(?P=gap)\d{4}(?:(?P=gap)\d{3})?"
    r"|3\d{3}(?P<wide>[ -])\d{6}(?P=wide)\d{4,5})(?![\d]|[.,-]\d)"
)
_CARD_FORMS = (
    ("34", (15,)),
    ("37", (15,)),
    ("35", (16,)),
    ("3", (14,)),
    ("4", (13, 16, 19)),
    ("5", (16,)),
    ("6", (16, 19)),
)
"""Lengths of numbers by their beginnings, as the large networks give them."""
_EMAIL = re.compile(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,24}\b")
_PHONE = re.compile(
    r"(?<![\w.+-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,5}\)[ .-]?)?\d{2,8}(?:[ .-]?\d{2,8}){1,4}"
    r"|(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4})(?![\w-]|\.\d)"
)
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")


@dataclass(frozen=True, slots=True)
class SensitiveSpan:
    """kind: of `SECRETS`, `PERSONAL` or a hook's own; start, end: in characters of the text."""

    kind: str
    start: int
    end: int


ScanHook = Callable[[str], Iterable[SensitiveSpan]]


def sensitive(text: str, kinds: Iterable[str] = (*SECRETS, *PERSONAL)) -> list[SensitiveSpan]:
    """What the rules find, in order of place."""
    found: list[SensitiveSpan] = []
    for kind in kinds:
        found += [SensitiveSpan(kind, *span) for span in RULES[kind](text)]
    return apart(found)


def apart(spans: Iterable[SensitiveSpan]) -> list[SensitiveSpan]:
    """Of two that overlap the one that was found by the earlier rule."""
    kept: list[SensitiveSpan] = []
    for span in spans:
        place = bisect_left(kept, span.start, key=lambda span: span.end - 1)
        if place == len(kept) or span.end <= kept[place].start:
            kept.insert(place, span)
    return kept


Spans = Iterable[tuple[int, int]]


def _api_keys(text: str) -> Spans:
    yield from (match.span() for match in _PREFIXED.finditer(text))
    yield from (match.span("value") for match in _NAMED.finditer(text) if _random(match["value"]))
    if "://" in text:
        yield from (match.span("value") for match in _URL.finditer(text))
    yield from _told(text, passwords=False)


def _random(value: str) -> bool:
    """Whether it looks drawn rather than spelled."""
    return sum(sign.isdigit() for sign in value) >= 2 and any(sign.isalpha() for sign in value)


def _private_keys(text: str) -> Spans:
    return (match.span() for match in _PRIVATE.finditer(text)) if "PRIVATE KEY-----" in text else ()


def _passwords(text: str) -> Spans:
    return _told(text, passwords=True)


def _told(text: str, passwords: bool) -> Spans:
    """What is told by what it is called: passwords, or keys and tokens."""
    lowered = text.lower()
    if not any(stem in lowered for stem in _STEMS):
        return
    for match in _TOLD.finditer(text):
        value = match["value"].rstrip(".,;:!?)")
        if _of_passwords(match) is passwords and len(value) >= 4 and _is_told(value, match, text):
            yield match.start("value"), _end(match, value, text)
    for match in _ASSIGNED.finditer(text):
        value = match["value"].rstrip(".:!?)")
        if _of_passwords(match) is passwords and len(value) >= 4 and _is_assigned(value, match):
            yield match.start("value"), _end(match, value, text)


def _end(match: re.Match[str], value: str, text: str) -> int:
    """Where a value ends: in quotation marks it may have several words."""
    start = match.start("value")
    if match["quote"]:
        closed = text.find(match["quote"], start, start + 128)
        if closed > start and "\n" not in text[start:closed]:
            return closed
    return start + len(value)


def _of_passwords(match: re.Match[str]) -> bool:
    return "pass" in match["name"].lower() or "pwd" in match["name"].lower()


def _is_told(value: str, match: re.Match[str], text: str) -> bool:
    """Whether a sentence tells a secret. "password is required" tells none; of what looks like an ordinary word, that which ends
    the sentence and says nothing of the secret itself."""
    name, before = match["name"].lower(), match["of"] or ""
    if _STANDS_FOR_ONE.search(value):
        return False
    if not _of_passwords(match) and name.rstrip("s") in ("token", "secret", "credential"):
        mine = (match["own"] or "").lower() not in ("", "the")
        if not (mine or _QUALIFIED.search(before) or (_odd(value) and len(value) >= 12)):
            return False
        if name.startswith("secret") and not _QUALIFIED.search(before) and not _odd(value):
            return False
    if match["quote"] and match["own"] and _of_passwords(match):
        return True
    if _odd(value) or (value[1:] != value[1:].lower() and not value.isupper()):
        return _of_passwords(match) or len(value) >= 6
    ends = text[match.start("value") + len(value) : match.end("value") + 2].lstrip(".!?,;:)\"'`")
    plain = value.lower()
    if match["quote"]:
        return _SAID_OF_IT.fullmatch(plain) is None
    if ends.strip() and not ends.startswith(("\n", "\r")) and text[match.start("value") + len(value)] not in ".!?\n":
        return False
    if (
        not value.isalpha()
        or not value.isascii()
        or len(value) < 6
        or _SAID_OF_IT.fullmatch(plain)
        or _SHAPED.search(plain)
    ):
        return False
    named = match["own"] or before.strip() or match["whose"] or match["link"][-1] in "=:"
    return bool(named) and not plain.startswith(("un", "not"))


def _is_assigned(value: str, match: re.Match[str]) -> bool:
    """Whether a name is given a value as programs do: tight, quoted, or a field of its own line. In a sentence with a colon what
    follows is more often words."""
    if _STANDS_FOR_ONE.search(value) or match["after"] in ("(", "["):
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
    """Whether there are digits or signs among its letters."""
    return any(sign.isdigit() for sign in value) or any(not sign.isalnum() for sign in value.replace("-", ""))


def _cards(text: str) -> Spans:
    for match in _CARD.finditer(text):
        digits = [int(sign) for sign in match[0] if sign.isdigit()]
        begins = f"{digits[0]}{digits[1]}"
        lengths = next(lengths for begin, lengths in _CARD_FORMS if begins.startswith(begin))
        if len(digits) in lengths and len(set(digits)) > 1 and _luhn(digits):
            yield match.span()


def _luhn(digits: list[int]) -> bool:
    """ISO/IEC 7812-1, annex B."""
    doubled = [2 * digit - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def _emails(text: str) -> Spans:
    return (match.span() for match in _EMAIL.finditer(text)) if "@" in text else ()


def _phones(text: str) -> Spans:
    """International ones, which begin with a plus sign, and those written as in North America: no others have a form."""
    for match in _PHONE.finditer(text):
        if 9 <= sum(sign.isdigit() for sign in match[0]) <= 15:
            yield match.span()


def _ibans(text: str) -> Spans:
    """ISO 13616: moved to the end and with letters as numbers, the first four make a remainder of 1 modulo 97."""
    for match in _IBAN.finditer(text):
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
    """`text` with `[secret]` in the place of what must not be sent on. The same again for what it gave.

    >>> without_secrets("curl -H 'Authorization: Bearer abcdef123456abcdef' https://ana:hunter2@example.org")
    "curl -H 'Authorization: Bearer [secret]' https://ana:[secret]@example.org"
    """
    for span in reversed(sensitive(text, SECRETS)):
        text = f"{text[: span.start]}{HIDDEN}{text[span.end :]}"
    return text
