"""Ten lines: remember, search, say whether it helped, and see the next search get better."""

from keepworth import Memory

memory = Memory("agent.mem", encoder="hashing")  # leave the encoder out for all-MiniLM-L6-v2
memory.add_many(["To reset the router hold the button.", "To reset the router pull the plug."])
for _ in range(40):
    hits = memory.search("how do I reset the router", top_k=1)
    memory.reward(hits.decision, 1.0 if "plug" in hits.text else 0.0)  # here: only the plug works
print("shown first:", memory.search("how do I reset the router", top_k=1)[0].text)
