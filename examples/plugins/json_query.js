#!/usr/bin/env node
// A plugin with one tool, `json_query`: takes a value out of JSON by a dotted path. It needs nothing but Node.
"use strict";

const readline = require("node:readline");

const definition = {
  name: "json_query",
  description: "Take a value out of a JSON text by a path such as 'users.0.name'; '*' stands for every item.",
  parameters: {
    type: "object",
    properties: {
      json: { type: "string", description: "The JSON text" },
      path: { type: "string", description: "The path; empty means the whole" },
    },
    required: ["json", "path"],
  },
};

function query(value, keys) {
  if (keys.length === 0) return value;
  const [key, ...rest] = keys;
  if (value === null || typeof value !== "object") throw new Error(`there is nothing inside of it at '${key}'`);
  if (key === "*") return Object.values(value).map((item) => query(item, rest));
  if (!Object.hasOwn(value, key)) throw new Error(`'${key}' is not there; there are: ${Object.keys(value).join(", ")}`);
  return query(value[key], rest);
}

function answer(params) {
  try {
    const found = query(JSON.parse(params.json), params.path.split(".").filter((key) => key !== ""));
    return { content: [{ type: "text", text: JSON.stringify(found) }], error: false };
  } catch (problem) {
    return { content: [{ type: "text", text: `Error: ${problem.message}` }], error: true };
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = JSON.parse(line);
  if (request.type === "describe") console.log(JSON.stringify(definition));
  if (request.type === "call") console.log(JSON.stringify(answer(request.params)));
});
