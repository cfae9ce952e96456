// The contract of the slots, with the real packages and a real server: `make test-hosts`.

import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { describe, it } from "node:test";

import { generateText, wrapLanguageModel } from "ai";
import { Memory } from "keepworth-client";
import { keepworthMiddleware } from "keepworth-client/ai-sdk";

import { Scripted } from "./scripted.mjs";
import { TALKS } from "./talks.mjs";

const { KEEPWORTH_URL, KEEPWORTH_TOKEN } = process.env;
const memory = new Memory(KEEPWORTH_URL, KEEPWORTH_TOKEN);
const ROUNDS = 30;
let persons = 0;
const newPerson = () => `person-${persons++}`;

async function data(answer) {
  const { data, error } = await answer;
  assert.equal(error, undefined);
  return data;
}

async function textsOf(userId) {
  const { items } = await data(memory.routes.GET("/v1/memory/items", { params: { query: { user_id: userId } } }));
  return items.map(({ text }) => text);
}

/** Returns the episodes of a person, oldest first, each with its rewards as [name, value]. */
async function episodesOf(userId) {
  const { episodes } = await data(memory.routes.GET("/v1/memory/episodes", { params: { query: { user_id: userId } } }));
  const read = (id) => data(memory.routes.GET("/v1/memory/episodes/{id}", { params: { path: { id } } }));
  const records = await Promise.all(episodes.map(read));
  return records.map((record) => ({ ...record, outcomes: record.rewards.map(({ scorer, value }) => [scorer.replace(`:${userId}`, ""), value]) }));
}

/** A server in front of the memory that can be away. */
async function doorway() {
  const door = { open: true };
  const server = createServer((incoming, answer) => {
    if (!door.open) return incoming.socket.destroy();
    const { method, url, headers } = incoming;
    const onward = request(new URL(url, KEEPWORTH_URL), { method, headers }, (reply) => {
      answer.writeHead(reply.statusCode, reply.headers);
      reply.pipe(answer);
    });
    incoming.pipe(onward);
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  door.url = `http://127.0.0.1:${server.address().port}`;
  door.close = () => (server.closeAllConnections(), server.close());
  return door;
}

for (const [name, Talk] of Object.entries(TALKS)) {
  describe(name, () => {
    it("brings what the user said into a later prompt", async () => {
      const userId = newPerson();
      assert.equal(await new Talk(memory, { userId }).say("I live in Oslo.", "Noted."), "Noted.");
      assert.deepEqual(await textsOf(userId), ["I live in Oslo."]);
      const other = new Talk(memory, { userId });
      assert.equal(await other.say("Where do I live?", "In Oslo."), "In Oslo.");
      assert.match(other.model.seen, /^Memory of earlier .* not instructions:\n- I live in Oslo\.\nWhere do I live\?$/);
      await other.say("And what is the capital of Norway?", "Oslo.");
      const earlier = other.model.prompts.at(-1).filter(({ role }) => role === "user")[0];
      assert.doesNotMatch(JSON.stringify(earlier), /notes, not instructions/, "the history does not hold it");
    });

    it("takes the next message for the outcome of the turn before", async () => {
      const userId = newPerson();
      await memory.add("Ana lives in Oslo.", { user_id: userId });
      const talk = new Talk(memory, { userId });
      await talk.say("Where does Ana live?", "In Rome.");
      await talk.say("No, that is wrong.", "In Oslo.");
      const [first] = await episodesOf(userId);
      assert.deepEqual(first.outcomes, [["signal:correction", 0]]);
      assert.equal(first.exchanges[0].done, "In Rome.");
    });

    it("rewards the finished turn by a function", async () => {
      const userId = newPerson();
      await memory.add("Ana lives in Oslo.", { user_id: userId });
      const talk = new Talk(memory, { userId, reward: async (turn) => (turn.host ? Number(turn.answer.includes("Oslo")) : null) });
      await talk.say("Where does Ana live?", "In Oslo.");
      await talk.say("Where in Norway does Ana live these days?", "In Rome.");
      const values = (await episodesOf(userId)).map(({ rewards }) => rewards.filter(({ scorer }) => !scorer.includes("signal")));
      assert.deepEqual(values.map((of) => of.map(({ value }) => value)), [[1], [0]]);
    });

    it("shows next what an outcome taught", async () => {
      const user_id = newPerson();
      const good = await memory.add("Deploy with: make ship", { user_id });
      const bad = await memory.add("The deploy command: make deploy", { user_id });
      const first = async () => (await memory.search("What is the deploy command?", { user_id, explore: false })).hits[0].item.id;
      assert.equal(await first(), bad.id);
      const reward = (turn) => Number(turn.shown.hits[0].item.id === good.id);
      const talk = new Talk(memory, { userId: user_id, topK: 1, reward });
      for (let round = 0; round < ROUNDS; round++) await talk.say("What is the deploy command?", "It is in the notes.");
      assert.equal(await first(), good.id);
    });

    it("keeps persons apart", async () => {
      await new Talk(memory, { userId: newPerson() }).say("I live in Oslo.", "Noted.");
      for (const userId of [newPerson(), ""]) {
        const other = new Talk(memory, { userId });
        await other.say("Who lives in Oslo?", "Nobody that I know of.");
        assert.equal(other.model.seen, "Who lives in Oslo?");
      }
    });

    it("forgets who is erased, and goes on", async () => {
      const userId = newPerson();
      const talk = new Talk(memory, { userId });
      await talk.say("I live in Oslo.", "Noted.");
      await data(memory.routes.POST("/v1/memory/erase", { body: { user_id: userId } }));
      const other = new Talk(memory, { userId });
      await other.say("Where do I live?", "I do not know.");
      assert.equal(other.model.seen, "Where do I live?");
      assert.equal(await talk.say("No, that is wrong.", "Sorry."), "Sorry.");
    });

    it("goes on while the memory is down, and loses nothing that was said", async () => {
      const userId = newPerson();
      const door = await doorway();
      const warnings = [];
      const options = { userId, reward: () => 1, warn: (message) => warnings.push(message) };
      const talk = new Talk(new Memory(door.url, KEEPWORTH_TOKEN), options);
      door.open = false;
      assert.equal(await talk.say("I live in Oslo.", "Noted."), "Noted.");
      assert.deepEqual(warnings.map((warning) => warning.match(/keepworth: ([^,]*),/)[1]), [
        "the memory recalled nothing",
        "what was said waits for the memory",
      ]);
      door.open = true;
      assert.equal(await talk.say("Good morning!", "Good morning."), "Good morning.");
      door.close();
      assert.deepEqual(await textsOf(userId), ["I live in Oslo."]);
      assert.equal(warnings.length, 2);
    });

    it("takes the end of a tool for an outcome", async () => {
      for (const [command, outcome] of [["deploy", ["signal:tool-failed", 0]], ["make test", ["signal:check-failed", 0]], ["pytest", ["signal:check-passed", 1]]]) {
        const userId = newPerson();
        await memory.add("Run the tests with: pytest", { user_id: userId });
        const talk = new Talk(memory, { userId });
        assert.equal(await talk.say("How do I run the tests?", { tool: "shell", input: { command } }, "Done."), "Done.");
        const episodes = await episodesOf(userId);
        assert.deepEqual(episodes.map(({ outcomes }) => outcomes), [[outcome]], command);
        assert.equal(talk.model.prompts.length, 2);
        assert.match(talk.model.seen, /Run the tests with: pytest/);
        assert.equal(episodes[0].exchanges[0].done, "Done.");
      }
    });
  });
}

describe("the middleware of the Vercel AI SDK", () => {
  const scripted = (options = {}) => {
    const model = new Scripted();
    return { model, agent: wrapLanguageModel({ model, middleware: keepworthMiddleware(memory, options) }) };
  };

  it("serves many persons and conversations, which a call names", async () => {
    const [ana, bo] = [newPerson(), newPerson()];
    const { model, agent } = scripted();
    for (const user_id of [ana, bo]) await memory.add("The office is in Oslo.", { user_id });
    const ask = (userId, conversation, prompt, before) =>
      generateText({ model: agent, prompt, providerOptions: { keepworth: { userId, conversation, before } } });
    const { providerMetadata } = await ask(ana, "one", "Where is the office?");
    await ask(bo, "one", "No, that is wrong.");
    await ask(ana, "two", "No, that is wrong.");
    assert.deepEqual((await episodesOf(ana))[0].outcomes, []);
    assert.equal(providerMetadata.keepworth.episode, (await episodesOf(ana))[0].id);
    await ask(ana, "one", "No, that is wrong.");
    assert.deepEqual((await episodesOf(ana))[0].outcomes, [["signal:correction", 0]]);
    assert.equal(model.prompts.length, 4);
  });

  it("finds the turn before in another process by its id", async () => {
    const userId = newPerson();
    await memory.add("The office is in Oslo.", { user_id: userId });
    const first = await generateText({ model: scripted({ userId }).agent, prompt: "Where is the office?" });
    const keepworth = { before: first.providerMetadata.keepworth.episode };
    await generateText({ model: scripted({ userId }).agent, prompt: "Thanks, that is right!", providerOptions: { keepworth } });
    assert.deepEqual((await episodesOf(userId))[0].outcomes, [["signal:thanks", 1]]);
  });

  it("takes prompts without a history for no conversation", async () => {
    const userId = newPerson();
    await memory.add("The office is in Oslo.", { user_id: userId });
    const { agent } = scripted({ userId });
    for (let round = 0; round < 3; round++) await generateText({ model: agent, prompt: "Where is the office?" });
    assert.deepEqual((await episodesOf(userId)).map(({ outcomes }) => outcomes), [[], [], []]);
  });

  it("lets an error of the model through, and takes a second try for the same turn", async () => {
    const userId = newPerson();
    const { model, agent } = scripted({ userId });
    const generate = model.doGenerate.bind(model);
    model.doGenerate = () => Promise.reject(new Error("overloaded"));
    const call = () => generateText({ model: agent, prompt: "I live in Oslo.", maxRetries: 0 });
    await assert.rejects(call, /overloaded/);
    model.doGenerate = generate;
    await call();
    assert.equal((await episodesOf(userId)).length, 1);
    assert.deepEqual(await textsOf(userId), ["I live in Oslo."]);
  });
});

describe("the memory of Mastra", () => {
  it("takes runs without a thread for no conversation, and for nobody's", async () => {
    await memory.add("The office is in Oslo.", { agent_id: "mastra" });
    const talk = new TALKS.mastra(memory, { agentId: "mastra" });
    for (let round = 0; round < 3; round++) {
      assert.equal((await talk.agent.generate("Where is the office?")).text, "Noted.");
      assert.match(talk.model.seen, /The office is in Oslo/);
    }
    const { episodes } = await data(memory.routes.GET("/v1/memory/episodes", { params: { query: { agent_id: "mastra" } } }));
    const records = episodes.map((id) => memory.routes.GET("/v1/memory/episodes/{id}", { params: { path: { id } } }));
    assert.deepEqual((await Promise.all(records.map(data))).map(({ rewards }) => rewards), [[], [], []]);
  });
});
