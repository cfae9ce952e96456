/** What slots read and write in the prompt of a model, whose form is that of the Vercel AI SDK from version 5 on. */

/** The most characters of the first message by which a conversation is known. */
const LONGEST_NAME = 2000;

interface Part {
  type: string;
  text?: unknown;
  toolCallId?: string;
  input?: unknown;
  output?: { type?: string; value?: unknown };
}

export interface Message {
  role: string;
  content: string | Part[];
}

/** How a call of a tool ended: whether it failed, the command line if it is a shell, and what it printed. */
export interface ToolEnd {
  id: string;
  failed: boolean;
  command: string;
  output: string;
}

/** Returns where the user's newest message with words stands, and what it says. */
export function newestMessage(prompt: Message[]): { at: number; words: string } | undefined {
  for (let at = prompt.length - 1; at >= 0; at--) {
    const words = prompt[at].role === "user" ? wordsOf(prompt[at]) : "";
    if (words) return { at, words };
  }
  return undefined;
}

/** Returns a prompt with notes before the words of one of its messages. */
export function withNotes<Prompt extends Message[]>(prompt: Prompt, at: number, notes: string): Prompt {
  const block: Part = { type: "text", text: notes };
  return prompt.map((message, place) => (place === at ? { ...message, content: [block, ...partsOf(message)] } : message)) as Prompt;
}

/** Returns where a turn stands that has no name: its conversation is known by the first message. */
export function placeIn(prompt: Message[], at: number): { conversation: string; fresh: boolean } {
  const first = prompt.findIndex(({ role }) => role === "user");
  return { conversation: wordsOf(prompt[first]).slice(0, LONGEST_NAME), fresh: first === at };
}

/** Returns how the tools ended whose results stand behind a message. */
export function toolEnds(prompt: Message[], at: number): ToolEnd[] {
  const commands = new Map<string, string>();
  const ends: ToolEnd[] = [];
  for (const part of prompt.slice(at + 1).flatMap(partsOf)) {
    const id = part.toolCallId ?? "";
    if (part.type === "tool-call") {
      const { command } = (part.input ?? {}) as { command?: unknown };
      if (typeof command === "string") commands.set(id, command);
    } else if (part.type === "tool-result" && part.output?.type !== "execution-denied") {
      const { type = "", value } = part.output ?? {};
      const output = typeof value === "string" ? value : JSON.stringify(value ?? "");
      ends.push({ id, failed: type.startsWith("error") || exitCode(value) !== 0, command: commands.get(id) ?? "", output });
    }
  }
  return ends;
}

/** Returns what a shell that is a tool says of its end; 0 for other tools. */
function exitCode(value: unknown): number {
  const { exitCode = 0, exit_code = exitCode } = (value ?? {}) as { exitCode?: unknown; exit_code?: unknown };
  return typeof exit_code === "number" ? exit_code : 0;
}

function partsOf(message: Message): Part[] {
  return typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
}

/** Returns what a message says. */
function wordsOf(message: Message): string {
  const texts = partsOf(message).filter((part) => part.type === "text" && typeof part.text === "string");
  return texts.map((part) => part.text).join("\n").trim();
}
