"""Text metrics between an answer and its gold answers. All take (prediction, golds) and return a float in [0, 1].

Normalisation is SQuAD's (Rajpurkar et al., "SQuAD", arXiv 1606.05250; the rule for yes, no and noanswer is that of
the HotpotQA evaluation, arXiv 1809.09600).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from keepworth.base.text import normalise as normalise
from keepworth.base.text import tokens as tokens

_CLOSED = frozenset({"yes", "no", "noanswer"})


def exact_match(prediction: str, golds: Sequence[str]) -> float:
    """Returns 1.0 if the normalised prediction equals any normalised gold, else 0.0."""
    wanted = normalise(prediction)
    return float(any(normalise(gold) == wanted for gold in _some(golds)))


def token_f1(prediction: str, golds: Sequence[str]) -> float:
    """Returns the best F1 over the golds of the multisets of normalised tokens. With c common tokens, P = c/|prediction|, R =
    c/|gold| and F1 = 2PR/(P+R), 0 where c = 0. If either side is one of yes, no, noanswer and they differ, that pair scores 0."""
    return max(_f1(normalise(prediction), normalise(gold)) for gold in _some(golds))


def bleu1(prediction: str, golds: Sequence[str]) -> float:
    """Returns BLEU with unigrams only over normalised tokens, with the golds as references (Papineni et al., ACL 2002).

    It is the clipped unigram precision times the brevity penalty exp(1 - r/c) for a prediction of c tokens shorter than r, the
    reference length nearest to c (the shorter on a tie). It equals NLTK's `sentence_bleu` with weights (1, 0, 0, 0) and smoothing
    method 1 on the same tokens: with no unigram in common both are 0, so that the smoothing has no effect. Papers tokenise
    differently, which changes their figures by some tenths of a point."""
    words = tokens(prediction)
    references = [tokens(gold) for gold in _some(golds)]
    allowed: Counter[str] = Counter()
    for reference in references:
        allowed |= Counter(reference)
    matched = (Counter(words) & allowed).total() if words else 0
    if not matched:
        return 0.0
    nearest = min((len(reference) for reference in references), key=lambda length: (abs(length - len(words)), length))
    brevity = 1.0 if len(words) > nearest else math.exp(1.0 - nearest / len(words))
    return brevity * matched / len(words)


def _f1(prediction: str, gold: str) -> float:
    if prediction != gold and (prediction in _CLOSED or gold in _CLOSED):
        return 0.0
    words, wanted = prediction.split(), gold.split()
    common = (Counter(words) & Counter(wanted)).total()
    if not common:
        return 0.0
    precision, recall = common / len(words), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _some(golds: Sequence[str]) -> Sequence[str]:
    if isinstance(golds, str):
        raise TypeError(f"golds must be a sequence of answers, not the string {golds!r}: put it in a list")
    if not golds:
        raise ValueError("no gold answers to score against: a task must carry at least one")
    return golds


_ABSTAINS = re.compile(
    r"(?:sorry |unfortunately |im afraid |i am afraid |that |this |it |there )*(?:"
    r"i (?:really |just )?(?:do not|dont|cannot|cant|could not|couldnt|have no|am not|am unable)\b"
    r"|im (?:not sure|not certain|not able|unable)\b"
    r"|(?:is |was |has |were |are |isnt |wasnt |hasnt |theres )*(?:not |never )?(?:been )?"
    r"(?:mentioned|specified|stated|provided|discussed|clear|known|unclear|unknown|unanswerable|noanswer)(?: |$)"
    r"(?:in |from |by |at |$)"
    r"|(?:is |was |theres )?(?:no|nothing|not enough|insufficient) "
    r"(?:information|mention|record|evidence|data|memory|answer|about it|about that|about this)"
    r"(?: (?:is|was|of|on|in|about|available|given|provided|found)\b|$)"
    r"|you (?:never|did not|didnt|have not|havent) (?:told|tell|said|say|mentioned|mention)\b"
    r"|(?:conversation|conversations|text|context|notes|memory|memories|they) (?:does not|doesnt|do not|dont) "
    r"(?:say|mention|tell|state|specify|contain)\b)"
)


def abstains(answer: str) -> bool:
    """Whether an answer declines: "I don't know", "not mentioned", "no information available", or nothing at all. It depends on
    how the answer begins, so it errs; `benchmarks/statistics/verifiers.json` has the error rate on other answers."""
    text = normalise(answer)
    return not text or _ABSTAINS.match(text) is not None
