// The lines of the pages are typed, and run: in the place of the provider stands a scripted model, and Mastra's threads are in this process.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { it } from "node:test";

const { KEEPWORTH_URL, KEEPWORTH_TOKEN, KEEPWORTH_PAGES } = process.env;
const TYPES = ["--noEmit", "--strict", "--skipLibCheck", "--allowJs", "--module", "nodenext", "--target", "es2022"];
const blocks = KEEPWORTH_PAGES.split(":").flatMap((page) =>
  [...readFileSync(page, "utf8").matchAll(/```ts\n(.*?)```/gs)].map(([, block]) =>
    block
      .replace("http://127.0.0.1:8000", KEEPWORTH_URL)
      .replace("kw_...", KEEPWORTH_TOKEN)
      .replace('"@ai-sdk/openai"', '"./scripted.mjs"')
      .replace('"openai/gpt-5-mini"', "openai()")
      .replace('import { LibSQLStore } from "@mastra/libsql"', 'import { InMemoryStore } from "@mastra/core/storage";\nimport { openai } from "./scripted.mjs"')
      .replace(/new LibSQLStore\(.*?\)/, "new InMemoryStore()"),
  ),
);

function write(name, text) {
  const file = join(import.meta.dirname, name);
  writeFileSync(file, text);
  return file;
}

it("types the lines of the pages, in each version of the SDK", () => {
  const versions = blocks.flatMap((block) => ["ai", "ai-6", "ai-5"].map((version) => block.replace('from "ai"', `from "${version}"`)));
  const files = [...new Set(versions)].map((text, number) => write(`typed-${number}.ts`, text));
  assert.equal(files.length, 5);
  execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", ...TYPES, ...files], { stdio: "inherit" });
});

it("runs the lines of the pages", () => {
  const printed = blocks.map((block, number) => {
    const file = write(`page-${number}.ts`, block);
    return execFileSync(process.execPath, ["--no-warnings", file], { encoding: "utf8" }).trim();
  });
  assert.deepEqual(printed, ["- Ana lives in Oslo.", "Noted.", "Noted.", "Noted.", "Noted."]);
});
