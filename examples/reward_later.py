"""The reward comes days later, from another process: keep the episode's id, and send the reward when it is known."""

from keepworth import Memory

# Today: the agent answers a customer. Nobody knows yet whether the answer helped.
with Memory("support.mem", encoder="hashing") as memory:
    memory.add("Refunds for orders over 50 euro need form A")
    with memory.episode("a refund of 80 euro") as episode:
        hits = episode.search("how do I refund 80 euro?", top_k=1)
        episode.act("sent form A")
        case = episode.id  # store it with the customer's case

# On Friday: the case is closed, and the customer was content.
with Memory("support.mem", encoder="hashing") as memory:
    print("waiting for a reward:", memory.pending() == [case])
    memory.reward(case, 1.0, by="customer")
    print("waiting for a reward:", memory.pending() == [case])
    print("mean reward of the item shown:", memory.get(hits[0].id).values.mean)
