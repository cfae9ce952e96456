"""Several tasks at once on one memory, with `await`."""

import asyncio

from keepworth import AsyncMemory


async def booked(memory: AsyncMemory, city: str) -> str:
    async with memory.episode(f"book a hotel in {city}", user_id="ana") as episode:
        hits = await episode.search("what kind of room does Ana like?", top_k=1)
        await episode.reward(1.0)  # the booking went through
    return f"{city}: {hits[0].text}"


async def main() -> None:
    async with AsyncMemory("async.mem", encoder="hashing") as memory:
        await memory.add("Ana likes a quiet room", user_id="ana")
        print(*await asyncio.gather(*(booked(memory, city) for city in ("Oslo", "Rome", "Lima"))), sep="\n")
        item = (await memory.get_all(user_id="ana"))[0]
        print("mean reward with it:", item.values.mean)


asyncio.run(main())
