"""Recall that nobody asked for: what a gateway or a host's hook looks up by itself before a user's turn.

Such a search costs tokens in every turn, so it has two limits that a search by a person has not. Words that ask for nothing
("ok", "thanks", "?!") recall nothing, and hits below a floor of relevance are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory

FLOOR = 0.01
"""The least score of a hit with a neural encoder. With all-MiniLM-L6-v2 it leaves out 2 of 20 answers to short questions about
short notes of one person (.04 leaves out 4), and no evidence of two conversations of LoCoMo (350 questions); of 100 questions of
arithmetic, asked among the notes of such a conversation, 47 recall nothing (77 with .04)."""
_MOST_WORDS = 8
"""A longer text is never a courtesy."""
_WORDS = {
    "English": """
        ok okay okey k kk hi hey hello hiya yo greetings thanks thank thx ty cheers great good nice cool perfect awesome
        excellent wonderful brilliant amazing fantastic lovely super neat yes yeah yep yup ya y no nope nah n sure
        alright right fine agreed exactly indeed understood gotcha bye goodbye welcome sorry please pls continue
        proceed go next done lol haha hehe hm hmm mhm um uh oh ah aha wow well morning afternoon evening night
    """,
    "German, Dutch, Scandinavian languages, Finnish": """
        perfekt grüß grüss grüße buenas okidoki np
        danke dankeschön bitte ja nein nee doch hallo servus moin guten gut super toll klar genau weiter prima passt
        tschüss dank bedankt goed hoi tack hej nej bra takk nei tak kiitos kyllä hei joo
    """,
    "French, Spanish, Portuguese, Italian, Romanian": """
        merci oui non bonjour bonsoir salut parfait super d'accord gracias sí si hola vale perfecto bueno claro genial
        adiós obrigado obrigada sim não olá oi bom boa certo perfeito grazie sì ciao prego bene perfetto mersi
        mulțumesc da nu bună
    """,
    "Polish, Czech, Russian, Ukrainian, Turkish, Greek": """
        dziękuję dzięki tak nie cześć dobrze děkuji díky ano ne ahoj dobře спасибо да нет привет здравствуйте хорошо
        ладно ок понятно пожалуйста дякую так ні привіт добре teşekkürler sağol evet hayır merhaba tamam ευχαριστώ ναι
        όχι γεια εντάξει
    """,
    "Arabic, Hebrew, Hindi, Vietnamese, Indonesian": """
        شكرا نعم لا مرحبا حسنا תודה כן לא שלום धन्यवाद हाँ हां नहीं नमस्ते ठीक vâng không chào terima kasih ya tidak
        halo
    """,
    "Chinese, Japanese, Korean": """
        谢谢 谢谢你 謝謝 多谢 好 好的 好吧 你好 您好 是 是的 对 不 不是 嗯 行 可以 继续
        再见 ありがとう ありがとうございます はい いいえ うん こんにちは おはよう
        おはようございます わかりました 了解 了解です お願いします 続けて 감사합니다 고마워 네 예
        아니요 안녕하세요 안녕 좋아요 계속
    """,
}
_BESIDE = """
    dich euch gemacht gott
    nice not now work job you so much very lot lots a many again for that this it the to me all is was it's that's
    sounds looks works got ahead on and then there day have everybody everyone really just i am i'm do keep going carry
    problem worries la tag morgen abend dir ihnen sehr vielen schön bien beaucoup très muchas mucho muy buenos buenas
    días tardes noches muito bem dia noite mille molto всё все
"""
_COURTESIES = frozenset(word for words in _WORDS.values() for word in words.split())
_GLUE = frozenset(_BESIDE.split())
"""Words that ask for nothing beside a courtesy ("thank you so much", "go on")."""
_QUESTIONS_OF_FORM = re.compile(
    r"(?:how are you|how's it going|what's up|sup)(?: (?:doing|today|there))*|(?:do it|no worries)"
)


def asks(words: str) -> bool:
    """Whether a user's words ask for anything that a memory could know: not if they are a courtesy, a consent or a greeting, in
    one of some thirty languages, nor if they hold no word at all."""
    spoken = _words_in(words[:1000].lower().replace("’", "'"))
    if all(word.isascii() and len(word) == 1 for word in spoken):  # "?!", a thumb, "y", the number of a choice
        return False
    if len(spoken) > _MOST_WORDS:
        return True
    if _QUESTIONS_OF_FORM.fullmatch(" ".join(spoken)):
        return False
    return _COURTESIES.isdisjoint(spoken) or not _COURTESIES.union(_GLUE).issuperset(spoken)


def _words_in(text: str) -> list[str]:
    plain = "".join(sign if sign == "'" or category(sign)[0] in "LMN" else " " for sign in text)
    return [word for part in plain.split() if any(map(str.isalnum, word := part.strip("'")))]


def floor_of(memory: Memory) -> float:
    """Return the least score of a hit of automatic recall: `FLOOR` with a neural encoder. With hashed words or none the score
    says little of whether an answer is known, as for most answers it is near 0, so that the floor is 0."""
    embedder = memory.store.embedder
    return 0.0 if embedder is None or embedder.by_spelling else FLOOR
