from __future__ import annotations

import pytest

from keepworth.methods.writers._importance import FEATURES, hand_features


def test_hand_features_of_a_statement() -> None:
    found = dict(zip(FEATURES, hand_features('I bought "Dune" for $12 from my sister Nora last week.'), strict=True))
    assert found["digits"] == 1.0  # two digits
    assert found["names"] == pytest.approx(1 / 3)  # Nora; "Dune" begins with its quotation mark
    assert [found[name] for name in ("quoted", "money", "times", "kin", "done", "my")] == [1.0] * 6
    assert [found[name] for name in ("wanting", "starts with I am", "numbers in words")] == [0.0] * 3
    assert found["words"] == pytest.approx(11 / 20)
