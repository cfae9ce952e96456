"""What people state in conversations, by rules on their words: which sentences hold a fact, whom and what it is about, which
day it speaks of, and which older statement it takes the place of. No model is asked.

claims("I moved to Oslo. What's on there?")  ->  one claim: text "I moved to Oslo.", about "user", attribute "home", value "Oslo"

The rules know some attributes by name (home, employer, age ...), take "my X is Y" for an attribute called X, and else go by the
verb. An older statement gives way where it says another value of an attribute that has one at a time, the opposite, or what the
newer one calls over or replaced. In doubt both stay: a fact too many costs a line, a fact lost is lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from keepworth.memory.sentences import COURTESY, FIRST_PERSON, OPENING, QUESTION_TAIL, sentences
from keepworth.memory.time_window import DAY, TimeWindow, window_of

USER = "user"
LONGEST_TEXT, LONGEST_CLAIM, MOST_CLAIMS = 20_000, 600, 64
"""Characters of a message that are read, and of a claim; claims of a message."""
FEWEST_WORDS = 3


@dataclass(frozen=True, slots=True)
class Claim:
    """text: as it is kept, with the days it speaks of. about: "user", "my sister", "ana". attribute: what it says something
    about, "" where that is not known; single: whether that has one value at a time. value: in the words of the speaker. denies:
    whether it says that this is not so; over: that it is not so any more. news: whether its words announce a change. instead:
    what it names as the old value. day: ISO 8601, where it tells of something that happened on one."""

    text: str
    about: str = USER
    attribute: str = ""
    value: str = ""
    single: bool = False
    denies: bool = False
    over: bool = False
    news: bool = False
    instead: str = ""
    day: str = ""


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


# -- which words hold a statement -------------------------------------------------------------------------------------

_NEWS = re.compile(
    r"\b(?:now|nowadays|these days|actually|currently|from now on|instead|lately|any ?more|no longer|"
    r"switch(?:ed)?|chang(?:ed|es?)"
    r"|relocated|transferred|upgraded|swapped|traded|exchanged|gave up|given up|dropped|ditched|"
    r"left|quit|joined|became"
    r"|new|turns out|as of|since then|again|correction|meant|moved|mistaken|updated?|replaced|"
    r"rather than|rescheduled)\b",
    re.IGNORECASE,
)
_CHAT = re.compile(
    r"^(?:i(?:'m| am) (?:just |really |so |also )*(?:curious|wondering|sure|sorry|glad|happy to|"
    r"afraid|not sure|interested in (?:knowing|"
    r"learning|hearing)|looking for (?:some |any |a few |more )*(?:tips|ideas|advice|recommendations?|"
    r"suggestions?|information|help))\b"
    r"|i (?:think|guess|believe|suppose|mean|bet) (?:that|this|it|you|so|we should)\b|i (?:don't|"
    r"do not) (?:know|understand|get it)\b"
    r"|i (?:get|got) it\b|i (?:have|had|'ve got|got) (?:a |another |one more |some )?questions?\b|"
    r"i (?:just )?want(?:ed)? (?:you )?to (?:know|ask|"
    r"check|see|say)\b|i want you\b|i need (?:you|to know|some|a few|advice|ideas|an? (?:list|"
    r"idea|answer|recipe))\b|i can't wait\b"
    r"|i was (?:just )?(?:thinking|hoping|wondering|asking)\b|we(?:'re| are) (?:good|done)\b|nice|"
    r"my (?:bad|pleasure|question is|apologies)\b"
    r"|(?:will|would) do\b|same (?:here|to you)\b|you(?:'re|'ve| are| have)\b"
    r"|(?:it|this|that) (?:ma[dk]es?|helps|helped|would|could|might|seems|feels)\b"
    # What answers the assistant, and leans on it.
    r"|i (?:like|love) (?:the|that|this|your|these|those|all)\b(?: \w+){0,2}? (?:idea|sound|suggestion|tip|"
    r"concept|approach|option|thought|advice|example)s?\b"
    r"|i think (?:all|some|any|an?|these|those|they)\b|i want (?:it|them|this|these|that|something|to make sure)\b"
    r"|i(?:'m| am) (?:excited|eager|looking forward) (?:to (?:try|trying|explor|learn|see|check|give|read|reading|get started|"
    r"start using|start trying)\w*|about (?:the|this|these|that|trying))\b"
    r"|i(?:'m| am) (?:confused|unsure|open to|ready to|going to (?:check|try|look|give|keep|make sure|consider))\b"
    r"|i(?:'m| am) looking (?:for (?:some|any|a few|more|something|ways?|information|new|good|advice|tips|ideas)|"
    r"to (?:learn|find|get))\b"
    r"|i(?:'ve| have) heard\b|i (?:never|didn't|did not) kn[eo]w (?:that|it|this|much|about)\b|i need (?:some )?help\b"
    r"|i(?:'d| would) (?:be (?:grateful|happy|glad)|like|love|appreciate)\b"
    r"|(?:that's |this is )?exactly what (?:i|we)\b|i (?:have|got|'ve got)(?: \w+){0,3} questions?\b)",
    re.IGNORECASE,
)
_ADVERBS = re.compile(
    r"^((?:i|we)(?:'\w+)?(?: (?:am|are|have|will|would))?) (?:(?:also|really|just|definitely|actually|particularly|still|"
    r"especially|mostly|probably|kind of|a bit|a little|so|pretty|very|totally|quite|currently|now) )+",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"^(?:i|we)(?:'ll| will) (?!(?:be|have|turn|become|not|never|move|graduate|retire|need|always|marry|leave|return|fly|"
    r"travel|visit|celebrate)\b)[a-z]+\b(?!.*\b(?:\w+day|tomorrow|tonight|next|week|weeks|weekend|month|year|january|february|march|april|may|"
    r"june|july|august|september|october|november|december)\b)",
    re.IGNORECASE,
)
"""What is settled on within the talk: "I'll go with the blue one"."""
_EXPERIENCE = (
    r"(?:got|bought|made|found|had|went|was|were|wore|took|saw|did|left|met|read|gave|set|spent|began|came|ran|won|lost|sold|"
    r"sent|kept|built|drove|flew|grew|fell|felt|ate|drank|chose|paid|wrote|taught|caught|brought|"
    r"(?!want|need|mention|ask|wonder|hop|lik|lov|expect|assum|reali[sz]|figur|guess|imagin|suggest)[a-z]+ed)"
)
_TOLD = re.compile(
    rf"\b(?:i|we) (?:(?:just|recently|finally|actually|already|also|only|first|originally) )*{_EXPERIENCE}\b"
    r"(?! (?:thinking|wondering|hoping|"
    r"asking|to ask|meaning|that you|you)\b)"
    rf"|\b(?:i|we)(?:'ve| have) (?:(?:just|recently|finally|actually|already|also|always|never) )*(?:been(?! (?:thinking|"
    rf"wondering|meaning|trying to find))|{_EXPERIENCE})\b"
    r"|\b(?:since|because|as|where|which|who|whom|that|and|but) (?:i|we) (?:\w+ly )?(?:already |currently )?(?:have|own|live|"
    r"work|use|teach|study|play|drive)\b|\b(?:i|we)(?:'m| am|'re| are) (?:hosting|planning|having|throwing|"
    r"training|getting married)\b|\bmy new (?!favou?rite)[a-z]",
    re.IGNORECASE,
)
"""What somebody tells beside what they ask for: "I'm glad that I got to the service today"."""
_ASKS = re.compile(
    r"^(?:(?:can|could|would|should|do|does|did|is|are|am|was|were|will|have|has|may|might|shall) (?:i|you|it|there|that|"
    r"this|these|those|we|they|he|she|my|our|your|any|anyone)\b|(?:what|which|who|whose|why|how)\b(?! a\b)"
    r"|where (?:do|does|did|is|are|was|were|can|could|should|would|will|have|has)\b|when (?:do|does|did|is|are|was|were|can|"
    r"could|should|would|will) (?:i|you|it|there|we|they|he|she|my|our|the)\b)",
    re.IGNORECASE,
)
_GIVEN_THAT = re.compile(
    r"^(?:since|because|as|now that|given that|considering(?: that)?|seeing (?:that|as))\s+(?=(?:i|we|my|our)\b)",
    re.IGNORECASE,
)
_SUBORDINATE = re.compile(
    r"^(?:when|whenever|if|while|once|before|after|until|unless|although|though|even (?:if|though)|in case|as soon as|for when|"
    r"assuming|suppose|supposing|as (?:long|far) as)\b",
    re.IGNORECASE,
)
_DOES = re.compile(r"\b(?:i|we|he|she|they|you|it|my \w+)\b", re.IGNORECASE)
_OBJECT_ALONE = re.compile(
    r"^(?:(?!(?:text|call|ring|phone|mail|e-?mail|reach|contact|message)\b)[a-z]+ (?:me|us)\b"
    r"|(?!(?:these|those|this|that|it|all|both)\b)[a-z]+ (?:this|that|these|those|it|the|an?|some)\b.*\bfor (?:me|us)\b"
    r"|(?:fine|good|great|ok|okay|perfect|works?|sounds?|makes? sense|(?:that|it|this) (?:works?|sounds?|makes?|is))\b"
    r".*\b(?:for|to|by|with) (?:me|us)[.!]*$)",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"^(?:i see (?:my|the|an?|dr)\b(?! (?:point|problem|issue|idea))|it (?:is|was) my\b)", re.IGNORECASE
)
_ACTS = re.compile(r"\b(?:i|we|my|our|mine)\b", re.IGNORECASE)
_WONDERS = re.compile(
    r"(?:,|\s)\s*(?:and|but|so)\s+(?:i |we )?(?:was|were|am|'m|i'm) (?:just |also )?"
    r"(?:wondering|curious|hoping (?:you|to get|for))\b.*$|"
    r",\s+(?:i |we )(?:was|were|am|'m) (?:just |also )?(?:wondering|curious)\b.*$",
    re.IGNORECASE,
)
_ASKED_OF = (
    "give|tell|show|write|explain|help|suggest|recommend|list|find|make|create|summari[sz]e|translate|"
    "describe|provide|remind|let|"
    "imagine|act|pretend|generate|draft|rewrite|compare|check|search|look|calculate|compute|convert|"
    "fix|add|continue|repeat|answer|"
    "teach|plan|tweak|send|book|play|turn|set|open|do|go|try|put|get|see|say|read|run|sort|pick|"
    "choose|come|take|keep going|forget"
)
_COMMAND = re.compile(rf"^(?:please,? |pls |kindly |just |now,? |then,? |and |so )*(?:{_ASKED_OF})\b", re.IGNORECASE)
_LEAD = re.compile(
    r"^(?:please,? )?(?:remember|note|keep in mind|bear in mind|don't forget|be aware|fyi|for (?:your|"
    r"the) (?:information|record)|"
    r"(?:just )?so you know|heads[- ]up|for context|(?:a )?(?:quick |small )?(?:update|correction|"
    r"reminder)|one more thing|"
    r"(?:actually|sorry|no|oh|hey|hi|hello|well|wait|by the way|btw|anyway|yes|yeah|ok|okay|also|thanks|great|"
    r"interesting|perfect|nice|huh|ha|right|alright|excellent|lovely|amazing|fantastic|good to know|got it|cheers))"
    r"(?: there)?(?: that)?[,:;!. -]+(?:that )?",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"^(?:please,? )?(?:always|never|from now on|going forward|in (?:the )?future|whenever|every time|"
    r"don't ever|call me|"
    r"(?:stop|avoid|don't|do not) (?:using|use|calling|call|asking|ask|suggesting|suggest|recommending|"
    r"recommend|writing|write|giving|give|"
    r"answering|answer))\b",
    re.IGNORECASE,
)
_KIN = (
    "sister|brother|mother|mom|mum|father|dad|wife|husband|spouse|partner|son|daughter|kid|child|"
    "girlfriend|boyfriend|fianc[eé]e?|"
    "friend|boss|manager|colleague|coworker|neighbou?r|roommate|flatmate|cousin|aunt|uncle|niece|"
    "nephew|grandma|grandpa|grandmother|"
    "grandfather|mother-in-law|father-in-law|teacher|coach|landlord|assistant"
)
_VERBS = (
    r"lives?|moved|relocated|works?|worked|likes?|loves?|enjoys?|hates?|dislikes?|prefers?|has|"
    r"have|had|wants?|plans?|turned|turns|got|"
    r"gets|left|joined|started|stopped|quit|drives?|drinks?|eats?|plays?|studies|studied|married|"
    r"bought|sold|needs?|uses?|speaks?|goes|"
    r"went|was born|graduated|retired|adopted|changed|switched|became|owns?|teaches|runs|is|was|"
    r"will|can't|cannot|doesn't|isn't|no longer|"
    r"used to|just|recently|now|never|always"
)
_NAME = r"[A-Z][a-zà-ÿ]+(?:-[A-Z][a-zà-ÿ]+)?(?: (?:[A-Z]\.|[A-Z][a-zà-ÿ]+))?"
_NO_NAME = re.compile(
    r"^(?:The|It|This|That|These|Those|There|Here|What|Which|Who|How|When|Where|Why|If|You|Your|"
    r"He|She|They|His|Her|Their|Its|And|But|"
    r"So|Or|Not|No|Yes|In|On|At|For|With|From|To|As|Of|By|All|Some|Any|Each|Every|Both|Another|"
    r"Other|One|Today|Yesterday|Tomorrow|Last|"
    r"Next|After|Before|Since|While|Thanks|Thank|Please|Okay|Ok|Hi|Hello|Hey|Great|Sounds|Sure|"
    r"Also|Actually|Maybe|Perhaps|Everyone|"
    r"Everything|Nothing|Something|Someone|People|Noted|Well|Then|Now|Just|My|Our|We|I|Let|Can|"
    r"Could|Would|Will|Should|Do|Does|Did|Is|"
    r"Are|Was|Were|Have|Has|Had|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday|January|"
    r"February|March|April|May|June|July|"
    r"August|September|October|November|December)\b"
)
_NAMED = re.compile(
    rf"^(?P<who>{_NAME})(?:'s (?P<what>[a-z][a-z '-]{{1,40}}?) (?:is|are|has|was|will)\b| (?:{_VERBS})\b)"
)
_RELATIVE = re.compile(
    rf"^(?:my|our) (?P<kin>(?:older |younger |little |big |best |new |eldest |ex-?)*(?:{_KIN}))\b", re.IGNORECASE
)
_OF_ASSISTANT = re.compile(
    r"^(?:i(?:'ve| have)? (?:booked|scheduled|reserved|ordered|sent|created|set|added|cancell?ed|"
    r"moved|saved|updated)\b"
    r"|your [a-z][a-z '-]{1,40} (?:is|are|has been|was|will be)\b(?! (?:great|good|a good|welcome|"
    r"right|correct|important|important|interesting)))",
    re.IGNORECASE,
)
_PRONOUN = re.compile(r"^(?:he|she|they)\b(?='|’| )", re.IGNORECASE)
_CUT = re.compile(
    r"(?:\s*;\s+|\s+[-–—]{1,2}\s+|,\s+(?:and |but |so )?(?=(?:i|we)(?:'m|'ve|'d|'ll)? |my |our )|"
    r"\s+(?:and|but)\s+(?=(?:i|we)(?:'m|'ve|'d|'ll)? "
    r"(?!think\b|guess\b|hope\b)|my [a-z]+ [a-z]+))",
    re.IGNORECASE,
)
_LEANS = re.compile(r"\b(?:there|it|that|them|those|this one|so too|did too|do too)\b", re.IGNORECASE)
_ENGLISH = frozenset(
    re.findall(
        r"\S+",
        """the a an i i'm my me is are was am to of and in on at it that this you we for with not have has do be but
        so what how""",
    )
)
_QUOTE = re.compile(r"```.*?(?:```|\Z)|^[^\S\n]*(?:>|\||[#$*]{1,3}\s*[\w./]+\().*$", re.DOTALL | re.MULTILINE)


def claims(text: str, at: str = "", *, speaker: str = USER) -> list[Claim]:
    """What `text` states, in order. at: when it was said, ISO 8601; "" leaves days as they are. speaker: of "assistant", only
    what it says that it did, or what is so for the person. Total: any text gives a list."""
    text = _QUOTE.sub(" ", text[:LONGEST_TEXT]).replace("’", "'").replace("‘", "'")
    if not _is_english(text):
        # No rule knows these words: what is said whole, but for what asks.
        return [Claim(each) for each in _plain(text)][:MOST_CLAIMS]
    given: list[Claim] = []
    who = ""
    for sentence in sentences(text):
        for clause in _clauses(" ".join(sentence.split())):
            stated = _stated(clause, speaker, who)
            if not stated:
                continue
            claim = parsed_claim(_short(stated), at, news=bool(_NEWS.search(clause)))
            subject = _RELATIVE.match(stated) or _NAMED.match(stated)
            who = subject[0][: subject.end(1)] if subject is not None else ("" if claim.about == USER else who)
            given.append(claim)
    return given[:MOST_CLAIMS]


_NOT_BUT = _rule(
    r"\b(?P<be>is|are|am|was|were|'s|'m|'re)(?: not|n't) (?P<o>[^,;.!?]{1,80}?)[,;]? (?:but(?: rather)?|it is|it's|that's|"
    r"they are|they're|rather) (?P<v>[^,;.!?]{1,80})(?P<end>[.!]?)$"
)


def _put_forward(text: str) -> str:
    """ "is not tea, it is coffee" as "is coffee, not tea"."""
    return _NOT_BUT.sub(lambda found: f"{found['be']} {found['v']}, not {found['o']}{found['end']}", text)


_ANEW = _rule(
    r"^(?:(?:no|nope|sorry|actually|wait|well|oh|correction)[,.! ]+)*(?:(?:it|that)(?:'s| is)(?: actually|"
    r" now)?|i meant(?: to say)?|make "
    r"(?:that|it))\s+(?P<v>(?!not\b|still\b|a (?:bit|great|good)\b|ok|fine|great|good|nice|wrong|"
    r"right|correct|because|why|how|what)\S[^?]*?)"
    r"(?:,? (?:not|instead of|rather than) (?P<o>[^?]+?))?[.!]?$"
)


def corrected(text: str, before: str) -> str:
    """A correction that leans on what was said before, as a statement of its own: "No, it's 7." after "My gate is 5." is "My
    gate is 7.". "" where it is none."""
    found = _ANEW.match(_put_forward(" ".join(text.split())))
    stated = claims(before) if found is not None else []
    if found is None or not stated or len(found["v"].split()) > 6 or not stated[-1].value:
        return ""
    last, start = stated[-1], stated[-1].text.rfind(stated[-1].value)
    return "" if start < 0 else f"{last.text[:start]}{found['v']}{last.text[start + len(last.value) :]}"


def _clauses(sentence: str) -> list[str]:
    """The statements of a sentence: what asks at its end is left out, and parts with a subject of their own stand alone."""
    asks = sentence.endswith(("?", "\uff1f"))
    tail = min(
        (found for each in ((QUESTION_TAIL, _WONDERS) if asks else (_WONDERS,)) if (found := each.search(sentence))),
        key=lambda found: found.start(),
        default=None,
    )
    if tail is not None:
        sentence = _before_question(sentence[: tail.start()].rstrip(" ,;-–—"))
    elif asks:
        return []
    parts, start = list[str](), 0
    for cut in _CUT.finditer(sentence):
        before, after = sentence[start : cut.start()], sentence[cut.end() :]
        rest = _CUT.split(after, maxsplit=1)[0]
        if len(before.split()) >= 2 and len(rest.split()) >= 2 and not _LEANS.search(rest):
            parts.append(before)
            start = cut.end()
    parts.append(sentence[start:])
    return [part for part in parts if part.strip(" .,;!")]


def _before_question(head: str) -> str:
    """What stands before a question, where it is a statement by itself: "Since I moved to Oslo" is, "when I was a child" not."""
    given = _GIVEN_THAT.sub("", head)
    if given != head:
        return f"{given}."
    return "" if _SUBORDINATE.match(head) and len(_DOES.findall(head)) < 2 else f"{head}."


def _is_talk(text: str) -> bool:
    """Whether it thanks, asks, orders, or answers what was said last, and tells nothing beside."""
    plain = _ADVERBS.sub(r"\1 ", text)
    if _TELLS.match(plain):
        return False
    if _COMMAND.match(plain) or _ASKS.match(plain) or (_OBJECT_ALONE.match(plain) and not _ACTS.search(plain)):
        return True
    opens = COURTESY.match(plain) or _CHAT.match(plain) or _DECIDED.match(plain)
    return opens is not None and _TOLD.search(plain, opens.end()) is None


def _stated(clause: str, speaker: str, who: str) -> str:
    """The statement in a clause, as it is kept, or "" where there is none. who: whom "she" stands for."""
    text = clause.strip()
    while (lead := _LEAD.match(text)) is not None and lead.end() < len(text):
        text = text[lead.end() :]
    if speaker != USER:
        return _kept(text) if _OF_ASSISTANT.match(text) else ""
    if _ORDER.match(text):
        return _kept(text)
    text = OPENING.sub("", text).strip()
    if who and _PRONOUN.match(text):
        text = _PRONOUN.sub(who, text)
    if not text or _is_talk(text):
        return ""
    if FIRST_PERSON.search(text):
        return _kept(text) if len(text.split()) >= 2 else ""
    named = _NAMED.match(text)
    return _kept(text) if named is not None and not _NO_NAME.match(text) and len(text.split()) >= 3 else ""


def _kept(text: str) -> str:
    text = text.strip(" ,;-–—")
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ".!" else ".")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_CLAIM else text[:LONGEST_CLAIM].rsplit(" ", 1)[0] + " ..."


def _is_english(text: str) -> bool:
    words = re.findall(r"[^\W\d_]+(?:'[a-z]+)?", text.lower())
    known = sum(word in _ENGLISH or "'" in word for word in words)
    return not words or (known * 8 >= len(words) if len(words) > 3 else all(word.isascii() for word in words))


def _is_notation(line: str) -> bool:
    """Whether half of its words have digits in them: moves of chess, tables and code are no statements."""
    words = line.split()
    return 2 * sum(any(sign.isdigit() for sign in word) for word in words) >= len(words)


def _plain(text: str) -> list[str]:
    lines = [" ".join(each.split()) for each in sentences(text)]
    long = [
        each
        for each in lines
        if (len(each.split()) >= 3 or (len(each) >= 4 and not each[0].isascii())) and not _is_notation(each)
    ]
    return [_short(each) for each in long if not each.endswith(("?", "\uff1f", "\u061f", "\u037e"))]


# -- what a statement says --------------------------------------------------------------------------------------------

_BE = r"(?:am|is|are|was|were|be|been|being)"
_ADVERB = (
    r"(?:(?:have|has|had|just|now|recently|finally|currently|already|also|really|still|both|all|"
    r"actually|officially|probably|do|does|did|"
    r"mostly|usually|always|often|normally|since|then|only|even|definitely|even|permanently|temporarily)\s+)*"
)
_END = (
    r"(?=\s*(?:[.,;!:(]|$|\b(?:now|and|but|because|since|so|instead|anymore|any more|rather|these days|"
    r"nowadays|with my|with our|as an?|as the|which|who|where|for work|last|this|in \w+ \d{4}|"
    r"today|yesterday|again|at the moment|from now on|over|for the|until|after|before|when|while|"
    r"if|than)\b))"
)
_VALUE = r"(?P<v>\S.*?)" + _END
_PLACE = r"(?P<v>(?!there\b|here\b|it\b)\S.*?)" + _END
_DIETS = (
    "vegan|vegetarian|pescatarian|omnivore|flexitarian|keto|paleo|gluten[- ]free|dairy[- ]free|"
    "lactose[- ]free|kosher|halal|carnivore|low[- ]carb"
)
_STATES = "single|married|engaged|divorced|widowed|separated"


_RULES: tuple[tuple[str, bool, re.Pattern[str]], ...] = (
    # (attribute, one value at a time, what follows the subject)
    (
        "home",
        True,
        _rule(
            rf"^{_ADVERB}(?:{_BE} )?{_ADVERB}(?:live|lives|living|lived|based|reside|resides|settled|"
            rf"staying permanently)\s+(?:\w+ly )?(?:in|on|at)\s+{_PLACE}"
        ),
    ),
    (
        "home",
        True,
        _rule(
            rf"^{_ADVERB}(?:moved|relocated|move|relocate)\s+(?:\w+ )?(?:(?:away |over |out )?from (?P<o>.+?) )?(?:back |"
            rf"over |in |out |down |up )?to\s+{_PLACE}"
        ),
    ),
    (
        "home",
        True,
        _rule(rf"^{_BE} {_ADVERB}in\s+(?P<v>[A-Z]\S*(?: [A-Z]\S*)?) (?:now|these days|nowadays|at the moment)"),
    ),
    (
        "employer",
        True,
        _rule(
            rf"^{_ADVERB}(?:{_BE} )?{_ADVERB}(?:work|works|working|employed|hired)\s+(?:now )?(?:at|for|"
            rf"with|by)\s+{_VALUE}"
        ),
    ),
    (
        "employer",
        True,
        _rule(
            rf"^(?:.*\b(?:left|quit|leaving) (?P<o>[^,]+?),? (?:and|to|for) )?{_ADVERB}(?:join|joined|(?:start|"
            rf"started|got|took|found|accepted|begin|began) (?:working |(?:an?|my|the) (?:\w+ )?(?:job|"
            rf"position|role|offer) )?(?:at|with|from))\s+(?P<v>(?!an? |the |my )\S.*?){_END}"
        ),
    ),
    (
        "employer",
        True,
        _rule(
            rf"^{_ADVERB}(?:left|quit|resigned from|retired from|was laid off (?:from|by)|got laid off (?:from|"
            rf"by))\s+(?P<left>[A-Z]\S*(?: [A-Z]\S*)?|my job|work)"
        ),
    ),
    (
        "occupation",
        True,
        _rule(
            rf"^{_ADVERB}(?:{_BE} )?{_ADVERB}(?:(?:work|works|working)\s+as|(?:promoted|became|become)(?:\s+(?:as|to))?)\s+"
            rf"(?:an? |the )?{_VALUE}"
        ),
    ),
    (
        "diet",
        True,
        _rule(
            rf"^{_ADVERB}(?:{_BE}|went|gone|go|turned|turn|became|become|being|eat|eats|eating|follow|follows|"
            rf"following|(?:{_BE} )?on)\s+{_ADVERB}(?:an? |the |strictly |fully )*(?P<v>{_DIETS})\b"
        ),
    ),
    ("relationship", True, _rule(rf"^{_ADVERB}(?:{_BE}|got|get)\s+{_ADVERB}(?P<v>{_STATES})\b")),
    (
        "age",
        True,
        _rule(
            rf"^{_ADVERB}(?:{_BE}|turned|turn)\s+{_ADVERB}(?P<v>\d{{1,3}})(?= years?\b|\s*(?:[.,;!(]|$|"
            rf"now\b|today\b|yesterday\b|last\b|and\b|this\b|in\b))"
        ),
    ),
    (
        "allergy",
        False,
        _rule(
            rf"^{_ADVERB}(?:{_BE}|have|has|got)\s+{_ADVERB}(?:an? )?(?:\w+ly )?(?:allergic|allerg(?:y|ies)|"
            rf"intolerant)\s+to\s+{_VALUE}"
        ),
    ),
    (
        "like",
        False,
        _rule(
            rf"^{_ADVERB}(?:{_BE} (?:a |an )?(?:big |huge )?(?:fan of|into|fond of)|like|likes|liked|love|"
            rf"loves|loved|enjoy|enjoys|enjoyed|adore|adores)\s+(?:to )?{_VALUE}"
        ),
    ),
    (
        "hate",
        False,
        _rule(rf"^{_ADVERB}(?:hate|hates|dislike|dislikes|detest|can't stand|cannot stand|loathe)\s+(?:to )?{_VALUE}"),
    ),
)
_OWN = re.compile(
    r"^my (?:new |current |latest |actual |main |preferred (?=name))*(?P<a>[a-z][a-z' -]{1,50}?)\s+"
    r"(?:(?:is|are|was|were|has|have|had|will|got|now|be|been|just|actually|currently|again)\s+)+"
    r"(?:(?:chang(?:ed|ing)|moved|switched|updated|rescheduled|pushed|brought forward|postponed|"
    r"set|called|named|back|forward)[,:]?\s*)*"
    r"(?:(?:it's|it is|they're|and is|to|for|on|at|from (?P<o>.+?) to|now)\s+)*(?P<v>\S.*)$",
    re.IGNORECASE,
)
_GOT = re.compile(
    r"^(?:have |has |just )*(?:got|have|has|bought|picked|chose|change[ds]?|switched|updated) (?:an? |"
    r"my |our |the )?(?:new |different |other )?(?P<a>[a-z][a-z' -]{1,40}?)"
    r"(?:[,:;]| -| and)\s+(?:it's|it is|its|which is|they're|to)\s+(?:now )?(?:called |named )?(?P<v>\S.*)$",
    re.IGNORECASE,
)
_CHANGED_TO = re.compile(
    r"^(?:have |has |just |recently |now )*(?:chang(?:ed|e)|mov(?:ed|e)|switch(?:ed)?|updated?|"
    r"reschedul(?:ed|e)|push(?:ed)?) (?:my|our|the) (?:new )?(?P<a>[a-z][a-z' -]{1,40}?)"
    r"(?: from (?P<o>.+?))? (?:to|into|for) (?P<v>\S.*)$",
    re.IGNORECASE,
)
_FUNCTIONAL = frozenset(
    re.findall(
        r"\S+",
        """name number address email birthday colour size password deadline appointment budget weight height age job
        title employer plan goal schedule doctor dentist boss manager nickname username surname hometown salary
        rent shift target score grade timezone language flight meeting reservation interview exam wedding
        anniversary gate seat room office team school university major commute phone plate pin code bedtime bank
        gym provider therapist landlord model version editor browser""",
    )
)
_FUTURE = re.compile(
    r"^(?:am |is |are |was |were |also |still |really |just )*(?:going to|will|plan(?:s|ning)? (?:to|"
    r"on|an?|our|my|the)|wants? to|hop(?:e|es|ing) to|about to|thinking of|"
    r"thinking about|might|may|considering|would|looking to|intend(?:s|ing)? to|moving|need(?:s)? to|"
    r"have to|has to|try(?:ing)? to)\b",
    re.IGNORECASE,
)
_OVER = (
    (re.compile(r"\b(?:no longer|not any ?more|no more)\s+", re.IGNORECASE), ""),
    (re.compile(r"\s*\bany ?more\b(?! of)", re.IGNORECASE), ""),
    (re.compile(r"^(?:also |really |always )*used to\s+(?:be\b)?", re.IGNORECASE), ""),
    (
        re.compile(
            r"\b(?:have |has |had |just |recently )*(?:stopped|quit|quitting|gave up|given up|giving up|"
            r"done with|through with)\s+(?:on )?",
            re.IGNORECASE,
        ),
        "",
    ),
)
_DROPPED_FOR = _rule(r"^(?:have |has |just )*(?:given|gave|giving) up (?:on )?(?P<o>[^,;.]+?) and (?:now )?(?=[a-z])")
_NOT = re.compile(r"\b(?:do not|does not|did not|am not|is not|are not|was not|not|never|cannot)\s+", re.IGNORECASE)
_FIRST_PART = re.compile(r"[,;]|\b(?:but|because|that|which|although|so)\b", re.IGNORECASE)
_INSTEAD = (
    re.compile(
        r"(?:\b(?:instead of|rather than|in place of)|(?:\band|,) not(?! (?:just|only|merely|sure|too|to)\b)|"
        r"\b(?:prefer|choose|chose|like|love|pick(?:ed)?)\b[^.,;()]{1,60}? over)\s+(?P<o>[^.,;()]+)",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:switched|moved|changed|went|gone|go|relocated|transferred|upgraded|swapped)\b.{0,40}?\bfrom\s+(?P<o>[^.,;()]+?)\s+to\s",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:swapped|replaced|traded|exchanged|traded in|gave up|given up|dropped|ditched)\s+(?:my |"
        r"the |our )?(?P<o>[^.,;()]+?)\s+(?:for|with|and)\s",
        re.IGNORECASE,
    ),
)
_DONE = _rule(
    r"^(?:(?:have|has|had)\s+(?=(?:\w+ly |just |never |already |also )*(?:\w+ed|been|gone|got|"
    r"bought|made|taken|begun)\b)|(?:just|now|recently|finally|currently|already|also|really|still|"
    r"both|all|actually|usually|always|often|normally|do|does|did)\s+)*"
)
_SHORTENED = (
    (re.compile(r"\bi'm\b", re.IGNORECASE), "i am"),
    (re.compile(r"\bwe're\b", re.IGNORECASE), "we are"),
    (re.compile(r"\b(i|we|they|you)'ve\b", re.IGNORECASE), r"\1 have"),
    (re.compile(r"\b(i|we)'ll\b", re.IGNORECASE), r"\1 will"),
    (re.compile(r"\bcan't\b", re.IGNORECASE), "cannot"),
    (re.compile(r"\bwon't\b", re.IGNORECASE), "will not"),
    (re.compile(r"n't\b", re.IGNORECASE), " not"),
    (re.compile(r"\bi'd\b", re.IGNORECASE), "i would"),
)
_SUBJECT = re.compile(r"^(?:i|we|my (?:family|wife|husband|partner) and i)\b\s*", re.IGNORECASE)
_SMALL = frozenset(
    re.findall(
        r"\S+",
        """a an the is are be am was were do does did have has had to of in on at for by with and or as it its it's
        i my me we our he his she her they their that this user so just also now actually not no longer any more
        anymore from instead than rather these days new current been being there here really very still always
        usually get got go going went up out off about around like one""",
    )
)
_TURNS = re.compile(
    r"^(?:it turns out|turns out|it seems|i (?:found|learned|realised|realized|decided)(?: out)?)(?: that)?,?\s+",
    re.IGNORECASE,
)
_EXPANSIONS = {
    "home": "lives in, moved to, based in",
    "employer": "works at, job, employer, company",
    "occupation": "works as, job, profession",
    "diet": "vegan, vegetarian, diet, eats",
    "age": "years old, turned, age",
    "relationship": "single, married, engaged, divorced",
    "like": "likes, loves, enjoys, hates",
    "hate": "likes, loves, enjoys, hates",
}


@lru_cache(4096)
def stems(text: str) -> frozenset[str]:
    """The words of `text` that say what it is about, without their endings."""
    words = re.findall(r"[^\W_]+(?:[-'.][^\W_]+)*", text.lower().replace("'s", ""))
    cut = (re.sub(r"(?<=[a-z]{3})(?:ings?|ed|es|s|e)$", "", word) for word in words if word not in _SMALL)
    return frozenset(re.sub(r"(.)\1$", r"\1", word) if len(word) > 4 else word for word in cut)


def parsed_claim(text: str, at: str = "", *, news: bool | None = None) -> Claim:
    """What a statement says. news: whether what it was part of announces a change; None looks at the statement alone."""
    announced = bool(_NEWS.search(text)) if news is None else news
    said = _put_forward(_TURNS.sub("", text))
    for pattern, long in _SHORTENED:
        said = pattern.sub(long, said)
    about, rest = _subject(said)
    over = denies = False
    dropped = _DROPPED_FOR.match(rest)
    if dropped is not None:
        rest = f"{rest[dropped.end() :]} instead of {dropped['o']}"
    for pattern, gone in _OVER:
        if pattern.search(rest):
            over, rest = True, pattern.sub(gone, rest).strip()
    instead = next((found["o"] for each in _INSTEAD if (found := each.search(rest)) is not None), "")
    plain = re.sub(r"(?:, not|\band not)\s+[^.,;]+", "", rest) if instead else rest
    if _NOT.search(_FIRST_PART.split(plain, maxsplit=1)[0]) and not plain.lower().startswith("my "):
        denies, plain = (
            True,
            _NOT.sub(
                lambda found: (
                    f"{found[0].split()[0]} " if found[0].lower().startswith(("am", "is", "are", "was")) else ""
                ),
                plain,
                count=1,
            ),
        )
    if over:
        plain = re.sub(
            r"^(living|working|being|eating|drinking|playing|using|going|driving|running|taking|studying|smoking)\b",
            _bare,
            plain,
            flags=re.IGNORECASE,
        )
    claim = Claim(
        text, about, over=over, denies=denies or over, news=announced or over or bool(instead), instead=instead.strip()
    )
    claim = _with_attribute(claim, plain)
    day, shown = _day(text, at, ahead=bool(_FUTURE.match(rest)))
    return replace(claim, text=shown, day="" if claim.attribute == "plan" else day)


def _bare(found: re.Match[str]) -> str:
    word = found[0].lower()
    return {
        "living": "live",
        "being": "am",
        "using": "use",
        "driving": "drive",
        "taking": "take",
        "studying": "study",
        "smoking": "smoke",
        "running": "run",
    }.get(word, word[:-3])


def _subject(said: str) -> tuple[str, str]:
    """(whom it is about, the rest as if it were said of oneself)."""
    own = _SUBJECT.match(said)
    if own is not None:
        return USER, said[own.end() :]
    kin = _RELATIVE.match(said)
    if kin is not None and not re.match(r"'s\b", said[kin.end() :]):
        rest = re.sub(r"^,? ?[A-Z][a-z]+,?(?= )", "", said[kin.end() :])
        if not re.match(r"\s*(?:appointment|name|number|meeting|call|party|visit)\b", rest):
            return f"my {kin['kin'].lower()}", rest.strip()
    if kin is not None and (owned := re.match(r"'s\s+", said[kin.end() :])) is not None:
        return f"my {kin['kin'].lower()}", f"my {said[kin.end() + owned.end() :]}"
    named = _NAMED.match(said)
    if named is not None and not _NO_NAME.match(said):
        rest = said[named.end("who") :].strip()
        return named["who"].lower(), f"my {rest[2:].strip()}" if rest.startswith("'s") else rest
    return USER, said


def _with_attribute(claim: Claim, rest: str) -> Claim:
    """`claim` with what the words after its subject say. rest: in the affirmative."""
    rest = re.sub(r"^(?:and |but )", "", rest.strip())
    if rest.lower().startswith("our "):
        rest = f"my {rest[4:]}"
    if _FUTURE.match(rest):
        return replace(claim, attribute="plan", value=rest)
    own = _OWN.match(rest) or _GOT.match(rest) or _CHANGED_TO.match(rest)
    if own is not None:
        attribute = _attribute(
            own["a"], bool(re.search(r"\b(?:called|named)\b", rest[: own.start("v")], re.IGNORECASE))
        )
        value = _first_part(own["v"])
        single = (
            attribute.split()[-1] in _FUNCTIONAL
            or attribute.startswith(("favourite", "name of"))
            or _typed(value)
            or claim.news
        )
        old = own.groupdict().get("o") or claim.instead
        return replace(claim, attribute=attribute, value=value, single=single, instead=old)
    for name, single, pattern in _RULES:
        found = pattern.match(rest)
        if found is None:
            continue
        parts = found.groupdict()
        left = parts.get("left")
        if left:
            return replace(
                claim,
                attribute=name,
                value="" if left in ("my job", "work") else left,
                single=single,
                over=True,
                denies=True,
            )
        value, attribute, denies = _first_part(parts["v"]), name, claim.denies
        if name == "hate":
            attribute, denies = "like", not denies
        if (
            name == "home"
            and re.match(r"(?:have |has )*lived\b", rest, re.IGNORECASE)
            and not re.match(r"(?:have|has)\b", rest, re.IGNORECASE)
            and not claim.over
        ):
            return replace(claim, attribute="past", value=value)
        return replace(
            claim,
            attribute=attribute,
            value=value,
            single=single,
            denies=denies,
            instead=parts.get("o") or claim.instead,
        )
    words = _DONE.sub("", rest).split(None, 1)
    verb = next(iter(stems(words[0])), words[0].lower()) if words else ""
    return replace(claim, attribute=f"to {verb}" if verb else "", value=_first_part(words[1]) if len(words) > 1 else "")


def _attribute(words: str, called: bool) -> str:
    """One name for what has several: "favorite color", "favourite colour"."""
    name = (
        words.lower()
        .replace("color", "colour")
        .replace("favorite", "favourite")
        .replace("preferred", "favourite")
        .strip()
    )
    name = re.sub(r"^(?:new|current|old|latest) ", "", name)
    name = re.sub(r"\b(?:mobile|cell|telephone|cellphone)(?: phone)?(?: number)?$", "phone number", name)
    name = re.sub(r"^(?:work|home)?\s*e-?mail(?: address)?$", "email", name)
    if (of := re.match(r"^name of (?:my |our )?(.+)$", name)) is not None:
        name = f"{of[1]} name"
    return f"{name.removesuffix(chr(39) + 's')} name" if called else name.replace("'s name", " name")


def _first_part(value: str) -> str:
    """A value without what is said beside it."""
    value = re.split(
        r"[,;(]|\.(?:\s|$)|!|\s(?:instead|because|since|but|so|any ?more|these days|nowadays|and (?:i|"
        r"my|we)|now|from now on)\b",
        value,
        maxsplit=1,
        flags=re.IGNORECASE,
    )[0]
    return " ".join(
        re.sub(
            r"^(?:now|called|named|actually|an?|the|on|at|to|in)\s+", "", value.strip(), flags=re.IGNORECASE
        ).split()[:8]
    )


def _typed(value: str) -> bool:
    """A number, a time, a day or a name: of one thing there is one at a time."""
    return bool(re.match(r"(?:\S*\d|[A-Z][\w'-]+(?:\s+[A-Z][\w'-]+)*$)", value))


# -- days -------------------------------------------------------------------------------------------------------------

_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_AHEAD = re.compile(
    r"\bin (?P<n>\d{1,3}|an?|one|two|three|four|five|six) (?P<unit>day|week)s?\b|\b(?P<word>tomorrow|"
    r"today|tonight|this morning|last night)\b|\bnext (?P<next>week|month|year|monday|tuesday|"
    r"wednesday|thursday|friday|saturday|sunday)\b",
    re.IGNORECASE,
)
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WRITTEN_OUT = re.compile(r"\b(?:19|20)\d{2}\b")


def _day(text: str, at: str, *, ahead: bool) -> tuple[str, str]:
    """(the day of what happened, or "", `text` with the days that its words stand for)."""
    if not at or _WRITTEN_OUT.search(text):
        return "", text
    try:
        said = datetime.fromisoformat(at)
        window = _window(text, said, ahead)
        shown = "" if window is None else _shown(window)
    except (ValueError, OverflowError):
        return "", text
    if window is None or window.days > 400:
        return "", text
    happened = window.start <= said and not ahead
    end = len(text) - 1 if text.endswith((".", "!")) else len(text)
    day = max(window.start, datetime(1, 1, 2)).date().isoformat() if happened else ""
    return day, f"{text[:end]} ({shown}){text[end:]}"


def _window(text: str, said: datetime, ahead: bool) -> TimeWindow | None:
    today = said.replace(hour=0, minute=0, second=0, microsecond=0)
    coming = _AHEAD.search(text)
    if coming is None:
        window = window_of(text, said.isoformat())
        if window is not None and ahead and window.end < said:  # "a trip in May": of a plan, the next one
            return TimeWindow(
                window.start.replace(year=window.start.year + 1), window.end.replace(year=window.end.year + 1)
            )
        return window if window is not None and window.start > datetime.min and window.end < datetime.max else None
    if coming["word"]:
        days = {"tomorrow": 1, "last night": -1}.get(coming["word"].lower(), 0)
        first, length = today + DAY * days, 1
    elif coming["n"]:
        number = int(coming["n"]) if coming["n"].isdigit() else _COUNTS[coming["n"].lower()]
        first, length = today + DAY * number * (7 if coming["unit"].lower() == "week" else 1), 1
    elif coming["next"].lower() in _WEEKDAYS:
        first, length = today + DAY * ((_WEEKDAYS.index(coming["next"].lower()) - today.weekday() - 1) % 7 + 1), 1
    elif coming["next"].lower() == "week":
        first, length = today + DAY * (7 - today.weekday()), 7
    elif coming["next"].lower() == "month":
        first = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
        length = ((first + timedelta(days=32)).replace(day=1) - first).days
    else:
        first = today.replace(year=today.year + 1, month=1, day=1)
        length = (first.replace(year=first.year + 1) - first).days
    return TimeWindow(first, first + DAY * length - timedelta(minutes=1))


def _shown(window: TimeWindow) -> str:
    first, last = window.start.date(), window.end.date()
    if first == last:
        return first.isoformat()
    if first.day == 1 and (last + timedelta(days=1)).day == 1 and (first.year, first.month) == (last.year, last.month):
        return first.isoformat()[:7]
    return f"{first.isoformat()} to {last.isoformat()}"


# -- which older statement it takes the place of -----------------------------------------------------------------------


def asked_for(claim: Claim) -> list[str]:
    """Searches that find what it may take the place of."""
    about = "" if claim.about == USER else f"{claim.about} "
    more = _EXPANSIONS.get(claim.attribute, claim.attribute.removeprefix("to "))
    wanted = [claim.text, f"{about}{more}".strip()]
    if claim.instead:
        wanted.append(f"{about}{claim.instead}")
    return [each for each in dict.fromkeys(wanted) if each.strip()]


def gives_way(old: Claim, new: Claim) -> bool:
    """Whether `old`, which was said before, does not hold any more where `new` does. What is said again holds."""
    if old.text == new.text:
        return False
    if old.about != new.about or "plan" in (old.attribute, new.attribute) or "past" in (old.attribute, new.attribute):
        return False
    theirs, ours = stems(old.value), stems(new.value)
    same = old.attribute == new.attribute != ""
    alike = bool(theirs and ours) and (theirs <= ours or ours <= theirs)
    whole_old, whole_new = stems(old.text), stems(new.text)
    if new.over:
        if old.over:
            return False
        if same and (alike or not ours):
            return True
        left = ours | stems(new.instead)
        return bool(left) and left <= whole_old and (same or len(left) >= 2 or 2 * len(left) >= len(whole_old))
    if new.instead:
        gone = stems(new.instead) - _POINTS
        context = (whole_old & whole_new) - gone
        if gone and gone <= whole_old and not old.over and (same or context or 2 * len(gone) >= len(whole_old)):
            return True
    if same and old.over and not new.denies:
        return new.single or alike
    if same and alike:
        return old.denies != new.denies
    if same and new.single and not new.denies:
        return not old.denies and bool(theirs and ours)
    # A change that is told as one, of something that no rule knows by name: the same verb, and nearly the same words.
    if _NOWADAYS.search(new.text) and not new.denies and not old.denies and theirs and ours:
        # "I like my coffee black" stands beside "I prefer coffee in the morning now": both speak of coffee.
        taste = {old.attribute, new.attribute} <= _TASTE and _thing(old) != _thing(new)
        return (same or taste) and theirs != ours and 2 * len(theirs & ours) >= max(len(theirs), len(ours))
    return False


def _thing(claim: Claim) -> frozenset[str]:
    """The first word of a value that says something."""
    return next((found for word in claim.value.split() if (found := stems(word))), frozenset())


_POINTS = frozenset(("them", "thos", "thes", "ones", "me", "you"))
_NOWADAYS = _rule(r"\b(?:now(?! that\b)|nowadays|these days|from now on|any ?more|as of)\b")
_TASTE = frozenset(
    (
        "to prefer",
        "to drink",
        "to eat",
        "to hav",
        "like",
        "to tak",
        "to us",
        "to start",
        "to order",
        "to go",
        "to switch",
    )
)


def taken_over(new: Claim, known: Sequence[Sequence[Claim]]) -> list[int]:
    """Which of what is known `new` takes the place of, by position: an item of several statements only where all of them go."""
    return [place for place, olds in enumerate(known) if olds and all(gives_way(old, new) for old in olds)]


def says_something(text: str) -> bool:
    """Whether words of a user are kept where no writer says what to keep: no questions, and more than a word or two."""
    return len(text.split()) >= FEWEST_WORDS and not text.rstrip().endswith(("?", "\uff1f"))
