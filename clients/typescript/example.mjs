// node example.mjs URL TOKEN: remembers, finds, rewards, and shows an error of the server.
import { Memory, MemoryError } from "./dist/index.js";

const memory = new Memory(process.argv[2], process.argv[3]);
await memory.add("To reset the router hold the button.", { user_id: "ana" });
await memory.add("To reset the router pull the plug.", { user_id: "ana" });
for (let round = 0; round < 10; round++) {
  const found = await memory.search("how do I reset the router", { user_id: "ana", top_k: 1 });
  await memory.reward(found.decision, found.hits[0].item.text.includes("button") ? 1 : 0);
}
const episode = await memory.episode("reset the router", { user_id: "ana" });
const found = await episode.search("how do I reset the router", { top_k: 1 });
await episode.act("held the button");
await episode.reward(1);
await episode.end();
console.log(found.text);
try {
  await memory.get("m999");
} catch (error) {
  console.log(error instanceof MemoryError, error.status, error.message);
}
