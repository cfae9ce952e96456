"""What the next message of a user says of the answer before it: thanks, corrections and repetitions in free words."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from keepworth.memory.signals import read_reply

MESSAGES = Path(__file__).parent / "signals" / "messages_dev.json"


@pytest.mark.parametrize(
    ("before", "message", "signal"),
    [
        ("how do I restart the worker", "it hangs on every restart now", "correction"),
        ("how do I restart the worker", "there is no such service on our machines", "correction"),
        ("rename the field to owner", "you renamed the wrong field", "correction"),
        ("how do I restart the worker", "that command was removed in version 5", "correction"),
        ("how do I restart the worker", "like a charm, you saved my day", "thanks"),
        ("how do I restart the worker", "up and running again, much obliged", "thanks"),
        ("how do I restart the worker of queue 7", "Once more: restart the worker", "repetition"),
        ("how do I restart the worker", "My question was how I restart the worker.", "repetition"),
        ("how do I restart the worker", "how do I restart the database", ""),
        ("how do I restart the worker", "and how long does a restart of the worker take?", ""),
        ("write a poem about the sea", "my sister hates the sea, so rather the woods", ""),
        ("wie starte ich den Dienst neu", "diesen Befehl gibt es nicht mehr", "correction"),
        ("wie starte ich den Dienst neu", "hat wunderbar geklappt", "thanks"),
        ("comment relancer le service", "je répète : comment relancer le service ?", "repetition"),
        ("как перезапустить сервис", "такой команды больше нет", "correction"),
        ("怎么重启服务", "再问一遍，怎么重启服务", "repetition"),
        ("サービスの再起動", "無事に動きました、助かりました", "thanks"),
    ],
)
def test_free_words_of_a_reply_are_read(before: str, message: str, signal: str) -> None:
    assert read_reply(message, before).replace("new-subject", "") == signal


def test_labelled_messages_are_read_precisely_and_most_are_recognised() -> None:
    rows = json.loads(MESSAGES.read_text(encoding="utf-8"))
    called = [read_reply(row["message"], row["before"]).replace("new-subject", "") or "none" for row in rows]
    pairs = Counter((name, row["label"]) for name, row in zip(called, rows, strict=True))
    for signal in ("thanks", "correction", "repetition"):
        right = pairs[signal, signal]
        assert right >= 0.9 * sum(count for (name, _), count in pairs.items() if name == signal), signal
        assert right >= 0.7 * sum(count for (_, label), count in pairs.items() if label == signal), signal
    silent = [count for (_, label), count in pairs.items() if label == "none"]
    assert sum(silent) - pairs["none", "none"] <= 0.04 * sum(silent)


def test_a_long_reply_takes_a_few_milliseconds() -> None:
    read_reply("thanks", "build it")
    start = time.process_time()
    for _ in range(10):
        read_reply("The page shows the old name. " * 2_000, "rename the page " * 2_000)
    assert time.process_time() - start < 1.0
