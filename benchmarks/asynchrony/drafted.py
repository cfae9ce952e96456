"""Speculative decoding, as far as it has to be real to be measured: one pass over several tokens of each sequence, and the rule
by which a proposal is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn.functional import embedding, linear, log_softmax, pad, rms_norm, silu

from keepworth.episodes.model import Tokens
from keepworth.models.attention import _bf16_products, round_up
from keepworth.models.caches import buffer_cache
from keepworth.models.decoding_step import DecodingStep, PackedWeights, Product
from keepworth.models.inprocess import InProcessModel

_COLUMNS = 32


class Kept:
    """Keys and values of R sequences, float32, [layer][R, KV, D, C] and [layer][R, KV, C, D]; lengths [R] say what counts of
    them.

    Taking back a token is making a length shorter."""

    def __init__(self, keys: list[torch.Tensor], values: list[torch.Tensor], lengths: torch.Tensor) -> None:
        self.keys, self.values, self.lengths = keys, values, lengths

    def reserve(self, columns: int) -> None:
        more = round_up(columns, _COLUMNS) - self.values[0].shape[2]
        if more > 0:
            self.keys = [pad(each, (0, more)) for each in self.keys]
            self.values = [pad(each, (0, 0, 0, more)) for each in self.values]


@torch.inference_mode()
def read(model: InProcessModel, prompts: list[Tokens]) -> tuple[torch.Tensor, Kept]:
    """Hidden states [R, P, H] of the prompts' tokens, and what is kept of them."""
    lengths = torch.tensor([len(each) for each in prompts])
    width = int(lengths.max())
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, each in enumerate(prompts):
        ids[row, : len(each)] = torch.tensor(each)
    cache = buffer_cache(model.network.config.num_hidden_layers, width)
    hidden = model.hidden_states(ids, torch.arange(width).expand(len(prompts), -1), None, cache)
    wide = torch.promote_types(hidden.dtype, torch.float32)
    spare = round_up(width, _COLUMNS) - width
    keys = [pad(layer.keys.to(wide).mT, (0, spare)).contiguous() for layer in cache.layers]
    values = [pad(layer.values.to(wide), (0, 0, 0, spare)).contiguous() for layer in cache.layers]
    return hidden, Kept(keys, values, lengths)


class CheckingStep(DecodingStep):
    """The decoding step over S tokens of each of R sequences at once. Products have R * S rows; a sequence's keys are read once
    for all of its tokens."""

    def check(self, tokens: torch.Tensor, kept: Kept) -> torch.Tensor:
        """tokens [R, S] behind what is kept -> hidden states [R, S, H]. Their keys and values are kept, too."""
        (rows, width), size, shared = tokens.shape, self._size, self._keys
        queries = self._queries
        positions = kept.lengths[:, None] + torch.arange(width)
        kept.reserve(int(positions.max()) + 1)
        columns = kept.values[0].shape[2]
        unseen = torch.arange(columns) > positions[..., None]  # [R, S, C]
        unseen = unseen[:, None, None].expand(-1, shared, queries // shared, -1, -1) if bool(unseen.any()) else None
        x = embedding(tokens.flatten(), self._decoder.embed_tokens.weight)
        cos, sin = self._decoder.rotary_emb(x[:, None], positions.flatten()[:, None])
        half = size // 2
        signed = torch.cat([-sin[..., :half], sin[..., half:]], -1)
        row = torch.arange(rows)[:, None].expand(-1, width).flatten()
        column = positions.flatten()
        for layer, keys, values in zip(self._layers, kept.keys, kept.values, strict=True):
            heads = layer.heads(layer.before(x)).view(rows * width, -1, size)
            turned = heads[:, : queries + shared]
            turned = (turned * cos).add_(turned.roll(half, -1).mul_(signed))
            keys[row, :, :, column] = turned[:, queries:].to(keys.dtype)
            values[row, :, column] = heads[:, queries + shared :].to(values.dtype)
            asked = turned[:, :queries].view(rows, width, shared, queries // shared, size).permute(0, 2, 3, 1, 4)
            with _bf16_products(x.dtype):
                scores = torch.bmm(asked.reshape(rows * shared, -1, size).to(keys.dtype), keys.flatten(0, 1))
                scores = scores.mul_(self._scale).view(rows, shared, queries // shared, width, columns)
                if unseen is not None:
                    scores.masked_fill_(unseen, float("-inf"))
                shares = torch.softmax(scores, -1).to(x.dtype).to(keys.dtype)
                seen = torch.bmm(shares.view(rows * shared, -1, columns), values.flatten(0, 1))
            seen = seen.view(rows, shared, queries // shared, width, size).permute(0, 3, 1, 2, 4)
            x = x + layer.out(seen.reshape(rows * width, -1).to(x.dtype))
            gates = layer.gates(layer.after(x))
            middle = gates.shape[-1] // 2
            x = x + layer.down(silu(gates[:, :middle]).mul_(gates[:, middle:]))
        kept.lengths = kept.lengths + width
        return self._norm(x).view(rows, width, -1)


def checking_step(model: InProcessModel) -> CheckingStep:
    return CheckingStep(model._causal_model(), model._packed)


# The rule: a proposal x that was drawn from q is kept with probability min(1, p(x) / q(x)); otherwise the token is drawn from
# what # of p is above q. What comes out is distributed as p, whatever q is.


@dataclass(frozen=True, slots=True)
class Proposals:
    """Of one sequence. tokens: proposed in turn. support: for each, the tokens [V'] that it could have been, and their
    probabilities [V'] when it was drawn."""

    tokens: Sequence[int]
    support: Sequence[tuple[torch.Tensor, torch.Tensor]]


def left_over(p: torch.Tensor, support: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """What of p [V] is above q [V'] on `support` [V'], not normalised."""
    rest = p.clone()
    rest[support] -= q
    return rest.clamp_(min=0)


def at(weights: torch.Tensor, uniform: float) -> int:
    """The index at which the running sum of weights [V] passes `uniform` of all; never one of weight 0."""
    running = weights.double().cumsum(0)
    point = min(uniform, 1 - 1e-12) * float(running[-1])
    return int(torch.searchsorted(running, torch.tensor(point, dtype=torch.float64), right=True))


def settled(p: torch.Tensor, proposals: Proposals, uniforms: Sequence[float]) -> tuple[int, int]:
    """p [k + 1, V]: what the model draws from after each of the k proposals, were those before it kept. uniforms: k + 1 numbers
    in [0, 1) for keeping, and one for the draw. Returns how many are kept, and the token that follows them."""
    for j, (token, (support, q)) in enumerate(zip(proposals.tokens, proposals.support, strict=True)):
        proposed = float(q[support == token][0])
        if uniforms[j] * proposed < float(p[j, token]):
            continue
        rest = left_over(p[j], support, q)
        return j, at(
            rest if float(rest.sum()) > 0 else p[j], uniforms[-1]
        )  # 0 where rounding alone made p differ from q
    return len(proposals.tokens), at(p[len(proposals.tokens)], uniforms[-1])


class Drafts(Protocol):
    """Proposes k tokens behind each sequence. hidden [R, H]: of the token before the last of each; texts: read and drawn so
    far."""

    def __call__(
        self, hidden: torch.Tensor, texts: Sequence[Sequence[int]], k: int, generator: torch.Generator
    ) -> list[Proposals]: ...


class NGram:
    """What followed the last tokens where they last stood in the text; as sure as can be of it."""

    def __call__(
        self, hidden: torch.Tensor, texts: Sequence[Sequence[int]], k: int, generator: torch.Generator
    ) -> list[Proposals]:
        sure = torch.ones(1)
        found = []
        for text in texts:
            follow = next((each for n in (3, 2, 1) if (each := proposed(tuple(text), n, k))), ())
            follow = (*follow, *(text[-1] for _ in range(k - len(follow))))  # all rows have as many
            found.append(Proposals(follow, [(torch.tensor([each]), sure) for each in follow]))
        return found


def proposed(before: Tokens, n: int, k: int) -> Tokens:
    """What followed the last n tokens where they last stood before; nothing where they never did."""
    tail = before[-n:]
    for start in range(len(before) - n - 1, -1, -1):
        if before[start : start + n] == tail:
            return before[start + n : start + n + k]
    return ()


class Head(torch.nn.Module):
    """One layer that goes from a hidden state and the token that was drawn from it to the next hidden state.

    The state that comes out goes in again for the token after. words [V']: the tokens that it can propose, by rows of the model's
    own output head, which it does not train."""

    def __init__(self, words: torch.Tensor, head: torch.Tensor, embeddings: torch.Tensor, inner: int = 1536) -> None:
        super().__init__()
        size = head.shape[1]
        self.words = words
        self.head = head[words].float()
        self.embeddings = embeddings
        self.mix = torch.nn.Linear(2 * size, inner, bias=False)
        self.out = torch.nn.Linear(inner, size, bias=False)
        torch.nn.init.zeros_(self.out.weight)

    def forward(self, state: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """state [N, H], token [N] -> [N, H]."""
        known = embedding(token, self.embeddings).to(state.dtype)
        size = (state.shape[-1],)
        both = torch.cat([rms_norm(state, size), rms_norm(known, size)], -1)
        moved: torch.Tensor = self.out(silu(self.mix(both)))
        return state + moved

    def logits(self, state: torch.Tensor) -> torch.Tensor:
        return linear(state, self.head)


@dataclass(frozen=True, slots=True)
class Seen:
    """Texts that the model has read or drawn: ids [T] and the hidden states [T, H] of each, which decoding computes anyway."""

    ids: torch.Tensor
    hidden: torch.Tensor


def windows(seen: Sequence[Seen], depth: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states of all texts [N, H], ids [N], and the places from which `depth` further tokens of the same text follow."""
    places, offset = [], 0
    for each in seen:
        places.append(torch.arange(offset, offset + max(0, len(each.ids) - depth)))
        offset += len(each.ids)
    return torch.cat([each.hidden for each in seen]), torch.cat([each.ids for each in seen]), torch.cat(places)


def loss_of(
    head: Head, hidden: torch.Tensor, ids: torch.Tensor, places: torch.Tensor, depth: int, accepted_alone: bool = False
) -> torch.Tensor:
    """Cross-entropy of the model's own distribution to the head's, over `depth` tokens that are proposed in turn, mean [nats].

    It holds what the model keeps and what it refuses. accepted_alone: each token counts by min(p, q), the probability that it is
    proposed and kept, so that what is refused teaches nothing."""
    state = hidden[places].float()
    total = state.new_zeros(())
    for j in range(1, depth + 1):
        state = head(state, ids[places + j])
        with torch.no_grad():
            wanted = torch.softmax(head.logits(hidden[places + j].float()).float(), -1)
        logs = log_softmax(head.logits(state).float(), -1)
        if accepted_alone:
            wanted = torch.minimum(wanted, logs.detach().exp())
        total = total - (wanted * logs).sum(-1).mean()
    return total / depth


def fit(
    head: Head,
    seen: Sequence[Seen],
    updates: int,
    *,
    depth: int = 3,
    rows: int = 256,
    rate: float = 1e-3,
    seed: int = 0,
    accepted_alone: bool = False,
) -> float:
    """Adam with a rate that falls to a tenth. Returns the mean loss of the last tenth."""
    optimiser = torch.optim.AdamW(head.parameters(), rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates, rate / 10)
    generator = torch.Generator().manual_seed(seed)
    hidden, ids, places = windows(seen, depth)
    losses = []
    for _ in range(updates):
        chosen = places[torch.randint(len(places), (rows,), generator=generator)]
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(head, hidden, ids, chosen, depth, accepted_alone)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 0.5)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
    last = losses[-max(1, updates // 10) :]
    return sum(last) / len(last)


@torch.no_grad()
def first_kept(head: Head, model: InProcessModel, seen: Sequence[Seen], starts: Sequence[int]) -> list[float]:
    """The probability that the first proposal is kept, the sum of min(p, q) over all tokens: of each text the mean over its
    tokens behind `starts`."""
    found = []
    for each, start in zip(seen, starts, strict=True):
        p = torch.softmax(model.head(each.hidden[start:]).float(), -1)
        q = torch.softmax(head.logits(head(each.hidden[start - 1 : -1].float(), each.ids[start:])), -1)
        found.append(float(torch.minimum(p[:, head.words], q).sum(-1).mean()))
    return found


class QuickHead:
    """A `Head` in bfloat16 with weights as the processor multiplies few rows with them: what drafting costs."""

    def __init__(self, head: Head) -> None:
        self._packed = PackedWeights()
        self.words, self.embeddings = head.words, head.embeddings
        weights = (head.mix.weight, head.out.weight, head.head)
        self._mix, self._out, self._head = (
            self._product(each.detach().to(torch.bfloat16).contiguous()) for each in weights
        )

    def _product(self, weight: torch.Tensor) -> Product:
        return Product(*self._packed.of([weight]), None, None, None, 0.0)

    def step(self, state: torch.Tensor, token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The next state [R, H] and the probabilities [R, V'] of `words` behind it."""
        size = (state.shape[-1],)
        both = torch.cat([rms_norm(state, size), rms_norm(embedding(token, self.embeddings), size)], -1)
        state = state + self._out(silu(self._mix(both)))
        return state, torch.softmax(self._head(state).float(), -1)

    def __call__(
        self, hidden: torch.Tensor, texts: Sequence[Sequence[int]], k: int, generator: torch.Generator
    ) -> list[Proposals]:
        state, token = hidden, torch.tensor([text[-1] for text in texts])
        drawn, shares = [], []
        for _ in range(k):
            state, q = self.step(state, token)
            token = self.words[torch.multinomial(q, 1, generator=generator)[:, 0]]
            drawn.append(token.tolist())
            shares.append(q)
        return [
            Proposals([each[row] for each in drawn], [(self.words, each[row]) for each in shares])
            for row in range(len(texts))
        ]


@dataclass(slots=True)
class Decoded:
    """texts: prompts and what was drawn behind them. right: of each text, how many of the k proposals each pass kept."""

    texts: list[list[int]]
    passes: int
    drawn: int
    k: int
    right: list[list[int]]

    @property
    def kept(self) -> list[tuple[int, int]]:
        """At each draft position, how often a proposal was checked there, and kept."""
        counts = [count for own in self.right for count in own]
        return [(sum(each >= j for each in counts), sum(each > j for each in counts)) for j in range(self.k)]


@torch.inference_mode()
def decode(
    model: InProcessModel,
    step: CheckingStep,
    prompts: Sequence[Tokens],
    k: int,
    drafts: Drafts | None,
    passes: int,
    seed: int,
) -> Decoded:
    """So many passes over all prompts together, at temperature 1, with k proposals each."""
    generator = torch.Generator().manual_seed(seed)
    hidden, kept = read(model, list(prompts))
    rows = torch.arange(len(prompts))
    last = hidden[rows, kept.lengths - 1]
    first = torch.multinomial(torch.softmax(step.head(last).float(), -1), 1, generator=generator)[:, 0].tolist()
    texts = [[*prompt, token] for prompt, token in zip(prompts, first, strict=True)]
    counts: list[list[int]] = [[] for _ in prompts]
    for _ in range(passes):
        proposals = [Proposals((), ())] * len(texts) if drafts is None else drafts(last, texts, k, generator)
        tokens = torch.tensor([[text[-1], *own.tokens] for text, own in zip(texts, proposals, strict=True)])
        hidden = step.check(tokens, kept)
        p = torch.softmax(step.head(hidden.flatten(0, 1)).float(), -1).view(*tokens.shape, -1)
        uniforms = torch.rand(len(texts), k + 1, generator=generator, dtype=torch.float64).tolist()
        for row, own in enumerate(proposals):
            count, token = settled(p[row], own, uniforms[row])
            counts[row].append(count)
            texts[row] += [*own.tokens[:count], token]
        stays = torch.tensor([own[-1] for own in counts])
        kept.lengths = kept.lengths - (k - stays)
        last = hidden[rows, stays]
    drawn = sum(map(len, texts)) - sum(map(len, prompts)) - len(texts)
    return Decoded(texts, passes, drawn, k, counts)
