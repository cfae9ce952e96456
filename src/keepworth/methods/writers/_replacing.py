"""Decides by rules on claims whether a statement replaces an older one: where the newer one has another value of a single-valued
attribute, says the opposite, or calls the older one over or replaced. In doubt both stay, since a superfluous fact costs less
than a lost one. What is told in freer words is found by `memory.replaced_statements`.
"""

from __future__ import annotations

from collections.abc import Sequence

from keepworth.memory.patterns import read_english, read_words
from keepworth.methods.writers._claims import USER, Claim, stems


def asked_for(claim: Claim) -> list[str]:
    """Returns searches that find the statements which `claim` may replace."""
    about = "" if claim.about == USER else f"{claim.about} "
    more = read_english()["texts"]["expansions"].get(claim.attribute, claim.attribute.removeprefix("to "))
    wanted = [claim.text, f"{about}{more}".strip()]
    if claim.instead:
        wanted.append(f"{about}{claim.instead}")
    return [search for search in dict.fromkeys(wanted) if search.strip()]


def gives_way(old: Claim, new: Claim) -> bool:
    """Returns whether `new` makes the earlier statement `old` untrue. An equal text does not."""
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
        gone = stems(new.instead) - read_words("points")
        context = (whole_old & whole_new) - gone
        if gone and gone <= whole_old and not old.over and (same or context or 2 * len(gone) >= len(whole_old)):
            return True
    if same and old.over and not new.denies:
        return new.single or alike
    if same and alike:
        return old.denies != new.denies
    if same and new.single and not new.denies:
        return not old.denies and bool(theirs and ours)
    return False


def taken_over(new: Claim, earlier: Sequence[Sequence[Claim]]) -> list[int]:
    """Returns the positions of the items that `new` replaces: an item of several statements only if all of them give way."""
    return [index for index, olds in enumerate(earlier) if olds and all(gives_way(old, new) for old in olds)]
