// A page over Vercel's `useChat`: it shows the parts of messages, answers approvals, and runs one tool itself.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from "ai";
import { createElement as make, useState } from "react";
import { createRoot } from "react-dom/client";

function Part({ part, answer }) {
  if (part.type === "text") return make("p", { className: "text" }, part.text);
  if (part.type === "reasoning") return make("p", { className: "reasoning" }, part.text);
  if (part.type.startsWith("data-")) return make("p", { className: part.type }, JSON.stringify(part.data));
  if (!part.type.startsWith("tool-")) return null;
  const shown = `${part.type} ${JSON.stringify(part.input)} ${part.state} ${JSON.stringify(part.output ?? part.errorText ?? "")}`;
  const buttons = part.state === "approval-requested"
    ? [true, false].map((approved) =>
        make("button", { key: approved, onClick: () => answer({ id: part.approval.id, approved }) }, approved ? "approve" : "deny"))
    : [];
  return make("div", { className: "call" }, shown, ...buttons);
}

function Chat() {
  const [text, setText] = useState("");
  const { messages, sendMessage, addToolApprovalResponse, addToolOutput, stop, status, error, resumeStream } = useChat({
    id: "t",
    resume: true,
    transport: new DefaultChatTransport({ api: "/chat" }),
    sendAutomaticallyWhen: (options) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(options) || lastAssistantMessageIsCompleteWithToolCalls(options),
    onToolCall: ({ toolCall }) => {
      if (toolCall.toolName === "locate") {
        void addToolOutput({ tool: "locate", toolCallId: toolCall.toolCallId, output: { city: "Rome" } });
      }
    },
  });
  window.chat = { stop, resumeStream };
  const submit = (event) => {
    event.preventDefault();
    void sendMessage({ text });
    setText("");
  };
  return make("main", null,
    ...messages.map((message) =>
      make("section", { key: message.id, className: message.role },
        ...message.parts.map((part, place) => make(Part, { key: place, part, answer: addToolApprovalResponse })))),
    make("form", { onSubmit: submit }, make("input", { value: text, onChange: (event) => setText(event.target.value) })),
    make("output", null, status), make("pre", null, error ? error.message : ""));
}

createRoot(document.getElementById("root")).render(make(Chat));
