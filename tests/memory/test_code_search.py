"""A search by words and meaning together finds functions no worse than either of the two."""

from __future__ import annotations

import pytest

from keepworth.memory.memory import Memory

FUNCTIONS = {
    "Remove entries that have not been read since a given moment.": """def evict(self, moment):
    stale = [key for key, seen in self._seen.items() if seen < moment]
    for key in stale:
        del self._seen[key], self._rows[key]
    return len(stale)""",
    "Wait longer after every failure before trying again.": """def pause(attempt, base=0.5, ceiling=60.0):
    delay = min(ceiling, base * 2**attempt)
    time.sleep(delay * random.uniform(0.5, 1.0))""",
    "Split a sequence into pieces of equal size.": """def batched(sequence, size):
    it = iter(sequence)
    while chunk := list(islice(it, size)):
        yield chunk""",
    "Check that a password matches what was stored.": """def verify(plain, digest, salt):
    made = hashlib.scrypt(plain.encode(), salt=salt, n=2**14, r=8, p=1)
    return hmac.compare_digest(made, digest)""",
    "Read settings from the environment.": """def from_env(cls, prefix="APP_"):
    names = {f.name: prefix + f.name.upper() for f in fields(cls)}
    return cls(**{k: os.environ[v] for k, v in names.items() if v in os.environ})""",
    "Draw a bar for how much of the work is done.": """def render(self, width=40):
    full = int(width * self.done / self.total)
    print("\\r[" + "#" * full + " " * (width - full) + "]", end="", flush=True)""",
    "Turn a title into the last part of an address.": """def slug(title):
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")""",
    "Find out which of two releases is newer.": """def compare(release, other):
    left, right = (tuple(map(int, v.split("."))) for v in (release, other))
    return (left > right) - (left < right)""",
    "Make sure that only one process writes the file.": """def lock(path):
    handle = open(f"{path}.lock", "w")
    fcntl.flock(handle, fcntl.LOCK_EX)
    return handle""",
    "Count how often each word occurs.": """def tally(text):
    out = {}
    for token in text.lower().split():
        out[token] = out.get(token, 0) + 1
    return out""",
    "Give the middle value of a list of numbers.": """def median(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2""",
    "Send a notification to everybody who subscribed.": """def publish(self, event):
    for callback in list(self._listeners):
        try:
            callback(event)
        except Exception:
            log.exception("listener %r", callback)""",
}
OTHERS = (
    "def describe(function):\n    return inspect.getdoc(function) or 'no description'",
    "def timed(function):\n    def wrapper(*args):\n        began = perf_counter()\n        try:\n"
    "            return function(*args)\n        finally:\n            print(perf_counter() - began)\n    return wrapper",
    "def after(self, seconds, callback):\n    heapq.heappush(self._timers, (monotonic() + seconds, callback))",
    "def area(self):\n    return sum(piece.width * piece.height for piece in self.pieces)",
    "def close(self):\n    self._socket.shutdown(SHUT_RDWR)\n    self._socket.close()",
    "def to_html(self):\n    return f'<a href=\"{escape(self.address)}\">{escape(self.title)}</a>'",
    "def rows(self, where):\n    return self._db.execute('SELECT * FROM notes WHERE ' + where).fetchall()",
    "def copy(self):\n    return type(self)(**vars(self))",
)
FORMS = ("Which function does this: {}", "Where is the function for this? {}", "{}")


def gains(memory: Memory, answers: list[tuple[str, str]]) -> dict[str, float]:
    """Return for each mode the sum of the reciprocal ranks of what answers."""
    sums = dict.fromkeys(("hybrid", "lexical", "dense"), 0.0)
    for question, answer in answers:
        for mode in sums:
            texts = [hit.text for hit in memory.search(question, top_k=40, mode=mode)]
            sums[mode] += 1.0 / (1 + texts.index(answer)) if answer in texts else 0.0
    return sums


@pytest.mark.model
def test_hybrid_search_of_code_is_no_worse_than_either_part():
    memory = Memory(":memory:", policy=None)
    memory.add_many([*FUNCTIONS.values(), *OTHERS])
    sums = gains(memory, [(form.format(sentence), code) for form in FORMS for sentence, code in FUNCTIONS.items()])
    assert sums["hybrid"] >= max(sums["lexical"], sums["dense"])
