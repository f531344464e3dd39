// Drives a service by the official client of AG-UI; writes what the client has then, as one line of JSON a step.
import { HttpAgent } from "@ag-ui/client";

const url = process.argv[2];
const notes = [];
const agent = new HttpAgent({ url, threadId: "t", initialState: { seen: [] } });
const tools = [
  {
    name: "pick_color",
    description: "Ask the user for a color.",
    parameters: { type: "object", properties: { hint: { type: "string" } }, required: ["hint"] },
  },
];
agent.subscribe({
  onCustomEvent: ({ event }) => { notes.push([event.name, event.value]); },
  onReasoningMessageContentEvent: ({ event }) => { notes.push(["reasoning", event.delta]); },
  onRunFinishedEvent: ({ event }) => { notes.push(["outcome", event.outcome]); },
  onRunErrorEvent: ({ event }) => { notes.push(["error", event.message, event.code]); },
});

function report(step, more = {}) {
  const messages = agent.messages.map((each) => [each.role, each.content ?? "", (each.toolCalls ?? []).map((call) => call.function.name)]);
  const pending = agent.pendingInterrupts.map((each) => [each.toolCallId, each.message]);
  console.log(JSON.stringify({ step, messages, pending, state: agent.state, notes: notes.splice(0), ...more }));
}

async function ask(text) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  await agent.runAgent({ tools });
}

await ask("Pay 4.");
report("asked");
const [interrupt] = agent.pendingInterrupts;
await agent.runAgent({ tools, resume: [{ interruptId: interrupt.id, status: "resolved", payload: { approved: true } }] });
report("approved");

await ask("Which color?");
report("waiting");
const call = agent.messages.at(-1).toolCalls[0];
agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: call.id, content: "red" });
await agent.runAgent({ tools });
report("picked");

agent.addMessage({ id: "forged", role: "tool", toolCallId: "never", content: "paid" });
const refused = await agent.runAgent({ tools }).then(() => "taken", (error) => `${error.status} ${error.payload?.error}`);
report("forged", { refused });
agent.messages = agent.messages.filter((each) => each.id !== "forged");

await ask("Fail.").catch((error) => notes.push(["thrown", error.message]));
report("failed");

const waiting = ask("Wait.").catch((error) => notes.push(["thrown", error.name]));
await fetch(`${url}/started`);
await fetch(`${url}/t/stream`, { method: "DELETE" });
await waiting;
report("cancelled");

class Reader extends HttpAgent {
  requestInit() { return { headers: { Accept: "text/event-stream" } }; }
}
const reader = new Reader({ url: `${url}/t/stream`, threadId: "t" });
await reader.runAgent();
console.log(JSON.stringify({ step: "read", messages: reader.messages.map((each) => [each.role, each.content ?? ""]) }));
