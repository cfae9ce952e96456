"""A writer of your own: which facts a conversation leaves behind. Here one line of code that keeps what names a date."""

import re

from keepworth import Facts, Memory

MONTH = re.compile(r"\b(January|February|March|April|May|June|July|August|September|October|November|December)\b")


def dated(messages):
    """Sentences that name a month. Put a model in its place: any function from messages to texts will do."""
    sentences = (part.strip() for message in messages for part in re.split(r"(?<=[.!?])\s+", message["content"]))
    return [sentence for sentence in sentences if MONTH.search(sentence)]


memory = Memory("diary.mem", encoder="hashing", writer=Facts(dated))
said = "Hello! My exam is on 3 March. I like tea. The visa ends in August."
memory.add([{"role": "user", "content": said}], infer=True, user_id="ana")
print("kept:", [item.text for item in memory.get_all(user_id="ana")])
