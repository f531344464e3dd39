// The official client for JavaScript calls tools of our server as tasks, and prints the messages that it gets.
import { pathToFileURL } from "node:url";

const [sdk, ...command] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(`${sdk}/dist/esm/${path}.js`));
const { Client } = await load("client/index");
const { StdioClientTransport } = await load("client/stdio");
const { ElicitRequestSchema } = await load("types");

const capabilities = { elicitation: {} };
const client = new Client({ name: "task client", version: "1" }, { capabilities });
client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: { approve: true } }));
await client.connect(new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env }));

const calls = { add: { a: 17, b: 25 }, wipe: { path: "/tmp/a" }, fail: {} };
for (const [name, args] of Object.entries(calls)) {
  for await (const message of client.experimental.tasks.callToolStream({ name, arguments: args }, undefined, { task: {} })) {
    const text = message.result?.content[0].text ?? message.error?.message ?? message.task?.status;
    console.log(JSON.stringify([name, message.type, text]));
  }
}
const hanging = client.experimental.tasks.callToolStream({ name: "hang", arguments: {} }, undefined, { task: {} });
const { value } = await hanging.next();
await client.experimental.tasks.cancelTask(value.task.taskId);
console.log(JSON.stringify(["hang", "cancelled", (await client.experimental.tasks.getTask(value.task.taskId)).status]));
await client.close();
