// npm install && node example.mjs URL TOKEN (also from a project that has the package)
import { Keepworth } from "keepworth";

const [url, token] = process.argv.slice(2);
const memory = new Keepworth(url, token);
const { items } = await memory.addItems({ content: "Ana is allergic to peanuts", user_id: "ana" });
const episode = await memory.beginEpisode({ task: "plan dinner", user_id: "ana" });
const found = await memory.episodeSearch(episode.id, { query: "what she must not eat", top_k: 3 });
await memory.episodeReward(episode.id, { value: 1 });
const { items: listed } = await memory.listItems({ user_id: "ana" });
const refused = await memory.getItem("m999").catch(error => ({ status: error.status, fix: error.fix }));
console.log(JSON.stringify({ added: items[0].id, found: found.hits[0].item.text, listed: listed.length, refused }));
