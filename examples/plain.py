"""Ten lines: remember, search, say whether it helped, and see the next search get better."""

from keepworth import Memory, policy

tries = policy(
    "default", withhold=0.1
)  # leave an item out in 10 % of the searches, to see what it is worth; usual is 1 %
memory = Memory("plain.mem", encoder="hashing", policy=tries, seed=1)  # without encoder: all-MiniLM-L6-v2
memory.add_many(["To reset the router hold the button.", "To reset the router pull the plug."])
for _ in range(100):
    hits = memory.search("how do I reset the router", top_k=1)
    memory.reward(hits.decision, 1.0 if "plug" in hits.text else 0.0)  # here: only the plug works
with memory.episode("look", explore=False) as look:  # this once, nothing is left out by chance
    print("shown first:", look.search("how do I reset the router", top_k=1)[0].text)
