"""Finding items: what a search asks for, two rankings, filters, fusion, and an account of every score."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import lru_cache, partial
from numbers import Integral
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from keepworth.base.errors import called_as
from keepworth.base.notebook import paragraph, table
from keepworth.base.text import entry
from keepworth.memory.errors import InvalidFilter, InvalidText, MemoryProblem, unknown_option
from keepworth.memory.headline import TOKENS
from keepworth.memory.item import Item, ItemKind, Status, Timestamp, checked_label, compact_json, member, timestamp
from keepworth.memory.search import MODES
from keepworth.memory.search.background import USUAL, Background
from keepworth.memory.search.chunks import SHORT, spans
from keepworth.memory.search.how_many import AUTO, WIDEST, AnswerEvidence, SetSize, decide, weigh
from keepworth.memory.search.index import K1, CorpusStatistics, Embedder, term_scores
from keepworth.memory.search.newer import about_the_past, newer_first
from keepworth.memory.search.passages import PromptBlock, block, block_of_lines, nearest_piece
from keepworth.memory.search.question import ReadQuestion, read
from keepworth.memory.search.stages import NamedStage, StageRequest
from keepworth.memory.search.terms import QueryTerms, asked_terms
from keepworth.memory.search.terms import terms as terms_of
from keepworth.memory.search.where import Filter, Where, narrowed, parsed

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors
    from keepworth.memory.choose.ledger import Account


Reranker = Callable[[str, Sequence[str]], Sequence[float]]


WORD_WEIGHT = 0.2
"""Weight of words: a text with a word that no other text has is ranked as if its cosine were larger by this."""
MANY = 16
"""Number of words in a question, without function words, above which words weigh more, with the root of the number: one vector
says less and less of a long question."""
RANK = 0.35
"""The texts nearest in meaning, of which two things are read, are those up to the rank items ** RANK."""
APART = 0.12
"""Where the nearest text's cosine is above that of the last of them by more than this, meaning tells the texts apart, and words
weigh less in proportion, as among functions and articles. In talk, texts are about as near as one another."""
SHARED, MOST_ALONE = 0.45, 2.0
"""Share of the best BM25 score that they have in the mean, where words weigh as usual. Code that means what is asked has its
words, too, and words add little; in talk it has fewer, so words know something else, and weigh more in proportion, at most
MOST_ALONE times as much."""
FEW = 0.2
"""Share of its greatest possible BM25 score that a question's best text needs for the full weight of words (more, with the root,
if the question has more than `MANY`). Below it, only words of asking ("some", "recommend") are shared."""
ALONE = 2.0
"""Factor that turns the share of the BM25 score into a cosine where the question has no vector: a text of usual length that has
all words once has 0.4 of the greatest possible score."""
WHOLE = 0.02
"""Sums of rewards this close to a whole number are shown as that number."""
KNOWN, SPREAD = 0.5, 0.056
"""The probability that the memory knows an answer is a logistic function of the best text's nearness: 1/2 at KNOWN, with the
scale SPREAD."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What an item is worth: at one question, and over all questions.

    overall: what the ledger says about its effect over all questions, from the episodes in which chance decided whether it was
    shown; None if there were none."""

    with_it: float  # expected reward if it stands first at the question
    without: float  # expected reward if another item does
    times: float  # number of rewards for it first (or for what it advises) at the question; similar questions count in part
    earned: float  # sum of these rewards, on a scale from 0 to 1
    sure: float  # probability that rewards depend on items
    seen: float = 0.0  # number of rewarded showings at all questions
    clear: bool = False  # whether what was learned at the question is clear of chance
    overall: Account | None = None

    @property
    def effect(self) -> float:
        return self.with_it - self.without

    @property
    def sentence(self) -> str:
        """Return in one sentence what was learned: how often the item was right, if its rewards at this question were all 0 or 1,
        else its mean reward."""
        if self.times >= 0.5:
            times, right = max(1, round(self.times)), round(self.earned)
            if max(abs(self.times - times), abs(self.earned - right)) < WHOLE:
                return f"right {right} of {times} {'time' if times == 1 else 'times'} where this is asked"
            uses = "one use" if times == 1 else f"{times} uses"
            return f"worth {self.earned / self.times:.2f} of 1 on average, over about {uses} near this question"
        if not self.seen:
            return ""
        shown = round(self.seen)
        return f"never first where this is asked; shown {'once' if shown == 1 else f'{shown} times'} in all"

    def __str__(self) -> str:
        return self.sentence or "nothing is known yet"

    def _repr_html_(self) -> str:
        """Return the sentence, and the numbers behind it, for notebooks."""
        numbers = (("with it first", self.with_it), ("with another first", self.without), ("effect", self.effect))
        rows = [(name, f"{number:.2f}") for name, number in numbers]
        return paragraph(str(self)) + table(("expected reward", ""), rows)

    @property
    def tested(self) -> int:
        """Return in how many episodes chance decided whether the item was shown."""
        return 0 if self.overall is None else self.overall.rows

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of the item's effect over all questions, or None if there is none yet. It is valid at any
        time, so it may be looked at after every reward."""
        limits = None if self.overall is None else self.overall.interval
        return None if limits is None or limits[1] - limits[0] == math.inf else limits


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a score was made of. lexical_rank, dense_rank: the places by words and by meaning; terms: the part of each query word
    in the BM25 score.

    stages: names of the memory's stages that gave it another place.
    moved: "up" or "down" if what rewards taught, of this item or of others, put it elsewhere than the search did, else "";
    worth: what rewards say, None if they say nothing; reason: why an item about which nothing is certain comes first; learned:
    worth and reason in one sentence."""

    lexical_rank: int | None
    dense_rank: int | None
    terms: Mapping[str, float]
    stages: tuple[str, ...] = ()
    moved: str = ""
    worth: Worth | None = None
    reason: str = ""

    def __str__(self) -> str:
        """Return what was learned, because explanations are printed."""
        return self.learned or "nothing was learned of it here"

    @property
    def learned(self) -> str:
        return "; ".join(filter(None, ("" if self.worth is None else self.worth.sentence, self.reason)))


UNEXPLAINED = Explanation(None, None, {})
"""The explanation of a hit if none was asked for and rewards say nothing."""


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that a search found, and the score by which it was ranked.

    lexical, dense: its BM25 score and its cosine; None if that part of the search did not find it. conflicts: ids of other hits
    that say something else about the same thing (see `keepworth.memory.search.newer`). instead_of: the one of them whose place
    and score it took because it is newer. span: start and end of the part of a long text that is nearest in meaning, or, where
    its parts have no vectors, has most of the query's words; None if the text is short, or as near as a whole. share: the most of
    the budget of a prompt that it gets if it is long; less than all only in automatic recall. answers: the probability that it
    answers the question, as judged before any reward; None if the number of hits was asked for."""

    item: Item
    score: float
    lexical: float | None = None
    dense: float | None = None
    why: Explanation = field(default=UNEXPLAINED, compare=False)
    conflicts: tuple[str, ...] = field(default=(), compare=False)
    instead_of: str = field(default="", compare=False)
    span: tuple[int, int] | None = field(default=None, compare=False)
    share: float = field(default=1.0, compare=False)
    answers: float | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Return a short form, because lists of hits are printed."""
        text = self.text if len(self.text) <= 100 else f"{self.text[:97]}..."
        return f"Hit({self.id}, {self.score:.4f}, {text!r})"

    @property
    def id(self) -> str:
        return self.item.id

    @property
    def text(self) -> str:
        return self.item.text

    @property
    def passage(self) -> str:
        """Return the part of a long text that matched, or the whole text."""
        return self.text if self.span is None else self.text[slice(*self.span)]

    @property
    def utility(self) -> float:
        """Return the mean reward of the times the item was shown; 0 before the first."""
        return self.item.values.mean


class Hits(list[Hit]):
    """Hits, best first.

    decision: the id they were logged under, which `reward` takes; "" where the search was not logged. propensity: the probability
    that `policy` had of choosing just these in this order. advice: (action, weight, similarity of the situation it comes from),
    for agents that read no text; a negative weight discourages.
    text: all of them as lines for a prompt, within `tokens`: short notes whole, of long ones the passage that fits the query;
    block: the same, with the ids of what is cut and of what had no room. wording: the text that a policy made in place of the
    lines, or None; last: a line that it adds. core: the items that are always shown, whether they fit the query or not:
    they come first in the text. none: with `top_k="auto"`, the probability that nothing in the memory answers the query; None
    if the number of hits was asked for."""

    __slots__ = ("advice", "core", "decision", "last", "none", "policy", "propensity", "query", "tokens", "wording")

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        decision: str = "",
        *,
        advice: tuple[tuple[str, float, float], ...] = (),
        propensity: float = 1.0,
        policy: str = "",
        query: str = "",
        tokens: int = TOKENS,
        wording: str | None = None,
        last: str = "",
        core: tuple[Item, ...] = (),
        none: float | None = None,
    ) -> None:
        super().__init__(hits)
        self.decision, self.none = decision, none
        self.advice, self.propensity, self.policy = advice, propensity, policy
        self.query, self.tokens, self.wording, self.last, self.core = query, tokens, wording, last, core

    def __str__(self) -> str:
        return "\n".join(entry(f"{hit.score:.4f}  {hit.id:>5}", hit.passage) for hit in self) or "(no hits)"

    def _repr_html_(self) -> str:
        """Return the hits as a table, for notebooks."""
        rows = [(hit.id, f"{hit.score:.4f}", hit.passage, hit.why.learned) for hit in self]
        return table(("id", "score", "text", "learned"), rows) if rows else paragraph("(no hits)")

    @property
    def text(self) -> str:
        return self.block.text

    @property
    def block(self) -> PromptBlock:
        return self.within(self.tokens)

    def within(self, tokens: int) -> PromptBlock:
        """Return lines for a prompt within another budget: `.text`, and the ids of what is `.whole`, `.cut` and `.missing`.

        >>> Hits([Hit(Item("m1", "The port is 8443."), 0.9)]).within(200).text
        '- The port is 8443.'
        """
        checked_number(tokens, "tokens", 1)
        if self.wording is None:
            return block(self, self.query, tokens, last=self.last)
        return block_of_lines(
            self.wording, [hit.id for hit in self], self.query, tokens, last=self.last, core=self.core
        )


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the memory. goal: the task; observation: what is seen or searched for, "" if that is the goal; actions: what
    can be done now, if that is known; step: its number in the episode; by: who asks; number: that of the episode, -1 outside of
    one; explore: whether the policy may try something; plain: whether the policy is left out, as no reward can follow; seed: of
    the policy's random choice, None for the memory's; begins: whether it is the first of an episode that has no number yet."""

    goal: str
    observation: str = ""
    actions: tuple[str, ...] = ()
    step: int = 0
    by: str = ""
    number: int = -1
    explore: bool = True
    plain: bool = False
    seed: int | None = None
    begins: bool = False

    @property
    def text(self) -> str:
        """Return the text to search for."""
        return self.observation or self.goal

    def without_secrets(self, redacted: Callable[[str], str]) -> Ask:
        """Return the same request with `redacted` applied to each text."""
        goal, observation, *actions = map(redacted, (self.goal, self.observation, *self.actions))
        return replace(self, goal=goal, observation=observation, actions=tuple(actions))


def asked(ask: Ask, top_k: int | str, more: Mapping[str, Any] | None = None) -> str:
    """Return the details to log of a choice among the hits of a search.

    Args:
        ask: What was asked: the task, the query and the actions.
        top_k: How many items the caller wanted.
        more: Further details.
    """
    details: dict[str, Any] = {"k": top_k, **(more or {})}
    if ask.observation and ask.goal != ask.observation:
        details["observation"] = ask.observation
    if ask.actions:
        details["actions"] = ask.actions
    return compact_json(details)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A choice: the hits that are shown, and what is logged with them: the candidates with their scores, best first; details,
    JSON of what the policy knew; vector, that of the query. The last two are made when the log is written."""

    hits: Hits
    candidates: tuple[tuple[str, float], ...]
    details: Callable[[], str]
    vector: Callable[[], bytes] | None = None


_WORDS = re.compile(r"\w+")
CACHED = 1_000
"""The most characters of a text whose words are cached."""


def duplicate_words(text: str) -> str:
    """Return what near duplicates have in common: the words of a text without numbers, in alphabetical order; the text itself if
    no word is left."""
    return _sorted_words(text) if len(text) <= CACHED else _sorted_words.__wrapped__(text)


@lru_cache(10_000)
def _sorted_words(text: str) -> str:
    return " ".join(sorted([word for word in _WORDS.findall(text.casefold()) if not word.isdigit()])) or text


ENOUGH = 0.5
"""The score from which a long note may get all of the budget of automatic recall, if no other hit has more. One with a lower
score gets a share in proportion. The number is a choice, and was tuned on nothing."""

HitFilter = Callable[[Sequence[Hit]], Sequence[Hit]]
"""Hits, best first -> those of them that there is room for."""

Ranked = list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class ScoreScale:
    """What `fuse` needs to compare scores at one question. items: number in the memory; most: the greatest possible BM25 score;
    pool: the length at which each ranking is cut; words: number in the question, without function words; background: the usual
    cosines of the encoder; in_parts: whether the question was read in parts, of which only those that ask count here;
    by_spelling: whether the cosines compare how texts are spelt, and so say nothing of the words."""

    items: int
    most: float
    pool: int
    words: int = 0
    background: Background = USUAL
    in_parts: bool = False
    by_spelling: bool = False

    @classmethod
    def of(
        cls,
        statistics: CorpusStatistics,
        terms: QueryTerms,
        pool: int,
        background: Background,
        *,
        by_spelling: bool = False,
    ) -> ScoreScale:
        """Return the scale of one search.

        Args:
            statistics: How often the words of the query occur.
            terms: Those words.
            pool: The number of items that are searched.
            background: The usual cosines of the encoder.
            by_spelling: Whether the encoder compares spellings and no meanings.
        """
        weights, _ = statistics.weights(terms)
        most = (K1 + 1.0) * sum(weights[group[0]] for group in terms.asking)
        words = sum(terms.weights[group[0]] == 1.0 for group in terms.asking)
        return cls(statistics.documents, most, pool, words, background, terms.in_parts, by_spelling)


def fuse(lexical: Ranked, dense: Ranked, scale: ScoreScale) -> Ranked:
    """Join two rankings, best first, by the sum cosine + WORD_WEIGHT * BM25 / ln(1 + items).

    BM25 is close to the logarithm of odds, so a text with the rare words of a question comes before one that sounds like the
    question. If its words are few or common, the cosine decides. An item that one ranking does not list gets the last score of
    that ranking there, or 0 if the ranking by words lists all that have a word. The final score is between 0 and 1: the item's
    sum over the best sum, times the probability that the memory knows an answer, which depends on the best text's cosine plus
    half its share of the greatest possible BM25 score. Cosines of encoders other than all-MiniLM-L6-v2 are put on its scale
    first (`search.background`). Ties keep the order of the lists.

    Args:
        lexical: The ranking by words, best first.
        dense: The ranking by meaning, best first.
        scale: What the scores of this search mean.
    """
    words, meaning = dict(lexical), scale.background.usual(dense)
    # An item missing from a full list may score as much as its last one; one missing from a list that is not full scores 0.
    fewest, farthest = lexical[-1][1] if len(lexical) >= scale.pool else 0.0, meaning[dense[-1][0]] if dense else 0.0
    unit = _weight_of_words(lexical, meaning, scale) / math.log1p(max(1, scale.items))
    # Function words alone ("the") do not show that an answer is known. Words alone do if the encoder knew no word of the
    # question.
    tells = (0.5 if dense and dense[0][1] else ALONE) / scale.most if scale.most > 0 and scale.words else 0.0
    sums, nearest = {}, 0.0
    for id in dict.fromkeys([*meaning, *words]):
        cosine, score = meaning.get(id, farthest), words.get(id, fewest)
        sums[id] = cosine + unit * score
        nearest = max(nearest, cosine + tells * min(score, scale.most))
    confidence, best = 1.0 / (1.0 + math.exp((KNOWN - nearest) / SPREAD)), max(sums.values(), default=0.0)
    ranked = sorted(sums.items(), key=itemgetter(1), reverse=True)
    return [(id, confidence * max(0.0, total) / best if best > 0 else 0.0) for id, total in ranked]


def _weight_of_words(lexical: Ranked, meaning: Mapping[str, float], scale: ScoreScale) -> float:
    """Return the weight of words for this question, from `WORD_WEIGHT`. `meaning` holds cosines by id, nearest first."""
    if not lexical or scale.most <= 0:
        return WORD_WEIGHT
    long = math.sqrt(max(1.0, scale.words / MANY))
    best = lexical[0][1]
    weight = WORD_WEIGHT * long * min(1.0, best / (scale.most * FEW * long))
    if not meaning or best <= 0 or scale.in_parts or scale.by_spelling:
        return weight
    cosines, words = list(meaning.values()), dict(lexical)
    last = min(len(cosines) - 1, max(1, round(float(scale.items) ** RANK)))
    apart = cosines[0] - cosines[last]
    first = list(meaning)[: max(1, last)]
    shared = sum(words.get(id, 0.0) for id in first) / (best * len(first))
    alone: float = APART / max(apart, APART) * min(MOST_ALONE, SHARED / max(shared, SHARED / MOST_ALONE))
    # One vector says less of a long question, so what is read from the cosines counts less.
    return weight * (1.0 - (1.0 - alone) / long**2)


NEAR_ENOUGH = 1.0 / 3.0
"""A hit goes before a near duplicate of a better one only if its score is at least this share of the duplicate's."""
COMPARED = 10
"""Least number of hits that are compared to find newer ones that contradict older ones."""
POOL = 50
"""Number of candidates of each ranking of a hybrid search, or five times k if that is more."""
LONGEST_QUERY = 200_000
"""Limit of a query's length in characters, as each of its words is looked up."""
MOST = 1_000_000_000
"""Limit of the number of hits; a number larger than the memory returns all items."""
CURRENT = (Status.ACTIVE,)


class SearchOptions(TypedDict, total=False):
    """The options of every search; `Request` describes them."""

    mode: str | None
    threshold: float | None
    floor: float | None
    fits: HitFilter | None
    explain: bool
    kinds: Sequence[ItemKind | str] | None
    statuses: Sequence[Status | str]
    where: Where | Filter
    since: Timestamp
    until: Timestamp
    as_of: Timestamp
    half_life: float
    reranker: Reranker | None
    nobody: bool
    tokens: int
    exact: bool


class ScopedOptions(SearchOptions, total=False):
    """The options of a search of a memory: those of every search, and whose memory is searched. `present`: ids of items that the
    model's context holds already. To leave one out says nothing of what it is worth, so that chance leaves out none of them."""

    user_id: str
    agent_id: str
    session_id: str
    present: Sequence[str]


@dataclass(frozen=True, slots=True)
class Request:
    """What a search can be told, checked. Made by `requested`.

    k: how many hits; mode: "lexical" (BM25), "dense" (cosine) or "hybrid" (both, fused). beyond: how many hits after the k best
    are returned too, where there are any. The k best are the same.
    explain: give each hit `.why`, from which its score can be computed again.
    kinds (None for all), statuses, where (see `search.where`), since <= event time < until: filters. An item without an event
    time has the time at which it was written.
    as_of: the items held true at that time, superseded ones too.
    half_life: days in which a score halves with age, by the event time or the time of writing; 0 for never.
    reranker: scores the pooled candidates anew, (query, texts) -> scores, as a cross-encoder does; a policy goes by these
    scores.
    nobody: only what was noted without a person.
    threshold: hits with a lower score are left out; of a hybrid search that is the fused score (`fuse`), of a dense one the
    cosine, of a lexical one BM25, and of what a policy retrieved its own score, mostly the cosine.
    floor: the same for automatic recall, where a hit for which rewards speak at the question stays, and a long one of another
    gets a share of the budget by its score.
    fits: (hits, those for which rewards speak first, then the best) -> those of them that there is room for, all together.
    tokens: the budget of the text of the hits (see `Hits`), as `memory.search.passages.tokens_of` counts.
    exact: score all items by meaning, in a large memory too, where a first pass names the few hundred that are scored (see
    `search.first_pass`).
    stages: those of the memory, which change the hits in turn.
    auto: whether the memory decides how many hits are shown, at most k (see `search.how_many`).
    idle: whether the words ask for nothing, so that it shows none.
    unordered: only which hits there are counts, and not their order: for those who compare notes themselves.
    """

    k: int
    mode: str = "hybrid"
    beyond: int = 0
    explain: bool = False
    kinds: frozenset[ItemKind] | None = None
    statuses: tuple[Status, ...] = CURRENT
    where: Filter | None = None
    since: str = ""
    until: str = ""
    as_of: str = ""
    half_life: float = 0.0
    reranker: Reranker | None = None
    nobody: bool = False
    threshold: float | None = None
    floor: float | None = None
    fits: HitFilter | None = None
    tokens: int = TOKENS
    stages: tuple[NamedStage, ...] = ()
    auto: bool = False
    idle: bool = False
    unordered: bool = False
    exact: bool = False

    @property
    def pool(self) -> int:
        """Return the number of candidates of each ranking: no more than are returned, unless a later stage chooses among more."""
        if self.mode == "hybrid" or self.reranker is not None or self.half_life or self.stages:
            return max(POOL, 5 * self.k)
        # By words alone, newer facts are looked for among as many hits as in a hybrid search.
        return max(self.k + self.beyond, COMPARED if self.mode == "lexical" else 0)

    @property
    def admits_not_current(self) -> bool:
        """Return whether items that are not current may be returned, by a time in the past or by their status."""
        return bool(self.as_of) or self.statuses != CURRENT

    @property
    def usual(self) -> bool:
        """Return whether exactly the current items that meet `declared` may be returned."""
        return not (self.admits_not_current or self.by_function or self.nobody)

    @property
    def by_function(self) -> bool:
        """Return whether the filter has a part that is a function."""
        return self.where is not None and self.where.function is not None

    @property
    def declared(self) -> Filter | None:
        """Return the part of the filters that can be checked before anything is ranked."""
        kinds = None if self.kinds is None else sorted(kind.value for kind in self.kinds)
        return narrowed(self.where, kinds, self.since, self.until)

    @property
    def staged(self) -> bool:
        """Return whether a stage after the candidates was asked for."""
        bounded = self.threshold is not None or self.floor is not None
        return bool(self.half_life or self.reranker or self.explain or bounded or self.fits or self.stages)

    def admits(self, item: Item, time: str) -> bool:
        """Return whether the filters let an item through at the present `time`."""
        if self.as_of:
            if not item.valid_at(self.as_of):
                return False
        elif not item.open or not item.in_force(time):
            return False
        when = item.event_time or item.written_at
        if (
            item.status not in self.statuses
            or (self.kinds is not None and item.kind not in self.kinds)
            or (self.since and when < self.since)
            or (self.until and when >= self.until)
        ):
            return False
        if self.nobody and item.scope.user:
            return False
        return self.where is None or self.where(item)


OPTIONS = tuple(
    one.name
    for one in fields(Request)
    if one.name not in ("k", "mode", "beyond", "stages", "auto", "idle", "unordered")
)
"""Names of what a search can be told."""


def checked_number(number: object, name: str, least: int) -> int:
    """Return a valid number of hits or of a step. Raises InvalidFilter.

    Args:
        number: What the caller gave.
        name: The name of the option, for the message.
        least: 1 for a number of hits, 0 for a step.
    """
    if not isinstance(number, Integral) or isinstance(number, bool) or not least <= int(number) <= MOST:
        words = f', or "{AUTO}"' if name == "top_k" else ""
        raise InvalidFilter(
            f"{name} must be a whole number from {least} to {MOST:,}{words}, got {number!r:.40}: give such a number"
        )
    return int(number)


def checked_switch(value: object, name: str) -> bool:
    """Return True or False. Raises InvalidFilter for anything else, such as "no"."""
    if value not in (True, False):
        raise InvalidFilter(f"{name} must be True or False, got {value!r:.40}: give one of them")
    return bool(value)


def requested(k: int | str, mode: str, options: Mapping[str, Any], beyond: int = 0) -> Request:
    """Check what a caller gave, and return it as a request. Raises InvalidFilter for a value that cannot be used or has
    no effect beside another, UnknownOption, InvalidTime.

    Args:
        k: The most items, or "auto".
        mode: That of the search, if the options have none.
        options: What the caller gave, by name as in `ScopedOptions`.
        beyond: How many more candidates are ranked than are returned.
    """
    auto = isinstance(k, str) and k == AUTO
    k = WIDEST if auto else checked_number(k, "top_k", 1)
    if not options:
        return Request(k, mode, beyond, auto=auto)
    given = dict(options)
    mode = given.pop("mode", None) or mode
    if mode not in MODES:
        raise InvalidFilter(f"mode {mode!r} does not exist: use one of {', '.join(MODES)}")
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise unknown_option("a search", unknown[0], ("top_k", "actions", "explore", *ScopedOptions.__annotations__))
    if "tokens" in given:
        checked_number(given["tokens"], "tokens", 1)
    if given.get("kinds") is not None:
        given["kinds"] = checked_kinds(given["kinds"])
    if "statuses" in given:
        given["statuses"] = tuple(member(Status, status) for status in several(given["statuses"], "statuses", "active"))
    for name in ("since", "until", "as_of"):
        if name in given:
            given[name] = timestamp(given[name])
    if "where" in given:
        given["where"] = parsed(given["where"])
    _check_combination(mode, given)
    return Request(k, mode, beyond, auto=auto, **given)


def _check_combination(mode: str, given: Mapping[str, Any]) -> None:
    """Raise InvalidFilter for values of a wrong type, and for options that have no effect together."""
    for name in ("threshold", "floor"):
        least = given.get(name)
        if least is not None and (not isinstance(least, (int, float)) or math.isnan(least)):
            raise InvalidFilter(f"{name} must be a number, got {least!r:.40}: give one, or leave it out")
    half_life = 0.0 if given.get("half_life") is None else given["half_life"]
    if not isinstance(half_life, (int, float)) or isinstance(half_life, bool) or not 0.0 <= half_life < math.inf:
        raise InvalidFilter(f"half_life must be days, 0 or more, got {half_life!r:.40}: leave it out for none")
    if checked_switch(given.get("exact", False), "exact") and mode == "lexical":
        raise InvalidFilter("exact has no effect with mode='lexical', which compares no vectors: leave one out")
    reranker, fits = given.get("reranker"), given.get("fits")
    if reranker is not None and not callable(reranker):
        raise InvalidFilter(f"reranker must be a function (query, texts) -> scores, got {reranker!r:.60}")
    if fits is not None and not callable(fits):
        raise InvalidFilter(f"fits must be a function of the hits that gives those there is room for, got {fits!r:.60}")
    if half_life and (mode == "dense" or reranker is not None):
        raise InvalidFilter("half_life has no effect with mode='dense' or a reranker, whose order wins: leave one out")


def checked_query(query: object, number: int = 0) -> str:
    """Return a query that is text of at most `LONGEST_QUERY` characters. Raises InvalidText."""
    if not isinstance(query, str):
        raise InvalidText(f"query number {number} must be text, got {type(query).__name__}: give the words to look for")
    if len(query) > LONGEST_QUERY:
        raise InvalidText(
            f"query number {number} is {len(query):,} characters long, the limit is {LONGEST_QUERY:,}: ask with the part "
            "that matters"
        )
    return query if query.isprintable() else checked_label(query, f"query number {number}")


def checked_kinds(kinds: object) -> frozenset[ItemKind]:
    """Return the kinds of items that a caller names; none if the caller names none. Raises InvalidFilter."""
    return frozenset(member(ItemKind, kind) for kind in several(kinds, "kinds", "fact"))


def several(names: object, what: str, such: str) -> Iterable[Any]:
    """Return an iterable option that is no single text. Raises InvalidFilter.

    Args:
        names: What the caller gave.
        what: The name of the option, for the message.
        such: An example of an element, for the message.
    """
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise InvalidFilter(f"{what} takes several, got {names!r:.40}: give a list such as [{such!r}]")
    return names


class Corpus(Protocol):
    """What is searched: a store as it is, or a bank. Ranked lists hold current items only, best first. on_file: whether looking
    words up takes as long as encoding. where: items whose metadata do not meet it are left out, or are `doubtful`."""

    @property
    def on_file(self) -> bool: ...
    def fetch(self, ids: Sequence[str]) -> Mapping[str, Item | None]: ...
    def doubtful(self, ids: Sequence[str]) -> Sequence[str]:
        """Return those of `ids` whose item has to be read to decide whether it is current, in force, and meets the filter."""

    def languages(self) -> frozenset[str]:
        """Return the languages whose stems occur among the words."""

    def vectors_of(self, items: Sequence[Item]) -> Mapping[str, Vectors]:
        """Return the vectors of items, by id: of the text and of each part of a long one. Shapes (1 + parts, dimension)."""

    def statistics(self, terms: Sequence[str]) -> CorpusStatistics: ...
    def by_words(
        self, terms: QueryTerms, count: int, statistics: CorpusStatistics, where: Filter | None = None
    ) -> Ranked:
        """Return the `count` best items by BM25 with these statistics of all that is ranked together. Items without a query term
        are left out.

        Args:
            terms: The words of the query.
            count: The most items.
            statistics: How often words occur in the scope.
            where: A filter; None for all items.
        """

    def by_meaning(
        self, vectors: Vectors, count: int, *, where: Filter | None = None, exact: bool = False
    ) -> Sequence[Ranked]:
        """Return for each query the `count` best items by cosine. vectors: unit rows, shape (queries, dimension).

        Args:
            vectors: Those of the queries, of shape (queries, dimension).
            count: The most items.
            where: A filter; None for all items.
            exact: Whether all items are scored, however many there are.
        """


@dataclass(slots=True)
class Asked:
    """The state of one query during a search: its rankings by words and by meaning, and its unit vector, if one was needed, which
    is that of the first sentence that asks if the query is long."""

    question: ReadQuestion
    terms: QueryTerms
    statistics: CorpusStatistics = field(default_factory=lambda: CorpusStatistics(0, 0, {}))
    lexical: Ranked = field(default_factory=list)
    dense: Ranked = field(default_factory=list)
    vector: Vectors | None = None

    @classmethod
    def of(cls, query: str, languages: Iterable[str]) -> Asked:
        """Read a query to texts in these languages."""
        question = read(query)
        terms = asked_terms(query, languages, question.asking)
        if terms.in_parts and not terms.tell:  # "what do we do about this?": what stands beside it is what is asked for
            question, terms = ReadQuestion(query), asked_terms(query, languages)
        return cls(question, terms)


class Search:
    """One request for one or several queries: two rankings, their fusion, and stages that turn them into hits. Items expire by
    `time`. `searched` is the corpus with items that are not current made searchable, if the request may admit those. `proven`
    returns, for the vector of a question, the ids of items that rewards speak for there."""

    def __init__(
        self,
        corpus: Corpus,
        embedder: Embedder | None,
        request: Request,
        time: str,
        searched: Corpus | None = None,
        proven: Callable[[Vectors | None], Sequence[str]] | None = None,
    ) -> None:
        if embedder is None and request.mode != "lexical":
            raise MemoryProblem(
                f"a {request.mode} search needs an encoder and there is none: give one, or use mode='lexical'"
            )
        unreachable = request.threshold is not None and request.threshold > 1.0
        if unreachable and request.mode != "lexical" and request.reranker is None:
            raise InvalidFilter(
                f"threshold={request.threshold:g} leaves nothing, whatever is asked: the highest score of a "
                f"{request.mode} search is 1",
                "Give a lower one; with mode='dense' the score is the cosine.",
            )
        self.corpus, self.ranked, self.embedder = corpus, searched or corpus, embedder
        self.request, self.time, self.proven = request, time, proven
        self._verdicts: dict[str, bool] = {}
        self.vectors: list[Vectors | None] = []
        self.evidence: list[AnswerEvidence] = []
        self.sizes: list[SetSize] = []

    def hits(self, queries: Sequence[str]) -> list[list[Hit]]:
        """Return the hits of each query, best first. Afterwards `vectors` holds the vector of each query, or None if none was
        needed."""
        request, out = self.request, []
        listed = self._candidates(queries)
        self.vectors = [asked.vector for asked in listed]
        # Newer facts go before older ones that they contradict, and near duplicates share one place: not with a reranker, whose
        # order wins, nor by cosine alone.
        timed = request.mode != "dense" and request.reranker is None
        most = max(request.k + request.beyond, COMPARED if timed else 0, request.pool if request.stages else 0)
        listed_apart = most if request.stages else request.k + request.beyond
        for asked in listed:
            ranked = asked.lexical or asked.dense
            if request.mode == "hybrid":
                background = self.embedder.background if self.embedder is not None and asked.dense else USUAL
                spelling = self.embedder is not None and self.embedder.by_spelling
                scale = ScoreScale.of(asked.statistics, asked.terms, request.pool, background, by_spelling=spelling)
                ranked = fuse(asked.lexical, asked.dense, scale)
            proven = self.proven(asked.vector) if self.proven is not None else ()
            ranked = self._order(asked, self._append(proven, asked, ranked) if proven else ranked)
            hits = self._as_hits(asked, ranked[:most])
            if timed:  # hits beyond those that are compared do not change them
                near = max(request.k, COMPARED)
                # Without near duplicates these stages change the order alone.
                if (
                    not request.unordered
                    or len(hits) > listed_apart
                    or len({duplicate_words(hit.text) for hit in hits}) < len(hits)
                ):
                    ordered = newer_first(hits[:near], asked.terms, asked.question.asks)
                    hits = self._separate(asked, [*ordered, *hits[near:]], ranked[most:], listed_apart)
            missing = set(proven).difference(hit.id for hit in hits)
            hits += self._as_hits(asked, [pair for pair in ranked if pair[0] in missing]) if missing else []
            hits = self._find_passages(asked, hits)
            hits = self._finished(asked, hits, frozenset(proven))
            out.append(self._judge(asked, hits, frozenset(proven)) if request.auto else hits)
        return out

    def _judge(self, asked: Asked, hits: list[Hit], proven: Collection[str]) -> list[Hit]:
        """Decide how many of the hits are worth showing, if there is room for them: not what a newer one contradicts, unless the
        question is about the past. Without `beyond`, those alone are returned."""
        evidence = weigh(asked, () if self.request.idle else hits, self.embedder)
        size = decide(evidence)
        judged = zip(hits, size.answers, strict=False)
        hits = [*(replace(hit, answers=answers) for hit, answers in judged), *hits[len(size.answers) :]]
        first, before = list[Hit](), set[str]()
        for hit in hits[: size.number]:
            if before.isdisjoint(hit.conflicts) or about_the_past(asked.question.asks):
                first.append(hit)
            before.add(hit.id)
        first = first[: max(1, len(first) - len(block(first, asked.question.text, self.request.tokens).missing))]
        self.evidence.append(evidence)
        self.sizes.append(replace(size, number=len(first)))
        last = self.request.k + self.request.beyond if self.request.beyond else len(first)
        shown = {hit.id for hit in first}
        hits = [*first, *(hit for hit in hits if hit.id not in shown)]
        return [hit for place, hit in enumerate(hits) if place < last or hit.id in proven]

    def staged(self, query: str, candidates: Ranked) -> list[Hit]:
        """Pass candidates that something else retrieved for a query through the stages that the request asks for."""
        asked = Asked.of(query, self.ranked.languages())
        asked.dense = candidates
        return self._finished(asked, self._as_hits(asked, self._order(asked, candidates)))

    def _append(self, proven: Sequence[str], asked: Asked, ranked: Ranked) -> Ranked:
        """Return the ranking, and behind it those of `proven` that it does not list and that pass the same filters. They have
        their own scores by meaning or by words alone, and the last score of both together."""
        scores, request, last = dict(ranked), self.request, ranked[-1][1] if ranked else 0.0
        added = list[tuple[str, float]]()
        for id, item in self.corpus.fetch([id for id in proven if id not in scores]).items():
            if item is None or not request.admits(item, self.time):
                continue
            score = last
            if request.mode == "lexical":
                weights, mean_length = asked.statistics.weights(asked.terms)
                score = sum(term_scores(terms_of(item.indexed_text), weights, mean_length).values())
            elif request.mode == "dense" and asked.vector is not None:
                made = self.ranked.vectors_of([item]).get(id)
                score = last if made is None else float((made @ asked.vector).max())
            if score > 0.0 or request.mode != "lexical":  # by words alone, only what has one of them is found
                added.append((id, min(score, last)))
        return [*ranked, *added]

    def _separate(self, asked: Asked, hits: list[Hit], rest: Ranked, most: int) -> list[Hit]:
        """Let near duplicates share one place: the best of them stands for the others, which follow what is at least
        `NEAR_ENOUGH` as near as they are. Where they take places, as many further ones of the ranking are looked at."""
        apart, again, there = list[Hit](), list[Hit](), set[str]()
        while hits:
            for hit in hits:
                key = duplicate_words(hit.text)
                if key in there and len(hit.conflicts) != 1:
                    again.append(hit)
                else:  # also an older value beside the newer one that takes its place, which is its one conflict
                    apart.append(hit)
                there.add(key)
            missing = most - len(apart)
            hits, rest = (self._as_hits(asked, rest[:missing]), rest[missing:]) if again and missing > 0 else ([], rest)
        listed = list[Hit]()
        for hit in again:
            while apart and apart[0].score >= NEAR_ENOUGH * hit.score:
                listed.append(apart.pop(0))
            listed.append(hit)
        return [*listed, *apart][:most]

    def _order(self, asked: Asked, ranked: Ranked) -> Ranked:
        """Return the candidates sorted by age or by a reranker if the request asks for that."""
        if self.request.half_life:
            ranked = self._age(ranked)
        if self.request.reranker is not None:
            ranked = self._rerank(asked, ranked)
        return ranked

    def _as_hits(self, asked: Asked, ranked: Ranked) -> list[Hit]:
        """Return candidates as hits."""
        items, words, meaning = self.corpus.fetch([id for id, _ in ranked]), dict(asked.lexical), dict(asked.dense)
        return [
            Hit(item, score, words.get(id), meaning.get(id)) for id, score in ranked if (item := items[id]) is not None
        ]

    def _finished(self, asked: Asked, hits: list[Hit], proven: Collection[str] = ()) -> list[Hit]:
        """Explain the hits, pass them through the memory's stages, and leave out what is below the threshold or the floor or
        finds no room, if the request asks for that. Rewards speak for the items `proven`."""
        request = self.request
        if request.explain:
            hits = self._explain(asked, hits)
        for stage in request.stages:
            hits = stage(StageRequest(asked.question.text, self.time, request), hits)
        if request.stages:  # they saw more hits than are asked for
            most = request.k + request.beyond
            hits = [hit for place, hit in enumerate(hits) if place < most or hit.id in proven]
        if request.threshold is not None:
            hits = [hit for hit in hits if hit.score >= request.threshold]
        if request.floor is not None:
            hits = [hit for hit in hits if hit.score >= request.floor or hit.id in proven]
            enough = max((ENOUGH, *(hit.score for hit in hits)))
            hits = [hit if hit.id in proven else replace(hit, share=max(0.0, hit.score) / enough) for hit in hits]
        if request.fits is not None:
            with called_as("fits"):
                fitting = list(request.fits(sorted(hits, key=lambda hit: hit.id not in proven)))
            there = {id(hit) for hit in fitting}
            if not there <= {id(hit) for hit in hits}:
                raise InvalidFilter("fits gave hits that were not found: it must give some of those it was given")
            hits = [hit for hit in hits if id(hit) in there] if proven else fitting
        return hits

    # Candidates.

    def _candidates(self, queries: Sequence[str]) -> list[Asked]:
        """Rank the admitted items for each query, by words and by meaning."""
        request, ranked, embedder = self.request, self.ranked, self.embedder
        among = ranked.languages()
        listed = [Asked.of(query, among) for query in queries]
        dense, where = embedder is not None and request.mode != "lexical", request.declared
        texts = [text for asked in listed for text in asked.question.encoded]
        # Over a store, words are looked up while the encoder is at work: on a laptop each takes some milliseconds.
        together = embedder is not None and request.mode == "hybrid" and self.corpus.on_file
        vectors = embedder.begin(texts) if embedder is not None and together else None
        if request.mode != "dense":
            for asked in listed:
                asked.statistics = ranked.statistics(asked.terms)
                if asked.terms:
                    rank = partial(ranked.by_words, asked.terms, statistics=asked.statistics, where=where)
                    asked.lexical = self._admit(rank, request.pool)
        elif request.auto:  # which words the notes share with the question says how many of them to show
            for asked in listed:
                asked.statistics = ranked.statistics(asked.terms)
        if embedder is not None and dense:
            encoded = vectors() if vectors is not None else embedder(texts)
            # All queries in one product; one that filters thin out looks deeper by itself.
            reach, start = request.pool * (FIRST_LOOK if request.by_function else 1), 0
            first = ranked.by_meaning(encoded, reach, where=where, exact=request.exact)
            for asked in listed:
                here = slice(start, start + len(asked.question.encoded))
                rank = partial(self._by_meaning, asked.question, encoded[here], where)
                asked.vector = encoded[start]
                asked.dense = self._admit(rank, reach, asked.question.joined(first[here]))
                start = here.stop
        return listed

    def _by_meaning(self, question: ReadQuestion, vectors: Vectors, where: Filter | None, reach: int) -> Ranked:
        """Rank items by the meaning of all parts of a question."""
        return question.joined(self.ranked.by_meaning(vectors, reach, where=where, exact=self.request.exact))

    def _admit(self, rank: Callable[[int], Ranked], reach: int, first: Ranked | None = None) -> Ranked:
        """Return the best admitted candidates, as many as the request pools. It ranks `reach` of them at first (`first`, if that
        is there already), and more while filters thin them out; each item is checked once."""
        pool, verdicts = self.request.pool, self._verdicts
        while True:
            ranked, first = rank(reach) if first is None else first, None
            admitted: Ranked = []
            step = TOGETHER if self.request.by_function else max(1, len(ranked))
            for start in range(0, len(ranked), step):
                part = ranked[start : start + step]
                unseen = [id for id, _ in part if id not in verdicts]
                doubtful = set(self.corpus.doubtful(unseen)) if self.request.usual else set(unseen)
                items = self.corpus.fetch([id for id in unseen if id in doubtful])
                for id in unseen:
                    item = items.get(id)
                    verdicts[id] = id not in doubtful or (item is not None and self.request.admits(item, self.time))
                admitted += [pair for pair in part if verdicts[pair[0]]]
                if len(admitted) >= pool:
                    return admitted[:pool]
            if len(ranked) < reach:
                return admitted
            reach *= 4

    # Stages of a ranking.

    def _age(self, ranked: Ranked) -> Ranked:
        """Let scores halve with age. A time in the future counts as no age."""
        now, aged = datetime.fromisoformat(self.request.as_of or self.time), dict[str, float]()
        for id, item in self.corpus.fetch([id for id, _ in ranked]).items():
            when = "" if item is None else item.event_time or item.written_at
            days = (now - datetime.fromisoformat(when)).total_seconds() / 86_400.0 if when else 0.0
            aged[id] = 0.5 ** (max(0.0, days) / self.request.half_life)
        return sorted(((id, score * aged[id]) for id, score in ranked), key=lambda pair: -pair[1])

    def _rerank(self, asked: Asked, ranked: Ranked) -> Ranked:
        """Sort the candidates by the scores of the reranker."""
        reranker, fetched = self.request.reranker, self.corpus.fetch([id for id, _ in ranked])
        if reranker is None or not ranked:
            return ranked
        items = [item for id, _ in ranked if (item := fetched[id]) is not None]
        with called_as("The reranker"):
            fresh = [float(score) for score in reranker(asked.question.text, [item.text for item in items])]
        if len(fresh) != len(items):
            raise InvalidFilter(f"the reranker gave {len(fresh)} scores for {len(items)} texts")
        return [(items[at].id, fresh[at]) for at in sorted(range(len(items)), key=lambda at: -fresh[at])]

    # Stages of hits.

    def _find_passages(self, asked: Asked, hits: list[Hit]) -> list[Hit]:
        """Set for each long text the part that is nearest to the query: by meaning if its parts have vectors, else by words."""
        long = {hit.item.id: spans(hit.item.text) for hit in hits if len(hit.item.text) > SHORT}
        meant = [hit.item for hit in hits if long.get(hit.item.id) and not hit.item.key and hit.dense is not None]
        vectors = self.ranked.vectors_of(meant) if meant else {}

        def placed(hit: Hit) -> Hit:
            parts, made = long.get(hit.item.id, ()), vectors.get(hit.item.id)
            if not parts:
                return hit
            if asked.vector is None or made is None or len(made) != 1 + len(parts):
                return replace(hit, span=nearest_piece(hit.item.text, asked.question.asks))
            best = int((made @ asked.vector).argmax())
            return replace(hit, span=parts[best - 1]) if best else hit

        return [placed(hit) for hit in hits] if any(long.values()) else hits

    def _explain(self, asked: Asked, hits: list[Hit]) -> list[Hit]:
        """Add to each hit the parts of its score."""
        weights, mean_length = self.ranked.statistics(asked.terms).weights(asked.terms)
        by_words, by_meaning = (
            {id: rank for rank, (id, _) in enumerate(part, start=1)} for part in (asked.lexical, asked.dense)
        )
        out = []
        for hit in hits:
            scores = term_scores(terms_of(hit.item.indexed_text), weights, mean_length)
            parts = {term: scores[term] for term in asked.terms if term in scores}
            out.append(replace(hit, why=Explanation(by_words.get(hit.id), by_meaning.get(hit.id), parts)))
        return out


FIRST_LOOK = 64
"""How many times as many as are asked for a search by meaning lists at once where a function filters: looking deeper reads all
vectors again, and listing more costs next to nothing."""
TOGETHER = 256
"""Items that are read at once, to be looked at one by one until there are enough."""
